"""Tables on a terminal: they fit it, no word is broken, and every number is whole."""

import contextlib
import io
import re
import sys
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from npu_ir.cli.console import (
    Table,
    fit_columns,
    print_diff,
    print_facts,
    print_report,
    print_table,
    shorten,
)
from tests.support.hostile_names import CONTROLS, HOSTILE
from tests.support.rows import each_row
from tests.support.tiers import examples

COLUMNS = ("value", "op", "type", "ULP", "abs", "noise floor", "")
ROWS = [
    ("%layers_0_self_attention_dropout_residual_add_17", "mkldnn._convolution_pointwise.default",
        "f32[2, 128, 56, 56]", "1,234,567", "2.6e-05", "1.2e-06", "differs"),
    ("%relu", "aten.relu.default", "f32[2]", "", "inf", "", "rounding"),
]  # fmt: skip


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


@contextlib.contextmanager
def on_screen(width: int, monkeypatch: pytest.MonkeyPatch, *, rich: bool) -> Iterator[list[str]]:
    if rich:
        pytest.importorskip("rich")
    else:
        monkeypatch.setitem(sys.modules, "rich.console", None)
    screen, lines = Screen(), []
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setenv("COLUMNS", str(width))
    yield lines
    lines += re.sub(r"\x1b\[[0-9;]*m", "", screen.getvalue()).splitlines()


def printed(
    width: int, monkeypatch: pytest.MonkeyPatch, *, rich: bool, columns: tuple[str, ...], rows: list
) -> list[str]:
    with on_screen(width, monkeypatch, rich=rich) as lines:
        print_table(columns, rows)
    return lines


@each_row("rich", [True, False])
@each_row("width", [80, 100, 120, 200])
def test_a_table_fits_the_terminal_and_breaks_no_word(
    width: int, rich: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = printed(width, monkeypatch, rich=rich, columns=COLUMNS, rows=ROWS)

    text = "\n".join(lines)
    assert max(map(len, lines)) <= width
    for word in ("differs", "rounding", "1,234,567", "2.6e-05", "1.2e-06", "inf", "noise floor", "%relu"):
        assert word in text
    assert ("f32[2, 128, 56, 56]" in text) == (width > 100)
    assert (ROWS[0][0] in text) == (width == 200)


@each_row("rich", [True, False])
def test_text_breaks_between_words(rich: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    pass_text = "folds a batch norm into the convolution in front of it, where nothing else reads that"

    columns, rows = ("pass", "nodes", "what it does"), [("conv-bn-folding", "12", pass_text)]
    lines = printed(60, monkeypatch, rich=rich, columns=columns, rows=rows)

    assert max(map(len, lines)) <= 60
    told = [re.sub(r"^conv-bn-folding\s+12\s+", "", line).strip() for line in lines]
    assert " ".join(told).endswith(pass_text)


def test_a_table_in_a_pipe_is_plain_and_full(capsys: pytest.CaptureFixture[str]) -> None:
    print_report(["first", Table(("name", "n"), [("x" * 300, "1")]), "last"])

    assert capsys.readouterr().out == f"first\n{'name':300}  n\n{'x' * 300}  1\nlast\n"


@each_row("width", [40, 60])
def test_names_stay_legible_however_narrow_the_terminal_is(
    width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = printed(width, monkeypatch, rich=True, columns=COLUMNS, rows=ROWS)

    assert re.match(r"%la\.\.\.17 +mkl\.\.\.lt ", lines[2])


def test_columns_without_a_word_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [("%batch_norm", "aten.batch_norm.default", "f32[2, 8]", "1", "", "")]
    columns = ("value", "op", "type", "ULP", "noise floor", "SNR dB")

    narrow, wide = (printed(width, monkeypatch, rich=True, columns=columns, rows=rows) for width in (60, 80))

    assert narrow[0].split() == ["value", "op", "type", "ULP"]
    assert "aten.batch_norm.default" in narrow[2]
    assert wide[0].split() == ["value", "op", "type", "ULP", "noise", "floor", "SNR", "dB"]


def test_facts_are_whole_on_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    path = "/a/folder/with/a/long/path/" + "x" * 60 + "/net.json"

    with on_screen(40, monkeypatch, rich=True) as lines:
        print_facts({"saved": path, "time": "1 s"})

    assert path in "".join(line.removeprefix("saved").strip() for line in lines)
    assert max(map(len, lines)) <= 40


def test_a_long_name_loses_its_middle() -> None:
    assert shorten("folded.layers.0.weight", 12) == "folde...ight"
    assert shorten("short", 5) == "short"


cells = st.text("abc. ", max_size=30)


@examples(40)
@given(st.lists(st.tuples(cells, cells, st.floats().map("{:.3g}".format)), max_size=4), st.integers(30, 120))
def test_columns_add_up_to_the_width_and_numbers_are_whole(rows: list[tuple[str, ...]], width: int) -> None:
    fitted = fit_columns(("name", "what", "n"), rows, width)

    columns = [[len(line) for row in fitted for line in row[index]] for index in range(3)]
    assert sum(max(lengths, default=0) for lengths in columns) <= width
    assert [row[2] for row in fitted] == [[row[2]] for row in rows]


@each_row("rich", [True, False])
def test_control_characters_are_shown_and_not_obeyed(rich: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = r"\x1b[31mred\x1b]0;title\x07\x00\x9b\x7f\x0d"

    with on_screen(200, monkeypatch, rich=rich) as lines:
        print_diff(f"- {HOSTILE}")
        print_report([HOSTILE, Table(("name", "value"), [(HOSTILE, HOSTILE)])])
        print_facts({HOSTILE: HOSTILE})

    text = "\n".join(lines)
    assert text.count(shown) == 6
    assert not CONTROLS.search(text)
