"""The journey of a model of the corpus: capture, text, file, execution, comparison with eager."""

import pickle
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch._subclasses import FakeTensor, FakeTensorMode
from torch.utils import _pytree

from npu_ir import Graph, Value, execute_ir, extract_ir, load_ir, parse_ir, save_ir
from npu_ir.capture.held_tensors import unregistered_tensors
from npu_ir.core.symbol_values import SymbolValues
from npu_ir.graph.binding import bind_inputs
from tests.support.corpus.case import Call, Case
from tests.support.corpus.comparison import assert_same
from tests.support.corpus.observation import (
    appearance,
    changed,
    copies,
    input_tensors,
    process_state,
    tensors_of,
)

RUN_SEED = 3


@dataclass(frozen=True, slots=True)
class Eager:
    """What the model itself did.

    Attributes:
        result: What it returned.
        state: The content of its parameters and buffers afterwards, by name.
        inputs: The content of its inputs afterwards, by their place among the leaves of the call.
        changes: The keys of ``state`` and ``inputs`` whose content is not as it was before.
    """

    result: Any
    state: dict[str, torch.Tensor]
    inputs: dict[int, torch.Tensor]
    changes: set[Any]


def run_eagerly(case: Case, model: nn.Module | None = None, given: Call | None = None) -> Eager:
    """Return what ``model`` does on ``given``; both are new ones of ``case`` if None.

    Without gradients, which a graph does not record: matmul folds its operands otherwise where one of
    them requires gradients, and LSTM runs another kernel where they are recorded (torch 2.13).
    """
    model, given = (model or case.make_model()).requires_grad_(False), given or case.make_call()
    state, inputs = copies(tensors_of(model)), copies(input_tensors(given))
    torch.manual_seed(RUN_SEED)
    with case.under(), torch.no_grad():
        result = model(*given.args, **given.kwargs)
    changes = {*changed(state, tensors_of(model)), *changed(inputs, input_tensors(given))}
    return Eager(result, tensors_of(model), input_tensors(given), changes)


def capture(case: Case, model: nn.Module, given: Call) -> Graph:
    """Return the graph of ``model``; fail if it, its inputs or the process are not as before."""
    before, tensors = appearance(model), None if _has_no_data(model) else copies(tensors_of(model))
    process = process_state()
    with case.under():
        graph = extract_ir(model, given.args, given.kwargs, dynamic_shapes=case.dynamic_shapes)
    assert process_state() == process, "extraction changed a setting of the process"
    assert appearance(model) == before, "extraction changed the model"
    assert tensors is None or not changed(tensors, tensors_of(model)), "extraction changed the weights"
    return graph


def _has_no_data(model: nn.Module) -> bool:
    return any(tensor.is_meta or isinstance(tensor, FakeTensor) for tensor in tensors_of(model).values())


def capture_with_weights(case: Case, expected: Eager) -> Graph:
    """Return the graph of the real model; fail if inputs or model do not serve as before."""
    model, given = case.make_model(), case.make_call()
    graph = capture(case, model, given)
    assert not changed(input_tensors(case.make_call()), input_tensors(given)), "extraction changed an input"
    again = run_eagerly(case, model)
    assert_same(again.result, expected.result, "the result of the model after extraction")
    assert_same(again.state, expected.state, "the state of the model after extraction")
    return graph


def capture_without_weights(case: Case) -> Graph:
    """Return the graph of the model built on ``meta``, captured on inputs without data."""
    return capture(case, case.make_model("meta"), without_data(case.make_call(), on_meta))


def capture_of_fakes(case: Case) -> Graph:
    """Return the graph of the model built of FakeTensors, captured on FakeTensors."""
    with FakeTensorMode() as mode:
        model = case.make_model()
    return capture(case, model, without_data(case.make_call(), mode.from_tensor))


def on_meta(tensor: torch.Tensor) -> torch.Tensor:
    empty = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")
    return empty.requires_grad_(tensor.requires_grad)


