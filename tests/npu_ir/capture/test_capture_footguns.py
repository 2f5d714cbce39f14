"""Surprises of capture that stay, each pinned: PyTorch's own, and ours that follow from what a graph is."""

import collections
import random
from typing import Any

import pytest
import torch
from torch import nn, randn
from torch.nn import functional as fn

from npu_ir import ExecutionError, execute_ir, extract_ir
from tests.support.corpus.case import Function, Holding

# What is decided when the model is captured


def test_python_numbers_are_part_of_the_graph() -> None:
    graph = extract_ir(Function(lambda x: x * random.random()), (torch.ones(2),))

    first, second = execute_ir(graph, (torch.ones(2),)), execute_ir(graph, (torch.ones(2),))

    assert torch.equal(first, second)


def test_branches_on_shapes_are_taken_once() -> None:
    graph = extract_ir(Function(lambda x: x * 2 if x.shape[0] > 3 else x * 3), (torch.ones(2),))

    with pytest.raises(ExecutionError, match=r"input %args_0 is f32\[5\], the graph needs f32\[2\]"):
        execute_ir(graph, (torch.ones(5),))


def test_the_mode_at_capture_stays_in_the_graph() -> None:
    model = nn.Dropout(0.5)
    graph = extract_ir(model, (torch.ones(100),))

    model.eval()

    assert not torch.equal(execute_ir(graph, (torch.ones(100),)), torch.ones(100))


def test_python_side_effects_happen_once_and_attributes_are_put_back() -> None:
    seen = []

    class Counting(nn.Module):
        calls = 0

        def forward(self, x: Any) -> Any:
            self.calls += 1
            seen.append(self.calls)
            return x * self.calls

    model = Counting()
    graph = extract_ir(model, (torch.ones(2),))
    execute_ir(graph, (torch.ones(2),))

    assert seen == [1]
    assert model.calls == 0


def test_a_parameter_replaced_in_forward_is_not_an_update_of_the_graph() -> None:
    def replace(self: Any, x: Any) -> Any:
        self.weight = nn.Parameter(self.weight * 2)
        return x * self.weight

    model = Holding(replace, weight=nn.Parameter(torch.ones(2)))
    weight = model.weight

    graph = extract_ir(model, (torch.ones(2),))

    assert model.weight is weight
    assert not graph.updates


def test_a_seed_set_in_forward_is_set_at_capture_only() -> None:
    def seeded(x: Any) -> Any:
        torch.manual_seed(5)
        return torch.rand(3)

    graph = extract_ir(Function(seeded), (torch.ones(1),))
    torch.manual_seed(6)

    assert not torch.equal(execute_ir(graph, (torch.ones(1),)), seeded(None))


def test_a_tensor_from_outside_is_copied_at_capture() -> None:
    outside = torch.ones(2)
    graph = extract_ir(Function(lambda x: x + outside), (torch.zeros(2),))

    outside.add_(5)

    assert execute_ir(graph, (torch.zeros(2),)).tolist() == [1.0, 1.0]


def test_a_tensor_passed_twice_is_two_inputs_unless_it_is_changed() -> None:
    x = randn(2)

    two = extract_ir(Function(lambda x, y: x + y), (x, x))
    one = extract_ir(Function(lambda x, y: x.add_(1) + y), (x, x))

    assert (len(two.inputs), len(one.inputs)) == (2, 1)


def test_torch_export_until_2_13_takes_idle_dropout_for_a_copy_and_a_graph_does_not() -> None:
    def forward(x: Any) -> Any:
        y = x * 1
        fn.dropout(y, 0.5, training=False).add_(1)
        return y

    program = torch.export.export(Function(forward), (torch.ones(2),))
    graph = extract_ir(Function(forward), (torch.ones(2),))

    exported = [2.0, 2.0] if torch.__version__ >= (2, 14) else [1.0, 1.0]
    assert program.run_decompositions({}).module()(torch.ones(2)).tolist() == exported
    assert execute_ir(graph, (torch.ones(2),)).tolist() == forward(torch.ones(2)).tolist() == [2.0, 2.0]


def test_a_named_tuple_of_a_class_that_cannot_be_found_comes_back_as_a_look_alike() -> None:
    local = collections.namedtuple("local", ["a", "b"])
    graph = extract_ir(Function(lambda x: local(x, x + 1)), (torch.ones(1),))

    result = execute_ir(graph, (torch.ones(1),))

    assert type(result) is not local
    assert (type(result).__name__, result._fields) == ("local", ("a", "b"))


def test_inputs_in_another_layout_are_laid_out_as_at_capture() -> None:
    model = Function(lambda x: x.view(-1))
    graph = extract_ir(model, (randn(2, 3),))
    transposed = randn(3, 2).T

    result = execute_ir(graph, (transposed,))

    with pytest.raises(RuntimeError, match="view size is not compatible"):
        model(transposed)
    assert torch.equal(result, transposed.reshape(-1))


def test_weights_are_not_copied_while_a_model_is_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    model, copied, clone = nn.Linear(3, 2), [], torch.Tensor.clone
    model.register_buffer("scale", torch.ones(2))
    model.held = [model.scale]

    def counted(tensor: torch.Tensor, **kwargs: Any) -> torch.Tensor:
        copied.append(tensor)
        return clone(tensor, **kwargs)

    monkeypatch.setattr(torch.Tensor, "clone", counted)
    extract_ir(model, (torch.ones(1, 3),))

    assert not copied
