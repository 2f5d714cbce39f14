"""The private torch APIs that running graphs needs, each behind one name; nothing else touches them."""

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
    "is_undisturbed",
    "kernel_settings",
    "quick_callables",
    "quick_callables_in_place",
    "random_state",
    "record_gradients",
    "seeing_calls",
    "share_memory",
]


def quick_callables(op: OpOverload) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield what PyTorch's own Python functions call for an ATen op, the quickest first, by name.

    They take the operator's arguments, mostly, with 1 to 2 us less overhead than its ``OpOverload`` (torch 2.13).
    They choose an overload by the arguments, so another one may be called.
    """
    if op.namespace != "aten" or _has_positional_alpha(op):
        return
    name = op._schema.name.partition("::")[2]
    for prefix, module in _modules():
        function = getattr(module, name, None)
        if function is not None and not name.startswith("__"):
            yield f"{prefix}.{name}", function


def quick_callables_in_place(op: OpOverload) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield callables of the op that writes its result into the first argument, the quickest first, by name."""
    name = op._schema.name.partition("::")[2] + "_"
    if op.namespace != "aten" or _has_positional_alpha(op) or not hasattr(torch.ops.aten, name):
        return
    for prefix, module in _modules():
        function = getattr(module, name, None)
        if function is not None:
            yield f"{prefix}.{name}", function


def _has_positional_alpha(op: OpOverload) -> bool:
    """Whether a call by position would be taken for a deprecated signature: add(input, alpha, other)."""
    return any(item.name == "alpha" and not item.kwarg_only for item in op._schema.arguments)


def _modules() -> tuple[tuple[str, Any], ...]:
    names = ("_nn", "_VariableFunctions", "_linalg", "_special", "_fft", "TensorBase")
    return tuple((f"torch._C.{name}", getattr(torch._C, name)) for name in names)


def below_autograd() -> Any:
    """Return a context without autograd's dispatch: as quick as inference mode, but the results are ordinary tensors."""
    return torch._C._AutoDispatchBelowAutograd()


def record_gradients(record: bool) -> None:
    """Set whether autograd records what the thread runs; at a tenth of the cost of `torch.set_grad_enabled`."""
    torch._C._set_grad_enabled(record)


def random_state(device: torch.device, seed: int | None = None) -> torch.Tensor:
    """Return the state of the generator that ops on a device draw from; begin anew with a seed first, if one is given."""
    module = torch.cuda if device.type == "cuda" else torch.random
    if seed is not None:
        torch.manual_seed(seed)
    state: torch.Tensor = module.get_rng_state()
    return state


def seeing_calls(
    see: Callable[[OpOverload, list[Any], list[Any]], None],
) -> contextlib.AbstractContextManager[Any]:
    """Return a context in which ``see(op, arguments, results)``, both flat, is called behind each op of this thread."""
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    class Seeing(TorchDispatchMode):  # type: ignore[no-untyped-call]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = func(*args, **(kwargs or {}))
            see(func, tree_leaves((args, kwargs)), tree_leaves(result))
            return result

    mode: contextlib.AbstractContextManager[Any] = Seeing()  # type: ignore[no-untyped-call]
    return mode


