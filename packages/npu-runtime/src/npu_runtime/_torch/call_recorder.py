"""Recording of calls as FX nodes, as make_fx does it (torch 2.13), in a fraction of the time.

make_fx flattens the arguments of each call, asks every tensor for its device, makes a proxy of every operand
and symbolizes the whole stack. For an ordinary call, of an op of ATen on traced FakeTensors and plain values,
the node is made directly. All others, and all that raise, are left to make_fx.
"""

from __future__ import annotations

import copy
import functools
import inspect
import operator
import sys
import threading
import traceback
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch
from torch._ops import OpOverload
from torch.fx import Node
from torch.fx.traceback import has_preserved_node_meta

_NUMBERS = (int, float, bool, complex)
_PLAIN_TYPES = frozenset(
    (*_NUMBERS, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format)
)
_DEVICE = torch.ops.prim.device.default


class _OtherOperandError(Exception):
    """An operand that is left to make_fx."""


@functools.cache
def is_known_tracer() -> bool:
    """Return whether the tracer of this PyTorch keeps its state as `CallRecorder` expects it.

    That of 2.13 does; that of 2.11 has its table of decompositions elsewhere.
    """
    from torch.fx.experimental.proxy_tensor import ProxyTorchDispatchMode
    from torch.fx.proxy import TracerBase

    parameters = inspect.signature(ProxyTorchDispatchMode.__init__).parameters
    return "decomposition_table" in parameters and hasattr(TracerBase, "_filter_traceback_frames")


