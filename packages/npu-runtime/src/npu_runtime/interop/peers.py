"""Peers: other runtimes that take graphs of PyTorch, to run the same graph beside ours.

Each gets an exported program of tensors alone: flat inputs, flat results, and behind them the new content of
mutated state, since peers write to nothing. Sizes are those of one call.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import logging
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import torch
from torch.export import ExportedProgram

from npu_ir import ExecutionError, Graph, NpuError, Value
from npu_ir.core.node import external_names
from npu_ir.core.symbol_values import SymbolValues
from npu_ir.core.types import ScalarType
from npu_ir.graph.binding import bind_inputs
from npu_runtime.interop.exported_program import to_exported_program

# Returns the results for the inputs; both are arrays of NumPy in order.
PeerCall = Callable[[Sequence[Any]], Sequence[Any]]
_COLOUR = re.compile(r"\x1b\[\d*m")


@dataclass(frozen=True, slots=True)
class Peer:
    """Another runtime.

    Attributes:
        title: Its name for readers.
        packages: The modules without which it cannot be, each called as its distribution.
        convert: Returns a program in the form that it compiles. Its messages are held back.
        compile: Returns such a form compiled for a CPU: for this number of threads, for single calls, in
            float32 throughout. The results of a call may be in memory that the next one overwrites.
    """

    title: str
    packages: tuple[str, ...]
    convert: Callable[[ExportedProgram], Any]
    compile: Callable[[Any, int], PeerCall]

    def missing(self) -> list[str]:
        """Return those of its packages that are not installed."""
        return [name for name in self.packages if importlib.util.find_spec(name) is None]


class PeerGraph:
    """A graph with its weights in the form that a peer compiles, and a call of it.

    Args:
        peer: Who runs it.
        graph: The graph; it is copied.
        weights: Its weights, as for an executor.
        args: Positional arguments of the call.
        kwargs: Keyword arguments of the call.

    Raises:
        ExecutionError: The peer cannot run this graph; says why.
    """

    def __init__(
        self,
        peer: Peer,
        graph: Graph,
        weights: Mapping[str, torch.Tensor],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
    ) -> None:
        self._peer = peer
        with _refusal(peer):
            symbols = SymbolValues(graph.symbols)
            inputs = {_name(value): item for value, item in bind_inputs(graph, args, kwargs, symbols).items()}
            self._graph = graph.specialize(symbols.values)
            flat = _flatten(self._graph)
            self._arrays = tuple(_array(inputs[_name(value)]) for value in flat.inputs)
            self._form = peer.convert(to_exported_program(flat, weights))

    def compile(self, threads: int) -> Callable[[], Sequence[Any]]:
        """Return the call, compiled for a number of threads.

        Raises:
            ExecutionError: The peer cannot run this graph; says why.
        """
        with _refusal(self._peer):
            call, arrays = self._peer.compile(self._form, threads), self._arrays
        return lambda: call(arrays)

    def run_flat(self, call: Callable[[], Sequence[Any]]) -> tuple[list[Any], dict[str, torch.Tensor]]:
        """Make a call that `compile` returned; the results are those of `IRExecutor.run_flat`.

        Raises:
            ExecutionError: The peer cannot run this graph; says why.
        """
        with _refusal(self._peer):
            found = dict(zip(_returned(self._graph), map(torch.tensor, call()), strict=True))
        leaves = [
            _result(leaf, found[leaf]) if isinstance(leaf, Value) else leaf for leaf in self._graph.results[1]
        ]
        updates = self._graph.updates.items()
        return leaves, {name: found[value] for target, value in updates for name in external_names(target)}


def _returned(graph: Graph) -> list[Value]:
    """Return the values that a call returns, each once."""
    return list(dict.fromkeys(graph.returned_values))


def _flatten(graph: Graph) -> Graph:
    """Return the graph with its inputs and what it returns as plain tuples, without mutated state."""
    flat = graph.clone()
    returned = _returned(flat)
    for target in tuple(flat.updates):
        flat.set_update(target, None)
    flat.set_call(flat.inputs)
    flat.set_outputs(tuple(returned))
    return flat


def _name(value: Value) -> str:
    assert value.argument is not None
    return value.argument.target


def _array(item: Any) -> Any:
    tensor = item.detach() if isinstance(item, torch.Tensor) else torch.tensor(item)
    return tensor.contiguous().numpy()


def _result(value: Value, tensor: torch.Tensor) -> Any:
    return tensor.item() if isinstance(value.type, ScalarType) else tensor


@contextlib.contextmanager
def _refusal(peer: Peer) -> Iterator[None]:
    """Raise errors of any kind as one that names the peer."""
    try:
        yield
    except Exception as error:
        raise ExecutionError(
            f"{peer.title} cannot run this graph: {_reason(error)}", fix="time the graph without it (--peers)"
        ) from error


def _reason(error: BaseException) -> str:
    """Return the cause of an error of a peer in one line."""
    while error.__cause__ is not None and not isinstance(error, NpuError):
        error = error.__cause__
    text = error.message if isinstance(error, NpuError) else str(error)
    lines = [line.strip() for line in _COLOUR.sub("", text).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    # OpenVINO says first where it failed, and why in the end.
    line = (lines[-1] if lines[0].endswith(":") else lines[0]).removeprefix("-- ")
    return line if isinstance(error, NpuError) else f"{type(error).__name__}: {line}"


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Hold back all that is printed, logged or warned of."""
    disabled, handlers = logging.root.manager.disable, [*logging.root.handlers]
    logging.disable(logging.CRITICAL)
    try:
        with (
            warnings.catch_warnings(),
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)
        logging.root.handlers[:] = handlers  # logging.warning() adds one where there is none


