"""The private torch APIs that running graphs needs, each behind one name; no other module uses them.

In and out: objects of PyTorch. Open `tracing.py` first.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._ops import HigherOrderOperator, OpOverload

__all__ = [
    "HigherOrderOperator",
    "OpOverload",
    "below_autograd",
    "fast_callables",
    "fast_callables_in_place",
    "has_default_torch_state",
    "kernel_settings",
    "observing_calls",
    "random_state",
    "record_gradients",
]


def fast_callables(op: OpOverload) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield names and C functions behind PyTorch's Python API for an ATen op, the fastest first.

    Most accept the arguments of the operator, with 1 to 2 us less overhead than its ``OpOverload`` (torch
    2.13). They select an overload by the arguments, which may be another one.
    """
    if op.namespace != "aten" or _has_positional_alpha(op):
        return
    name = op._schema.name.partition("::")[2]
    for prefix, module in _modules():
        function = getattr(module, name, None)
        if function is not None and not name.startswith("__"):
            yield f"{prefix}.{name}", function


def fast_callables_in_place(op: OpOverload) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield names and C functions of the in-place variant of an op, the fastest first."""
    name = op._schema.name.partition("::")[2] + "_"
    if op.namespace != "aten" or _has_positional_alpha(op) or not hasattr(torch.ops.aten, name):
        return
    for prefix, module in _modules():
        function = getattr(module, name, None)
        if function is not None:
            yield f"{prefix}.{name}", function


def _has_positional_alpha(op: OpOverload) -> bool:
    """Return whether a positional call would match a deprecated signature: add(input, alpha, other)."""
    return any(item.name == "alpha" and not item.kwarg_only for item in op._schema.arguments)


def _modules() -> tuple[tuple[str, Any], ...]:
    names = ("_nn", "_VariableFunctions", "_linalg", "_special", "_fft", "TensorBase")
    return tuple((f"torch._C.{name}", getattr(torch._C, name)) for name in names)


def below_autograd() -> Any:
    """Return a context below autograd's dispatch: as fast as inference mode, but with ordinary tensors."""
    return torch._C._AutoDispatchBelowAutograd()


def record_gradients(record: bool) -> None:
    """Set grad mode for this thread, at a tenth of the cost of `torch.set_grad_enabled`."""
    torch._C._set_grad_enabled(record)


def random_state(device: torch.device, seed: int | None = None) -> torch.Tensor:
    """Return the state of the default generator of a device, seeded first if a seed is given."""
    module = torch.cuda if device.type == "cuda" else torch.random
    if seed is not None:
        torch.manual_seed(seed)
    state: torch.Tensor = module.get_rng_state()
    return state


def observing_calls(
    see: Callable[[OpOverload, list[Any], list[Any]], None],
) -> contextlib.AbstractContextManager[Any]:
    """Return a context in which ``see(op, arguments, results)``, both flat, is called after each op."""
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    class Seeing(TorchDispatchMode):  # type: ignore[no-untyped-call]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = func(*args, **(kwargs or {}))
            see(func, tree_leaves((args, kwargs)), tree_leaves(result))
            return result

    mode: contextlib.AbstractContextManager[Any] = Seeing()  # type: ignore[no-untyped-call]
    return mode


def has_default_torch_state() -> bool:
    """Return whether global torch state is the default: no modes, no autocast, float32 as default dtype."""
    return not (
        torch._C._len_torch_function_stack()
        or torch._C._len_torch_dispatch_stack()
        or torch._C._is_any_autocast_enabled()
        or torch.get_default_dtype() is not torch.float32
    )


def kernel_settings() -> tuple[bool, ...]:
    """Return the global settings that select kernels, and with them the strides of results."""
    c = torch._C
    return (
        c._get_flash_sdp_enabled(),
        c._get_math_sdp_enabled(),
        c._get_mem_efficient_sdp_enabled(),
        c._get_cudnn_sdp_enabled(),
        c._get_mkldnn_enabled(),
        c._get_deterministic_algorithms(),
    )


def tree_spec(tree: Any) -> Any:
    """Return the pytree specification of a structure, as an exported program stores it."""
    from torch.utils import _pytree

    return _pytree.tree_structure(tree)


