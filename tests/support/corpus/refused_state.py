"""Models that cannot be captured because of what they do to their buffers, modules and inputs."""

from typing import Any

import torch
from torch import nn

from npu_ir import ExportError
from tests.support.corpus.case import Holding, Refusals, floats

REFUSED = Refusals()
refuse = REFUSED.add


def late_buffer(self: Any, x: Any) -> Any:
    if not hasattr(self, "mask"):
        self.register_buffer("mask", torch.ones(3))
    return x * self.mask


def late_module(self: Any, x: Any) -> Any:
    if not len(self.inner):
        self.inner.append(nn.Linear(3, 3))
    return self.inner(x)


def overlapping_buffers() -> nn.Module:
    state = torch.zeros(4)
    return Holding(lambda self, x: (self.state.add_(x), self.tail)[1], state=state, tail=state[2:])


refuse("buffer_registered_in_forward", lambda: Holding(late_buffer),
    r"forward registers, replaces or removes mask\n  at: Holding")  # fmt: skip
refuse("module_added_in_forward", lambda: Holding(late_module, inner=nn.Sequential()),
    r"forward registers, replaces or removes inner.0\n")  # fmt: skip
refuse("lazy_module", lambda: nn.LazyLinear(3), r"uninitialized parameter", error=ExportError)
refuse("overlapping_buffers_changed", overlapping_buffers, r"state, tail overlap in memory", floats((4,)))


# What torch.export runs for real, on tensors that it does not replace while it runs forward


COUNT = torch.zeros(2)


def write_into_a_global(x: Any) -> Any:
    COUNT.add_(1)
    return x * COUNT.sum()


def count_and_return_an_object(self: Any, x: Any) -> Any:
    self.held[0].add_(1)
    self.log["calls"].append(x)
    self.norm(x)
    return object()


def counting_and_returning_an_object() -> nn.Module:
    """Return a model whose buffer is held by a list, too."""
    count = torch.zeros(2)
    return Holding(
        count_and_return_an_object, count=count, held=[count], norm=nn.BatchNorm1d(3), log={"calls": []}
    )


refuse(
    "a_global_tensor_written_to",
    write_into_a_global,
    (
        r"add_\.Tensor changes 'lifted_tensor_0', which is not a parameter or buffer\n"
        r"  at: .*case\.py:\d+\n.*register_buffer"
    ),
)
refuse("an_object_returned_after_counting", counting_and_returning_an_object, r"not a known type",
    error=ExportError)  # fmt: skip
