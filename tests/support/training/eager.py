"""Training as PyTorch does it, step by step: what everything else is compared with."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from typing import Any, Protocol

import torch
from torch import nn, optim
from torch.utils._pytree import tree_flatten_with_path, tree_map

from npu_ir.core.tensor_bytes import same_data
from tests.support.training.cases import Case
from tests.support.training.optimizers import Recipe, entries

State = dict[str, torch.Tensor]


class Step(Protocol):
    """A step of training: what it returns and, after it, all that it has changed."""

    def __call__(self, *batch: Any) -> Any: ...

    def state(self) -> State: ...


MakeStep = Callable[[Case, nn.Module, optim.Optimizer], Step]


class EagerStep:
    def __init__(self, case: Case, model: nn.Module, optimizer: optim.Optimizer) -> None:
        self._case, self._model, self._optimizer = case, model, optimizer

    def __call__(self, *batch: Any) -> Any:
        options, model = self._case.options, self._model
        parts = microbatches(batch, options.get("accumulate", 1))
        self._optimizer.zero_grad()
        results = [self._backward(part, len(parts)) for part in parts]
        trained = [item for group in self._optimizer.param_groups for item in group["params"]]
        if "clip_grad_norm" in options:
            nn.utils.clip_grad_norm_(trained, options["clip_grad_norm"])
        if "clip_grad_value" in options:
            nn.utils.clip_grad_value_(trained, options["clip_grad_value"])
        self._optimizer.step()
        model.zero_grad()
        return results[0] if len(results) == 1 else torch.stack(results).mean()

    def _backward(self, batch: Sequence[Any], parts: int) -> Any:
        *inputs, target = batch
        dtype = self._case.options.get("autocast")
        with torch.autocast("cpu", dtype=dtype) if dtype else nullcontext():
            result = self._case.loss(self._model(*inputs), target)
        (loss_of(result) / parts).backward()
        return tree_map(torch.Tensor.detach, result)

    def state(self) -> State:
        return full_state(self._model, self._optimizer)


def step_by_hand(
    model: nn.Module, optimizer: optim.Optimizer, loss: Callable[..., Any] = nn.functional.mse_loss
) -> Callable[..., Any]:
    """Return the plainest step of a batch that ends with its target."""

    def step(*batch: Any) -> Any:
        optimizer.zero_grad()
        result = loss(model(*batch[:-1]), batch[-1])
        loss_of(result).backward()
        optimizer.step()
        return tree_map(torch.Tensor.detach, result)

    return step


def loss_of(result: Any) -> torch.Tensor:
    """Return the loss among what a loss function returns: the first, or the one of this name."""
    key: Any = "loss" if isinstance(result, dict) else 0
    return result if isinstance(result, torch.Tensor) else result[key]


def microbatches(batch: Any, parts: int) -> list[Any]:
    """Return a batch in so many parts along the first dimension."""
    if parts == 1:
        return [batch]
    return [tree_map(lambda item, index=index: item.chunk(parts)[index], batch) for index in range(parts)]


def full_state(model: nn.Module, optimizer: optim.Optimizer) -> State:
    names = {parameter: name for name, parameter in model.named_parameters()}
    held = {**names_of(model), **entries(optimizer, names)}
    return {name: item.detach().clone() for name, item in held.items()}


def names_of(model: nn.Module) -> State:
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}


def trained(
    make: MakeStep,
    case: Case,
    recipe: Recipe,
    *,
    dtype: torch.dtype = torch.float32,
    foreach: bool | None = None,
    steps: int | None = None,
) -> list[State]:
    """Return results (``result``, ``result[1]['kind']``, ...) and full state after each step.

    Each step has a batch of its own, another learning rate than the one before, and a seed of its own.
    """
    model = case.model().to(dtype)
    optimizer = recipe.make(case, model, foreach=foreach)
    step, schedule = make(case, model, optimizer), recipe.schedule(optimizer)
    found = []
    for index, batch in enumerate(case.batches(steps or recipe.steps)):
        schedule(index)
        torch.manual_seed(100 + index)
        result = step(*_in(dtype, batch))
        found.append({**dict(named_results(result)), **step.state()})
    return found


def named_results(result: Any) -> Iterator[tuple[str, torch.Tensor]]:
    for path, item in tree_flatten_with_path(result)[0]:
        yield "result" + "".join(map(str, path)), item.detach().clone()


def _in(dtype: torch.dtype, batch: Any) -> Any:
    def convert(item: torch.Tensor) -> torch.Tensor:
        return item.to(dtype) if item.is_floating_point() else item

    return tree_map(convert, batch)


def differences(found: Sequence[State], wanted: Sequence[State]) -> list[str]:
    """Return what is not the same to the bit, by name and step."""
    assert len(found) == len(wanted)
    return [
        f"{name} after step {index}"
        for index, (ours, theirs) in enumerate(zip(found, wanted, strict=True))
        for name in sorted(ours.keys() | theirs.keys())
        if name not in ours or name not in theirs or not same_data(ours[name], theirs[name])
    ]
