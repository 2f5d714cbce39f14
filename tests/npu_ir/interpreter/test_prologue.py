"""The prologue when a graph is run: evaluated once, with the same values, and out of the reach of callers."""

import weakref

import pytest
import torch

from npu_ir import ExecutionError, Graph, Interpreter, execute_ir, extract_ir, parse_ir, verify_ir
from tests.support.corpus.case import Holding
from tests.support.corpus.dtypes import float64_default

TEXT = """
graph G {
  input %x: f32[2, 4]
  param %w: f32[4, 4]
  param %bias: f32[4]
  buffer %count: i64[]

  prologue {
    %half: f32[4, 4] = aten.mul.Tensor(self=%w) {other=0.5}
    %t: f32[4, 4]@[1, 4] = aten.t.default(self=%half)
  }
  %mm: f32[2, 4] = aten.mm.default(self=%x, mat2=%t)
  %y: f32[2, 4] = aten.add.Tensor(self=%mm, other=%bias)
  %next: i64[] = aten.add.Tensor(self=%count) {other=1}

  update %count = %next
  return %y
}
"""
SHARED = """
graph G {
  input %x: f32[2]
  param %w: f32[2, 3]

  prologue {
    %t: f32[3, 2]@[1, 3] = aten.t.default(self=%w)
    %half: f32[2, 3] = aten.mul.Tensor(self=%w) {other=0.5}
    %half_t: f32[3, 2]@[1, 3] = aten.t.default(self=%half)
  }
  %row: f32[3] = aten.select.int(self=%half) {dim=0, index=1}
  %twice: f32[2] = aten.mul.Tensor(self=%x) {other=2}

  return {"t": %t, "half": %half, "half_t": %half_t, "row": %row, "twice": %twice}
}
"""


def weights() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = {"w": (4, 4), "bias": (4,)}
    random = {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}
    return {**random, "count": torch.tensor(7)}


def test_the_prologue_runs_once_and_the_body_at_each_call(ran: list[str]) -> None:
    interpreter = Interpreter(parse_ir(TEXT), weights())
    assert ran == ["half", "t"]

    interpreter.run(torch.ones(2, 4))
    interpreter.run(torch.ones(2, 4))

    assert ran == ["half", "t"] + 2 * ["mm", "y", "next"]


def test_weights_that_only_the_prologue_reads_are_let_go() -> None:
    given = weights()
    interpreter = Interpreter(parse_ir(TEXT), given)
    alive = {name: weakref.ref(tensor) for name, tensor in given.items()}

    del given

    assert [name for name, tensor in alive.items() if tensor() is not None] == ["bias", "count"]
    assert interpreter.run(torch.zeros(2, 4)).shape == (2, 4)


def test_values_that_only_the_prologue_reads_are_let_go() -> None:
    made: dict[str, weakref.ref[torch.Tensor]] = {}

    interpreter = Interpreter(
        parse_ir(
            TEXT.replace("aten.t.default", "aten.t_copy.default").replace("f32[4, 4]@[1, 4]", "f32[4, 4]")
        ),
        weights(),
        observe=lambda node, outputs: made.update({node.name: weakref.ref(outputs[0])}),
    )

    assert {name: tensor() is None for name, tensor in made.items()} == {"half": True, "t": False}
    assert interpreter.run(torch.zeros(2, 4)).shape == (2, 4)


def test_weights_that_change_later_do_not_change_the_prologue() -> None:
    given, x = weights(), torch.ones(2, 4)
    interpreter = Interpreter(parse_ir(TEXT), given)
    before = interpreter.run(x)

    given["w"].zero_()

    assert torch.equal(interpreter.run(x), before)


def test_changing_a_result_changes_no_later_one() -> None:
    w = torch.arange(6.0).reshape(2, 3)
    interpreter = Interpreter(parse_ir(SHARED), {"w": w.clone()})
    first = interpreter.run(torch.ones(2))

    for name in ("half", "row"):
        first[name].fill_(-1)

    second = interpreter.run(torch.ones(2))
    assert torch.equal(second["half"], w * 0.5)
    assert torch.equal(second["half_t"], (w * 0.5).t())
    assert torch.equal(second["row"], w[1] * 0.5)


def test_results_share_memory_as_they_do_without_a_prologue() -> None:
    given = {"w": torch.arange(6.0).reshape(2, 3)}

    results = Interpreter(parse_ir(SHARED), given).run(torch.ones(2))

    memory = {name: tensor.untyped_storage().data_ptr() for name, tensor in results.items()}
    assert memory["half"] == memory["half_t"] == memory["row"]
    assert memory["t"] == given["w"].untyped_storage().data_ptr()
    assert len(set(memory.values())) == 3
    assert (results["half_t"].stride(), results["row"].storage_offset()) == ((1, 3), 3)


