"""The standard training step of a model in eager PyTorch: forward, loss, backward, optimizer."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import Module
from torch.optim import Optimizer

from npu_ir.core.structure import flatten, unflatten
from npu_runtime.errors import TracingError
from npu_runtime.training.tracing.unsupported import require_tensor

LossFunction = Callable[..., Any]


@dataclass(frozen=True, slots=True, eq=False)
class StepFunction:
    """A training step of a model, an optimizer and a loss function; a call takes one step in eager PyTorch.

    What ``loss_fn`` returns besides the loss is returned unchanged. Other fields are as for `StepOptions`.
    """

    model: Module
    optimizer: Optimizer
    loss_fn: LossFunction | None
    accumulate: int = 1
    clip_grad_norm: float | None = None
    clip_grad_value: float | None = None
    autocast: torch.dtype | None = None

    def __post_init__(self) -> None:
        if self.loss_fn is not None and not callable(self.loss_fn):
            raise TracingError(
                f"a loss is a function of what the model returns and the target, not {self.loss_fn!r}",
                fix="loss_fn=torch.nn.functional.mse_loss, for one; None where the model returns its loss",
            )
        for name in ("clip_grad_norm", "clip_grad_value"):
            most = getattr(self, name)
            if most is not None and (type(most) not in (int, float) or not most >= 0):
                raise TracingError(
                    f"gradients are clipped to a number of at least 0, not {name}={most!r}",
                    fix=f"leave {name}= out to clip none",
                )
        if type(self.accumulate) is not int or self.accumulate < 1:
            raise TracingError(
                f"a batch is cut into at least one part, not accumulate={self.accumulate!r}",
                fix="accumulate=1 is none",
            )
        if self.autocast is not None and not isinstance(self.autocast, torch.dtype):
            raise TracingError(
                f"autocast is a dtype, not {self.autocast!r}", fix="autocast=torch.bfloat16; None for none"
            )

    @property
    def __name__(self) -> str:
        """The name of its graphs."""
        return f"{type(self.model).__name__}_step"

    def __call__(self, *batch: Any, **named: Any) -> Any:
        """Take one step, and return the results of ``loss_fn``.

        With several microbatches, 0-d results are averaged as the gradients are; others are concatenated
        along their first dimension.

        Args:
            batch: The inputs of the model, followed by the target.
            named: Further inputs of the model.
        """
        self.optimizer.zero_grad()
        cut = split_batch((batch, named), self.accumulate)
        parts = [self._backward(part) for part in cut]
        parameters = [item for group in self.optimizer.param_groups for item in group["params"]]
        if self.clip_grad_norm is not None:
            torch.nn.utils.clip_grad_norm_(parameters, self.clip_grad_norm, foreach=True)
        if self.clip_grad_value is not None:
            torch.nn.utils.clip_grad_value_(parameters, self.clip_grad_value, foreach=True)
        self.optimizer.step()
        return parts[0] if len(parts) == 1 else combine_results(parts, [part.share for part in cut])

    def _backward(self, part: Microbatch) -> Any:
        batch, named = part.arguments
        with self._autocast(batch, named):
            if self.loss_fn is None:
                results = self.model(*batch, **_disable_cache(self.model, named))
            elif not batch:
                raise TracingError(
                    "a step takes the inputs of the model and a target",
                    fix="call step(*inputs, target); with loss_fn=None, all of it goes to the model",
                )
            else:
                results = self.loss_fn(self.model(*batch[:-1], **named), batch[-1])
        loss = _find_loss(results)
        scaled = loss if part.share == 1 else loss / part.share
        scaled.backward()  # type: ignore[no-untyped-call]
        leaves, structure = flatten(results)
        return unflatten(
            structure, [item.detach() if isinstance(item, torch.Tensor) else item for item in leaves]
        )

    def _autocast(self, batch: Any, named: Mapping[str, Any]) -> contextlib.AbstractContextManager[Any]:
        if self.autocast is None:
            return contextlib.nullcontext()
        tensors = [item for item in flatten((batch, dict(named)))[0] if isinstance(item, torch.Tensor)]
        device = tensors[0].device.type if tensors else "cpu"
        return torch.autocast(device, dtype=self.autocast)


def _find_loss(results: Any) -> torch.Tensor:
    loss = results
    if isinstance(results, Mapping):
        loss = results.get("loss")
    elif isinstance(results, (tuple, list)):
        loss = results[0] if results else None
    if not isinstance(loss, torch.Tensor):
        raise TracingError(
            f"the loss is {type(loss).__name__}, not a tensor",
            fix="loss_fn returns a tensor; a tuple or list that begins with it; or a dict with a 'loss'",
        )
    if loss.numel() != 1:
        raise TracingError(
            f"the loss has the shape {tuple(loss.shape)}: gradients are those of a single number",
            fix="reduce it: loss.mean(), or loss.sum()",
        )
    if not loss.requires_grad:
        raise TracingError(
            "the loss does not depend on any parameter that requires gradients",
            fix="compute it from what the model returns, without .detach(); "
            "set requires_grad=True where it is off",
        )
    return loss


def _disable_cache(model: Module, named: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the named arguments with ``use_cache=False``, where the model's configuration would decide.

    Models of transformers then return a cache, which training does not need and a graph cannot return.
    """
    try:
        parameter = inspect.signature(model.forward).parameters.get("use_cache")
    except ValueError:  # forward is implemented in C: it has no signature
        return named
    is_open = parameter is not None and parameter.default is None and "use_cache" not in named
    return {**named, "use_cache": False} if is_open else named


