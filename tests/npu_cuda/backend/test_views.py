"""Views in native partitions: they cost nothing, and give the bits of PyTorch."""

import json
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from npu_cuda.backend.program import PreparedProgram, ProgramInstance
from npu_cuda.backend.view_rules import lower_view
from npu_ir import BackendError, Graph, extract_ir, parse_ir
from npu_ir.plugins.backend import Backend
from npu_runtime import IRExecutor
from npu_runtime.backends.partition import extract_partition
from npu_runtime.diagnostics.explain import explain
from npu_runtime.planned import PlannedProgram, plan
from tests.support.backends.native_backends import HOST, NATIVE_BACKENDS

CPU = torch.device("cpu")


class Heads(nn.Module):
    """The data flow of attention: heads of a linear map, elementwise scores, heads put together."""

    def __init__(self, size: int = 8, heads: int = 2) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(size, 3 * size)
        self.out = nn.Linear(size, size)

    def forward(self, x: Tensor) -> Tensor:
        rows, steps, size = x.shape
        parts = self.qkv(x).split(size, dim=-1)
        q, k, v = (part.view(rows, steps, self.heads, -1).transpose(1, 2) for part in parts)
        scores = torch.relu(q * k) * 0.5
        mixed = (scores * v).transpose(1, 2).reshape(rows, steps, size)
        return self.out(mixed) + x


def with_whole_numbers(model: nn.Module) -> nn.Module:
    """Return the model with weights for which sums are exact in every order."""
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(torch.randint(-2, 3, weight.shape))
    return model.eval()


def attention(device: torch.device = CPU) -> tuple[nn.Module, Tensor, Graph]:
    torch.manual_seed(0)
    model = with_whole_numbers(Heads()).to(device)
    x = torch.randint(-2, 3, (2, 5, 8)).float().to(device)
    return model, x, extract_ir(model, (x,))


@pytest.mark.parametrize("backend", NATIVE_BACKENDS)
def test_attention_is_split_only_at_products_and_has_the_bits_of_pytorch(backend: Backend) -> None:
    model, x, graph = attention(backend.devices()[0])
    executor = IRExecutor(graph, model.state_dict(), backend=backend, passes=None)

    steps = [step.backend for step in executor.instructions if step.backend != "aten"]

    assert steps == {"host": ["host"], "cuda": ["cuda", "cuda"]}[backend.name]
    for factor in (1.0, -2.0):
        assert torch.equal(executor(factor * x), model(factor * x))


@pytest.mark.parametrize("backend", NATIVE_BACKENDS)
def test_a_planned_program_and_a_replay_give_the_same_bits(backend: Backend) -> None:
    (device, *_) = backend.devices()
    model, x, graph = attention(device)
    part, outer = extract_partition(graph.body, "all")
    program = backend.prepare(part, backend.lower(part), device)
    planned = PlannedProgram(plan(graph, backend=backend), model.state_dict())
    zeros = [torch.zeros(value.type.static_shape, device=device) for value in part.inputs]
    captured = backend.capture(program, zeros)

    for fixed, value in zip(captured.inputs, part.inputs, strict=True):
        name = next(item.name for item, inner in outer.items() if inner is value)
        fixed.copy_(model.state_dict().get(name, x))
    backend.replay(captured)

    assert torch.equal(captured.outputs[0], model(x))
    assert torch.equal(planned(x), model(x))


def prepared(text: str) -> tuple[Graph, PreparedProgram]:
    """Return a graph and its program, an op for each node that is no view."""
    graph = parse_ir(text)
    return graph, HOST.prepare(graph, HOST.lower_one_by_one(graph), CPU)


def test_views_have_no_ops_and_no_memory_of_their_own() -> None:
    _, _, graph = attention()
    part, _ = extract_partition(graph.body, "all")
    made = HOST.prepare(part, HOST.lower(part), CPU)

    facts = json.loads(ProgramInstance(made, is_aligned=True).native.describe("json"))

    kinds = ["Gemm", "Fused", "Gemm", "EltwiseAdd"]
    assert [op["op"] for op in facts["ops"]] == kinds
    temporaries = [slot for slot in facts["slots"] if slot["base"] is None and not slot["is_external"]]
    assert len(temporaries) == len(kinds) - 1


