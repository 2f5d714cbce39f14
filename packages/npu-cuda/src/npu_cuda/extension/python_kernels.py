"""Kernels implemented as Python functions: around PyTorch, Triton, CuPy or NumPy.

::

    @npu_cuda.kernel("EltwiseRelu", kernel_id="acme.relu.torch", device="host")
    def relu(call):
        x, y = (torch.from_dlpack(tensor) for tensor in (*call.inputs, *call.outputs))
        torch.clamp(x, min=0, out=y)

Such a kernel is selected, planned and captured like any other. On cuda it runs once while a graph is
captured, and the graph replays its launches on ``call.stream``; on the host, and outside of graphs, it runs
at each launch.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from npu_cuda import _C
from npu_cuda.extension.python_ops import Op, find_op

_LEGACY_STREAM = 1  # the handle of the default stream; PyTorch would read an odd number as one of its own ids

# The flags of npu_kernel in npu_cuda/kernel.h.
_CAPTURE_SAFE = 1
_DETERMINISTIC = 2


@dataclass(frozen=True, slots=True)
class KernelCall:
    """The argument of a kernel: tensors of the caller, valid until the kernel returns.

    Attributes:
        inputs: Tensors with ``__dlpack__``: ``torch.from_dlpack(call.inputs[0])`` copies nothing.
        outputs: Tensors to write, likewise.
        attrs: The attributes by name.
        stream: The handle of the CUDA stream to launch on; unused on the host.
        workspace: A uint8 tensor of the size that ``workspace_bytes`` requested; None without it.
    """

    inputs: list[_C.Tensor]
    outputs: list[_C.Tensor]
    attrs: dict[str, int | float]
    stream: int
    workspace: _C.Tensor | None

    def torch_stream(self) -> contextlib.AbstractContextManager[Any]:
        """Return a context in which PyTorch launches on the stream of this call; a no-op on the host."""
        if self.outputs[0].device == "host":
            return contextlib.nullcontext()
        import torch

        device = self.outputs[0].device
        if self.stream == _LEGACY_STREAM:
            return torch.cuda.stream(torch.cuda.default_stream(device))
        return torch.cuda.stream(torch.cuda.ExternalStream(self.stream, device=device))  # type: ignore[no-untyped-call]


@dataclass(frozen=True, slots=True)
class CallSpec:
    """The description of a call without memory, for choosing a kernel.

    Attributes:
        inputs: Specs: ``dtype``, ``shape``, ``strides``, ``alignment``.
        outputs: Specs, likewise.
        attrs: The attributes by name.
        compute_capability: That of the device, 90 for 9.0; 0 on the host.
    """

    inputs: list[_C.TensorSpec]
    outputs: list[_C.TensorSpec]
    attrs: dict[str, int | float]
    compute_capability: int


@dataclass(frozen=True, slots=True)
class RegisteredKernel:
    """A function registered as a kernel; calling it calls the function."""

    kernel_id: str
    function: Callable[[KernelCall], None]

    def __call__(self, call: KernelCall) -> None:
        self.function(call)

    def remove(self) -> None:
        """Remove the kernel from the registry; programs and graphs that chose it keep it.

        Raises:
            InvalidArgumentError: It has already been removed.
        """
        _C.remove_kernel(self.kernel_id)


def kernel(
    op: str | int | _C.OpKind | Op,
    *,
    kernel_id: str,
    device: str,
    priority: int = 50,
    supported: Callable[[CallSpec], str | None] | None = None,
    workspace_bytes: Callable[[CallSpec], int] | None = None,
    deterministic: bool = True,
    capture_safe: bool = True,
) -> Callable[[Callable[[KernelCall], None]], RegisteredKernel]:
    """Return a decorator that registers a function as a kernel.

    An exception of the function reaches the caller of ``op_call`` or ``Program.run`` as it is, with a note
    that names the kernel.

    Args:
        op: The name of an op, its kind, or an `Op` of `npu_cuda.op`.
        kernel_id: Unique in the process: "acme.relu.torch".
        device: "host" or "cuda".
        priority: The kernel of the highest priority that supports a call runs it; npu-cuda uses 0 to 100.
        supported: Returns None, or the reason why the kernel does not support a call. None: it supports all
            calls that the op allows.
        workspace_bytes: Returns the memory that the function needs beside its tensors.
        deterministic: The same inputs give the same bits.
        capture_safe: On cuda, the function neither allocates device memory nor synchronizes.

    Raises:
        InvalidArgumentError: There is no such op, or there is already a kernel of this id.
        TypeError: An argument that must be a function is not callable.
    """
    kind = _kind_of(op)
    for name, answer in (("supported", supported), ("workspace_bytes", workspace_bytes)):
        if answer is not None:
            _require_callable(answer, kernel_id, name)
    flags = _CAPTURE_SAFE * capture_safe | _DETERMINISTIC * deterministic

    def register(function: Callable[[KernelCall], None]) -> RegisteredKernel:
        _require_callable(function, kernel_id, "what computes it")
        named = function if hasattr(function, "__qualname__") else type(function)
        origin = f"the Python function {named.__module__}.{named.__qualname__}"
        _C.register_kernel(
            kernel_id,
            kind,
            device,
            priority,
            flags,
            _make_launch(function, kernel_id),
            _with_call_spec(supported),
            _with_call_spec(workspace_bytes),
            origin,
        )
        return RegisteredKernel(kernel_id, function)

    return register


def _make_launch(function: Callable[[KernelCall], object], kernel_id: str) -> Callable[..., None]:
    def launch(*arguments: Any) -> None:
        try:
            _require_none(function(KernelCall(*arguments)), kernel_id)
        except BaseException as error:
            _add_note(error, f"in the kernel {kernel_id}")
            raise

    return launch


def _kind_of(op: str | int | _C.OpKind | Op) -> int | _C.OpKind:
    if isinstance(op, Op):
        return op.kind
    return find_op(op).kind if isinstance(op, str) else op


def _with_call_spec(function: Callable[[CallSpec], Any] | None) -> Callable[..., Any] | None:
    return None if function is None else lambda *arguments: function(CallSpec(*arguments))


def _require_callable(function: object, kernel_id: str, name: str) -> None:
    if not callable(function):
        raise TypeError(f"the kernel {kernel_id}: {name} must be a function, not {type(function).__name__}")


def _require_none(result: object, kernel_id: str) -> None:
    if result is not None:
        raise TypeError(
            f"the kernel {kernel_id} returned a {type(result).__name__}: it writes to "
            "call.outputs and returns nothing"
        )


def _add_note(error: BaseException, note: str) -> None:
    """Add a note to an exception; before Python 3.11, to its text."""
    if hasattr(error, "add_note"):
        error.add_note(note)
    elif error.args and isinstance(error.args[0], str):
        error.args = (f"{error.args[0]} ({note})", *error.args[1:])
