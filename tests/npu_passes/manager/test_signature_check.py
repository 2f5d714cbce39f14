"""The interface of a graph stays the same: a pass that changes it is named."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from npu_ir import Graph, TensorType
from npu_passes import Pass, PassError, PassManager
from tests.support.rows import each_row
from tests.support.small_programs import program


@pytest.fixture
def stateful() -> Graph:
    return program("""
        input %x: f32[2]
        param %w: f32[2]
        buffer %state: f32[2]
        %a: f32[2] = aten.relu.default(self=%x)
        %b: f32[2] = aten.mul.Tensor(self=%a, other=%w)
        update %state = %b
        return (%b, 3)
    """)


def add_input(graph: Graph) -> None:
    graph.add_input("more", graph.inputs[0].type)
    graph.set_call(graph.inputs)


def drop_input(graph: Graph) -> None:
    graph.replace_all_uses(graph.inputs[0], graph.parameters["w"])
    graph.fix_input(graph.inputs[0], 1)


def return_another_type(graph: Graph) -> None:
    whole = graph.insert(
        "aten.sum.default", [graph.inputs[0]], types=TensorType((), torch.float32), operands=["self"]
    )
    graph.set_outputs((whole.outputs[0], 3))


@each_row("edit, change", [
    (add_input, r"it takes args\[0\], args\[1\]; before, args\[0\]"),
    (drop_input, r"it takes 1 as args\[0\]; before, %x: f32\[2\]"),
    (lambda graph: graph.set_update(graph.value("state"), None), "it updates nothing; before, state"),
    (lambda graph: graph.set_update(graph.value("x"), graph.value("b")),
        "it updates state, x; before, state"),
    (lambda graph: graph.add_parameter("w2", graph.inputs[0].tensor_type),
        "it needs a weight 'w2', which no checkpoint has"),
    (lambda graph: graph.set_outputs([graph.value("b"), 3]), "it returns a list of 2; before, a tuple of 2"),
    (lambda graph: graph.set_outputs((graph.value("b"), 3, graph.inputs[0])),
        r"it returns result\[0\], result\[1\], result\[2\]; before"),
    (lambda graph: graph.set_outputs((graph.value("b"), 4)), r"it returns 4 as result\[1\]; before, 3"),
    (return_another_type, r"returns %sum: f32\[\] as result\[0\]; before, %b"),
])  # fmt: skip
def test_a_pass_that_changes_what_callers_see_is_named(edit: Any, change: Any, stateful: Graph) -> None:
    class Meddle(Pass):
        """Change the interface."""

        name = "meddle"

        def run(self, graph: Graph) -> bool:
            edit(graph)
            return True

    with pytest.raises(PassError, match=f"meddle changed what callers see of the graph: .*{change}"):
        PassManager(Meddle).run(stateful)


def test_what_is_inside_may_change(stateful: Graph) -> None:
    class Inline(Pass):
        """Read the input where the weight was read, and drop the weight."""

        name = "inline"

        def run(self, graph: Graph) -> bool:
            weight = graph.parameters.get("w")
            if weight is None:
                return False
            graph.replace_all_uses(weight, graph.inputs[0])
            graph.erase_argument(weight)
            graph.rename(graph.inputs[0], "renamed")
            graph.add_constant("c", torch.ones(2))
            return True

    assert not PassManager(Inline).run(stateful).graph.parameters
