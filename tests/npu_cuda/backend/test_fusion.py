"""Pointwise ops over one shape run as one op, and compute what they compute one by one."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from torch import Tensor, nn

import npu_cuda
import npu_passes.ops.packed  # noqa: F401 - registers the packed ops
from npu_cuda.backend import CudaBackend, HostBackend
from npu_cuda.backend.native import NativeBackend
from npu_cuda.testing.rows.fused import fused_attrs
from npu_ir import Graph, extract_ir
from npu_ir.plugins.backend import BackendOp
from tests.support.corpus.case import Function
from tests.support.emulator.module import needs_emulator, ordered
from tests.support.emulator.run_time_compiler import run_time_compiler  # noqa: F401
from tests.support.tiers import examples

HOST, CUDA = HostBackend(), CudaBackend()
Step = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]

# Of the last two results, a row and a square matrix.
STEPS: dict[str, Step] = {
    "add": lambda x, y, row, matrix: x + y,
    "by_row": lambda x, y, row, matrix: x * row,
    "gelu": lambda x, y, row, matrix: nn.functional.gelu(x) + 1,
    "compare": lambda x, y, row, matrix: torch.where(x > y, x, y * 2),
    "mask": lambda x, y, row, matrix: (x < 0.5).to(x.dtype) - y,
    "halves": lambda x, y, row, matrix: (x.half() * 3).to(x.dtype),
    "brain_floats": lambda x, y, row, matrix: torch.tanh(y.bfloat16()).to(x.dtype),
    "doubles": lambda x, y, row, matrix: (x.double() / 3).to(x.dtype),
    "bytes": lambda x, y, row, matrix: x.clamp(-1, 1).mul(100).to(torch.int64).to(torch.int8).to(x.dtype),
    "truth": lambda x, y, row, matrix: ((x > 0) & (y > 0)).to(torch.int32).to(x.dtype) * x,
    "matmul": lambda x, y, row, matrix: torch.mm(x, matrix),
    "other_shape": lambda x, y, row, matrix: x + (row * 2).exp(),
}


class Chain(nn.Module):
    """Applies steps to the last two results, and returns some of the results."""

    def __init__(self, steps: Sequence[str], returned: int = 1) -> None:
        super().__init__()
        self.steps, self.returned = steps, returned

    def forward(self, x: Tensor, y: Tensor, row: Tensor, matrix: Tensor) -> tuple[Tensor, ...]:
        results = [x, y]
        for step in self.steps:
            results.append(STEPS[step](results[-1], results[-2], row, matrix))
        return tuple(results[-self.returned :])


def arguments(rows: int = 33, columns: int = 70) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    torch.manual_seed(0)
    x, y, row = torch.randn(rows, columns), torch.randn(rows, columns), torch.randn(1, columns)
    return x, y, row, torch.randn(columns, columns) / columns


def captured(model: nn.Module, *args: Tensor) -> Graph:
    return extract_ir(model, args)


def run(
    graph: Graph, ops: Sequence[BackendOp], *args: Tensor, backend: NativeBackend = HOST
) -> Sequence[Any]:
    return backend.run(backend.prepare(graph, ops, torch.device("cpu")), list(args))


def one_by_one(graph: Graph, backend: NativeBackend = HOST) -> Sequence[BackendOp]:
    return backend.lower_one_by_one(graph)


def kinds(ops: Sequence[BackendOp]) -> list[str]:
    return [op.kind for op in ops]


def assert_same_bits(actual: Sequence[Tensor], expected: Sequence[Tensor]) -> None:
    for left, right in zip(actual, expected, strict=True):
        assert (left.dtype, left.stride()) == (right.dtype, right.stride())
        assert torch.equal(left.nan_to_num(7.0), right.nan_to_num(7.0))


@pytest.mark.smoke
def test_a_chain_becomes_one_op_whose_inner_results_have_no_memory() -> None:
    args = arguments()
    chain = Chain(["add", "gelu", "compare", "by_row"])
    graph = captured(chain, *args)

    ops = HOST.lower(graph)

    assert kinds(ops) == ["Fused"]
    assert [len(ops[0].inputs), len(ops[0].outputs)] == [3, 1]
    assert set(ops[0].nodes) == set(graph.nodes)
    assert_same_bits(run(graph, ops, *args), run(graph, one_by_one(graph), *args))
    torch.testing.assert_close(run(graph, ops, *args), list(chain(*args)))


@examples(40, suppress_health_check=list(HealthCheck), deadline=None)
@given(
    st.lists(st.sampled_from(sorted(STEPS)), min_size=2, max_size=9),
    st.integers(1, 4),
    st.sampled_from([(3, 5), (40, 300), (2, 130), (200, 1), (700, 200)]),
    st.booleans(),
)
def test_fused_ops_give_the_bits_of_single_ones(
    steps: list[str], returned: int, shape: tuple[int, int], is_strided: bool
) -> None:
    x, y, row, matrix = arguments(*shape)
    x = torch.randn(shape[0], shape[1] * 2)[:, ::2] if is_strided else x
    graph = captured(Chain(steps, returned), x, y, row, matrix)

    fused, single = HOST.lower(graph), one_by_one(graph)

    assert len(fused) <= len(single)
    assert_same_bits(run(graph, fused, x, y, row, matrix), run(graph, single, x, y, row, matrix))


@needs_emulator
@pytest.mark.usefixtures("run_time_compiler")
@examples(6, suppress_health_check=list(HealthCheck), deadline=None)
@given(
    st.lists(st.sampled_from(sorted(STEPS)), min_size=2, max_size=9),
    st.integers(1, 4),
    st.sampled_from([(3, 5), (17, 66), (8, 64)]),
    st.booleans(),
    st.sampled_from([0, 1, 5]),
)
def test_chains_on_the_gpu_give_the_bits_of_single_ops(
    steps: list[str], returned: int, shape: tuple[int, int], is_strided: bool, schedule: int
) -> None:
    x, y, row, matrix = arguments(*shape)
    x = torch.randn(shape[0], shape[1] * 2)[:, ::2] if is_strided else x
    args = x, y, row, matrix
    graph = captured(Chain(steps, returned), *args)

    fused, single = CUDA.lower(graph), one_by_one(graph, CUDA)
    expected = run(graph, single, *args, backend=CUDA)
    with ordered(schedule):
        found = run(graph, fused, *args, backend=CUDA)

    assert {op.kernel for op in fused if op.kind == "Fused"} <= {"fused.cuda"}
    assert_same_bits(found, expected)


@needs_emulator
def test_without_a_compiler_each_op_is_a_launch_on_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NPU_NVRTC", "off")
    graph = captured(Chain(["add", "gelu"]), *arguments())

    assert "Fused" not in kinds(CUDA.lower(graph))
    assert "chains    one launch an op: NPU_NVRTC is off" in str(npu_cuda.status())


@needs_emulator
@pytest.mark.usefixtures("run_time_compiler")
def test_a_captured_chain_is_replayed() -> None:
    args = arguments()
    chain = Chain(["add", "gelu", "compare"])
    graph = captured(chain, *args)
    ops = CUDA.lower(graph)

    recorded = CUDA.capture(CUDA.prepare(graph, ops, torch.device("cpu")), list(args))
    recorded.inputs[0].copy_(args[1])
    CUDA.replay(recorded)

    assert kinds(ops) == ["Fused"]
    torch.testing.assert_close(list(recorded.outputs), list(chain(args[1], *args[1:])))


@pytest.mark.parametrize(("columns", "expected"), [
    (60, ["Fused"]),
    (61, ["Fused", "BitwiseAnd", "LogicalNot", "MaskedFill"]),
])  # fmt: skip
def test_logic_of_many_truth_values_is_computed_by_bytes(columns: int, expected: list[str]) -> None:
    x, mask = torch.randn(68, columns), torch.rand(68, columns) > 0.5
    function = Function(lambda x, mask: (x * 2).masked_fill(~((x + 1 > 0) & mask), 0.0))
    graph = captured(function, x, mask)

    ops = HOST.lower(graph)

    assert kinds(ops) == expected
    assert_same_bits(run(graph, ops, x, mask), [function(x, mask)])


def test_more_tensors_than_a_block_has_rows_are_refused() -> None:
    count = 40
    copies = [("Abs", (0,), (n,)) for n in range(2, 2 + count)]
    sums = [("EltwiseAdd", (n, n), (count + n,)) for n in range(2, 2 + count)]
    values = fused_attrs([*copies, *sums, ("Abs", (0,), (1,))], [(2, 32)] * (2 * count))
    payload = values.pop("payload")
    schema, header = npu_cuda.attrs("FUSE", **values)
    x, y = torch.randn(4, 5), torch.empty(4, 5)

    with pytest.raises(npu_cuda.NotSupportedError, match="more than 32 tensors at a time"):
        npu_cuda.op_call(npu_cuda.kinds()["Fused"], [x], [y], schema, header + payload)


def test_ops_of_another_kind_or_shape_end_a_chain_and_what_they_read_has_memory() -> None:
    args = arguments()
    graph = captured(Chain(["add", "gelu", "matmul", "gelu", "other_shape", "add"]), *args)

    ops = HOST.lower(graph)

    assert kinds(ops) == ["Fused", "Gemm", "Fused", "Fused", "Fused"]
    assert_same_bits(run(graph, ops, *args), run(graph, one_by_one(graph), *args))


class Layer(nn.Module):
    """A product by a packed matrix, and what follows it."""

    def __init__(self, steps: Callable[[Tensor, Tensor], Any]) -> None:
        super().__init__()
        self.steps = steps

    def forward(self, x: Tensor, panels: Tensor, bias: Tensor, other: Tensor) -> Any:
        return self.steps(torch.ops.npu.packed_linear(x, panels, bias, 70), other)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("depth", [40, 700])
@pytest.mark.parametrize("rows", [(1,), (33,), (3, 5), (4, 1), (200,)], ids=str)
def test_ops_behind_a_packed_product_are_steps_of_it(
    rows: tuple[int, ...], depth: int, dtype: torch.dtype
) -> None:
    torch.manual_seed(0)
    args = (torch.randn(*rows, depth), torch.randn(2, depth, 64), torch.randn(70), torch.randn(*rows, 70))
    args = tuple(item.to(dtype) for item in args)
    layers: list[Callable[[Tensor, Tensor], Any]] = [
        lambda z, other: z.relu(),
        lambda z, other: z + other,
        lambda z, other: nn.functional.relu6(other + z),
        lambda z, other: nn.functional.hardswish(z),
        lambda z, other: nn.functional.gelu(z) + other,
        lambda z, other: (z * 2 - other, z.sigmoid() * z),
        lambda z, other: other + z * 0.5,
    ]
    for steps in layers:
        graph = captured(Layer(steps), *args)

        ops = HOST.lower(graph)

        assert kinds(ops)[0] == "PackedGemm"
        assert len([kind for kind in kinds(ops) if kind != "View"]) == 1
        assert_same_bits(run(graph, ops, *args), run(graph, one_by_one(graph), *args))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("rows", "other_rows"),
    [((7, 1), (1,)), ((3, 5, 1), (5, 1)), ((4, 9), (9,)), ((2, 3, 4), (2, 1, 4)), ((3, 5, 1), (3, 1, 1))],
    ids=str,
)
def test_a_broadcast_operand_of_the_steps_does_not_change_the_product(
    rows: tuple[int, ...], other_rows: tuple[int, ...], dtype: torch.dtype
) -> None:
    torch.manual_seed(0)
    args = torch.randn(*rows, 700), torch.randn(2, 700, 64), torch.randn(70), torch.randn(*other_rows, 70)
    args = tuple(item.to(dtype) for item in args)
    for steps in (lambda z, other: z + other, lambda z, other: (z.relu() * other, other - z)):
        graph = captured(Layer(steps), *args)

        ops = HOST.lower(graph)

        assert [kind for kind in kinds(ops) if kind != "View"] == ["PackedGemm"]
        assert_same_bits(run(graph, ops, *args), run(graph, one_by_one(graph), *args))


def test_a_result_in_another_layout_does_not_change_the_product() -> None:
    torch.manual_seed(0)
    other = torch.randn(70, 3, 8).permute(1, 2, 0)
    args = torch.randn(3, 8, 700), torch.randn(2, 700, 64), torch.randn(70), other
    graph = captured(Layer(lambda z, other: other + z), *args)

    ops = HOST.lower(graph)

    assert [kind for kind in kinds(ops) if kind != "View"] == ["PackedGemm"]
    assert_same_bits(run(graph, ops, *args), run(graph, one_by_one(graph), *args))


class Picture(nn.Module):
    """A convolution by packed weights, and what follows it."""

    def __init__(self, steps: Callable[[Tensor, Tensor], Any]) -> None:
        super().__init__()
        self.steps = steps

    def forward(self, x: Tensor, panels: Tensor, bias: Tensor, other: Tensor) -> Any:
        z = torch.ops.npu.packed_conv2d(x, panels, bias, [3, 3], [1, 1], [1, 1], [1, 1], 70)
        return self.steps(z, other)


@pytest.mark.parametrize("shape", [(1, 1), (7, 9), (40, 40)], ids=str)
@pytest.mark.parametrize("is_last", [True, False])
def test_ops_behind_a_packed_convolution_are_steps_of_it(shape: tuple[int, int], is_last: bool) -> None:
    torch.manual_seed(0)
    args = [torch.randn(2, 8, *shape), torch.randn(2, 72, 64), torch.randn(70), torch.randn(2, 70, *shape)]
    if is_last:
        args = [item.to(memory_format=torch.channels_last) if item.dim() == 4 else item for item in args]

    layers: list[Callable[[Tensor, Tensor], Any]] = [
        lambda z, other: z.relu(),
        lambda z, other: (other + z).relu(),
        lambda z, other: nn.functional.relu6(z),
        lambda z, other: nn.functional.hardswish(z),
        lambda z, other: nn.functional.hardswish(z) + other,
        lambda z, other: (z * 2 - other, z.sigmoid() * z),
    ]
    for steps in layers:
        graph = captured(Picture(steps), *args)

        ops = HOST.lower(graph)

        assert [kind for kind in kinds(ops) if kind != "View"] == ["PackedConv"]
        assert_same_bits(run(graph, ops, *args), run(graph, one_by_one(graph), *args))


@pytest.mark.parametrize("channels", [3, 16, 40, 130, 600])
@pytest.mark.parametrize("is_last", [True, False])
def test_steps_with_a_number_for_each_channel_compute_the_same(channels: int, is_last: bool) -> None:
    torch.manual_seed(0)
    width = next((width for width in (16, 32) if channels <= width), 64)
    x, scale = torch.randn(2, 4, 9, 11), torch.randn(1, channels, 1, 1)
    x = x.to(memory_format=torch.channels_last) if is_last else x
    args = [x, torch.randn(-(-channels // width), 4, width), torch.randn(channels), scale, 1 / scale]

    def snake(x: Tensor, panels: Tensor, bias: Tensor, scale: Tensor, inverse: Tensor) -> Tensor:
        z = torch.ops.npu.packed_conv2d(x, panels, bias, [1, 1], [1, 1], [0, 0], [1, 1], channels)
        return z + inverse * torch.sin(scale * z).square()

    graph = captured(Function(snake), *args)

    ops = HOST.lower(graph)

    assert [kind for kind in kinds(ops) if kind != "View"] == ["PackedConv"]
    assert_same_bits(run(graph, ops, *args), run(graph, one_by_one(graph), *args))


@pytest.mark.parametrize("is_read_elsewhere", [False, True])
def test_a_convolution_of_one_channel_writes_what_is_copied_to_channels_last(is_read_elsewhere: bool) -> None:
    torch.manual_seed(0)
    args = [torch.randn(2, 1, 9, 11), torch.randn(1, 9, 32), torch.randn(20)]

    def picture(x: Tensor, panels: Tensor, bias: Tensor) -> Any:
        z = torch.ops.npu.packed_conv2d(x, panels, bias, [3, 3], [1, 1], [1, 1], [1, 1], 20)
        image = z.clone(memory_format=torch.channels_last).relu()
        return (image, z) if is_read_elsewhere else image

    graph = captured(Function(picture), *args)

    ops = HOST.lower(graph)

    copies = ["Copy", "EltwiseRelu"] if is_read_elsewhere else []
    assert [kind for kind in kinds(ops) if kind != "View"] == ["PackedConv", *copies]
    assert_same_bits(run(graph, ops, *args), run(graph, one_by_one(graph), *args))


def test_a_packed_product_that_is_read_elsewhere_has_memory() -> None:
    args = (torch.randn(5, 40), torch.randn(2, 40, 64), torch.randn(70), torch.randn(5, 70))
    graph = captured(Layer(lambda z, other: (z, z.relu())), *args)

    ops = HOST.lower(graph)

    assert kinds(ops) == ["PackedGemm", "EltwiseRelu"]
    assert_same_bits(run(graph, ops, *args), run(graph, one_by_one(graph), *args))


def test_an_op_joins_no_chain_that_what_it_reads_depends_on() -> None:
    class Diamond(nn.Module):
        def forward(self, x: Tensor, y: Tensor, row: Tensor, matrix: Tensor) -> Tensor:
            doubled = x + x
            product = torch.mm(doubled, matrix)
            return doubled * 3 + product  # the sum reads both the chain and what follows it

    args = arguments()
    graph = captured(Diamond(), *args)

    ops = HOST.lower(graph)

    assert kinds(ops) == ["Fused", "Gemm", "EltwiseAdd"]
    assert_same_bits(run(graph, ops, *args), run(graph, one_by_one(graph), *args))


def test_views_between_pointwise_ops_end_no_chain() -> None:
    class Recurrence(nn.Module):
        def forward(self, x: Tensor, y: Tensor, row: Tensor, matrix: Tensor) -> Tensor:
            state = row
            for index in range(4):
                state = state * x[index] + y[index]
            return state

    args = arguments()
    graph = captured(Recurrence(), *args)

    ops = HOST.lower(graph)

    assert [kind for kind in kinds(ops) if kind != "View"] == ["Fused"]
    assert_same_bits(run(graph, ops, *args), run(graph, one_by_one(graph), *args))


def test_an_op_joins_no_chain_that_it_reads_a_view_of() -> None:
    class Turned(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            doubled = x * 2 + 1
            return doubled + doubled.t().flip(0).t() + doubled.t()

    x = torch.randn(9, 9)
    graph = captured(Turned(), x)

    ops = HOST.lower(graph)

    assert kinds(ops).count("Fused") == 2
    assert_same_bits(run(graph, ops, x), run(graph, one_by_one(graph), x))


@pytest.mark.parametrize(
    ("steps", "returned"),
    [pytest.param(["add"] * 150, 1, id="steps"), pytest.param(["add", "gelu"] * 10, 20, id="results")],
)
def test_a_chain_of_too_many_steps_or_tensors_is_several_ops(steps: list[str], returned: int) -> None:
    args = arguments(5, 7)
    graph = captured(Chain(steps, returned), *args)

    ops = HOST.lower(graph)

    assert set(kinds(ops)) == {"Fused"}
    assert 2 < len(ops) < 10
    assert_same_bits(run(graph, ops, *args), run(graph, one_by_one(graph), *args))


def test_other_layouts_are_copied_apart() -> None:
    class Columns(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return (x + 1).contiguous() * 2

    x = torch.randn(70, 33).t()
    graph = captured(Columns(), x)

    assert "Copy" in kinds(HOST.lower(graph))


def test_a_kernel_of_ones_own_is_not_replaced() -> None:
    def relu(call: npu_cuda.KernelCall) -> None:
        call.outputs[0].copy_(torch.relu(call.inputs[0]))

    x = torch.randn(4, 5)
    graph = captured(nn.Sequential(nn.ReLU(), nn.GELU(), nn.Sigmoid()), x)
    with_own = npu_cuda.kernel("EltwiseRelu", kernel_id="test.relu", device="host", priority=99)(relu)
    try:
        ops = HOST.lower(graph)
    finally:
        with_own.remove()

    assert [op.kernel for op in ops] == ["test.relu", "fused.host"]