def test_new_content_from_the_prologue_is_a_tensor_of_its_own() -> None:
    graph = parse_ir(
        "graph G { buffer %state: f32[2] param %w: f32[2] prologue { "
        "%half: f32[2] = aten.mul.Tensor(self=%w) {other=0.5} } update %state = %half return () }"
    )
    interpreter = Interpreter(graph, {"w": torch.ones(2), "state": torch.zeros(2)})

    interpreter.run_flat()[1]["state"].zero_()

    assert torch.equal(interpreter.run_flat()[1]["state"], torch.full((2,), 0.5))


def test_autograd_and_defaults_do_not_reach_the_prologue() -> None:
    graph = parse_ir(
        "graph G { param %w: f32[2] prologue { %one: f32[] = aten.scalar_tensor.default() {s=1.0} "
        "%sum: f32[2] = aten.add.Tensor(self=%w, other=%one) } return %sum }"
    )
    given = {"w": torch.nn.Parameter(torch.ones(2))}
    with float64_default():
        result = execute_ir(graph, weights=given)

    assert (result.dtype, result.requires_grad) == (torch.float32, False)


def test_without_weights_the_prologue_follows_the_inputs_to_their_device() -> None:
    graph = parse_ir(
        "graph G { input %x: f32[2] prologue { "
        '%two: f32[2] = aten.full.default() {size=[2], fill_value=2.0, device=device("meta")} } '
        "%y: f32[2] = aten.mul.Tensor(self=%x, other=%two) return (%y, %two) }"
    )
    interpreter = Interpreter(graph)

    devices = [
        {result.device.type for result in interpreter.run(torch.ones(2, device=device))}
        for device in ("cpu", "meta", "cpu")
    ]

    assert devices == [{"cpu"}, {"meta"}, {"cpu"}]
    assert torch.equal(interpreter.run(torch.ones(2))[0], torch.full((2,), 2.0))


def test_a_node_of_the_prologue_that_fails_is_named_when_weights_are_bound() -> None:
    graph = parse_ir(
        TEXT.replace("aten.mul.Tensor(self=%w) {other=0.5}", "aten.mm.default(self=%w, mat2=%bias)")
    )

    with pytest.raises(ExecutionError, match="aten.mm.default failed: RuntimeError: .*\n  at: node 'half'"):
        Interpreter(graph, weights())


def test_nodes_of_the_prologue_are_observed_apart_from_those_of_the_body() -> None:
    bound: list[str] = []
    called: list[str] = []

    interpreter = Interpreter(parse_ir(TEXT), weights(), observe=lambda node, _: bound.append(node.name))
    interpreter.run_flat((torch.ones(2, 4),), observe=lambda node, _: called.append(node.name))

    assert (bound, called) == (["half", "t"], ["mm", "y", "next"])


def test_the_node_of_a_prologue_that_differs_is_found() -> None:
    model = Holding(lambda self, x: x @ (self.weight * 2), weight=torch.nn.Parameter(torch.randn(3, 3)))
    x = torch.randn(2, 3)
    graph = extract_ir(model, (x,))
    graph.move_to_prologue(graph.node("mul"))
    assert verify_ir(graph, model, (x,)).ok

    graph.set_attrs(graph.node("mul"), {"other": 3})

    report = verify_ir(graph, model, (x,))
    assert not report.ok
    assert report.first_divergence.node == "mul"


def test_results_that_are_negated_lazily_keep_values_and_strides() -> None:
    weight = torch.nn.Parameter(torch.tensor([1 + 2j, 3 - 1j]))
    model = Holding(lambda self, x: (self.weight * self.weight).conj().imag, weight=weight)
    graph = extract_ir(model, (torch.ones(1),))
    for node in graph.nodes:
        graph.move_to_prologue(node)

    result = execute_ir(graph, (torch.ones(1),), weights=model.state_dict())

    expected = model(torch.ones(1)).detach()
    assert torch.equal(result, expected)
    assert result.stride() == expected.stride()


def test_sparse_results_of_the_prologue_are_out_of_the_reach_of_callers() -> None:
    graph = parse_ir(
        "graph G { param %w: f32[2, 2] prologue { "
        "%sparse: f32[2, 2]@sparse_coo = aten._to_sparse.default(self=%w) } return %sparse }"
    )
    interpreter = Interpreter(graph, {"w": torch.eye(2)})

    interpreter.run_flat()[0][0]._values().mul_(7)

    assert torch.equal(interpreter.run_flat()[0][0].to_dense(), torch.eye(2))


def test_callers_do_not_write_into_the_constants_of_a_graph() -> None:
    graph = Graph()
    graph.set_outputs(graph.add_constant("c", torch.ones(2)))
    interpreter = Interpreter(graph)

    interpreter.run().mul_(9)

    assert torch.equal(interpreter.run(), torch.ones(2))
    assert torch.equal(execute_ir(graph.clone()), torch.ones(2))
