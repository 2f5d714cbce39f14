"""A backend that keeps all its promises, and many that break one of them each."""

import copy
import functools
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from npu_ir import Graph, Interpreter, OpNode, TensorType
from npu_ir.backend import Captured
from npu_ir.ops.effects import is_pure
from npu_runtime import Backend, BackendError, BackendOp

Run = Callable[[Any, Any, Sequence[Any]], Sequence[Any]]


@dataclass
class Program:
    """What `Sound` prepares; the broken ones keep here what they should not."""

    graph: Graph
    kept: dict[str, Any] = field(default_factory=dict)

    @functools.cached_property
    def interpreter(self) -> Interpreter:
        return Interpreter(self.graph)

    @property
    def runs(self) -> int:
        self.kept["runs"] = self.kept.get("runs", 0) + 1
        return int(self.kept["runs"])


class Sound(Backend):
    """Runs everything that is pure and of fixed sizes, by the interpreter."""

    name = "sound"

    def devices(self) -> Sequence[torch.device]:
        return [torch.device("cpu")]

    def supports(self, node: OpNode) -> str | None:
        if not is_pure(node):
            return "it does more than compute its outputs"
        return "its sizes are open" if any(value.type.symbols for value in node.outputs) else None

    def lower(self, graph: Graph) -> Sequence[BackendOp]:
        return [BackendOp(node.op_type, node.inputs, node.outputs, (node,)) for node in graph.nodes]

    def prepare(self, graph: Graph, ops: Sequence[BackendOp], device: torch.device) -> Program:
        return Program(graph)

    def run(self, program: Program, inputs: Sequence[Any]) -> Sequence[Any]:
        if len(inputs) != len(program.graph.inputs):
            raise BackendError(f"{len(inputs)} inputs for {len(program.graph.inputs)}")
        return program.interpreter.run_flat(inputs)[0]


class Binds(Sound):
    def bind_constants(self, program: Program, constants: Mapping[int, Any]) -> Program:
        return Program(program.graph, {"constants": self.kept(constants)})

    def kept(self, constants: Mapping[int, Any]) -> Mapping[int, Any]:
        return constants

    def run(self, program: Program, inputs: Sequence[Any]) -> Sequence[Any]:
        constants, others = program.kept.get("constants", {}), iter(inputs)
        count = len(program.graph.inputs)
        if len(inputs) + len(constants) != count:
            raise BackendError(f"{len(inputs)} inputs for {count - len(constants)}")
        numbers = range(count)
        return super().run(program, [constants[n] if n in constants else next(others) for n in numbers])


class BindsCopies(Binds):
    def kept(self, constants: Mapping[int, Any]) -> Mapping[int, Any]:
        return copy.deepcopy(constants)


class RunsIntoOneMemory(Sound):
    """Has quick runs whose results the next one of the thread overwrites."""

    def make_quick_run(self, program: Program) -> Callable[[list[Any]], Sequence[Any]]:
        memory: dict[int, list[torch.Tensor]] = {}

        def call(inputs: list[Any]) -> Sequence[Any]:
            outputs = self.run(program, inputs)
            kept = memory.setdefault(threading.get_ident(), [item.clone() for item in outputs])
            return [old.copy_(new) for old, new in zip(kept, outputs, strict=True)]

        return call


def sound_but(**members: Any) -> type[Sound]:
    """Return a backend with other members."""
    return type("Unsound", (Sound,), members)


def answering(answer: Callable[[OpNode, str | None], Any]) -> type[Sound]:
    """Return a backend with another ``supports``: a function of the node and the sound answer."""
    return sound_but(supports=lambda self, node: answer(node, Sound.supports(self, node)))


def is_transposition(node: OpNode) -> bool:
    return node.op_type == "aten.transpose.int"


def running(run: Run) -> type[Sound]:
    """Return a backend with another ``run``, which is called with the backend, the program and the inputs."""
    return sound_but(run=run)


def ops_of(change: Callable[[list[BackendOp]], Sequence[Any]]) -> type[Sound]:
    """Return a backend that lowers otherwise."""
    return sound_but(lower=lambda self, graph: change(list(Sound.lower(self, graph))))


