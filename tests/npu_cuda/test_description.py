"""Programs and graphs as text, JSON and drawings: names are escaped."""

from __future__ import annotations

from npu_cuda.description import draw_graph


def test_names_in_a_drawing_of_launches_are_escaped() -> None:
    drawn = draw_graph([{"op": 'a"b', "kernel_id": "k\\", "after": []}])

    assert r'n0 [label="0 a\"b\nk\\"];' in drawn
