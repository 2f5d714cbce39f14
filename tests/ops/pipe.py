"""One call through the whole pipe: captured, saved, loaded, run, and compared with PyTorch."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

import npu_ir
from npu_ir import Graph, Value
from npu_ir.testing.op_calls import UNINITIALIZED, OpCall
from tests.ops.cases import SEED, OpModule
from tests.support.comparison import first_difference, same_strides
from tests.support.coverage_runs.outcomes import Outcome, first_line, saved_and_loaded

# Where PyTorch's functional form of an op gives other bits than the form that writes. A graph is functional.
ROUNDED_OTHERWISE = {
    ("addr", "in-place"): "addr_ rounds complex numbers otherwise than addr",
    ("addr", "in-place inside"): "addr_ rounds complex numbers otherwise than addr",
    (
        "normal.in_place",
        "function",
    ): "normal_ fills a non-contiguous tensor in another order than its functional form",
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """An outcome and its reason; ``same_strides`` is information, not a condition."""

    outcome: Outcome
    reason: str = ""
    same_strides: bool = True


Execute = Callable[[Graph, "tuple[torch.Tensor, ...]"], "tuple[Any, dict[str, torch.Tensor]]"]


def execute(graph: Graph, tensors: tuple[torch.Tensor, ...]) -> tuple[Any, dict[str, torch.Tensor]]:
    """Run a graph; return results and mutations."""
    return npu_ir.execute_ir(graph, tensors, return_mutations=True)


def judge(
    call: OpCall, execute: Execute = execute, announce: Callable[[str], None] = lambda stage: None
) -> Verdict:
    """Return what becomes of ``call``.

    Args:
        call: The call.
        execute: Runs the graph.
        announce: Called with the name of each stage before it begins: what crashes in it, crashed there.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        announce("eager")
        tensors = call.fresh_tensors()
        try:
            expected = _eager(call, tensors), tensors
        except Exception as error:  # noqa: BLE001 - PyTorch's own refusal, whatever it raises, is an outcome
            return Verdict(Outcome.EAGER_REFUSES, first_line(error))
        announce("export")
        try:
            graph = npu_ir.extract_ir(OpModule(call), call.fresh_tensors(), name="op")
        except Exception as error:  # noqa: BLE001 - sorted out below
            return _refused(call, error)
        announce("run")
        try:
            return _compared(call, graph, execute, expected)
        except Exception as error:  # noqa: BLE001 - any error of ours is a failure
            return Verdict(Outcome.FAIL, f"run: {first_line(error)}")


def _eager(call: OpCall, tensors: tuple[torch.Tensor, ...]) -> Any:
    args, kwargs = call.arguments(tensors)
    torch.manual_seed(SEED)
    return call.function(*args, **kwargs)


def _refused(call: OpCall, error: Exception) -> Verdict:
    """Return whose refusal ``error`` is: torch.export's, a limit we state, or a failure of ours."""
    try:
        program = torch.export.export(OpModule(call), call.fresh_tensors(), strict=False)
    except Exception as upstream:  # noqa: BLE001 - this is the outcome
        return Verdict(Outcome.EXPORT_REFUSES, first_line(upstream))
    if isinstance(error, npu_ir.ConversionError):
        for outcome, words, is_so in _LIMITS:
            if any(word in error.message for word in words) and any(
                is_so(item) for item in _contents(program)
            ):
                return Verdict(outcome, first_line(error))
    return Verdict(Outcome.FAIL, f"extract: {first_line(error)}")


def _contents(program: torch.export.ExportedProgram) -> list[Any]:
    return [item for node in program.graph.nodes for item in (node.target, *_leaves(node.meta.get("val")))]


def _is_symbolic(item: Any) -> bool:
    parts = item.shape if isinstance(item, torch.Tensor) else [item]
    return any(isinstance(part, (torch.SymInt, torch.SymFloat, torch.SymBool)) for part in parts)


def _reshapes(item: Any) -> bool:
    return isinstance(item, torch._ops.OpOverload) and torch.Tag.inplace_view in item.tags


# The limits we state: how the error puts it, and what must be in the program for it to be true.
_LIMITS: tuple[tuple[Outcome, tuple[str, ...], Callable[[Any], bool]], ...] = (
    (Outcome.SIZES_MISSTATED, ("PyTorch states the shape", "PyTorch bounds the size"), _is_symbolic),
    (Outcome.RESHAPES_INPUT, ("changes the shape or strides",), _reshapes),
)


def _leaves(tree: Any) -> list[Any]:
    return [leaf for part in tree for leaf in _leaves(part)] if isinstance(tree, (list, tuple)) else [tree]


def _compared(
    call: OpCall, graph: Graph, execute: Execute, expected: tuple[Any, tuple[torch.Tensor, ...]]
) -> Verdict:
    text = str(graph)
    constants = {name: value.argument.data for name, value in graph.constants.items()}
    if npu_ir.parse_ir(text, constants) != graph:
        return Verdict(Outcome.FAIL, "text: the parsed graph differs")
    loaded = saved_and_loaded(graph)
    if loaded != graph or str(loaded) != text:
        return Verdict(Outcome.FAIL, "file: the loaded graph differs")
    tensors = call.fresh_tensors()
    torch.manual_seed(SEED)
    results, mutations = execute(loaded, tensors)
    changed = first_difference(call.tensors, tensors)
    if changed:
        return Verdict(Outcome.FAIL, f"caller's tensors changed: {changed}")
    actual = results, _after(loaded, tensors, mutations)
    difference = first_difference(expected, actual, values=call.operator not in UNINITIALIZED)
    if not difference:
        return Verdict(Outcome.PASS, same_strides=same_strides(expected, actual))
    again = call.fresh_tensors()
    if first_difference(expected, (_eager(call, again), again)):
        return Verdict(Outcome.PYTORCH_DIFFERS, "two eager runs from one seed differ")
    known = ROUNDED_OTHERWISE.get((call.operator, call.variant))
    if known and not first_difference(_functionalized(call), results):
        return Verdict(Outcome.PYTORCH_DIFFERS, known)
    return Verdict(Outcome.FAIL, f"compare: {difference}")


def _functionalized(call: OpCall) -> Any:
    """Return what the program gives that PyTorch itself made functional."""
    program = torch.export.export(OpModule(call), call.fresh_tensors(), strict=False).run_decompositions({})
    torch.manual_seed(SEED)
    return program.module()(*call.fresh_tensors())


def _after(
    graph: Graph, tensors: tuple[torch.Tensor, ...], mutations: dict[str, torch.Tensor]
) -> tuple[torch.Tensor, ...]:
    """Return what the model would have left in its inputs."""
    names = [leaf.argument.target for leaf in graph.call[1] if isinstance(leaf, Value) and leaf.argument]
    return tuple(mutations.get(name, tensor) for name, tensor in zip(names, tensors, strict=True))
