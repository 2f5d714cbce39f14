"""The interface of a graph stays the same: a pass that changes it is named."""

from __future__ import annotations

import pytest
import torch

from npu_ir import Graph, TensorType, parse_ir
from npu_passes import Pass, PassError, PassManager

STATEFUL = """graph stateful {
  input %x: f32[2]
  param %w: f32[2]
  buffer %state: f32[2]
  call (%x)

  %a: f32[2] = aten.relu.default(self=%x)
  %b: f32[2] = aten.mul.Tensor(self=%a, other=%w)

  update %state = %b
  return (%b, 3)
}
"""


def _add_input(graph: Graph) -> None:
    graph.add_input("more", graph.inputs[0].type)
    graph.set_call(graph.inputs)


def _drop_input(graph: Graph) -> None:
    graph.replace_all_uses(graph.inputs[0], graph.parameters["w"])
    graph.fix_input(graph.inputs[0], 1)


def _drop_update(graph: Graph) -> None:
    graph.set_update(graph.buffers["state"], None)


def _add_update(graph: Graph) -> None:
    graph.set_update(graph.inputs[0], graph.nodes[-1].outputs[0])


def _add_weight(graph: Graph) -> None:
    graph.add_parameter("w2", graph.inputs[0].tensor_type)


def _return_a_list(graph: Graph) -> None:
    graph.set_outputs([graph.nodes[-1].outputs[0], 3])


def _return_more(graph: Graph) -> None:
    graph.set_outputs((graph.nodes[-1].outputs[0], 3, graph.inputs[0]))


def _return_another_number(graph: Graph) -> None:
    graph.set_outputs((graph.nodes[-1].outputs[0], 4))


def _return_another_type(graph: Graph) -> None:
    whole = graph.insert(
        "aten.sum.default", [graph.inputs[0]], types=TensorType((), torch.float32), operands=["self"]
    )
    graph.set_outputs((whole.outputs[0], 3))


def test_a_pass_that_changes_what_callers_see_is_named(subtests: pytest.Subtests) -> None:
    rows = [
        (_add_input, r"it takes args\[0\], args\[1\]; before, args\[0\]"),
        (_drop_input, r"it takes 1 as args\[0\]; before, %x: f32\[2\]"),
        (_drop_update, "it updates nothing; before, state"),
        (_add_update, "it updates state, x; before, state"),
        (_add_weight, "it needs a weight 'w2', which no checkpoint has"),
        (_return_a_list, "it returns a list of 2; before, a tuple of 2"),
        (_return_more, r"it returns result\[0\], result\[1\], result\[2\]; before"),
        (_return_another_number, r"it returns 4 as result\[1\]; before, 3"),
        (_return_another_type, r"returns %sum: f32\[\] as result\[0\]; before, %b"),
    ]
    for edit, change in rows:
        with subtests.test(edit=edit, change=change):

            class Meddle(Pass):
                """Change the interface."""

                name = "meddle"

                def run(self, graph: Graph) -> bool:
                    edit(graph)
                    return True

            with pytest.raises(PassError, match=f"meddle changed what callers see of the graph: .*{change}"):
                PassManager(Meddle).run(parse_ir(STATEFUL))


def test_what_is_inside_may_change() -> None:
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

    assert not PassManager(Inline).run(parse_ir(STATEFUL)).graph.parameters
