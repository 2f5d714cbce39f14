"""A compiled program: straight-line Python made of steps, whose errors name the node and the user's line."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from types import CodeType, MappingProxyType, TracebackType
from typing import Any, TypeAlias

from npu_ir import NpuError, Value
from npu_runtime.codegen.python_source import Source
from npu_runtime.lowering.instruction import failure_of

# A program with its weights: takes the values of the symbols, then the inputs; returns a tuple.
BoundProgram: TypeAlias = Callable[..., "tuple[Any, ...]"]


class Program:
    """Source that has been compiled; weights are bound to it as often as one likes.

    Args:
        name: Of the graph.
        source: What to compile.
    """

    def __init__(self, name: str, source: Source) -> None:
        self.source = source
        # Debuggers and tracebacks ask the loader of a module for its text, and keep it by the name of the file.
        digest = hashlib.sha256(source.text.encode()).hexdigest()[:8]
        filename = f"npu-program/{re.sub(r'[^0-9A-Za-z_.-]', '_', name)}-{digest}.py"
        space: dict[str, Any] = {"__name__": filename, "__loader__": _Loader(source.text)}
        code = compile(source.text, filename, "exec")
        exec(code, space)  # noqa: S102 - the text was written by source_of
        self._code: CodeType = code
        self._bind: Callable[..., BoundProgram] = space["bind"]

    def bound(
        self, weights: Mapping[Value, Any], ops: Sequence[Callable[..., Any]] | None = None
    ) -> BoundProgram:
        """Return the program on these weights.

        Args:
            weights: By value.
            ops: What to call in place of ``source.ops``.
        """
        called = self.source.ops if ops is None else ops
        return self._bind(
            called, tuple(weights[value] for value in self.source.weights), self.source.literals
        )

    def explain(self, error: Exception, known: Mapping[Value, Any] = MappingProxyType({})) -> None:
        """Raise what tells the user which node failed, where a step raised an error that does not say so itself.

        Args:
            error: What was raised.
            known: What values hold that the program does not name.

        Raises:
            ExecutionError: Names node, module and source line.
        """
        found = _line_in(self._code.co_filename, error.__traceback__)
        step = self.source.lines.get(found[0]) if found else None
        if step is None or found is None or (isinstance(error, NpuError) and error.where):
            return
        inputs = [found[1].get(self.source.names[value], known.get(value)) for value in step.inputs]
        raise failure_of(step, error, inputs) from error


class _Loader:
    """Gives the text of a program to those who show tracebacks."""

    def __init__(self, text: str) -> None:
        self._text = text

    def get_source(self, name: str) -> str:  # noqa: ARG002 - the protocol of loaders
        return self._text


def _line_in(filename: str, traceback: TracebackType | None) -> tuple[int, Mapping[str, Any]] | None:
    """Return the line of a program at which an error passed, and the local names there."""
    while traceback is not None:
        if traceback.tb_frame.f_code.co_filename == filename:
            return traceback.tb_lineno, traceback.tb_frame.f_locals
        traceback = traceback.tb_next
    return None
