"""The private torch APIs for tracing a training step, each behind one name; no other module uses them."""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

import torch
from torch._ops import OpOverload
from torch.fx import GraphModule, Interpreter, Node
from torch.library import Library

from npu_ir._torch.tracing import uncompiled_traces
from npu_runtime._torch import call_recorder
from npu_runtime._torch.call_recorder import CallRecorder
from npu_runtime._torch.list_ops import is_list_op, run_on_distinct
from npu_runtime._torch.node_provenance import ProvenanceRecorder
from npu_runtime._torch.tensors import new_fake

_TORCH = os.path.dirname(torch.__file__) + os.sep
_STANDARD = os.path.dirname(os.__file__) + os.sep
_OWN = os.path.dirname(os.path.dirname(__file__)) + os.sep

__all__ = [
    "Branch",
    "TracingContext",
    "autocast_settings",
    "compiler_flag",
    "foreign_kernels",
    "is_tracing",
    "last_node",
    "name_of_call",
    "remove_constant_copies",
    "set_attributes",
    "swap_weights",
    "unwrapped_step",
    "written_arguments",
]


class Branch:
    """A branch that Python took by the value of a number: the condition that held, over names of numbers."""

    def __init__(self, condition: Any, names: Mapping[Any, str]) -> None:
        self._condition = condition
        self._names = {symbol: names[symbol] for symbol in condition.free_symbols}
        text = str(condition)
        for symbol, name in self._names.items():
            text = text.replace(str(symbol), name)
        self.text = text
        self.names = frozenset(self._names.values())

    def relation(self) -> tuple[str, str | float, str | float] | None:
        """Return the condition as a relation of two names or numbers; None if it is not one."""
        sides = [self._plain(side) for side in getattr(self._condition, "args", ())]
        relation = getattr(self._condition, "rel_op", None)
        if relation is None or len(sides) != 2 or None in sides:
            return None
        left, right = sides
        assert left is not None
        assert right is not None
        return str(relation), left, right

    def _plain(self, item: Any) -> str | float | None:
        if item in self._names:
            return self._names[item]
        is_exact = getattr(item, "is_Float", False) or getattr(item, "is_Integer", False)
        return float(item) if is_exact else None

    def holds(self, values: Mapping[str, float]) -> bool:
        """Return whether the same branch is taken for other values of the numbers, given by name."""
        return bool(self._condition.subs({symbol: values[name] for symbol, name in self._names.items()}))


class _LiftingInterpreter(Interpreter):
    """Interpreter of a traced module that makes writes into values of its constants visible.

    Functionalization tracks arguments only; ``lift_fresh`` wraps other tensors, so that it tracks them, too.
    """

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        item = super().get_attr(target, args, kwargs)
        return torch.ops.aten.lift_fresh(item) if isinstance(item, torch.Tensor) else item


# For results of norms by number, the argument whose dtype they have. Statistics have that of the weights.
_DTYPES_OF_NORMS: Mapping[OpOverload, Mapping[int, int]] = {
    torch.ops.aten.native_group_norm.default: {1: 1, 2: 1},
    torch.ops.aten.native_group_norm_backward.default: {0: 1, 1: 4, 2: 4},
    torch.ops.aten.native_layer_norm_backward.default: {1: 5, 2: 6},  # until torch 2.9
}
# Likewise on the CPU. Elsewhere, statistics are float32, which FakeTensors know.
_DTYPES_OF_NORMS_ON_CPU: Mapping[OpOverload, Mapping[int, int]] = {
    **_DTYPES_OF_NORMS,
    torch.ops.aten._native_batch_norm_legit.default: {1: 3, 2: 3},
    torch.ops.aten._native_batch_norm_legit.no_stats: {1: 1, 2: 1},
    torch.ops.aten._native_batch_norm_legit_functional.default: {1: 3, 2: 3},
    torch.ops.aten._native_batch_norm_legit_no_training.default: {1: 3, 2: 3},
    torch.ops.aten.native_layer_norm.default: {1: 2, 2: 2},
}