def inputs_as(change: Callable[[torch.Tensor], torch.Tensor]) -> type[Sound]:
    """Return a backend that computes with other floating-point inputs."""

    def run(self: Any, program: Program, inputs: Sequence[Any]) -> Sequence[Any]:
        return sound(self, program, [change(item) if item.is_floating_point() else item for item in inputs])

    return running(run)


def outputs_as(change: Callable[[torch.Tensor], Any]) -> type[Sound]:
    """Return a backend that returns something else."""
    return running(lambda self, program, inputs: [change(item) for item in sound(self, program, inputs)])


def sound(backend: Any, program: Program, inputs: Sequence[Any]) -> list[Any]:
    return list(Sound.run(backend, program, inputs))


def nudged(outputs: Sequence[Any]) -> list[Any]:
    """Return outputs with other bits, within any tolerance."""
    return [
        torch.empty_like(item).copy_(torch.nextafter(item, item + 1)) if item.is_floating_point() else item
        for item in outputs
    ]


Shouts = sound_but(name="My_Backend")
HasNamesForDevices = sound_but(devices=lambda self: ["cpu"])
SaysNotWhy = sound_but(absence=lambda self: "")
RefusesInSilence = answering(lambda node, reason: " " if reason else None)
AnswersTrue = answering(lambda node, reason: True if reason else None)
NamesNodes = answering(
    lambda node, reason: f"%{node.outputs[0].name} is too hard" if is_transposition(node) else reason
)
NamesNodesOfItsOwn = answering(
    lambda node, reason: f"{node.name} is too hard" if is_transposition(node) else reason
)

CompetesAsAnother = sound_but(by_cost=lambda self: Shouts())
NeedsUnknownPasses = sound_but(pipeline=lambda self, device: "magic")
NeedsUnknownPassesToTrain = sound_but(training_pipeline=lambda self, device: "magic")


class ForgetsItsDevice(Sound):
    asked = 0

    def devices(self) -> Sequence[torch.device]:
        self.asked += 1
        return [torch.device("cpu"), torch.device("meta")][: 1 + self.asked % 2]


class Stumbles(Sound):
    def supports(self, node: OpNode) -> str | None:
        if node.op_type.startswith("acme"):
            raise KeyError(node.op_type)
        return super().supports(node)


class LooksAround(Sound):
    def supports(self, node: OpNode) -> str | None:
        is_last = node.op_type == "aten.add.Tensor" and node.graph is not None and len(node.graph) > 1
        return "it is not alone" if is_last else super().supports(node)


class CountsQuestions(Sound):
    asked = 0

    def supports(self, node: OpNode) -> str | None:
        self.asked += 1
        return f"question {self.asked}" if is_transposition(node) else super().supports(node)


class Renames(Sound):
    def lower(self, graph: Graph) -> Sequence[BackendOp]:
        graph.rename(graph.nodes[0].outputs[0], "mine")
        return super().lower(graph)


class TakesOps(Sound):
    def prepare(self, graph: Graph, ops: Sequence[BackendOp], device: torch.device) -> Program:
        ops.clear()  # type: ignore[attr-defined]
        return super().prepare(graph, ops, device)


AllocatesInRows = sound_but(
    allocate=lambda self, type, device: torch.empty(type.static_shape, dtype=type.dtype, device=device)
)


class AllocatesOnce(Sound):
    def __init__(self) -> None:
        self.known: dict[TensorType, torch.Tensor] = {}

    def allocate(self, type: TensorType, device: torch.device) -> torch.Tensor:
        if type not in self.known:
            self.known[type] = super().allocate(type, device)
        return self.known[type]


def wants_distinct_tensors(self: Any, program: Program, inputs: Sequence[Any]) -> Sequence[Any]:
    if len({item.data_ptr() for item in inputs}) < len(inputs):
        raise BackendError("a tensor is bound twice")
    return sound(self, program, inputs)


def refuses_parameters(self: Any, program: Program, inputs: Sequence[Any]) -> Sequence[Any]:
    if any(item.requires_grad for item in inputs):
        raise BackendError("a tensor requires a gradient")
    return sound(self, program, inputs)


def writes_before_inputs(self: Any, program: Program, inputs: Sequence[Any]) -> Sequence[Any]:
    for item in inputs:
        if item.storage_offset():
            item.as_strided((1,), (1,), 0).fill_(1)
    return sound(self, program, inputs)