class ExportContext:
    """The FakeTensorMode and ShapeEnv of an exported program.

    Attributes:
        mode: The mode of its FakeTensors.
        ranges: The range of each symbol, as an exported program stores it.
    """

    def __init__(self) -> None:
        from torch._subclasses import FakeTensorMode
        from torch.fx.experimental.symbolic_shapes import ShapeEnv

        self._env = ShapeEnv()
        self.mode = FakeTensorMode(shape_env=self._env, allow_non_fake_inputs=True)
        self.ranges: dict[Any, Any] = {}

    def create_size(
        self,
        name: str,
        low: int | None,
        high: int | None,
        example: int,
        place: tuple[tuple[str | int, ...], int | None] | None,
    ) -> Any:
        """Return a new SymInt.

        Args:
            name: The name of the symbol.
            low: Its smallest value; None for unbounded.
            high: Its largest value; None for unbounded.
            example: One of its values, the hint by which PyTorch takes branches.
            place: The path to the argument that determines its value (the parameter, then keys and
                indices), and the dimension; no dimension for a number. None if no single size determines
                it.
        """
        from torch._dynamo.source import (
            ConstantSource,
            GetItemSource,
            LocalSource,
            TensorProperty,
            TensorPropertySource,
        )
        from torch.fx.experimental.symbolic_shapes import DimDynamic, StrictMinMaxConstraint

        source: Any = ConstantSource(name)
        if place is not None:
            (parameter, *keys), axis = place
            source = LocalSource(str(parameter))
            for key in keys:
                source = GetItemSource(source, key)
            source = source if axis is None else TensorPropertySource(source, TensorProperty.SIZE, axis)
        range = _value_range(low, high)
        symbol = self._env.create_symbol(
            example,
            source,
            DimDynamic.DYNAMIC,
            StrictMinMaxConstraint(warn_only=False, vr=range),
            positive=True if low is not None and low > 0 else None,
            do_not_specialize_zero_one=True,
        )
        self._env.source_name_to_debug_name[
            source.name if isinstance(source.name, str) else source.name()
        ] = name
        self.ranges[symbol] = range
        return self._env.create_symintnode(symbol, hint=example, source=source)

    def set_range(self, size: Any, low: int | None, high: int | None) -> None:
        """Set the range of a data-dependent size."""
        expression = size.node.expr
        if expression.is_Symbol and expression not in self.ranges:
            self.ranges[expression] = self._env.var_to_range[expression] = _value_range(low, high)

    @contextlib.contextmanager
    def fake_mode(self) -> Iterator[None]:
        """Enter the FakeTensorMode, without guards and assumptions about symbolic sizes."""
        from torch.fx.experimental import _config

        with self.mode, _config.patch(backed_size_oblivious=True), self._env.suppress_guards():  # type: ignore[attr-defined]
            yield

    def unbacked_sizes(self, results: Any) -> dict[Any, Any] | None:
        """Return the paths to the data-dependent sizes in the results of an op."""
        from torch.fx.experimental.symbolic_shapes import compute_unbacked_bindings

        return compute_unbacked_bindings(self._env, results)


def _value_range(low: int | None, high: int | None) -> Any:
    from torch.utils._sympy.numbers import int_oo
    from torch.utils._sympy.value_ranges import ValueRanges

    return ValueRanges(-int_oo if low is None else low, int_oo if high is None else high)


def packed_layout() -> torch.layout:
    """Return the opaque layout of tensors that oneDNN packs."""
    layout: torch.layout = torch._mkldnn  # type: ignore[attr-defined]
    return layout


def auto_functionalized_op() -> Any:
    """Return the higher-order operator that runs a mutating op on copies: ``operator(op, **arguments)``.

    It returns the results of the op (None if it has none), then the copies that it wrote.
    """
    from torch._higher_order_ops.auto_functionalize import auto_functionalized

    return auto_functionalized


def compile_with_autograd(
    module: Any,
    inputs: Any,
    forward: Callable[..., Any],
    backward: Callable[..., Any],
    inference: Callable[..., Any],
) -> Callable[..., Any]:
    """Return the compiled replacement of a module for ``torch.compile``, made by AOTAutograd.

    Each compiler gets a functional FX graph with FakeTensors as metadata, and its example inputs.
    """
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch.partitioners import default_partition
    from torch._inductor import config

    backend = aot_autograd(
        fw_compiler=forward,
        bw_compiler=backward,
        inference_compiler=inference,
        partition_fn=default_partition,
        keep_inference_input_mutations=False,
    )
    # Version 1 of auto_functionalized passes the written tensors themselves, version 2 their bases and view
    # recipes.
    with config.patch(enable_auto_functionalized_v2=False):
        compiled: Callable[..., Any] = backend(module, inputs)
    return compiled


@contextlib.contextmanager
def undecomposed_composite_ops() -> Iterator[None]:
    """Trace composite ops such as ``linear`` without decomposition; gradients would need the parts."""
    from torch.export.exported_program import (
        _override_composite_implicit_decomp,
        _split_decomp_table_to_cia_and_python_decomp,
    )

    kept, _ = _split_decomp_table_to_cia_and_python_decomp({})
    with _override_composite_implicit_decomp(kept):
        yield


def box_function(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``function`` in boxed form: it takes one list of arguments, which it may clear."""
    from torch._functorch.aot_autograd import make_boxed_func  # type: ignore[attr-defined]

    boxed_function: Callable[..., Any] = make_boxed_func(function)
    return boxed_function


def is_fake(tensor: torch.Tensor) -> bool:
    """Return whether ``fake_tensor`` is a FakeTensor."""
    from torch._subclasses import FakeTensor

    return isinstance(tensor, FakeTensor)


def without_modes() -> Any:
    """Return a context without the current modes: real tensors even while PyTorch traces with fake ones."""
    from torch.utils._python_dispatch import _disable_current_modes

    return _disable_current_modes()
