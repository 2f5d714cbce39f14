"""Lowering of nodes to native ops with attributes, and the reasons of refusals."""

from __future__ import annotations

import re
import struct

import pytest

from npu_cuda.backend import CudaBackend, HostBackend
from npu_cuda.backend.op_builder import make_op
from npu_cuda.backend.tensor_views import views_of
from npu_cuda.errors import InvalidArgumentError
from npu_ir import BackendError, OpNode, parse_ir
from npu_ir.plugins.backend import BackendOp

HOST = HostBackend()


def node_of(inputs: str, call: str) -> OpNode:
    """Return the node of a one-call graph: ``node_of("f32[3]", "f32[3] = aten.relu.default(self=%a)")``.

    A size may be ``n``, a symbol.
    """
    lines = ["symbol n in [1, 9]"] if "[n]" in inputs else []
    lines += [f"input %{name}: {type}" for name, type in zip("abcd", inputs.split("; "), strict=False)]
    (node,) = parse_ir("\n".join(["graph g {", *lines, f"%y: {call}", "return %y", "}"])).nodes
    return node


def ops_of(node: OpNode) -> list[BackendOp]:
    assert node.graph is not None
    return list(HOST.lower(node.graph))


def gemm(op: BackendOp) -> tuple[int, int, float, float]:
    ta, tb, _, alpha, beta = struct.unpack("<iiiff", op.attrs)
    return ta, tb, alpha, beta


def test_an_op_names_the_kernel_that_is_meant_and_packs_its_attributes() -> None:
    for call in ("aten.relu.default(self=%a)", "npu.relu.default(input=%a)"):
        (relu,) = ops_of(node_of("f32[3]", f"f32[3] = {call}"))
        assert (relu.kind, relu.schema_id, relu.attrs) == ("EltwiseRelu", 0, b"")
        assert relu.kernel.startswith("relu.f32.host")

    (add,) = ops_of(node_of("f32[3]; f32[3]", "f32[3] = aten.add.Tensor(self=%a, other=%b) {alpha=-2}"))
    assert add.schema_id == int.from_bytes(b"EADD", "little")
    assert struct.unpack("<f", add.attrs) == (-2.0,)


@pytest.mark.parametrize("name", ["node", "kind", "inputs", "outputs"])
def test_a_field_of_attributes_may_have_any_name(name: str) -> None:
    node = node_of("f32[3]; f32[3]", "f32[3] = aten.sub.Tensor(self=%a, other=%b)")

    with pytest.raises(InvalidArgumentError, match=f"attrs: ESUB has no field '{name}'; it has alpha"):
        make_op(node, "Sub", node.inputs, node.outputs, **{name: 1.0})


@pytest.mark.skipif(not CudaBackend().devices(), reason="there is no CUDA device, and no emulator")
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_on_cuda_aten_multiplies(dtype: str) -> None:
    node = node_of(f"{dtype}[5, 7]; {dtype}[7, 3]", f"{dtype}[5, 3] = aten.mm.default(self=%a, mat2=%b)")

    refusal = CudaBackend().supports(node)

    assert refusal == f"ATen's products are 2 to 38 times as fast as gemm.{dtype}.cuda.simple"


def test_products_of_any_strides_and_batches_are_one_gemm() -> None:
    cases = [
        ("f32[5, 7]; f32[7, 3]", "f32[5, 3] = aten.mm.default(self=%a, mat2=%b)", 0),
        ("f32[5, 7]@[1, 5]; f32[7, 3]", "f32[5, 3] = aten.mm.default(self=%a, mat2=%b)", 0),
        ("f16[5, 7]@[14, 2]; f16[7, 3]", "f16[5, 3] = aten.mm.default(self=%a, mat2=%b)", 0),
        ("f32[5, 7]; f32[3, 7]", "f32[5, 3] = aten.linear.default(input=%a, weight=%b)", 1),
        ("f32[2, 5, 7]; f32[3, 7]", "f32[2, 5, 3] = npu.linear.default(input=%a, weight=%b)", 1),
        ("f64[2, 5, 7]; f64[2, 7, 3]", "f64[2, 5, 3] = aten.bmm.default(self=%a, mat2=%b)", 0),
        ("f32[2, 1, 5, 7]; f32[4, 7, 3]", "f32[2, 4, 5, 3] = aten.matmul.default(self=%a, other=%b)", 0),
    ]  # fmt: skip
    for types, call, tb in cases:
        (op,) = ops_of(node_of(types, call))

        assert (op.kind, gemm(op)) == ("Gemm", (0, tb, 1.0, 0.0))


