"""The context in which a training step is traced, and what a trace says of its FX nodes."""

from __future__ import annotations

import contextlib
import os
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

import torch
from torch._ops import OpOverload
from torch.fx import GraphModule, Interpreter, Node

from npu_ir._torch.fake_kernels import corrected_fakes
from npu_ir._torch.patches import set_attributes
from npu_ir._torch.tracing import uncompiled_traces
from npu_ir.core.user_code import is_user_file
from npu_runtime._torch import call_recorder
from npu_runtime._torch.call_recorder import CallRecorder
from npu_runtime._torch.list_ops import is_list_op, run_on_distinct
from npu_runtime._torch.node_provenance import ProvenanceRecorder
from npu_runtime._torch.norms import batch_norm_decompositions
from npu_runtime._torch.tensors import new_fake

_OWN = os.path.dirname(os.path.dirname(__file__)) + os.sep


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
            decomposition_table=batch_norm_decompositions(),
            tracing_mode="real",
            record_module_stack=True,
            record_stack_traces=True,
        )
        with (
            uncompiled_traces(),
            corrected_fakes(),
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
        return set_attributes(CallRecorder(self._mode, is_user_file, _is_own_code).patch())

    def functionalize(self, module: GraphModule, args: Sequence[Any]) -> GraphModule:
        """Return a traced module without writes, except for copies into its arguments at its end."""
        from torch.fx.experimental.proxy_tensor import make_fx

        def run(*items: Any) -> Any:
            return _LiftingInterpreter(module).run(*items)

        functional = torch.func.functionalize(run, remove="mutations")
        preserved = torch.fx.traceback.preserve_node_meta()
        # As in the first trace: the strides of a convolution depend on the library.
        with (
            _without_libraries(),
            uncompiled_traces(),
            corrected_fakes(),
            self._mode,
            torch.no_grad(),
            preserved,
        ):
            result = make_fx(functional, tracing_mode="real")(*args)
        remove_constant_copies(result)
        return result


class _LiftingInterpreter(Interpreter):
    """Interpreter of a traced module that makes writes into values of its constants visible.

    Functionalization tracks arguments only; ``lift_fresh`` wraps other tensors, so that it tracks them, too.
    """

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        item = super().get_attr(target, args, kwargs)
        return torch.ops.aten.lift_fresh(item) if isinstance(item, torch.Tensor) else item


def remove_constant_copies(module: GraphModule) -> None:
    """Remove the copies of constants made for writes, which functionalization has removed."""
    for node in module.graph.find_nodes(op="call_function", target=torch.ops.aten.lift_fresh_copy.default):
        constant, is_returned = node.args[0], any(user.op == "output" for user in node.users)
        if isinstance(constant, Node) and constant.op == "get_attr" and not is_returned:
            node.replace_all_uses_with(constant)
            module.graph.erase_node(node)


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


def written_arguments(op: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the arguments that a call of an op writes into: tensors, or FX nodes."""
    if not isinstance(op, OpOverload) or not op._schema.is_mutable:
        return
    for index, argument in enumerate(op._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            given = args[index] if index < len(args) else kwargs.get(argument.name)
            yield from given if isinstance(given, (list, tuple)) else (given,)


def _user_stack_frames() -> contextlib.AbstractContextManager[None]:
    """Keep the stack frames of all user code in FX nodes: PyTorch keeps those of ``forward`` only."""
    from torch.fx.proxy import TracerBase

    known = TracerBase._filter_traceback_frames

    def filter_frames(self: Any, frames: traceback.StackSummary) -> traceback.StackSummary:
        own = [index for index, frame in enumerate(frames) if _is_own_code(frame.filename)]
        inside = frames[own[0] if own else 0 :]
        users = [frame for frame in inside if is_user_file(frame.filename)]
        return traceback.StackSummary.from_list(users) if users else known(self, frames)

    return set_attributes((TracerBase, "_filter_traceback_frames", filter_frames))


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


def last_node() -> Any:
    """Return the FX node that was traced last; None before the first one."""
    from torch.fx.experimental.proxy_tensor import get_proxy_mode

    mode = get_proxy_mode()
    if mode is None:
        return None
    node = next(iter(reversed(mode.tracer.graph.nodes)), None)
    return None if node is None or node.op == "placeholder" else node


def name_of_call(graph: torch.fx.Graph, target: Any) -> str:
    """Return the name, but for its number, that a trace gives the FX node of a call."""
    name: str = graph._target_to_str(
        target.overloadpacket.__name__ if isinstance(target, OpOverload) else target
    )
    return name