@dataclass(frozen=True, slots=True)
class Microbatch:
    """A microbatch.

    Attributes:
        arguments: Positional and named arguments of the model.
        share: The rows of the batch per row of the part; a mean over the part is divided by it.
    """

    arguments: Any
    share: float


def split_batch(batch: Any, count: int) -> list[Microbatch]:
    """Split a batch along the first dimension into ``count`` parts, or fewer if it has fewer rows.

    The parts are equal where ``count`` divides the rows. If not, their sizes differ by at most one row, and
    all tensors must have the same number of rows.

    Args:
        batch: Positional and named arguments. Leaves without a dimension go to every part.
        count: The number of parts.

    Raises:
        TracingError: The tensors cannot be split alike.
    """
    leaves, structure = flatten(batch)
    rows = list(dict.fromkeys(item.shape[0] for item in leaves if _has_rows(item)))
    if count == 1 or rows == [0]:
        return [Microbatch(batch, 1)]
    is_even = all(size % count == 0 for size in rows)
    if not is_even and len(rows) > 1:
        raise TracingError(
            f"tensors of {' and '.join(map(str, rows))} rows cannot be cut alike into {count} parts",
            fix=f"give them all as many rows, or multiples of accumulate={count}; "
            "what is not to be cut belongs to the model",
        )
    parts = count if is_even else min(count, rows[0])
    columns = [item.tensor_split(parts) if _has_rows(item) else (item,) * parts for item in leaves]
    shares = [parts] * parts if is_even else [rows[0] / size for size in _split_sizes(rows[0], parts)]
    return [
        Microbatch(unflatten(structure, list(part)), share)
        for part, share in zip(zip(*columns, strict=True), shares, strict=True)
    ]


def combine_results(parts: Sequence[Any], shares: Sequence[float]) -> Any:
    """Combine the results of microbatches: average scalars, concatenate the rest along the first dimension.

    Raises:
        TracingError: One of them is not a tensor.
    """
    structure = flatten(parts[0])[1]
    columns = zip(*(flatten(part)[0] for part in parts), strict=True)
    return unflatten(structure, [_combine_column(column, shares) for column in columns])


def _combine_column(column: Sequence[Any], shares: Sequence[float]) -> torch.Tensor:
    for item in column:
        require_tensor(item)
    if column[0].dim():
        return torch.cat(list(column))
    return torch.stack([item / share for item, share in zip(column, shares, strict=True)]).sum(0)


def _split_sizes(rows: int, count: int) -> list[int]:
    """Return the sizes of the parts that ``tensor_split`` makes: the larger ones first."""
    return [rows // count + (index < rows % count) for index in range(count)]


def _has_rows(item: Any) -> bool:
    return isinstance(item, torch.Tensor) and item.dim() > 0