def test_vectors_are_read_as_a_row_and_a_column() -> None:
    row, column = (1, 7), (7, 1)
    cases = [
        ("f32[7]; f32[7, 3]", "f32[3] = aten.matmul.default(self=%a, other=%b)", [row, (7, 3), (1, 3)]),
        ("f32[5, 7]; f32[7]", "f32[5] = aten.mv.default(self=%a, vec=%b)", [(5, 7), column, (5, 1)]),
        ("f32[7]; f32[7]", "f32[] = aten.dot.default(self=%a, tensor=%b)", [row, column, (1, 1)]),
        ("f32[7]; f32[3, 7]; f32[3]", "f32[3] = aten.linear.default(input=%a, weight=%b, bias=%c)",
         [row, (3, 7), (3,), (1, 3)]),
        ("f32[7]; f32[2, 7, 3]", "f32[2, 3] = aten.matmul.default(self=%a, other=%b)",
         [row, (2, 7, 3), (2, 1, 3)]),
    ]  # fmt: skip
    for types, call, shapes in cases:
        (op,) = ops_of(node_of(types, call))

        assert [view.shape for view in views_of(op)] == shapes


def test_an_addend_is_added_as_it_is() -> None:
    addmm = "f32[5, 3] = aten.addmm.default(self=%a, mat1=%b, mat2=%c)"
    baddbmm = "f32[2, 5, 3] = aten.baddbmm.default(self=%a, batch1=%b, batch2=%c) {beta=3}"
    linear = "f32[5, 3] = aten.linear.default(input=%a, weight=%b, bias=%c)"

    (row,) = ops_of(node_of("f32[5, 7]; f32[3, 7]; f32[3]", linear))
    (whole,) = ops_of(node_of("f32[5, 3]; f32[5, 7]; f32[7, 3]", addmm + " {alpha=0.5, beta=2}"))
    (unread,) = ops_of(node_of("f32[3]; f32[5, 7]; f32[7, 3]", addmm + " {beta=0}"))
    (each,) = ops_of(node_of("f32[5, 1]; f32[2, 5, 7]; f32[2, 7, 3]", baddbmm))

    assert gemm(row) == (0, 1, 1.0, 1.0)
    assert [value.name for value in whole.inputs] == ["b", "c", "a"]  # type: ignore[union-attr]
    assert gemm(whole) == (0, 0, 0.5, 2.0)
    assert len(unread.inputs) == 2
    assert gemm(each) == (0, 0, 1.0, 3.0)


