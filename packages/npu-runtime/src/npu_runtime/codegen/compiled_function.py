"""Generated Python functions, compiled; their errors name the node and the user's source line."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType, TracebackType
from typing import Any, TypeAlias

from npu_ir import NpuError, Value
from npu_runtime.codegen.python_source import Source
from npu_runtime.lowering.instruction import failure_of

# A generated function with bound weights: takes the values of the symbols, then the inputs; returns a tuple.
BoundFunction: TypeAlias = Callable[..., "tuple[Any, ...]"]


class CompiledFunction:
    """A generated function, compiled once; weights can be bound to it any number of times.

    Args:
        name: The name of the graph.
        source: The generated source.
    """

    def __init__(self, name: str, source: Source) -> None:
        self.source = source
        self._bind: Callable[..., BoundFunction] = load_function("bind", name, source.text, {})
        self._filename = self._bind.__code__.co_filename

    def bind(
        self, weights: Mapping[Value, Any], ops: Sequence[Callable[..., Any]] | None = None
    ) -> BoundFunction:
        """Return the function with weights bound.

        Args:
            weights: The tensors by value.
            ops: Callables in place of ``source.ops``.
        """
        called = self.source.ops if ops is None else ops
        return self._bind(
            called, tuple(weights[value] for value in self.source.weights), self.source.literals
        )

    def explain(self, error: Exception, known: Mapping[Value, Any] = MappingProxyType({})) -> None:
        """Raise an error that names the failed node, unless ``error`` does so or comes from elsewhere.

        Args:
            error: The error raised by the function.
            known: The contents of values that have no name in the function.

        Raises:
            ExecutionError: Names node, module and source line.
        """
        frame = _find_frame(self._filename, error.__traceback__)
        instruction = self.source.lines.get(frame[0]) if frame else None
        if instruction is None or frame is None or (isinstance(error, NpuError) and error.where):
            return
        inputs = [frame[1].get(self.source.names[value], known.get(value)) for value in instruction.inputs]
        raise failure_of(instruction, error, inputs) from error


def load_function(function: str, name: str, text: str, constants: Mapping[str, Any]) -> Callable[..., Any]:
    """Run generated source; return a function that it defines.

    Args:
        function: The name of the function.
        name: The name of the program in tracebacks.
        text: The source.
        constants: Its globals.
    """
    # linecache asks `__loader__` for the source of tracebacks and caches it by filename: hence the digest.
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    filename = f"npu-program/{re.sub(r'[^0-9A-Za-z_.-]', '_', name)}-{digest}.py"
    space: dict[str, Any] = {**constants, "__name__": filename, "__loader__": _Loader(text)}
    exec(compile(text, filename, "exec"), space)  # noqa: S102 - the text is generated here
    # Taken out of its globals: in a cycle with them, it would keep their tensors until the garbage collector
    # runs.
    loaded: Callable[..., Any] = space.pop(function)
    return loaded


class _Loader:
    """Module loader that provides the generated source to tracebacks and debuggers."""

    def __init__(self, text: str) -> None:
        self._text = text

    def get_source(self, name: str) -> str:  # noqa: ARG002 - the protocol of loaders
        return self._text


def _find_frame(filename: str, traceback: TracebackType | None) -> tuple[int, Mapping[str, Any]] | None:
    """Return the line number and local variables of the traceback frame in a generated function."""
    while traceback is not None:
        if traceback.tb_frame.f_code.co_filename == filename:
            return traceback.tb_lineno, traceback.tb_frame.f_locals
        traceback = traceback.tb_next
    return None
