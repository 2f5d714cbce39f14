"""Generated Python functions, compiled; their errors name the node and the user's source line."""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType, TracebackType
from typing import Any, TypeAlias

from npu_ir import NpuError, Value
from npu_runtime._torch.opaque_calls import opaque
from npu_runtime.codegen.python_source import Source, generate_source
from npu_runtime.lowering.instruction import Instruction, failure_of

# A generated function with bound weights: takes the values of the symbols, then the inputs; returns a tuple.
BoundFunction: TypeAlias = Callable[..., "tuple[Any, ...]"]


class CompiledFunction:
    """A generated function, compiled at first use; weights can be bound to it any number of times.

    Args:
        name: The name of the graph.
        inputs: As for `generate_source`, like the next two.
        instructions: Likewise.
        results: Likewise.

    Attributes:
        result_count: The length of the tuple that the function returns.
    """

    def __init__(
        self, name: str, inputs: Sequence[Value], instructions: Sequence[Instruction], results: Sequence[Any]
    ) -> None:
        self._name = name
        self._parts = inputs, instructions, results
        self.result_count = len(results)

    @functools.cached_property
    def source(self) -> Source:
        """The generated source."""
        return generate_source(self._name, *self._parts)

    @functools.cached_property
    def _bind(self) -> Callable[..., BoundFunction]:
        return load_function("bind", self._name, self.source.text, {})

    def bind(
        self, weights: Mapping[Value, Any], ops: Sequence[Callable[..., Any]] | None = None
    ) -> BoundFunction:
        """Return the function with weights bound, calling ``ops`` in place of ``source.ops`` if given."""
        for instruction in self._parts[1]:
            if instruction.partition is not None:
                instruction.partition.forget_constants()
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
        frame = _find_frame(self._bind.__code__.co_filename, error.__traceback__)
        instruction = self.source.lines.get(frame[0]) if frame else None
        if instruction is None or frame is None or (isinstance(error, NpuError) and error.where):
            return
        inputs = [frame[1].get(self.source.names[value], known.get(value)) for value in instruction.inputs]
        raise failure_of(instruction, error, inputs) from error


def load_function(function: str, name: str, text: str, constants: Mapping[str, Any]) -> Callable[..., Any]:
    """Run generated source with these globals, ``name`` in tracebacks; return a function that it defines."""
    # linecache asks `__loader__` for the source of tracebacks and caches it by filename: hence the digest.
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    filename = f"npu-program/{re.sub(r'[^0-9A-Za-z_.-]', '_', name)}-{digest}.py"
    space: dict[str, Any] = {**constants, "__name__": filename, "__loader__": _Loader(text)}
    exec(compile(text, filename, "exec"), space)  # noqa: S102 - the text is generated here
    # Taken out of its globals: in a cycle with them, it would keep their tensors until the garbage collector
    # runs.
    loaded: Callable[..., Any] = space.pop(function)
    return opaque(loaded)  # TorchDynamo would import the module of that name


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