def test_what_is_refused_is_refused_with_the_reason() -> None:
    cases = [
        ("f32[3]", "f32[3] = aten.cumprod.default(self=%a) {dim=0}", "no native op for aten.cumprod.default"),
        ("f32[n]", "f32[n] = aten.relu.default(self=%a)", "^native ops take fixed sizes, not f32\\[n\\]$"),
        ("int", "f32[3] = aten.relu.default(self=%a)", "take tensors, not a number of type int"),
        ("f32[3]@sparse_coo", "f32[3] = aten.relu.default(self=%a)", "take strided tensors, not"),
        ("f32[5, 3]; f32[5, 7]; f32[7, 3]",
         "f32[5, 3] = aten.addmm.default(self=%a, mat1=%b, mat2=%c) {alpha=0}",
         "alpha=0: PyTorch leaves the product out"),
        ("f32[3]; f32[3]", "f32[3] = aten.add.Tensor(self=%a, other=%b) {alpha=True}", "takes a real alpha"),
        ("f32[3]; f32[3]", "f32[3] = aten.add.Tensor(self=%a, other=%b) {alpha=1e300}", "EADD.*1e\\+300"),
        ("bool[3]; bool[3]", "bool[3] = aten.add.Tensor(self=%a, other=%b) {alpha=-1}", "alpha=-1 of truth"),
        ("f32[3]", "i64[3] = aten.relu.default(self=%a)", "^EltwiseRelu: .*int64"),
        ("f32[3, 4]@[0, 1]", "f32[3, 4] = aten.clone.default(self=%a)", "whose elements share no memory"),
        ("f32[3]", "f32[3] = aten._to_copy.default(self=%a) {device=device(\"cuda\")}",
         "^Copy does not move tensors to cuda$"),
        ("f32[3]", "f32[3] = aten.to.dtype_layout(self=%a) {dtype=f32, pin_memory=True}",
         "^Copy does not change pin_memory$"),
        ("f32[3]", "f32[3] = aten.dropout.default(input=%a) {p=0.5, train=True}",
         "no native op that drops elements, here of a probability of 0.5$"),
        ("f32[3]; i64[3]", "f32[3] = aten.floor_divide.default(self=%a, other=%b)",
         "FloorDivideIntegersScalar takes 1 tensor, not 2"),
        ("f32[3, 2]", "f32[6, 2]@[1, 6] = aten.repeat_interleave.self_int(self=%a) {repeats=2, dim=0}",
         "^repeated elements are contiguous, not "),
        ("f32[5, 7]; f32[6, 3]", "f32[5, 3] = aten.mm.default(self=%a, mat2=%b)",
         r"^Gemm: B is float32\[6, 3\], not \[7, 3\]"),
        ("f64[5, 3]; f64[5, 7]; f64[7, 3]",
         "f64[5, 3] = aten.addmm.default(self=%a, mat1=%b, mat2=%c) {alpha=0.1}",
         r"^alpha=0.1 and beta=1.0 are stored in float32$"),
        ("i64[5, 7]; i64[7, 3]", "i64[5, 3] = aten.mm.default(self=%a, mat2=%b)", "^Gemm: A is int64, not"),
        ("f32[" + "1, " * 8 + "2]", "f32[" + "1, " * 8 + "2] = aten.clone.default(self=%a)", "^Copy: "),
        ("f32[" + "1, " * 8 + "2]", "f32[2] = aten.view.default(self=%a) {size=[2]}", "^View: .*9"),
        ("f32[3, 4]@[1, 3]", "f32[12] = aten.view.default(self=%a) {size=[12]}", "view.default failed: "),
        ("f32[3, 4]", "f32[4, 3] = aten.t.default(self=%a)", "the strides of aten.t.default of .* are not"),
        ("f32[3, 4]@[0, 1]", "f32[4, 3]@[1, 0] = aten.t.default(self=%a)", "share no memory"),
        ("f32[3, 4]; f32[3]", "f32[12] = aten.view.default(self=%a, size=%b)", "of one tensor, not of 2"),
    ]  # fmt: skip
    for types, call, reason in cases:
        answer = HOST.supports(node_of(types, call))

        assert answer is not None
        assert re.search(reason, answer), answer


def test_lowering_what_is_not_supported_names_the_node() -> None:
    node = node_of("f32[3]", "f32[3] = aten.lgamma.default(self=%a)")

    with pytest.raises(
        BackendError, match=r"'host' does not run aten\.lgamma\.default: no native op .*\n  at: node 'y'"
    ):
        HOST.lower(node.graph)  # type: ignore[arg-type]


def test_every_backend_answers_without_its_device() -> None:
    answer = CudaBackend().supports(node_of("f32[3]", "f32[3] = aten.relu.default(self=%a)"))

    assert answer is None or "no cuda kernel of EltwiseRelu" in answer
