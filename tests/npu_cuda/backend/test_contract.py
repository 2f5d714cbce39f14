"""The native backends satisfy the backend interface of npu-ir, on the shared graphs and on more."""

import importlib.util
from collections.abc import Mapping

import pytest

from npu_cuda.backend import CudaBackend, HostBackend
from npu_ir import Graph, parse_ir
from npu_ir.testing import COMMON_OPERATORS
from npu_runtime.testing import BackendContract
from tests.support.tiers import some

# What several ops, shared values and views of one value in several shapes are to programs.
_FURTHER = """
graph "an intermediate result that is read in two shapes" {
  input %x: f32[2, 5, 7]
  input %w: f32[7, 7]
  %first: f32[2, 5, 7] = aten.linear.default(input=%x, weight=%w)
  %relu: f32[2, 5, 7] = aten.relu.default(self=%first)
  %add: f32[2, 5, 7] = aten.add.Tensor(self=%relu, other=%first)
  %second: f32[2, 5, 7] = aten.linear.default(input=%add, weight=%w)
  return (%second,)
}
---
graph "a bias that is computed" {
  input %x: f32[5, 7]
  input %w: f32[3, 7]
  input %b: f32[3]
  %relu: f32[3] = aten.relu.default(self=%b)
  %add: f32[3] = aten.add.Tensor(self=%relu, other=%b)
  %linear: f32[5, 3] = aten.linear.default(input=%x, weight=%w, bias=%add)
  return (%linear, %add)
}
---
graph "matrices in columns" {
  input %a: f32[5, 7]@[1, 5]
  input %b: f32[7, 3]@[1, 7]
  input %c: f32[5, 3]
  %mm: f32[5, 3] = aten.mm.default(self=%a, mat2=%b)
  %addmm: f32[5, 3] = aten.addmm.default(self=%c, mat1=%a, mat2=%b) {alpha=0.5, beta=-2}
  %add: f32[5, 3] = aten.add.Tensor(self=%mm, other=%addmm)
  return %add
}
---
graph "an addend of every shape" {
  input %row: f32[3]
  input %column: f32[5, 1]
  input %one: f32[]
  input %a: f32[5, 7]
  input %b: f32[7, 3]
  %x: f32[5, 3] = aten.addmm.default(self=%row, mat1=%a, mat2=%b)
  %y: f32[5, 3] = aten.addmm.default(self=%column, mat1=%a, mat2=%b)
  %z: f32[5, 3] = aten.addmm.default(self=%one, mat1=%a, mat2=%b)
  %none: f32[5, 3] = aten.addmm.default(self=%row, mat1=%a, mat2=%b) {beta=0}
  return (%x, %y, %z, %none)
}
---
graph "rows of vectors by a matrix" {
  input %x: f32[2, 3, 5, 7]
  input %w: f32[7, 4]
  %matmul: f32[2, 3, 5, 4] = aten.matmul.default(self=%x, other=%w)
  %copy: f32[2, 3, 5, 4] = aten.clone.default(self=%matmul)
  return (%matmul, %copy)
}
---
graph "copies into other strides" {
  input %x: f32[2, 3, 4, 5]@channels_last
  input %mask: bool[4, 6]@[1, 4]
  input %number: i64[]
  %plain: f32[2, 3, 4, 5] = aten.clone.default(self=%x) {memory_format=contiguous_format}
  %clone: bool[4, 6]@[1, 4] = aten.clone.default(self=%mask)
  %one: i64[] = aten.clone.default(self=%number)
  return (%plain, %clone, %one)
}
---
graph "an input that is returned" {
  input %x: f32[3]
  %relu: f32[3] = aten.relu.default(self=%x)
  return (%x, %relu, %relu)
}
---
graph "views of computed tensors and of inputs, returned with their bases" {
  input %x: f32[4, 6]
  %relu: f32[4, 6] = aten.relu.default(self=%x)
  %t: f32[6, 4]@[1, 6] = aten.t.default(self=%relu)
  %row: f32[6] = aten.select.int(self=%relu) {dim=0, index=1}
  %mine: f32[2, 12] = aten.view.default(self=%x) {size=[2, 12]}
  %column: f32[4]@[6] = aten.select.int(self=%x) {dim=1, index=5}
  %sum: f32[4] = aten.add.Tensor(self=%column, other=%column)
  return (%relu, %t, %row, %mine, %column, %sum)
}
---
graph "a result that has all the memory of its base, and one that has a part" {
  input %x: f32[2, 3, 4]
  %neg: f32[2, 3, 4] = aten.neg.default(self=%x)
  %turned: f32[4, 2, 3]@[1, 12, 4] = aten.permute.default(self=%neg) {dims=[2, 0, 1]}
  %abs: f32[2, 3, 4] = aten.abs.default(self=%x)
  %part: f32[2, 3, 2]@[12, 4, 1] = aten.slice.Tensor(self=%abs) {dim=2, start=1, end=3}
  return (%turned, %part)
}
---
graph "views of views, at offsets that no vector kernel takes" {
  input %x: f32[5, 7]
  %relu: f32[5, 7] = aten.relu.default(self=%x)
  %rows: f32[3, 7] = aten.slice.Tensor(self=%relu) {dim=0, start=1, end=4}
  %flat: f32[21] = aten.view.default(self=%rows) {size=[21]}
  %part: f32[19] = aten.slice.Tensor(self=%flat) {dim=0, start=1, end=20}
  %exp: f32[19] = aten.exp.default(self=%part)
  %mine: f32[5] = aten.slice.Tensor(self=%exp) {dim=0, start=2, end=7}
  %other: f32[5] = aten.slice.Tensor(self=%flat) {dim=0, start=3, end=8}
  %mul: f32[5] = aten.mul.Tensor(self=%mine, other=%other)
  return %mul
}
---
graph "parts of one tensor" {
  input %x: f32[3, 8]
  input %w: f32[12, 8]
  %linear: f32[3, 12] = aten.linear.default(input=%x, weight=%w)
  %q: f32[3, 4]@[12, 1], %k: f32[3, 4]@[12, 1], %v: f32[3, 4]@[12, 1] \
    = aten.split.Tensor(self=%linear) {split_size=4, dim=1}
  %heads: f32[3, 2, 2]@[12, 2, 1] = aten.view.default(self=%q) {size=[3, 2, 2]}
  %first: f32[2, 3, 2]@[2, 12, 1] = aten.transpose.int(self=%heads) {dim0=0, dim1=1}
  %copied: f32[2, 6] = aten.reshape.default(self=%first) {shape=[2, 6]}
  %mul: f32[3, 4] = aten.mul.Tensor(self=%k, other=%v)
  %up: f32[3, 1, 4] = aten.unsqueeze.default(self=%mul) {dim=1}
  %down: f32[3, 4] = aten.squeeze.dim(self=%up) {dim=1}
  return (%copied, %down, %v)
}
---
graph "views without elements" {
  input %x: f32[0, 4]
  %relu: f32[0, 4] = aten.relu.default(self=%x)
  %t: f32[4, 0] = aten.t.default(self=%relu)
  %neg: f32[4, 0] = aten.neg.default(self=%t)
  %view: f32[2, 0] = aten.view.default(self=%x) {size=[2, 0]}
  return (%neg, %view)
}
---
graph "views alone" {
  input %x: i64[4, 3]
  %detach: i64[4, 3] = aten.detach.default(self=%x)
  %alias: i64[4, 3] = aten.alias.default(self=%detach)
  %contiguous: i64[4, 3] = aten.contiguous.default(self=%alias)
  %expand: i64[4, 3] = aten.expand.default(self=%contiguous) {size=[4, 3]}
  return (%expand, %x)
}
"""


class NativeContract(BackendContract):
    """The contract on further graphs."""

    def graphs(self) -> Mapping[str, Graph]:
        further = map(parse_ir, _FURTHER.split("---"))
        return {**super().graphs(), **{graph.name: graph for graph in further}}


# A machine with a GPU, where these tests run without network, may lack what PyTorch's samples need.
HAS_SAMPLES = importlib.util.find_spec("expecttest") is not None


class TestHost(NativeContract):
    backend = HostBackend()
    operators = some(COMMON_OPERATORS, 20) if HAS_SAMPLES else ()


class TestCuda(NativeContract):
    backend = CudaBackend()
    operators = ("add", "cat", "clone", "neg", "view") if HAS_SAMPLES else ()  # the emulator is slow
    random_graphs = 3


@pytest.mark.parametrize(
    "graph", [parse_ir(text) for text in _FURTHER.split("---")], ids=lambda graph: graph.name
)
def test_the_further_graphs_are_run_by_the_backend(graph: Graph) -> None:
    assert [(node.name, HostBackend().supports(node)) for node in graph.body] == [
        (node.name, None) for node in graph.body
    ]
