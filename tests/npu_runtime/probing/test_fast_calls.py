"""The C functions behind PyTorch's Python API run the overload that was asked for."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from npu_runtime._torch.fast_calls import fast_callables, fast_callables_in_place

aten = torch.ops.aten


class Seen(TorchDispatchMode):
    """Keeps the names of the ops that run."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        self.names.append(str(op))
        return op(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", ["add.Tensor", "mul.Tensor", "lerp.Tensor", "clamp.Tensor"])
def test_a_tensor_without_dimensions_stays_a_tensor(name: str) -> None:
    base, _, overload = name.partition(".")
    op = getattr(getattr(aten, base), overload)
    args = [torch.rand(3), *(torch.tensor(0.5) for item in op._schema.arguments[1:] if not item.kwarg_only)]

    for calls in (fast_callables(op), fast_callables_in_place(op)):
        for _, function in calls:
            with Seen() as seen:
                function(*args)
            assert [item.replace("_.", ".") for item in seen.names] == [f"aten.{name}"]


@pytest.mark.parametrize("name", ["add", "mul", "div"])
def test_ops_of_lists_with_a_tensor_are_called_as_they_are(name: str) -> None:
    op = getattr(aten, f"_foreach_{name}").Tensor

    assert list(fast_callables(op)) == list(fast_callables_in_place(op)) == []
    assert list(fast_callables(getattr(aten, f"_foreach_{name}").List)) != []
