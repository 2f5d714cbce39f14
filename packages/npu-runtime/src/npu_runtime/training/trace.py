"""Tracing of a model or step function into the graph of its training step (`compile_ir`, `trace_step`)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from torch.nn import Module
from torch.optim import Optimizer

from npu_ir import Graph
from npu_runtime.errors import TracingError
from npu_runtime.training.options import StepKeywords, StepOptions, accept, take
from npu_runtime.training.step_function import LossFunction, StepFunction
from npu_runtime.training.tracing.components import TrainingComponents, find_components, make_components
from npu_runtime.training.tracing.traced_step import TracedStep
from npu_runtime.training.tracing.tracer import trace_function

if TYPE_CHECKING:
    from typing_extensions import Unpack  # of `typing` since Python 3.11


@accept(StepOptions)
def compile_ir(
    model: Module | Callable[..., Any],
    optimizer: Optimizer | None = None,
    loss_fn: LossFunction | None = None,
    example_batch: Any = None,
    **options: Unpack[StepKeywords],
) -> Graph:
    """Return a whole training step as one graph: functional, without weights, of ATen ops.

    Its arguments are the batch, and ``hyperparameters``: a dict of the floats in ``optimizer.param_groups``,
    by names like ``"group0.lr"``. Its results are those of the step; its updates are the mutated state:
    parameters, buffers, and the state of the optimizer (``fc.weight.exp_avg``).

    ``compile_ir(step_fn, example_batch=...)`` takes an ordinary PyTorch step function instead of the model:
    one that calls ``zero_grad()``, ``backward()`` and ``step()``.

    Args:
        model: The model, on any device including ``meta``; or a step function.
        optimizer: An optimizer of the model's parameters.
        loss_fn: As for `TrainStep`.
        example_batch: A tuple of arguments for the step, ``(*inputs, target)``; or a dict of arguments by
            name. Only shapes and dtypes of tensors matter, not their contents.
        options: The fields of `StepOptions`.

    Raises:
        TracingError: The step cannot be traced into a graph; the message has the reason, the line and a fix.
        ConversionError: An op cannot be represented in a graph.
    """
    (made,) = take(options, compile_ir, StepOptions)
    return trace_with_options(model, optimizer, loss_fn, example_batch, made).graph


@accept(StepOptions)
def trace_step(
    model: Module | Callable[..., Any],
    optimizer: Optimizer | None = None,
    loss_fn: LossFunction | None = None,
    example_batch: Any = None,
    **options: Unpack[StepKeywords],
) -> TracedStep:
    """Return the graph of `compile_ir` with its initial state and its training components."""
    (made,) = take(options, trace_step, StepOptions)
    return trace_with_options(model, optimizer, loss_fn, example_batch, made)


def trace_with_options(
    model: Module | Callable[..., Any],
    optimizer: Optimizer | None,
    loss_fn: LossFunction | None,
    example_batch: Any,
    options: StepOptions,
) -> TracedStep:
    """Trace a step as `trace_step` does, with its options as one object."""
    require_batch(example_batch)
    function, components = make_step(model, optimizer, loss_fn, options)
    args, kwargs = batch_arguments(example_batch)
    return trace_function(function, components, args, kwargs, name=options.name)


def require_batch(example_batch: Any) -> None:
    """Raise a TracingError if there is no example batch."""
    if example_batch is None:
        raise TracingError(
            "a step is traced on an example batch",
            fix="example_batch=(input, target), or the fourth argument",
        )


def make_step(
    model: Module | Callable[..., Any],
    optimizer: Optimizer | None,
    loss_fn: LossFunction | None,
    options: StepOptions,
) -> tuple[Callable[..., Any], TrainingComponents]:
    """Return the step function and its training components.

    Raises:
        TracingError: The arguments do not define a step.
    """
    if not isinstance(model, Module):
        if not callable(model) or optimizer is not None or loss_fn is not None or options.are_for_model:
            raise TracingError(
                f"a step function stands alone: {type(model).__name__} was given with other parts of a step",
                fix="compile_ir(model, optimizer, loss_fn, batch), "
                "or compile_ir(step_fn, example_batch=batch)",
            )
        return model, find_components(model, options.modules, options.optimizers)
    if not isinstance(optimizer, Optimizer):
        raise TracingError(
            f"a step of a model needs an optimizer, not {optimizer!r}", fix="give one of torch.optim"
        )
    options.require_no_scaler()
    step = StepFunction(
        model,
        optimizer,
        loss_fn,
        options.accumulate,
        options.clip_grad_norm,
        options.clip_grad_value,
        options.autocast,
    )
    named: list[tuple[str, Module]] = [("", model)]
    if isinstance(loss_fn, Module) and _has_tensors(loss_fn):
        named.append(("loss_fn", loss_fn))
    components = make_components(named, [("", optimizer)])
    if isinstance(loss_fn, Module) and len(named) == 1:
        components = dataclasses.replace(components, stateless_modules=(loss_fn,))
    return step, components


def batch_arguments(batch: Any) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    """Return the positional and the named arguments that a batch stands for."""
    if isinstance(batch, Mapping):
        return (), batch
    return (tuple(batch) if isinstance(batch, (tuple, list)) else (batch,)), {}


def _has_tensors(module: Module) -> bool:
    return any(True for _ in (*module.parameters(), *module.buffers()))