class TracingContext:
    """The FakeTensorMode and ShapeEnv of a traced step, with its symbolic numbers."""

    def __init__(self) -> None:
        from torch._subclasses import FakeTensorMode
        from torch.fx.experimental.symbolic_shapes import ShapeEnv

        self._env = ShapeEnv()
        self._mode = FakeTensorMode(shape_env=self._env, allow_non_fake_inputs=True)
        self._names: dict[Any, str] = {}

    def fake_tensor(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a FakeTensor like ``tensor``, which may be fake itself; on the CPU for one on ``meta``."""
        from torch._subclasses import FakeTensor

        if tensor.is_meta or isinstance(tensor, FakeTensor):
            device = "cpu" if tensor.device.type == "meta" else tensor.device
            with self._mode:
                return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=device)
        is_plain = type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.layout is torch.strided
        if is_plain and not (tensor.storage_offset() or tensor.is_conj() or tensor.is_neg()):
            return new_fake(self._mode, tensor)
        fake: torch.Tensor = self._mode.from_tensor(tensor.detach(), static_shapes=True)
        return fake

    def symbolic_number(self, name: str, value: float) -> Any:
        """Return a symbolic number: comparing it takes the branch of ``value``."""
        from torch._dynamo.source import ConstantSource
        from torch.fx.experimental.symbolic_shapes import DimDynamic

        source = ConstantSource(name)
        symbol = self._env.create_unspecified_symbol(value, source=source, dynamic_dim=DimDynamic.DYNAMIC)
        self._names[symbol] = name
        return self._env.create_symfloatnode(symbol, hint=value, source=source)

    def branches(self) -> list[Branch]:
        """Return the branches taken so far."""
        guards = {str(guard.expr): guard.expr for guard in self._env.guards}
        return [
            Branch(expr, self._names) for expr in guards.values() if expr.free_symbols <= self._names.keys()
        ]

    def trace(
        self,
        function: Callable[..., Any],
        args: Sequence[Any],
        modules: Mapping[str, torch.nn.Module],
        refuse: Callable[[torch.Tensor], NoReturn],
    ) -> GraphModule:
        """Return the ATen ops that ``function`` runs, below autograd, as a graph module.

        Args:
            function: The function to trace.
            args: FakeTensors and symbolic numbers.
            modules: Modules by path: each node says which of them, or of their parts, it belongs to.
            refuse: Raises; called before an op writes into a real tensor, which tracing would change. Views
                of real tensors are FakeTensors: writes into these are traced.
        """
        from torch.fx.experimental.proxy_tensor import make_fx

        tracer = make_fx(
            function,
            decomposition_table=_batch_norm_decompositions(),
            tracing_mode="real",
            record_module_stack=True,
            record_stack_traces=True,
        )
        with (
            uncompiled_traces(),
            corrected_norms(),
            self._mode,
            _guarded_writes(self._mode, refuse),
            _without_libraries(),
            _user_stack_frames(),
            self._recorded_calls(),
            set_attributes(*ProvenanceRecorder(modules).patches()),
            torch.autograd.set_multithreading_enabled(False),
            torch.enable_grad(),
        ):
            return tracer(*args)

    def _recorded_calls(self) -> contextlib.AbstractContextManager[Any]:
        """Return a context in which ordinary calls are recorded directly, where the tracer is a known one."""
        if not call_recorder.is_known_tracer():
            return contextlib.nullcontext()
        return set_attributes(CallRecorder(self._mode, _is_user_code, _is_own_code).patch())

    def functionalize(self, module: GraphModule, args: Sequence[Any]) -> GraphModule:
        """Return a traced module without writes, except for copies into its arguments at its end."""
        from torch.fx.experimental.proxy_tensor import make_fx

        def run(*items: Any) -> Any:
            return _LiftingInterpreter(module).run(*items)

        functional = torch.func.functionalize(run, remove="mutations")
        preserved = torch.fx.traceback.preserve_node_meta()
        with uncompiled_traces(), corrected_norms(), self._mode, torch.no_grad(), preserved:
            result = make_fx(functional, tracing_mode="real")(*args)
        remove_constant_copies(result)
        return result


def corrected_norms() -> contextlib.AbstractContextManager[None]:
    """Have norms of fake 16-bit floats and float32 weights return what real ones do (torch 2.13 differs)."""
    from torch._subclasses import FakeTensorMode

    dispatch = FakeTensorMode.dispatch

    def corrected(self: Any, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        stated: Any = dispatch(self, op, types, args, kwargs)
        if op not in _DTYPES_OF_NORMS_ON_CPU:
            return stated
        is_on_cpu = args[0].device.type == "cpu"
        dtypes = _DTYPES_OF_NORMS_ON_CPU[op] if is_on_cpu else _DTYPES_OF_NORMS.get(op, {})
        results = list(stated)
        for place, source in dtypes.items():
            if results[place] is not None and args[source] is not None:
                results[place] = results[place].to(args[source].dtype)
        return tuple(results)

    return set_attributes((FakeTensorMode, "dispatch", corrected))


@contextlib.contextmanager
def _guarded_writes(mode: Any, refuse: Callable[[torch.Tensor], NoReturn]) -> Iterator[None]:
    """Call ``refuse`` before an op writes into a real tensor: FakeTensorMode may run it for real."""
    dispatch = mode.dispatch

    def check_writes(op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        for item in written_arguments(op, args, kwargs or {}):
            if type(item) in (torch.Tensor, torch.nn.Parameter):
                refuse(item)
        if is_list_op(op):
            return run_on_distinct(dispatch, op, types, args, kwargs)
        return dispatch(op, types, args, kwargs)

    mode.dispatch = check_writes
    try:
        yield
    finally:
        del mode.dispatch


def remove_constant_copies(module: GraphModule) -> None:
    """Remove the copies of constants made for writes, which functionalization has removed."""
    for node in module.graph.find_nodes(op="call_function", target=torch.ops.aten.lift_fresh_copy.default):
        constant, is_returned = node.args[0], any(user.op == "output" for user in node.users)
        if isinstance(constant, Node) and constant.op == "get_attr" and not is_returned:
            node.replace_all_uses_with(constant)
            module.graph.erase_node(node)


def name_of_call(graph: torch.fx.Graph, target: Any) -> str:
    """Return the name, but for its number, that a trace gives the FX node of a call."""
    name: str = graph._target_to_str(
        target.overloadpacket.__name__ if isinstance(target, OpOverload) else target
    )
    return name


def written_arguments(op: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the arguments that a call of an op writes into: tensors, or FX nodes."""
    if not isinstance(op, OpOverload) or not op._schema.is_mutable:
        return
    for index, argument in enumerate(op._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            given = args[index] if index < len(args) else kwargs.get(argument.name)
            yield from given if isinstance(given, (list, tuple)) else (given,)


def _batch_norm_decompositions() -> dict[Any, Callable[..., Any]]:
    """Return decompositions of batch norms: the schema of ``native_batch_norm`` declares no writes."""
    aten = torch.ops.aten

    def batch_norm(
        input: Any,
        weight: Any,
        bias: Any,
        mean: Any,
        variance: Any,
        training: bool,
        momentum: float,
        eps: float,
    ) -> Any:
        if mean is None:
            return aten._native_batch_norm_legit.no_stats(input, weight, bias, training, momentum, eps)
        if training:
            return aten._native_batch_norm_legit(input, weight, bias, mean, variance, training, momentum, eps)
        return aten._native_batch_norm_legit_no_training(input, weight, bias, mean, variance, momentum, eps)

    return {aten.native_batch_norm.default: batch_norm}


def _user_stack_frames() -> contextlib.AbstractContextManager[None]:
    """Keep the stack frames of all user code in FX nodes: PyTorch keeps those of ``forward`` only."""
    from torch.fx.proxy import TracerBase

    known = TracerBase._filter_traceback_frames

    def filter_frames(self: Any, frames: traceback.StackSummary) -> traceback.StackSummary:
        own = [index for index, frame in enumerate(frames) if _is_own_code(frame.filename)]
        inside = frames[own[0] if own else 0 :]
        users = [frame for frame in inside if _is_user_code(frame.filename)]
        return traceback.StackSummary.from_list(users) if users else known(self, frames)

    return set_attributes((TracerBase, "_filter_traceback_frames", filter_frames))


def _is_user_code(path: str) -> bool:
    is_standard = path.startswith(_STANDARD) and "site-packages" not in path
    return not is_standard and not path.startswith((_OWN, _TORCH, "<"))


def _is_own_code(path: str) -> bool:
    return path.startswith(_OWN)


@contextlib.contextmanager
def _without_libraries() -> Iterator[None]:
    """Have ATen call its own ops in place of oneDNN's and cuDNN's, for the block.

    The RNN layer of oneDNN saves the tensors for its backward only if gradients are recorded: not in a graph.
    The batch norm of cuDNN writes its running statistics, which its schema does not say.
    """
    before = torch._C._get_mkldnn_enabled(), torch._C._get_cudnn_enabled()
    torch._C._set_mkldnn_enabled(False)
    torch._C._set_cudnn_enabled(False)
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(before[0])
        torch._C._set_cudnn_enabled(before[1])


@contextlib.contextmanager
def set_attributes(*changes: tuple[Any, str, Any]) -> Iterator[None]:
    """Set attributes of objects, each given with its name and value, for the block."""
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in changes]
    try:
        for change in changes:
            setattr(*change)
        yield
    finally:
        for change in before:
            setattr(*change)


def compiler_flag() -> contextlib.AbstractContextManager[None]:
    """Set the flag of compilation: optimizers then keep numbers in tensors, instead of reading them."""
    from torch import compiler

    return set_attributes((compiler, "_is_compiling_flag", True))


@contextlib.contextmanager
def swap_weights(module: torch.nn.Module, tensors: Mapping[str, torch.Tensor]) -> Iterator[None]:
    """Swap parameters and buffers of a module by name; tied ones stay tied, and so do modules with two names.

    `torch.func.functional_call` does not restore the tensors of a module with two names (torch 2.13).
    """
    named = (*module.named_parameters(), *module.named_buffers())
    others = {id(own): tensors[name] for name, own in named if name in tensors}
    owners: Any = [owner for part in module.modules() for owner in (part._parameters, part._buffers)]
    kept = [(owner, key, own) for owner in owners for key, own in owner.items() if id(own) in others]
    try:
        for owner, key, own in kept:
            owner[key] = others[id(own)]
        yield
    finally:
        for owner, key, own in kept:
            owner[key] = own


def unwrapped_step(optimizer: torch.optim.Optimizer) -> Callable[[], Any]:
    """Return the step of an optimizer without PyTorch's wrappers: hooks and profiler ranges."""
    function: Any = type(optimizer).step
    function = getattr(function, "__wrapped__", function)
    return lambda: function(optimizer)


def is_tracing() -> bool:
    """Return whether this thread is tracing."""
    from torch.fx.experimental.proxy_tensor import get_proxy_mode

    return get_proxy_mode() is not None


def last_node() -> Any:
    """Return the FX node that was traced last; None before the first one."""
    from torch.fx.experimental.proxy_tensor import get_proxy_mode

    mode = get_proxy_mode()
    if mode is None:
        return None
    node = next(iter(reversed(mode.tracer.graph.nodes)), None)
    return None if node is None or node.op == "placeholder" else node


def global_module_hooks() -> list[dict[int, Callable[..., Any]]]:
    """Return the dicts of the hooks that run for every module."""
    from torch.nn.modules import module

    return [
        module._global_forward_pre_hooks,
        module._global_forward_hooks,
        module._global_backward_pre_hooks,
        module._global_backward_hooks,
    ]


def global_step_hooks() -> list[dict[int, Callable[..., Any]]]:
    """Return the dicts of the hooks that run for the step of every optimizer."""
    from torch.optim import optimizer

    return [optimizer._global_optimizer_pre_hooks, optimizer._global_optimizer_post_hooks]


def has_replaced_step(optimizer: torch.optim.Optimizer) -> bool:
    """Return whether an optimizer has a step of its own, besides the one that counts calls for schedulers."""
    step = vars(optimizer).get("step")
    return step is not None and not getattr(step, "_wrapped_by_lr_sched", False)


def foreign_kernels() -> list[str]:
    """Return the kernels for ATen's ops on CPUs that were registered in Python, by `torch.library`.

    PyTorch itself registers some: for other devices, and in libraries that its modules hold, a part of them
    when `torch.func.vmap` is called first.
    """
    registered: set[str] = getattr(torch.library, "_impls", set())
    others = ("/Meta", "/MPS", "/CUDA", "/XPU")
    names = {name for name in registered if name.startswith("aten/") and not name.endswith(others)}
    return sorted(names - _kernels_of_pytorch()) if names else []


def _kernels_of_pytorch() -> set[str]:
    modules = [
        module for name, module in [*sys.modules.items()] if module is not None and name.startswith("torch.")
    ]
    libraries = (item for module in modules for item in [*vars(module).values()] if type(item) is Library)
    return {name for library in libraries for name in getattr(library, "_op_impls", ())}


def autocast_settings() -> tuple[tuple[bool, torch.dtype], ...]:
    """Return whether autocast is enabled, and its dtype, on the CPU and on CUDA."""
    return tuple(
        (torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in ("cpu", "cuda")
    )