@_silence()
def _to_onnx(program: ExportedProgram) -> bytes:
    """Return the program as an ONNX file, which has at most 2 GB."""
    made: Any = torch.onnx.export(program, dynamo=True, verbose=False)
    content: bytes = made.model_proto.SerializeToString()
    return content


@_silence()
def _compile_onnx(content: bytes, threads: int) -> PeerCall:
    runtime = import_module("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 4  # its C++ writes to stderr by itself
    session = runtime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    names = [item.name for item in session.get_inputs()]
    return lambda arrays: session.run(None, dict(zip(names, arrays, strict=True)))


def _openvino(module: str = "openvino") -> Any:
    """Import a module of OpenVINO, which would report its import and what it converts to its makers."""
    telemetry = "openvino_telemetry"
    if telemetry in sys.modules:
        return import_module(module)
    sys.modules[telemetry] = None  # type: ignore[assignment]  # as if it were not installed
    try:
        return import_module(module)
    finally:
        del sys.modules[telemetry]


@_silence()
def _to_openvino(program: ExportedProgram) -> Any:
    """Return the program as a model of OpenVINO with its sizes, all of which `convert_model` would open."""
    frontend = _openvino("openvino.frontend").FrontEndManager().load_by_framework("pytorch")
    decoders = _openvino("openvino.frontend.pytorch.fx_decoder").TorchFXPythonDecoder
    decoder = decoders.from_exported_program(program, dynamic_shapes=False)
    return frontend.convert(frontend.load(decoder))  # which does not keep the decoder alive


@_silence()
def _compile_openvino(model: Any, threads: int) -> PeerCall:
    options = {
        "INFERENCE_NUM_THREADS": threads,
        "INFERENCE_PRECISION_HINT": "f32",
        "PERFORMANCE_HINT": "LATENCY",
    }
    request = _openvino().compile_model(model, "CPU", options).create_infer_request()
    return lambda arrays: request.infer(arrays, share_inputs=True, share_outputs=True).to_tuple()


PEERS = {
    "onnxruntime": Peer("ONNX Runtime", ("onnxruntime", "onnx", "onnxscript"), _to_onnx, _compile_onnx),
    "openvino": Peer("OpenVINO", ("openvino",), _to_openvino, _compile_openvino),
}
