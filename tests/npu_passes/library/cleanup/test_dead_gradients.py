"""dead-gradients: what a backward op computes is what is read of it."""

import pytest

from npu_ir import Graph
from npu_passes import PassManager
from npu_passes.library.cleanup.dead_gradients import DeadGradients
from npu_passes.testing import check_pass
from tests.support.passes.training_graphs import ops
from tests.support.small_programs import program

CONVOLUTION = """
  input %grad: f32[2, 4, 5, 5]
  input %x: f32[2, 3, 7, 7]
  param %weight: f32[4, 3, 3, 3]
  %all.0: f32[2, 3, 7, 7], %all.1: f32[4, 3, 3, 3], %all.2: f32[4] = \
aten.convolution_backward.default(grad_output=%grad, input=%x, weight=%weight) \
{bias_sizes=[4], stride=[1, 1], padding=[0, 0], dilation=[1, 1], transposed=False, output_padding=[0, 0], \
groups=1, output_mask=[True, True, True]}
"""
LAYER_NORM = """
  input %grad: f32[2, 3, 5]
  input %x: f32[2, 3, 5]
  param %weight: f32[5]
  param %bias: f32[5]
  %norm.0: f32[2, 3, 5], %norm.1: f32[2, 3, 1], %norm.2: f32[2, 3, 1] = \
aten.native_layer_norm.default(input=%x, weight=%weight, bias=%bias) {normalized_shape=[5], eps=1e-05}
  %all.0: f32[2, 3, 5], %all.1: f32[5], %all.2: f32[5] = \
aten.native_layer_norm_backward.default(grad_out=%grad, input=%x, mean=%norm.1, rstd=%norm.2, \
weight=%weight, bias=%bias) {normalized_shape=[5], output_mask=[True, True, True]}
"""
BATCH_NORM = """
  input %grad: f32[6, 5]
  input %x: f32[6, 5]
  input %mean: f32[5]
  input %invstd: f32[5]
  param %weight: f32[5]
  %all.0: f32[6, 5], %all.1: f32[5], %all.2: f32[5] = \
aten.native_batch_norm_backward.default(grad_out=%grad, input=%x, weight=%weight, save_mean=%mean, \
save_invstd=%invstd) {train=True, eps=1e-05, output_mask=[True, True, True]}
"""


def mask(graph: Graph) -> list[bool]:
    (found,) = [node.attrs["output_mask"] for node in graph.nodes if "output_mask" in node.attrs]
    assert isinstance(found, list)
    return [bool(item) for item in found]


def test_a_gradient_that_nothing_reads_is_not_computed(subtests: pytest.Subtests) -> None:
    rows = [
        ("(%all.0, %all.2)", [True, False, True]),
        ("%all.1", [False, True, False]),
        ("(%all.0, %all.1, %all.2)", [True, True, True]),
    ]
    for text in (CONVOLUTION, LAYER_NORM, BATCH_NORM):
        for results, needed in rows:
            with subtests.test(text=text, results=results):
                graph = program(f"{text}\n  return {results}")

                assert check_pass(DeadGradients, graph) == (not all(needed))
                assert mask(PassManager([DeadGradients]).run(graph).graph) == needed


def test_what_only_an_unread_gradient_needs_goes_with_it() -> None:
    graph = program(f"""{CONVOLUTION}
        %unread: f32[4] = aten.mul.Tensor(self=%all.2) {{other=2.0}}
        %noise: f32[4] = aten.bernoulli.p(self=%unread) {{p=0.5}}
        %sum: f32[] = aten.sum.default(self=%all.0)
        return %all.1
    """)

    found = PassManager([DeadGradients]).run(graph).graph

    # Random numbers are drawn in the same order as before.
    assert ops(found) == ["aten.convolution_backward.default", "aten.mul.Tensor", "aten.bernoulli.p"]
    assert mask(found) == [False, True, True]