def keeps_its_outputs(self: Any, program: Program, inputs: Sequence[Any]) -> Sequence[Any]:
    outputs = [item.clone() for item in sound(self, program, inputs)]
    key = threading.current_thread().name
    kept = program.kept.setdefault(key, outputs)
    return [old.copy_(new) for old, new in zip(kept, outputs, strict=True)]


def remembers_its_inputs(self: Any, program: Program, inputs: Sequence[Any]) -> Sequence[Any]:
    known, outputs = program.kept.get("last", ([], []))
    if len(known) != len(inputs) or not all(map(torch.equal, known, inputs)) or not known:
        outputs = sound(self, program, inputs)
        program.kept["last"] = [item.clone() for item in inputs], outputs
    return list(outputs)


def returns_an_input(self: Any, program: Program, inputs: Sequence[Any]) -> Sequence[Any]:
    is_copy = [node.op_type for node in program.graph.nodes] == ["aten.clone.default"]
    outputs = sound(self, program, inputs)
    return [inputs[0].detach()] if is_copy else outputs


def drifts(self: Any, program: Program, inputs: Sequence[Any]) -> Sequence[Any]:
    outputs = sound(self, program, inputs)
    return nudged(outputs) if program.runs > 1 else outputs


class PreparesOtherwise(Sound):
    def __init__(self) -> None:
        self.prepared: list[Graph] = []

    def prepare(self, graph: Graph, ops: Sequence[BackendOp], device: torch.device) -> Program:
        self.prepared.append(graph)
        return Program(graph, {"nudge": any(graph is item for item in self.prepared[:-1])})

    def run(self, program: Program, inputs: Sequence[Any]) -> Sequence[Any]:
        outputs = super().run(program, inputs)
        return nudged(outputs) if program.kept["nudge"] else outputs


class SharesScratch(Sound):
    """The second program of a graph writes into what the first one returned."""

    def __init__(self) -> None:
        self.first: dict[int, tuple[Program, list[Any]]] = {}

    def run(self, program: Program, inputs: Sequence[Any]) -> Sequence[Any]:
        outputs = sound(self, program, inputs)
        first, returned = self.first.get(id(program.graph), (program, outputs))
        if first is program:
            self.first[id(program.graph)] = program, outputs
            return outputs
        return [old.copy_(new) for old, new in zip(returned, outputs, strict=True)]


def has_one_arena(self: Any, program: Program, inputs: Sequence[Any]) -> Sequence[Any]:
    program.kept["arena"] = inputs
    if threading.current_thread() is not threading.main_thread():
        time.sleep(0.002)
    return sound(self, program, program.kept["arena"])


def stays_broken(self: Any, program: Program, inputs: Sequence[Any]) -> Sequence[Any]:
    if program.kept.get("broken"):
        raise BackendError("the device is lost")
    program.kept["broken"] = len(inputs) != len(program.graph.inputs)
    return sound(self, program, inputs)


def takes_any_number(self: Any, program: Program, inputs: Sequence[Any]) -> Sequence[Any]:
    if len(inputs) != len(program.graph.inputs):
        return []
    return sound(self, program, inputs)


class CapturesTheCaller(Sound):
    def capture(self, program: Program, inputs: Sequence[Any]) -> Captured:
        return replace(super().capture(program, inputs), inputs=tuple(inputs))


ReplaysNothing = sound_but(replay=lambda self, captured: None)


class Moves(Sound):
    def capture(self, program: Program, inputs: Sequence[Any]) -> Captured:
        captured = super().capture(program, inputs)
        return replace(captured, outputs=list(captured.outputs))  # type: ignore[arg-type]

    def replay(self, captured: Captured) -> None:
        captured.outputs[:] = [item.clone() for item in self.run(captured.program, captured.inputs)]  # type: ignore[index]


class ReplaysInPlace(Sound):
    def replay(self, captured: Captured) -> None:
        super().replay(captured)
        for item in captured.inputs:
            item.zero_()


class CapturesOnce(Sound):
    def capture(self, program: Program, inputs: Sequence[Any]) -> Captured:
        captured = super().capture(program, inputs)
        outputs = program.kept.setdefault("outputs", captured.outputs)
        for old, new in zip(outputs, captured.outputs, strict=True):
            old.copy_(new)
        return replace(captured, outputs=outputs)
