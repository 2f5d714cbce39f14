"""Kernels that are Python functions: around PyTorch, Triton, CuPy or NumPy.

::

    @npu_cuda.kernel("EltwiseRelu", kernel_id="acme.relu.torch", device="host")
    def relu(call):
        x, y = (torch.from_dlpack(tensor) for tensor in (*call.inputs, *call.outputs))
        torch.clamp(x, min=0, out=y)

Such a kernel is chosen, planned and captured as any other one. On cuda it runs once while a graph is captured, and what
it launches on ``call.stream`` is in the graph; on the host, and outside of graphs, it runs at each launch.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from npu_cuda import _C
from npu_cuda.python_ops import Op, find_op

_LEGACY_STREAM = 1  # the handle of the default stream; PyTorch takes an odd one for a number of its own

# The flags of npu_kernel in npu_cuda/kernel.h.
_CAPTURE_SAFE = 1
_DETERMINISTIC = 2


@dataclass(frozen=True, slots=True)
class KernelCall:
    """What a kernel is called with. The tensors are those of the caller, and good until the kernel returns.

    Attributes:
        inputs: Tensors with ``__dlpack__``: ``torch.from_dlpack(call.inputs[0])`` copies nothing.
        outputs: The same, to be written to.
        attrs: The attributes by name.
        stream: The handle of the CUDA stream to launch on; of no meaning on the host.
        workspace: As many bytes as ``workspace_bytes`` asked for, as a tensor of uint8; None without.
    """

    inputs: list[_C.Tensor]
    outputs: list[_C.Tensor]
    attrs: dict[str, int | float]
    stream: int
    workspace: _C.Tensor | None

    def torch_stream(self) -> contextlib.AbstractContextManager[Any]:
        """Return a context in which PyTorch launches on the stream of this call; it does nothing on the host."""
        if self.outputs[0].device == "host":
            return contextlib.nullcontext()
        import torch

        device = self.outputs[0].device
        if self.stream == _LEGACY_STREAM:
            return torch.cuda.stream(torch.cuda.default_stream(device))
        return torch.cuda.stream(torch.cuda.ExternalStream(self.stream, device=device))  # type: ignore[no-untyped-call]


@dataclass(frozen=True, slots=True)
class CallSpec:
    """A call whose memory is not known yet.

    Attributes:
        inputs: Descriptions: ``dtype``, ``shape``, ``strides``, ``alignment``.
        outputs: The same.
        attrs: The attributes by name.
        compute_capability: Of the device, 90 for 9.0; 0 on the host.
    """

    inputs: list[_C.TensorSpec]
    outputs: list[_C.TensorSpec]
    attrs: dict[str, int | float]
    compute_capability: int


@dataclass(frozen=True, slots=True)
class RegisteredKernel:
    """A function that is a kernel; calling it calls the function."""

    kernel_id: str
    function: Callable[[KernelCall], None]

    def __call__(self, call: KernelCall) -> None:
        self.function(call)

    def remove(self) -> None:
        """Take it out of the registry. Programs and graphs that chose it keep it.

        Raises:
            InvalidArgumentError: It is removed already.
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
    """Make a function a kernel.

    What the function raises reaches the caller of ``op_call`` or ``Program.run`` as it is, with a note that names the
    kernel.

    Args:
        op: The name of an op, its kind, or what `npu_cuda.op` returned.
        kernel_id: Unique in the process: "acme.relu.torch".
        device: "host" or "cuda".
        priority: The highest that takes a call runs it; those of npu-cuda have 0 to 100.
        supported: Says for a call, by its descriptions, None or the reason why the kernel does not take it. None: it
            takes all that the op allows.
        workspace_bytes: Says how much memory the function needs beside its tensors.
        deterministic: The same inputs give the same bits.
        capture_safe: On cuda, the function neither allocates from the device nor waits for it.

    Raises:
        InvalidArgumentError: There is no such op, or a kernel of this id.
        TypeError: What is to be a function is none.
    """
    kind = _kind_of(op)
    for name, answer in (("supported", supported), ("workspace_bytes", workspace_bytes)):
        if answer is not None:
            _require_callable(answer, kernel_id, name)
    flags = _CAPTURE_SAFE * capture_safe | _DETERMINISTIC * deterministic

    def register(function: Callable[[KernelCall], None]) -> RegisteredKernel:
        _require_callable(function, kernel_id, "what computes it")
        answering: Callable[[KernelCall], object] = function

        def launch(*arguments: Any) -> None:
            try:
                _require_none(answering(KernelCall(*arguments)), kernel_id)
            except BaseException as error:
                _add_note(error, f"in the kernel {kernel_id}")
                raise

        named = function if hasattr(function, "__qualname__") else type(function)
        origin = f"the Python function {named.__module__}.{named.__qualname__}"
        _C.register_kernel(
            kernel_id,
            kind,
            device,
            priority,
            flags,
            launch,
            _on_spec(supported),
            _on_spec(workspace_bytes),
            origin,
        )
        return RegisteredKernel(kernel_id, function)

    return register


def _kind_of(op: str | int | _C.OpKind | Op) -> int | _C.OpKind:
    if isinstance(op, Op):
        return op.kind
    return find_op(op).kind if isinstance(op, str) else op


def _on_spec(function: Callable[[CallSpec], Any] | None) -> Callable[..., Any] | None:
    return None if function is None else lambda *arguments: function(CallSpec(*arguments))


def _require_callable(function: object, kernel_id: str, name: str) -> None:
    if not callable(function):
        raise TypeError(f"the kernel {kernel_id}: {name} must be a function, not {type(function).__name__}")


def _require_none(result: object, kernel_id: str) -> None:
    if result is not None:
        raise TypeError(
            f"the kernel {kernel_id} returned a {type(result).__name__}: it writes to call.outputs and returns nothing"
        )


def _add_note(error: BaseException, note: str) -> None:
    """Say in an exception where it was raised; before Python 3.11 that is in its text."""
    if hasattr(error, "add_note"):
        error.add_note(note)
    elif error.args and isinstance(error.args[0], str):
        error.args = (f"{error.args[0]} ({note})", *error.args[1:])
