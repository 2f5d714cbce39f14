"""The native backends satisfy the backend interface of npu-ir, on the shared graphs and on more."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from npu_cuda.backend import CudaBackend, HostBackend
from npu_ir import Graph, parse_ir
from npu_runtime.testing import BackendContract

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
"""


class NativeContract(BackendContract):
    """The contract on further graphs."""

    def graphs(self) -> Mapping[str, Graph]:
        further = map(parse_ir, _FURTHER.split("---"))
        return {**super().graphs(), **{graph.name: graph for graph in further}}


class TestHost(NativeContract):
    backend = HostBackend()


class TestCuda(NativeContract):
    backend = CudaBackend()


@pytest.mark.parametrize(
    "graph", [parse_ir(text) for text in _FURTHER.split("---")], ids=lambda graph: graph.name
)
def test_the_further_graphs_are_run_by_the_backend(graph: Graph) -> None:
    assert [(node.name, HostBackend().supports(node)) for node in graph.body] == [
        (node.name, None) for node in graph.body
    ]
