"""PyTorch's own examples of what torch.export supports, through the same checks as our corpus."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from torch._export.db.case import ExportCase
from torch._export.db.examples import all_examples

from npu_ir import ConversionError, convert_exported_program, extract_ir
from tests.npu_ir.corpus import journey
from tests.npu_ir.corpus.case import Case, call

EXAMPLES: dict[str, ExportCase] = all_examples()

# By example: what the error says. These need what a graph does not have yet; may the list get shorter.
REFUSED = {
    "assume_constant_result": r"aten.item.default returns the number \w+, which is known only at run time",
    "constrain_as_size_example": r"aten.item.default returns the number \w+, which is known only at run time",
    "constrain_as_value_example": r"aten.item.default returns the number \w+, which is known only at run time",
    "cond_closed_over_variable": r"the control-flow op cond has no place in a graph yet",
    "dynamic_shape_map": r"the control-flow op map_impl has no place in a graph yet",
}
# With the dynamic shapes they come with; torch.export itself refuses dynamic_shape_round.
SYMBOLIC = ("cond_operands", "scalar_output")

supported = pytest.mark.parametrize("name", sorted(EXAMPLES.keys() - REFUSED.keys()))


def case_of(example: ExportCase) -> Case:
    return Case(
        example.name,
        lambda: copy.deepcopy(example.model),
        lambda: call(*copy.deepcopy(example.example_args), **copy.deepcopy(example.example_kwargs)),
        meta_by_moving=True,
    )


@supported
def test_an_example_computes_what_eager_computes(name: str, tmp_path: Path) -> None:
    case = case_of(EXAMPLES[name])
    expected = journey.run_eagerly(case)

    graph = journey.capture_with_weights(case, expected)
    loaded = journey.check_graph(case, graph, tmp_path)

    journey.check_execution(case, [graph, graph, loaded], expected)


@supported
def test_an_example_on_meta_computes_what_eager_computes(name: str, tmp_path: Path) -> None:
    case = case_of(EXAMPLES[name])
    expected = journey.run_eagerly(case)

    graph = journey.capture_without_weights(case)
    loaded = journey.check_graph(case, graph, tmp_path)

    journey.check_execution(case, [graph, loaded], expected)


@pytest.mark.parametrize("name", REFUSED)
def test_an_example_that_needs_more_than_a_graph_has_is_refused(name: str) -> None:
    example = EXAMPLES[name]

    with pytest.raises(ConversionError, match=REFUSED[name]) as caught:
        extract_ir(example.model, example.example_args, example.example_kwargs)

    assert f"{name}.py:" in str(caught.value)


@pytest.mark.parametrize("name", SYMBOLIC)
def test_an_example_with_dynamic_shapes_is_refused(name: str) -> None:
    example = EXAMPLES[name]
    program = torch.export.export(example.model, example.example_args, dynamic_shapes=example.dynamic_shapes)

    with pytest.raises(ConversionError, match=r"returns a tensor of shape \[.*\]: dimension \d is symbolic"):
        convert_exported_program(program)
