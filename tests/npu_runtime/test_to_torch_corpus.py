"""Models of the corpus, as programs of PyTorch's again: the same graph, and what eager computes."""

from __future__ import annotations

import pytest
import torch

from npu_ir import convert_exported_program
from npu_runtime import to_exported_program, to_torch
from tests.npu_runtime.same_program import described
from tests.support.corpus import journey
from tests.support.corpus.case import Case
from tests.support.corpus.comparison import assert_same
from tests.support.corpus.observation import changed, copies, input_tensors, tensors_of
from tests.support.corpus.tables import all_cases

CASES = list(all_cases())
# PyTorch writes the source of a module with the names of its weights as they are; and returns tuples for
# sizes.
REFUSED_BY_TORCH = ("oddnames", "returns_shape")
# The range of a symbol implies the constraint: PyTorch, which sees both, keeps one.
IMPLIED = ("convolution_of_any_size",)
# A few, and all that run regions, write, or return numbers.
WORDS = ("cond", "while", "scan", "flex", "writing", "item")
SAMPLE = [
    case
    for index, case in enumerate(CASES)
    if case.id not in REFUSED_BY_TORCH and (index % 25 == 0 or any(word in case.id for word in WORDS))
]


@pytest.mark.captured_once
@pytest.mark.parametrize("case", [pytest.param(case, id=case.id) for case in SAMPLE])
def test_a_program_computes_what_eager_computes_and_becomes_the_same_graph(case: Case) -> None:
    expected, graph = journey.eager_and_graph(case)
    twin = case.make_model()
    before = copies(tensors_of(twin))
    weights = twin.state_dict()
    constants = {name: tensor for name, tensor in twin.named_buffers() if name not in weights}

    program = to_exported_program(graph, weights, constants=constants)

    back, original = described(convert_exported_program(program, name=graph.name)), described(graph)
    if case.id in IMPLIED:
        assert original.pop("constraints") != back.pop("constraints")
    assert back == original
    for number, given in enumerate(case.make_calls()):
        eager = expected if number == 0 else journey.run_eagerly(case, given=given)
        module = to_torch(graph, weights, constants=constants)
        taken = case.make_calls()[number]
        torch.manual_seed(journey.RUN_SEED)
        with torch.no_grad():
            result = module(*taken.args, **taken.kwargs)
        assert_same(result, eager.result, "the result", case.tolerance)
        assert_same(input_tensors(taken), eager.inputs, "the inputs", case.tolerance)
        state = {**module.state_dict(), **dict(module.named_buffers(remove_duplicate=False))}
        known = {name: tensor.detach() for name, tensor in eager.state.items() if name in state}
        assert {name for name in eager.changes if isinstance(name, str)} <= known.keys()
        assert_same({name: state[name] for name in known}, known, "the state", case.tolerance)
    assert not changed(before, tensors_of(twin)), "the module changed the weights it was given"
