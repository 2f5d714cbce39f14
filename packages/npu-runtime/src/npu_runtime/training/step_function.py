"""The standard training step of a model in eager PyTorch: forward, loss, backward, optimizer."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import Module
from torch.optim import Optimizer

from npu_ir.core.structure import flatten, unflatten
from npu_runtime.errors import TracingError
from npu_runtime.training.microbatches import Microbatch, combine_results, split_batch

LossFunction = Callable[..., Any]


@dataclass(frozen=True, slots=True, eq=False)
class StepFunction:
    """A training step of a model, an optimizer and a loss function; a call takes one step in eager PyTorch.

    Attributes:
        model: Called with the inputs.
        optimizer: An optimizer of the model's parameters.
        loss_fn: ``loss_fn(model(*inputs), target)``. Returns the loss; or a tuple or list that begins with
            it, or a dict with a ``"loss"``: the rest is returned unchanged. None: the model takes the whole
            batch and returns that itself; a transformers model is called with ``use_cache=False`` unless the
            call gives it.
        accumulate: The number of microbatches, as even as possible along the first dimension of the batch.
            Their gradients are averaged, weighted by rows: the gradient of a loss that is a mean over rows.
        clip_grad_norm: The largest total norm of the gradients, which are scaled down to it.
        clip_grad_value: The largest magnitude of a gradient element; larger ones are clamped.
        autocast: The dtype of ``torch.autocast`` around model and loss, usually bfloat16. Gradients of
            float16 are not scaled; a ``GradScaler`` is refused.
    """

    model: Module
    optimizer: Optimizer
    loss_fn: LossFunction | None
    accumulate: int = 1
    clip_grad_norm: float | None = None
    clip_grad_value: float | None = None
    autocast: torch.dtype | None = None

    def __post_init__(self) -> None:
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
