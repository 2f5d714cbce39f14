"""Random graphs of `npu_ir.testing` as a strategy of hypothesis, which finds the smallest one that fails."""

from hypothesis import strategies as st

from npu_ir import Graph
from npu_ir.testing.random_graphs import grow_graph
from npu_ir.testing.random_steps import STEPS


@st.composite
def models(draw: st.DrawFn, *, is_open: bool = False, most_steps: int = 12) -> Graph:
    """Return a valid graph; with ``is_open`` the first size of its first input is a symbol."""
    steps = draw(st.lists(st.sampled_from(STEPS), min_size=1, max_size=most_steps))
    return grow_graph(lambda items: draw(st.sampled_from(items)), steps, is_open=is_open)
