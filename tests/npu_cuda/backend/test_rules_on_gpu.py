"""The lowering rules on a GPU: what their tests check on the host, by the kernels of CUDA.

The tests are those of the host with another backend in its place, one that copies from the CPU and back.
"""

import inspect
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import pytest
import torch

from npu_cuda.backend import CudaBackend
from npu_ir.graph.partition import PartitionGraph
from npu_ir.plugins.backend import BackendOp
from tests.npu_cuda.backend import (
    test_batch_norm_rules,
    test_elementwise_rules,
    test_pool_rules,
    test_reduction_rules,
    test_row_rules,
)

pytestmark = pytest.mark.gpu

BATCH_NORMS, ELEMENTWISE, POOLS, REDUCTIONS, ROWS = MODULES = (
    test_batch_norm_rules, test_elementwise_rules, test_pool_rules, test_reduction_rules, test_row_rules,
)  # fmt: skip


def on_the_gpu(item: Any) -> Any:
    """Return a copy with the same strides; what is no tensor stays as it is."""
    if not isinstance(item, torch.Tensor):
        return item
    copy = torch.empty(0, dtype=item.dtype, device="cuda")
    return copy.set_(item.untyped_storage().cuda(), item.storage_offset(), item.shape, item.stride())


class CudaFromTheCpu(CudaBackend):
    """The native ops on a GPU, for callers whose tensors are on the CPU."""

    def devices(self) -> Sequence[torch.device]:
        return [torch.device("cpu")]

    def prepare(self, graph: PartitionGraph, ops: Sequence[BackendOp], device: torch.device) -> Any:
        return super().prepare(graph, ops, super().devices()[0])

    def run(self, program: Any, inputs: Sequence[Any]) -> Sequence[Any]:
        return [item.cpu() for item in super().run(program, list(map(on_the_gpu, inputs)))]

    def bind_constants(self, program: Any, constants: Any) -> None:
        """Constants are copied at each run."""

    def bind(self, program: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> Callable[[], None]:
        def compute() -> None:
            for output, result in zip(outputs, self.run(program, inputs), strict=True):
                output.copy_(result)

        return compute


@pytest.fixture(autouse=True)
def _on_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in MODULES:
        monkeypatch.setattr(module, "HOST", CudaFromTheCpu())


def from_the_host(module: ModuleType, *names: str) -> None:
    """Add tests of a module to those of this one."""
    for name in names:
        test = getattr(module, f"test_{name}")
        prefix = inspect.getmodulename(module.__file__)
        globals()[f"{prefix}_{name}"] = test


from_the_host(
    BATCH_NORMS, "a_norm_that_trains_moves_its_running_statistics", "a_norm_with_running_statistics",
    "a_channel_whose_mean_is_large_loses_no_digits", "gradients",
)  # fmt: skip
from_the_host(
    ELEMENTWISE, "a_node_gives_what_pytorch_gives", "inputs_are_broadcast_strided_and_of_several_dtypes"
)
from_the_host(
    POOLS, "pools_compute_what_they_do_in_pytorch", "nearest_elements_are_those_of_pytorch",
    "a_nan_stays_where_an_axis_keeps_its_size", "pools_train_as_in_pytorch",
)  # fmt: skip
from_the_host(
    REDUCTIONS, "a_node_gives_what_pytorch_gives", "norms_of_any_order", "dtypes_are_those_of_pytorch",
    "a_variance_divides_by_what_the_correction_leaves", "a_loss_is_reduced", "few_elements_or_none",
)  # fmt: skip
from_the_host(
    ROWS, "a_node_gives_what_pytorch_gives", "a_node_of_another_dtype_gives_what_pytorch_gives",
    "rows_of_special_values_are_those_of_pytorch", "rows_have_any_width",
    "the_variance_of_numbers_far_from_0_keeps_its_digits",
)  # fmt: skip