def without_data(given: Call, emptied: Callable[[torch.Tensor], torch.Tensor]) -> Call:
    """Return ``given`` with every tensor emptied; the same tensor twice stays so."""
    made: dict[int, torch.Tensor] = {}

    def moved(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        if id(leaf) not in made:
            made[id(leaf)] = emptied(leaf)
        return made[id(leaf)]

    return Call(*_pytree.tree_map(moved, given.tree))


def text_without_data(graph: Graph) -> str:
    """Return the text of ``graph`` up to the content of its constants and buffers."""
    return re.sub(r"^(  (?:const|buffer) .*?) = .*$", r"\1", str(graph), flags=re.MULTILINE)


def check_graph(case: Case, graph: Graph, folder: Path) -> Graph:
    """Check the rules and the written forms of ``graph``; return it as its last form gives it back."""
    graph.check()
    assert not case.op or case.op in {node.op_type for node in graph.nodes}, f"no {case.op} in\n{graph}"
    for written_and_read in WRITTEN_FORMS:
        again = written_and_read(graph, folder)
        assert again == graph
        assert str(again) == str(graph)
        again.check()
    return again


def _through_pickle(graph: Graph, folder: Path) -> Graph:
    again: Graph = pickle.loads(pickle.dumps(graph))  # noqa: S301 - our own
    assert [node.provenance for node in again.nodes] == [node.provenance for node in graph.nodes]
    return again


def _through_text(graph: Graph, folder: Path) -> Graph:
    data = {
        value.argument.target: value.argument.data
        for value in graph.arguments
        if value.argument.data is not None
    }
    return parse_ir(str(graph), constants=data)


def _through_file(graph: Graph, folder: Path) -> Graph:
    save_ir(graph, folder / "graph.json")
    return load_ir(folder / "graph.json")


WRITTEN_FORMS: list[Callable[[Graph, Path], Graph]] = [_through_pickle, _through_text, _through_file]


Execute = Callable[..., Any]


def check_execution(case: Case, graphs: list[Graph], expected: Eager, execute: Execute = execute_ir) -> None:
    """Run each graph on the weights of the real model, and compare with what eager did.

    So also for the further calls of ``case``, and for the graph that is specialized to their sizes.
    """
    for number, given in enumerate(case.make_calls()):
        eager = expected if number == 0 else run_eagerly(case, given=given)
        _check_call(case, graphs, number, eager, execute)
        if number < 2 and graphs[0].symbols:
            special = specialized_for(graphs[0], case.make_calls()[number])
            _check_call(case, [special], number, eager, execute)


def specialized_for(graph: Graph, given: Call) -> Graph:
    symbols = SymbolValues(graph.symbols)
    bind_inputs(graph, given.args, given.kwargs, symbols)
    return graph.specialize(symbols.values)


def _check_call(case: Case, graphs: list[Graph], number: int, expected: Eager, execute: Execute) -> None:
    twin = case.make_model()
    weights = twin.state_dict()
    constants = {name: tensor for name, tensor in twin.named_buffers() if name not in weights}
    if case.unregistered:
        constants |= unregistered_tensors(twin)
    before = copies(tensors_of(twin))
    for graph in graphs:
        given = case.make_calls()[number]
        torch.manual_seed(RUN_SEED)
        result, mutations = execute(
            graph, given.args, given.kwargs, weights=weights, constants=constants, return_mutations=True
        )
        assert_same(result, expected.result, "the result", case.tolerance)
        _check_mutations(case, graph, mutations, expected)
        assert not changed(before, tensors_of(twin)), "execution changed the weights"
        untouched = case.make_calls()[number]
        assert not changed(input_tensors(untouched), input_tensors(given)), "execution changed an input"


def _check_mutations(case: Case, graph: Graph, mutations: dict[str, torch.Tensor], expected: Eager) -> None:
    """Fail unless all that eager changed is in ``mutations``, with the content that eager left behind."""
    names = {
        index: leaf.argument.target for index, leaf in enumerate(graph.call[1]) if isinstance(leaf, Value)
    }
    afterwards = {**expected.state, **{names[index]: tensor for index, tensor in expected.inputs.items()}}
    unseen = {names.get(key, key) for key in expected.changes} - mutations.keys()
    assert not unseen, f"eager changes {sorted(unseen)}, the graph only {sorted(mutations)}"
    detached = {name: afterwards[name].detach() for name in mutations}
    assert_same(mutations, detached, "the mutations", case.tolerance)
