"""Call traits observed before the first call: its fastest form, and the memory that it shares."""

from typing import Any

import pytest
import torch
from torch import Tensor, randn

from npu_ir import extract_ir, parse_ir
from npu_runtime import IRExecutor
from npu_runtime.lowering.instruction import Instruction
from tests.support.corpus.case import Function
from tests.support.corpus.comparison import assert_same


def instructions_of(function: Any, *args: Any) -> dict[str, Instruction]:
    executor = IRExecutor(extract_ir(Function(function), args), passes=None)
    assert_same(executor(*args), function(*args), "the result")
    return {instruction.node.name: instruction for instruction in executor.instructions}


def test_the_quickest_callable_that_does_the_same_is_taken() -> None:
    instructions = instructions_of(
        lambda x: torch.nn.functional.gelu(torch.nn.functional.linear(x, x)) + torch.ops.aten.sigmoid(x),
        randn(3, 3),
    )

    assert instructions["linear"].kernel == "torch._C._nn.linear"
    assert instructions["linear"].function is torch._C._nn.linear
    assert instructions["sigmoid"].kernel == "torch._C._VariableFunctions.sigmoid"
    assert all(
        not instruction.needs_symbols and instruction.backend == "aten"
        for instruction in instructions.values()
    )


def test_memory_as_it_is_allocated_is_told_by_its_type_since_its_bits_are_equal_by_chance() -> None:
    graph = extract_ir(
        Function(lambda x: torch.ops.aten.fill.Scalar(torch.empty_like(x), 2.0)), (randn(3, 7),)
    )

    for seed in range(20):
        _ = torch.full((3, 7), float(seed))  # what the next one finds
        kernels = [item.kernel for item in IRExecutor(graph, passes=None).instructions]

        assert kernels[0] == "torch._C._VariableFunctions.empty_like"


@pytest.mark.filterwarnings("error")
def test_a_callable_that_takes_other_arguments_is_not_taken() -> None:
    def function(x: Tensor, mask: Tensor) -> Any:
        return (
            torch.ops.aten.where.self(mask, x, -x),
            x[mask.to(torch.int64)],
            torch.ops.aten.add.Scalar(x, 2, 3),
            torch.ops.aten.rsub.Scalar(x, 2),
            torch.ops.aten.std.correction(x, [0], correction=0),
            torch.ops.aten.max.dim(x, 0),
            torch.ops.aten._softmax.default(x, -1, False),
            torch.ops.aten.copy.default(x, mask),
            torch.ops.prims.convert_element_type.default(x, torch.float64),
        )

    instructions_of(function, randn(3), torch.tensor([True, False, True]))


def test_integers_that_are_indices_are_probed_within_range() -> None:
    instructions = instructions_of(
        lambda table, index: torch.nn.functional.embedding(index, table).relu(),
        randn(4, 3),
        torch.tensor([[3, 0]]),
    )

    assert not instructions["embedding"].needs_symbols


def test_a_value_that_is_read_for_the_last_time_is_overwritten() -> None:
    instructions = instructions_of(
        lambda x: (x @ x).relu().add(x).mul(2).clamp(0, 5).to(torch.float64).neg(), randn(3, 3)
    )

    assert {
        name: instruction.overwrites.name
        for name, instruction in instructions.items()
        if instruction.overwrites
    } == {"relu": "matmul", "add": "relu", "mul": "add", "clamp": "mul", "neg": "to"}
    assert instructions["relu"].kernel.endswith(".relu_")


NEEDED: dict[str, Any] = {
    "an argument": lambda x: x.relu(),
    "a view of an argument": lambda x: x.view(-1).relu(),
    "a result": lambda x: (lambda y: (y.relu(), y))(x @ x),
    "what a result views": lambda x: (lambda y: (y.relu(), y.t()))(x @ x),
    "what is read later": lambda x: (lambda y: y.relu() @ y)(x @ x),
    "what a view read later sees": lambda x: (lambda y: y.relu() @ y.t())(x @ x),
    "a view of what is read later": lambda x: (lambda y: y.t().relu() @ y)(x @ x),
    "elements that share memory": lambda x: (x @ x)[:1].expand(3, 3).relu(),
    "a smaller input": lambda x: (x @ x)[:1].add(x),
    "another dtype": lambda x: (x > 0).add(1),
    "gaps": lambda x: (x @ x)[:, ::2].relu(),
    "an input twice": lambda x: (lambda y: torch.maximum(y, y))(x @ x),
    "an input and its view": lambda x: (lambda y: y.add(y.t()))(x @ x),
    "a part beside another": lambda x: (lambda y: [y.unbind(0)[0].relu(), y.unbind(0)[1]])(x @ x),
}


def test_what_is_needed_again_is_not_overwritten() -> None:
    x = randn(3, 3)
    before = x.clone()

    instructions = instructions_of(lambda x: {name: function(x) for name, function in NEEDED.items()}, x)

    assert torch.equal(x, before)
    assert [item.node.name for item in instructions.values() if item.overwrites] == []


@pytest.mark.smoke
def test_the_same_call_is_probed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from npu_runtime.probing.op_probe import OpProbe

    probed: list[str] = []
    probe = OpProbe._probe
    monkeypatch.setattr(
        OpProbe,
        "_probe",
        lambda self, node, *rest, **options: probed.append(node.name) or probe(self, node, *rest, **options),
    )
    nodes = [f"  %v{index + 1}: f32[2] = aten.sin.default(self=%v{index})" for index in range(50)]

    IRExecutor(parse_ir("\n".join(["graph g {", "  input %v0: f32[2]", *nodes, "  return %v50", "}"])))

    assert len(probed) <= 2


def test_a_node_that_fails_on_made_up_data_runs_as_the_graph_says() -> None:
    def function(x: Tensor) -> Tensor:
        return torch.linalg.cholesky(x)

    matrix = torch.eye(3) * 4
    executor = IRExecutor(extract_ir(Function(function), (matrix,)), passes=None)

    assert torch.equal(executor(matrix), torch.eye(3) * 2)
    assert executor.instructions[0].needs_symbols
