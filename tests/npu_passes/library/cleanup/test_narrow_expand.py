"""narrow-expand: what works element by element is computed before it is expanded."""

from npu_ir import Graph
from npu_passes import PassManager
from npu_passes.library.cleanup.narrow_expand import NarrowExpand
from npu_passes.testing import check_pass
from tests.support.passes.training_graphs import ops
from tests.support.rows import each_row
from tests.support.small_programs import program


def expanded(line: str, *, of: str = "f32[2, 1]") -> Graph:
    return program(f"""
        input %x: {of}
        input %y: f32[2, 3]
        %wide: f32[2, 3]@[1, 0] = aten.expand.default(self=%x) {{size=[2, 3]}}
        %out: f32[2, 3] = {line}
        return %out
    """)


@each_row("line", [
    "aten.div.Tensor(self=%wide) {other=3}",
    "aten.mul.Tensor(self=%wide) {other=0.5}",
    "aten.neg.default(self=%wide)",
    "aten.clamp.default(self=%wide) {min=-1, max=1}",
])  # fmt: skip
def test_it_is_computed_on_the_small_tensor(line: str) -> None:
    graph = expanded(line)

    assert check_pass(NarrowExpand, graph) == 1

    made = PassManager([NarrowExpand, "dead-code"]).run(graph).graph
    assert ops(made)[1:] == ["aten.expand.default", "aten.clone.default"]
    assert made.nodes[0].outputs[0].tensor_type.shape == (2, 1)
    assert made.results[1][0].type == graph.results[1][0].type


@each_row("line, of", [
    ("aten.cumsum.default(self=%wide) {dim=1}", "f32[2, 1]"),
    ("aten.clone.default(self=%wide) {memory_format=contiguous_format}", "f32[2, 1]"),
    ("aten.bernoulli.p(self=%wide) {p=0.5}", "f32[2, 1]"),
    ("aten.rand_like.default(self=%wide)", "f32[2, 1]"),
    ("aten.mul.Tensor(self=%wide, other=%y)", "f32[2, 1]"),
    ("aten.neg.default(self=%wide)", "f32[2, 3]"),
])  # fmt: skip
def test_other_ops_and_what_is_not_larger_are_left(line: str, of: str) -> None:
    assert not NarrowExpand().run(expanded(line, of=of))