class CallRecorder:
    """Records the ordinary calls of a trace, in the thread that makes the recorder.

    Args:
        mode: The FakeTensorMode of the trace.
        is_user_code: Whether a file, by name, is the user's: its lines are kept in the nodes.
        is_own_code: Whether it is of the package that traces: frames outside of these are left out.
    """

    def __init__(
        self, mode: Any, is_user_code: Callable[[str], bool], is_own_code: Callable[[str], bool]
    ) -> None:
        from torch._subclasses import FakeTensor
        from torch._subclasses.fake_impls import fast_detach
        from torch.fx.experimental import proxy_tensor

        self._mode = mode
        self._fake_tensor = FakeTensor
        self._snapshot = functools.partial(fast_detach, mode)
        self._slot = proxy_tensor._ProxyTensor
        self._proxy_mode = proxy_tensor.ProxyTorchDispatchMode
        self._track = proxy_tensor.track_tensor_tree
        self._stacks = _Stacks(is_user_code, is_own_code)
        self._thread = threading.get_ident()

    def patch(self) -> tuple[Any, str, Callable[..., Any]]:
        """Return the attribute to set while make_fx traces: its owner, name, and new value."""
        known = self._proxy_mode.__torch_dispatch__

        def dispatch(mode: Any, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if threading.get_ident() != self._thread or mode.pre_dispatch or has_preserved_node_meta():
                return known(mode, op, types, args, kwargs)
            if is_ordinary(op) and op not in mode.decomposition_table:
                kwargs = kwargs or {}
                try:
                    operands = self._operands(mode.tracer, args)
                    named = {key: self._operand(mode.tracer, item) for key, item in kwargs.items()}
                except _OtherOperandError:
                    pass
                else:
                    return self._record(mode.tracer, op, (args, kwargs), operands, named)
            elif op is _DEVICE and type(args[0]) is self._fake_tensor and not self._mode.in_kernel_invocation:
                return args[0].fake_device
            return known(mode, op, types, args, kwargs)

        return self._proxy_mode, "__torch_dispatch__", dispatch

    def _operands(self, tracer: Any, items: Any) -> tuple[Any, ...]:
        return tuple([self._operand(tracer, item) for item in items])

    def _operand(self, tracer: Any, item: Any) -> Any:
        """Return an argument of a call as one of an FX node."""
        kind = type(item)
        if kind is self._fake_tensor:
            slot = tracer.tensor_tracker.get(item)
            if slot is None or slot.constant is not None:
                raise _OtherOperandError
            return slot.proxy.node
        if kind in _PLAIN_TYPES:
            return item
        if kind is list:
            return [self._operand(tracer, part) for part in item]
        if kind is tuple:
            return self._operands(tracer, item)
        if kind is torch.SymFloat:
            slot = tracer.symnode_tracker.get(item)
            if slot is not None:
                return slot.force().node
        raise _OtherOperandError

    def _record(self, tracer: Any, op: OpOverload, call: Any, operands: Any, named: Any) -> Any:
        """Make the node of a call, run it, and track its results."""
        node = self._insert(tracer, op, operands, named, op.overloadpacket.__name__)
        before, tracer.enable_thunkify = tracer.enable_thunkify, True
        try:
            results = op(*call[0], **call[1])
        finally:
            tracer.enable_thunkify = before
        if type(results) is self._fake_tensor:
            self._track_tensor(tracer, node, results, self._value(results))
        elif type(results) in (list, tuple) and all(map(self._is_result, results)):
            node.meta["val"] = values = type(results)(map(self._value, results))
            for index, (item, value) in enumerate(zip(results, values, strict=True)):
                part = self._insert(tracer, operator.getitem, (node, index), {}, "getitem")
                if item is not None:
                    self._track_tensor(tracer, part, item, value)
        elif results is not None:
            self._track(results, tracer.proxy(node), constant=None, tracer=tracer)
        return results

    def _is_result(self, item: Any) -> bool:
        return item is None or type(item) is self._fake_tensor

    def _value(self, item: Any) -> Any:
        """Return a result as it is now: later it has a gradient function, and perhaps another shape."""
        return None if item is None else self._snapshot(item)

    def _track_tensor(self, tracer: Any, node: Node, tensor: Any, value: Any) -> None:
        node.meta["val"] = value
        tracer.tensor_tracker[tensor] = self._slot(tracer.proxy(node), None)

    def _insert(self, tracer: Any, target: Any, args: Any, kwargs: Any, name: str) -> Node:
        node: Node = tracer.graph.create_node(
            "call_function", target, args, kwargs, tracer.graph._target_to_str(name)
        )
        if tracer.module_stack:
            node.meta["nn_module_stack"] = copy.copy(tracer.module_stack)
        if tracer.record_stack_traces and not node.stack_trace:
            node.stack_trace = self._stacks.text(tracer)
        return node


@functools.cache
def is_ordinary(op: Any) -> bool:
    """Return whether calls of an op have no meaning to make_fx besides being recorded."""
    if not isinstance(op, OpOverload) or op.namespace != "aten":
        return False
    aten = torch.ops.aten
    special = {aten.lift_fresh.default, aten.lift_fresh_copy.default, aten.is_nonzero.default}
    tags = {
        torch.Tag.data_dependent_output,
        torch.Tag.dynamic_output_shape,
        torch.Tag.inplace_view,
    }
    return (
        op not in special
        and not tags.intersection(op.tags)
        and not op.has_kernel_for_dispatch_key(torch._C.DispatchKey.CompositeImplicitAutograd)
    )


class _Stacks:
    """The stack of the user's code at a call, as text: that of the innermost frames of one package."""

    def __init__(self, is_user_code: Callable[[str], bool], is_own_code: Callable[[str], bool]) -> None:
        self._kind = functools.cache(lambda path: "own" if is_own_code(path) else is_user_code(path))
        self._texts: dict[Any, str] = {}

    def text(self, tracer: Any) -> str:
        """Return the lines of the user's frames, outermost first; of those of PyTorch if there are none."""
        users: list[tuple[str, int, str]] = []
        inside = None
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            code = frame.f_code
            kind = self._kind(code.co_filename)
            if kind == "own":
                inside = len(users)
            elif kind:
                users.append((code.co_filename, frame.f_lineno, code.co_name))
            frame = frame.f_back
        key = tuple(users[:inside])
        if not key:
            return self._text_of_pytorch(tracer)
        text = self._texts.get(key)
        if text is None:
            frames = [traceback.FrameSummary(*item) for item in reversed(key)]
            text = self._texts[key] = _format(traceback.StackSummary.from_list(frames))
        return text

    def _text_of_pytorch(self, tracer: Any) -> str:
        """Return the frames that PyTorch keeps where no user code is: those of ``forward``, for example."""
        frames: list[tuple[str, int, str]] = []
        frame: FrameType | None = sys._getframe(2)
        while frame is not None:
            code = frame.f_code
            frames.append((code.co_filename, frame.f_lineno, code.co_name))
            frame = frame.f_back
        key = tuple(frames)
        text = self._texts.get(key)
        if text is None:
            summary = [traceback.FrameSummary(*item, lookup_line=False) for item in reversed(frames)]
            kept = tracer._filter_traceback_frames(traceback.StackSummary.from_list(summary))
            text = self._texts[key] = _format(kept)
        return text


def _format(frames: traceback.StackSummary) -> str:
    return "".join(frames.format()).strip()
