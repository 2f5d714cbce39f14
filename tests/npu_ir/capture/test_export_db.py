"""PyTorch's own examples of what torch.export supports, through the same checks as our corpus."""

from __future__ import annotations

import copy
import dataclasses
from pathlib import Path

import pytest
from torch import randn
from torch._export.db.case import ExportCase
from torch._export.db.examples import all_examples

from tests.support.corpus import journey
from tests.support.corpus.case import Case, call
from tests.support.rows import each_row

EXAMPLES: dict[str, ExportCase] = all_examples()

examples = pytest.mark.parametrize("name", sorted(EXAMPLES))

# By example with dynamic shapes: further arguments of other sizes.
MORE_INPUTS = {
    "cond_operands": [(randn(5, 2), randn(2)), (randn(9, 2), randn(2))],
    "dynamic_shape_round": [(randn(5, 2),), (randn(8, 2),)],
    "scalar_output": [(randn(3, 5),), (randn(3, 9),)],
}


def case_of(example: ExportCase) -> Case:
    return Case(
        example.name,
        lambda: copy.deepcopy(example.model),
        lambda: call(*copy.deepcopy(example.example_args), **copy.deepcopy(example.example_kwargs)),
        meta_by_moving=True,
    )


@examples
def test_an_example_computes_what_eager_computes(name: str, tmp_path: Path) -> None:
    case = case_of(EXAMPLES[name])
    expected = journey.run_eagerly(case)

    graph = journey.capture_with_weights(case, expected)
    loaded = journey.check_graph(case, graph, tmp_path)

    journey.check_execution(case, [graph, graph, loaded], expected)


@examples
def test_an_example_on_meta_computes_what_eager_computes(name: str, tmp_path: Path) -> None:
    case = case_of(EXAMPLES[name])
    expected = journey.run_eagerly(case)

    graph = journey.capture_without_weights(case)
    loaded = journey.check_graph(case, graph, tmp_path)

    journey.check_execution(case, [graph, loaded], expected)


def test_examples_come_with_the_dynamic_shapes_that_are_known_here() -> None:
    dynamic = {name for name, example in EXAMPLES.items() if example.dynamic_shapes is not None}

    assert dynamic == {*MORE_INPUTS}


@each_row("name", MORE_INPUTS)
def test_an_example_with_dynamic_shapes_computes_what_eager_computes(name: str, tmp_path: Path) -> None:
    example = EXAMPLES[name]
    case = dataclasses.replace(
        case_of(example),
        dynamic_shapes=example.dynamic_shapes,
        more_inputs=lambda: [call(*copy.deepcopy(args)) for args in MORE_INPUTS[name]],
    )
    expected = journey.run_eagerly(case)

    graph = journey.capture_with_weights(case, expected)
    loaded = journey.check_graph(case, graph, tmp_path)

    assert graph.symbols
    journey.check_execution(case, [graph, graph, loaded], expected)
