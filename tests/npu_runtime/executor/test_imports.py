"""What the first executor of a process imports: PyTorch's compiler takes seconds, and it is not needed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.processes import run_python

# A block of a transformer: everything that those of `benchmarks/models.py` consist of.
BLOCK = """
graph block {
  input %x: f32[1, 8, 16]
  param %g: f32[16]
  param %q: f32[48, 16]
  param %b: f32[48]
  param %w: f32[16, 16]
  call (%x)
  %n: f32[1, 8, 16] = aten.layer_norm.default(input=%x, weight=%g) {normalized_shape=[16]}
  %p: f32[1, 8, 48] = aten.linear.default(input=%n, weight=%q, bias=%b)
  %split.0: f32[1, 8, 16]@[384, 48, 1], %split.1: f32[1, 8, 16]@[384, 48, 1], \
%split.2: f32[1, 8, 16]@[384, 48, 1] = \
aten.split.Tensor(self=%p) {split_size=16, dim=-1}
  %v0: f32[1, 8, 2, 8]@[384, 48, 8, 1] = aten.view.default(self=%split.0) {size=[1, 8, 2, 8]}
  %v1: f32[1, 8, 2, 8]@[384, 48, 8, 1] = aten.view.default(self=%split.1) {size=[1, 8, 2, 8]}
  %v2: f32[1, 8, 2, 8]@[384, 48, 8, 1] = aten.view.default(self=%split.2) {size=[1, 8, 2, 8]}
  %t0: f32[1, 2, 8, 8]@[384, 8, 48, 1] = aten.transpose.int(self=%v0) {dim0=1, dim1=2}
  %t1: f32[1, 2, 8, 8]@[384, 8, 48, 1] = aten.transpose.int(self=%v1) {dim0=1, dim1=2}
  %t2: f32[1, 2, 8, 8]@[384, 8, 48, 1] = aten.transpose.int(self=%v2) {dim0=1, dim1=2}
  %a: f32[1, 2, 8, 8]@[128, 8, 16, 1] = \
aten.scaled_dot_product_attention.default(query=%t0, key=%t1, value=%t2) {is_causal=True}
  %t: f32[1, 8, 2, 8] = aten.transpose.int(self=%a) {dim0=1, dim1=2}
  %m: f32[1, 8, 16] = aten.reshape.default(self=%t) {shape=[1, 8, 16]}
  %o: f32[1, 8, 16] = aten.linear.default(input=%m, weight=%w)
  %h: f32[1, 8, 16] = aten.gelu.default(self=%o)
  %y: f32[1, 8, 16] = aten.add.Tensor(self=%x, other=%h)
  return %y
}
"""
SCRIPT = """
import sys
import torch
from npu_ir import parse_ir
from npu_runtime import IRExecutor

graph = parse_ir(sys.argv[1])
weights = {name: torch.rand(value.type.shape) for name, value in graph.parameters.items()}
executor = IRExecutor(graph, weights)
executor.save(sys.argv[2])
loaded = IRExecutor.load(sys.argv[2])
x = torch.rand(1, 8, 16)
assert torch.equal(executor(x), loaded(x))
print([name for name in ("torch._dynamo", "sympy", "npu_ir.viz") if name in sys.modules])
"""


@pytest.mark.smoke
def test_an_executor_of_a_transformer_imports_neither_the_compiler_of_pytorch_nor_drawings(
    tmp_path: Path,
) -> None:
    done = run_python(SCRIPT, BLOCK, str(tmp_path / "block.npu"))

    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"