def share_memory(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Return whether two strided tensors lie in the same memory, empty ones included."""
    return memory_id(left) == memory_id(right)


def memory_id(tensor: torch.Tensor) -> int:
    """Return a number that strided tensors have in common while they are alive and lie in the same memory."""
    return int(tensor.untyped_storage()._cdata)


def is_undisturbed() -> bool:
    """Return whether nothing that the thread has set changes what an op means: no mode, no autocast."""
    return not (
        torch._C._len_torch_function_stack()
        or torch._C._len_torch_dispatch_stack()
        or torch._C._is_any_autocast_enabled()
        or torch.get_default_dtype() is not torch.float32
    )


def kernel_settings() -> tuple[bool, ...]:
    """Return what the process has set by which ops choose kernels, whose results may be laid out differently."""
    c = torch._C
    return (
        c._get_flash_sdp_enabled(),
        c._get_math_sdp_enabled(),
        c._get_mem_efficient_sdp_enabled(),
        c._get_cudnn_sdp_enabled(),
        c._get_mkldnn_enabled(),
        c._get_deterministic_algorithms(),
    )


def is_composite(op: OpOverload) -> bool:
    """Return whether ``op`` consists of other ops: it may return what it was given without its schema saying so."""
    return op.has_kernel_for_dispatch_key(torch._C.DispatchKey.CompositeImplicitAutograd)


def tree_spec(tree: Any) -> Any:
    """Return how the leaves of a pytree nest, as programs of PyTorch's state it."""
    from torch.utils import _pytree

    return _pytree.tree_structure(tree)


class ProgramWorld:
    """Where the FakeTensors of a program live, and the symbols for sizes that it leaves open.

    Attributes:
        mode: Of the FakeTensors.
        ranges: The values that each symbol may have, as programs of PyTorch's state them.
    """

    def __init__(self) -> None:
        from torch._subclasses import FakeTensorMode
        from torch.fx.experimental.symbolic_shapes import ShapeEnv

        self._env = ShapeEnv()
        self.mode = FakeTensorMode(shape_env=self._env, allow_non_fake_inputs=True)
        self.ranges: dict[Any, Any] = {}

    def open_size(
        self,
        name: str,
        low: int | None,
        high: int | None,
        example: int,
        place: tuple[tuple[str | int, ...], int | None] | None,
    ) -> Any:
        """Return a new SymInt.

        Args:
            name: Of the symbol.
            low: Its least value.
            high: Its greatest value.
            example: One of its values, by which PyTorch takes a branch where it must.
            place: Where the tensor that tells its value is found (the parameter, then keys and indices), and the
                dimension; no dimension where it is a number. None where no single size tells it.
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

    def learn_range(self, size: Any, low: int | None, high: int | None) -> None:
        """State the range of a size that depends on data."""
        expression = size.node.expr
        if expression.is_Symbol and expression not in self.ranges:
            self.ranges[expression] = self._env.var_to_range[expression] = _value_range(low, high)

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Make FakeTensors of open sizes: nothing is assumed of them."""
        from torch.fx.experimental import _config

        with self.mode, _config.patch(backed_size_oblivious=True), self._env.suppress_guards():  # type: ignore[attr-defined]
            yield

    def new_sizes(self, results: Any) -> dict[Any, Any] | None:
        """Return where in the results of an op the sizes are found that depend on its data."""
        from torch.fx.experimental.symbolic_shapes import compute_unbacked_bindings

        return compute_unbacked_bindings(self._env, results)


def _value_range(low: int | None, high: int | None) -> Any:
    from torch.utils._sympy.numbers import int_oo
    from torch.utils._sympy.value_ranges import ValueRanges

    return ValueRanges(-int_oo if low is None else low, int_oo if high is None else high)


def packed_layout() -> torch.layout:
    """Return the layout of tensors that oneDNN lays out as it likes."""
    layout: torch.layout = torch._mkldnn  # type: ignore[attr-defined]
    return layout


def functional_call() -> Any:
    """Return the higher-order operator that calls an op which writes on copies: ``operator(op, **arguments)``.

    It returns the results of the op (None where it has none), then what it wrote.
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
    """Return what ``torch.compile`` is to run in place of ``module``: AOTAutograd calls the compilers.

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
    # Calls of custom ops that write state what they write, not how views of it are made.
    with config.patch(enable_auto_functionalized_v2=False):
        compiled: Callable[..., Any] = backend(module, inputs)
    return compiled


@contextlib.contextmanager
def composite_ops_whole() -> Iterator[None]:
    """Trace composite ops such as ``linear`` as they are: not for gradients, which need what they consist of."""
    from torch.export.exported_program import (
        _override_composite_implicit_decomp,
        _split_decomp_table_to_cia_and_python_decomp,
    )

    kept, _ = _split_decomp_table_to_cia_and_python_decomp({})
    with _override_composite_implicit_decomp(kept):
        yield


def boxed(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``function`` as AOTAutograd calls it: with one list of arguments, which it may empty."""
    from torch._functorch.aot_autograd import make_boxed_func  # type: ignore[attr-defined]

    made: Callable[..., Any] = make_boxed_func(function)
    return made


def is_fake(tensor: torch.Tensor) -> bool:
    """Return whether ``tensor`` is a FakeTensor."""
    from torch._subclasses import FakeTensor

    return isinstance(tensor, FakeTensor)


def without_modes() -> Any:
    """Return a context in which tensors are what they are, also where PyTorch is tracing with FakeTensors."""
    from torch.utils._python_dispatch import _disable_current_modes

    return _disable_current_modes()
