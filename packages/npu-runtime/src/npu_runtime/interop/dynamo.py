"""The ``torch.compile`` backend ``npu``: graphs captured by TorchDynamo run in an `IRExecutor`."""

from __future__ import annotations

import contextlib
import dataclasses
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.fx import GraphModule

from npu_ir import ConversionError
from npu_ir._torch.tracing import without_modes
from npu_ir.capture import convert_graph_module
from npu_ir.core.storage import shares_memory
from npu_ir.errors import UsageError
from npu_ir.plugins.backend import Backend
from npu_runtime._torch.dynamo import (
    box_function,
    compile_with_autograd,
    guarded_inputs,
    overwritten_inputs,
    undecomposed_composite_ops,
)
from npu_runtime.backends.registry import AUTO
from npu_runtime.errors import FallbackWarning
from npu_runtime.executor.executor import IRExecutor
from npu_runtime.executor.options import Passes

_INFERENCE = "inference"  # the name of a graph of which no gradients are recorded


@dataclasses.dataclass(frozen=True, slots=True)
class Options:
    """Options of the backend: ``torch.compile(model, backend="npu", options={"passes": "cpu"})``.

    Attributes:
        passes: As for `IRExecutor`; but ``"auto"`` is ``"default"``: weights are inputs, so none is packed.
        backend: As for `IRExecutor`; ATen where gradients are recorded and none is given.
        threads: As for `IRExecutor`.
        fallback: Let PyTorch run FX graphs that cannot be converted, with a `FallbackWarning`; else it is
            an error.
    """

    passes: Passes = "auto"
    backend: str | Backend | Sequence[str | Backend] | None = None
    threads: int | None = None
    fallback: bool = True

    @classmethod
    def of(cls, options: Mapping[str, Any] | None, mode: str | None) -> Options:
        """Return the options given by the user.

        Raises:
            UsageError: One is unknown, or of a wrong type, or a mode is given.
        """
        known = [field.name for field in dataclasses.fields(cls)]
        unknown = sorted(set(options or {}) - set(known))
        if unknown:
            raise UsageError(
                f"the backend 'npu' of torch.compile has no option {unknown[0]!r}",
                fix=f"its options are {', '.join(known)}",
            )
        if mode is not None and mode != "default":
            raise UsageError(
                f"the backend 'npu' of torch.compile has no mode {mode!r}",
                fix="leave mode out, and give options",
            )
        made = cls(**(options or {}))
        if not isinstance(made.fallback, bool):
            raise UsageError(
                f"fallback={made.fallback!r} is not True or False",
                fix="False makes it an error if PyTorch has to run a call",
            )
        return made


def npu(
    module: GraphModule,
    inputs: Sequence[Any],
    *,
    options: Mapping[str, Any] | None = None,
    mode: str | None = None,
) -> Callable[..., Any]:
    """Return a compiled replacement of ``module``; ``torch.compile(model, backend="npu")`` calls this.

    Args:
        module: The FX graph captured by TorchDynamo.
        inputs: Example arguments.
        options: See `Options`.
        mode: None or ``"default"``.

    Raises:
        UsageError: An option is unknown.
        NpuError: As raised by `IRExecutor`.
    """
    chosen = Options.of(options, mode)

    def compiler(name: str) -> Callable[..., Any]:
        return lambda part, examples: _compile(part, name, chosen, examples)

    # Without gradients, composite ops such as linear and conv2d are not decomposed: passes and kernels
    # match them.
    whole = contextlib.nullcontext() if _records_gradients(inputs) else undecomposed_composite_ops()
    with whole:
        return compile_with_autograd(
            module, inputs, compiler("forward"), compiler("backward"), compiler(_INFERENCE)
        )


def _records_gradients(inputs: Sequence[Any]) -> bool:
    return torch.is_grad_enabled() and any(
        isinstance(item, torch.Tensor) and item.requires_grad for item in inputs
    )


def _device_of(examples: Sequence[Any]) -> torch.device | None:
    """Return the device of the first tensor; None without tensors."""
    return next((item.device for item in examples if isinstance(item, torch.Tensor)), None)


def _compile(module: GraphModule, name: str, options: Options, examples: Sequence[Any]) -> Callable[..., Any]:
    """Return a callable that runs a functional FX graph."""
    passes, backend = options.passes, options.backend
    if passes == AUTO:
        passes = "default"
        backend = AUTO if backend is None and name == _INFERENCE else backend
    try:
        with without_modes():
            graph = convert_graph_module(module, name=name)
            written = overwritten_inputs() if name == _INFERENCE else {}
            executor = IRExecutor(
                graph,
                donate={graph.call[1][place].name: result for place, result in written.items()},
                passes=passes,
                backend=backend,
                device=_device_of(examples),
                threads=options.threads,
                max_fixed_sizes=0,  # PyTorch compiles for fixed sizes until it sees that they change
            )
    except ConversionError as error:
        if not options.fallback:
            raise
        warnings.warn(
            f"PyTorch runs a {name} graph of {len(module.graph.nodes)} nodes by itself: {error}",
            FallbackWarning,
            stacklevel=2,
        )
        return box_function(module)

    if name != "backward":  # which gets tensors that no guard has seen
        leaves = executor.graph.call[1]
        # The others are resolved in each call.
        plain = [position for position in guarded_inputs() if not examples[position].is_neg()]
        executor.trust([leaves[position] for position in plain])

    own = frozenset(written.values())

    def run(*arguments: Any) -> list[Any]:
        results = executor.run_flat(arguments)[0]
        for index, item in enumerate(results if own else ()):
            # Callers own what is not the new content of an input.
            if index not in own and any(shares_memory(item, arguments[place]) for place in written):
                results[index] = item.clone()
        return results

    return box_function(run)