def test_a_result_is_a_view_of_the_memory_that_the_kernel_wrote() -> None:
    _, made = prepared("""
    graph g {
      input %x: f32[3, 4]
      %relu: f32[3, 4] = aten.relu.default(self=%x)
      %t: f32[4, 3]@[1, 4] = aten.t.default(self=%relu)
      %row: f32[4] = aten.select.int(self=%x) {dim=0, index=1}
      return (%t, %row)
    }
    """)
    x, t, row = torch.randn(3, 4), torch.empty(3, 4).t(), torch.empty(4)

    found, view = HOST.run(made, [x])
    HOST.bind(made, [x], [t, row])()

    assert (found.stride(), view.data_ptr()) == ((1, 4), x[1].data_ptr())
    assert torch.equal(found, x.relu().t())
    assert torch.equal(t, found)
    assert torch.equal(row, x[1])
    assert made.layout.holders() == [0]


def test_kernels_are_chosen_by_the_alignment_of_views() -> None:
    _, made = prepared("""
    graph g {
      input %x: f32[64]
      %part: f32[32] = aten.slice.Tensor(self=%x) {dim=0, start=1, end=33}
      %even: f32[32] = aten.slice.Tensor(self=%x) {dim=0, start=4, end=36}
      %relu: f32[32] = aten.relu.default(self=%part)
      %neg: f32[32] = aten.neg.default(self=%even)
      return (%relu, %neg)
    }
    """)

    facts = json.loads(ProgramInstance(made, is_aligned=True).native.describe("json"))

    assert [op["is_pinned"] for op in facts["ops"]] == [False, True]
    assert [slot["alignment"] for slot in facts["slots"] if slot["base"] is not None] == [4, 16]


def test_views_at_the_end_and_views_alone_stay_with_pytorch() -> None:
    graph = parse_ir("""
    graph g {
      input %x: f32[3, 4]
      %first: f32[12] = aten.view.default(self=%x) {size=[12]}
      %cumprod: f32[12] = aten.cumprod.default(self=%first) {dim=0}
      %second: f32[3, 4] = aten.view.default(self=%cumprod) {size=[3, 4]}
      %relu: f32[3, 4] = aten.relu.default(self=%second)
      %third: f32[12] = aten.view.default(self=%relu) {size=[12]}
      %fourth: f32[2, 6] = aten.view.default(self=%third) {size=[2, 6]}
      return %fourth
    }
    """)
    executor = IRExecutor(graph, backend="host", passes=None)

    nodes = explain(executor).nodes

    assert [node.backend for node in nodes] == ["aten", "aten", "host", "host", "aten", "aten"]
    assert nodes[-1].reasons == {"host": "a free node at the end of a partition saves nothing"}
    x = torch.randn(3, 4)
    assert torch.equal(executor(x), x.reshape(-1).cumprod(0).relu().view(2, 6))


def test_an_error_names_the_node_of_the_op_among_views() -> None:
    graph = parse_ir("""
    graph g {
      input %x: f32[3, 4]
      %view: f32[12] = aten.view.default(self=%x) {size=[12]}
      %relu: f32[12] = aten.relu.default(self=%view)
      return %relu
    }
    """)
    ops = [replace(op, kernel="relu.f32.nowhere" if op.kernel else "") for op in HOST.lower(graph)]

    with pytest.raises(BackendError, match=r"(?s)relu\.f32\.nowhere.*at: node 'relu'$"):
        HOST.prepare(graph, ops, CPU)


def test_contiguous_is_a_view_of_what_is_contiguous_and_else_a_copy() -> None:
    kinds = []
    for strides in ("", "@[1, 3]"):
        (node,) = parse_ir(f"""
        graph g {{
          input %x: f32[3, 4]{strides}
          %y: f32[3, 4] = aten.contiguous.default(self=%x)
          return %y
        }}
        """).nodes
        kinds.append([op.kind for op in HOST.lower(node.graph)])  # type: ignore[arg-type]

    assert kinds == [["View"], ["Copy"]]
    assert lower_view(node) == "aten.contiguous.default of f32[3, 4]@[1, 3] is a copy"
    assert [HOST.is_free(node), HOST.supports(node)] == [False, None]


def test_parts_without_elements_start_with_their_tensor() -> None:
    (node,) = parse_ir("""
    graph g {
      input %x: f32[2, 0, 5]
      %a: f32[0, 5], %b: f32[0, 5] = aten.unbind_copy.int(self=%x)
      return (%a, %b)
    }
    """).nodes
    assert HOST.supports(node) is None

    a, b = IRExecutor(node.graph, backend=HOST, passes=None)(torch.empty(2, 0, 5))  # type: ignore[arg-type]

    assert a.shape == b.shape == (0, 5)
