"""extract_ir: what it accepts, what it costs, what it leaves untouched, and what it says of a node."""

from __future__ import annotations

import copy
import inspect
import os
import sys
from typing import Any

import pytest
import torch
from torch import nn
from torch._subclasses import FakeTensorMode
from torch.export import ExportedProgram

from npu_ir import ConversionError, ExportError, convert_exported_program, execute_ir, extract_ir
from tests.support.rows import each_row


class Residual(nn.Module):
    """In-place activation and addition, as most convolutional networks have them."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 2, 3, padding=1)
        self.norm = nn.BatchNorm2d(2)
        self.act = nn.ReLU(inplace=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.act(self.norm(self.conv(x)))
        y += x
        return y


@pytest.fixture
def no_second_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: ExportedProgram, table: object = None) -> ExportedProgram:
        raise AssertionError("the program was traced a second time")

    monkeypatch.setattr(ExportedProgram, "run_decompositions", refuse)


@pytest.mark.smoke
@pytest.mark.usefixtures("no_second_trace")
def test_in_place_activations_and_additions_are_replaced_without_tracing_again() -> None:
    model, x = Residual().eval(), torch.randn(1, 2, 4, 4)

    graph = extract_ir(model, (x,))

    assert [node.op_type for node in graph.nodes][2:] == ["aten.relu.default", "aten.add.Tensor"]
    assert torch.equal(execute_ir(graph, (x,), weights=model.state_dict()), model(x.clone()))


def test_a_write_that_a_view_can_see_is_traced_again() -> None:
    class SeenThroughView(nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            y = x * 2
            row = y[0]
            y.add_(1)
            return row, y

    x = torch.randn(2, 3)

    graph = extract_ir(SeenThroughView(), (x,))

    for got, want in zip(execute_ir(graph, (x,)), SeenThroughView()(x), strict=True):
        assert torch.equal(got, want)


def test_an_in_place_op_that_promotes_keeps_the_dtype_it_writes_to() -> None:
    class HalfPlusFloat(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return (x * 2).add_(y)

    args = (torch.randn(3, dtype=torch.float16), torch.randn(3))

    graph = extract_ir(HalfPlusFloat(), args)

    result = execute_ir(graph, args)
    assert result.dtype == torch.float16
    assert torch.equal(result, HalfPlusFloat()(*args))


def test_real_meta_and_fake_models_give_the_same_graph() -> None:
    x = torch.randn(1, 2, 4, 4)
    with torch.device("meta"):
        on_meta = Residual().eval()
    with FakeTensorMode() as mode:
        fake, fake_x = Residual().eval(), mode.from_tensor(x)

    real_graph = extract_ir(Residual().eval(), (x,))

    assert extract_ir(on_meta, (x,)) == real_graph
    assert extract_ir(on_meta, (x.to("meta"),)) == real_graph
    assert extract_ir(fake, (fake_x,)) == real_graph


def test_tensors_made_in_forward_keep_their_content_on_meta() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(2, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.linear(x) * torch.tensor([2.0, -3.0])

    with torch.device("meta"):
        model = Scaled()
        graph = extract_ir(model, (torch.empty(1, 2),))
    twin = Scaled()
    x = torch.randn(1, 2)

    assert torch.equal(execute_ir(graph, (x,), weights=twin.state_dict()), twin(x))


def test_a_constant_without_data_in_a_program_of_ones_own_is_refused_with_advice() -> None:
    class Attribute(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = torch.ones(2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.scale

    program = torch.export.export(Attribute(), (torch.randn(2),), strict=False)
    program.constants["scale"] = torch.ones(2, device="meta")

    with pytest.raises(ConversionError, match=r"(?s)'scale'.*no data.*fix: make it a parameter or a buffer"):
        convert_exported_program(program)


def test_integer_and_frozen_half_parameters_are_captured_on_meta() -> None:
    class Frozen(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.index = nn.Parameter(torch.arange(4), requires_grad=False)
            self.scale = nn.Parameter(torch.ones(4, dtype=torch.half), requires_grad=False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.index + self.scale.float()

    with torch.device("meta"):
        graph = extract_ir(Frozen(), (torch.empty(2, 4),))
    model, x = Frozen(), torch.randn(2, 4)

    assert torch.equal(execute_ir(graph, (x,), weights=model.state_dict()), model(x))


@each_row(
    "device_of",
    {
        "input": lambda model, x: x.device,
        "weight": lambda model, x: model.linear.weight.device,
        "stored": lambda model, x: model.device,
        "name": lambda model, x: str(model.device),
    },
)
def test_a_cache_made_in_forward_is_on_the_device_of_a_model_on_meta(device_of: Any) -> None:
    class Decoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(2, 2)
            self.device = self.linear.weight.device

        def forward(self, x: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
            cache = torch.zeros(3, 2, device=device_of(self, x))
            cache.index_copy_(0, place.to(device_of(self, x)), self.linear(x))
            return cache

    with torch.device("meta"):
        graph = extract_ir(Decoder(), (torch.empty(1, 2), torch.zeros(1, dtype=torch.long)))
    model, args = Decoder(), (torch.randn(1, 2), torch.tensor([1]))

    assert torch.equal(execute_ir(graph, args, weights=model.state_dict()), model(*args))


def test_the_model_is_left_as_it_was() -> None:
    calls = []
    model = Residual().train()
    model.norm.register_forward_hook(lambda *_: calls.append("hook"))
    hooks = len(model.norm._forward_hooks)
    before = copy.deepcopy(model.state_dict())
    parameters = {name: id(parameter) for name, parameter in model.named_parameters()}

    extract_ir(model, (torch.randn(1, 2, 4, 4),))

    assert model.training
    assert len(model.norm._forward_hooks) == hooks
    assert {name: id(parameter) for name, parameter in model.named_parameters()} == parameters
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_a_buffer_that_forward_counts_up_through_a_list_is_left_as_it_was() -> None:
    class Counter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("seen", torch.zeros(3))
            self.held = [self.seen]

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.held[0].add_(1)
            return x * self.seen

    model, x = Counter(), torch.randn(3)

    graph = extract_ir(model, (x,))

    assert model.seen.tolist() == [0, 0, 0]
    assert torch.equal(execute_ir(graph, (x,), weights=model.state_dict()), model(x))


def test_a_meta_model_gets_its_own_tensors_back_even_when_export_fails() -> None:
    class Branches(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(2, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.linear(x) if x.sum() > 0 else x

    with torch.device("meta"):
        model = Branches()
    weight = model.linear.weight

    with pytest.raises(ExportError, match=r"torch\.export cannot capture Branches"):
        extract_ir(model, (torch.randn(1, 2),))

    assert model.linear.weight is weight


def test_what_is_no_module_is_refused() -> None:
    with pytest.raises(ExportError, match=r"(?s)expected a torch.nn.Module, got function.*wrap the function"):
        extract_ir(torch.nn.functional.relu, (torch.randn(2),))  # type: ignore[arg-type]


@each_row(
    "arguments, given",
    {
        "a tensor": ((torch.ones(2),), "Tensor"),
        "two tensors": ((torch.ones(2), torch.ones(2)), "Tensor, Tensor"),
        "a list": (((torch.ones(2),), [1]), "tuple, list"),
    },
)
def test_arguments_without_their_tuple_are_refused(arguments: Any, given: str) -> None:
    with pytest.raises(
        ExportError,
        match=rf"expected a tuple of arguments .*, got {given}\n  fix: put the arguments into a tuple",
    ):
        extract_ir(torch.nn.ReLU(), *arguments)


def test_a_node_knows_its_module_and_the_users_source_line() -> None:
    graph = extract_ir(Residual().eval(), (torch.randn(1, 2, 4, 4),))
    first_line = inspect.getsourcelines(Residual.forward)[1]

    assert [node.provenance.module for node in graph.nodes] == ["conv", "norm", "act", ""]
    lines = [node.provenance.source.rpartition(":") for node in graph.nodes]
    assert {os.path.basename(path) for path, _, _ in lines} == {"test_extract.py"}
    assert [int(line) - first_line for _, _, line in lines] == [1, 1, 1, 2]


def test_source_files_are_named_as_seen_from_where_python_imports_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder, name = os.path.split(__file__)
    monkeypatch.setattr(sys, "path", [os.path.dirname(folder), folder, *sys.path])

    graph = extract_ir(Residual().eval(), (torch.randn(1, 2, 4, 4),))

    assert {node.provenance.source.rpartition(":")[0] for node in graph.nodes} == {name}


def test_two_extractions_give_the_same_text() -> None:
    x = torch.randn(1, 2, 4, 4)

    assert str(extract_ir(Residual(), (x,))) == str(extract_ir(Residual(), (x,)))


def test_converting_leaves_the_exported_program_as_it_was() -> None:
    class Counter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(()))
            self.register_buffer("also_count", self.count)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.count.add_(1)
            return x * self.also_count

    program = torch.export.export(Counter(), (torch.randn(2),))
    before = str(program)

    convert_exported_program(program)

    assert str(program) == before


def test_partly_overlapping_buffers_that_are_changed_are_refused() -> None:
    class Overlapping(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("whole", torch.zeros(3))
            self.register_buffer("part", self.whole[1:])

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.whole.add_(x)
            return self.part * 2

    with pytest.raises(ConversionError, match=r"(?s)whole, part overlap in memory.*clone"):
        extract_ir(Overlapping(), (torch.ones(3),))


def test_several_dtypes_that_pytorch_takes_together_are_captured() -> None:
    class Norm(nn.Module):
        def forward(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.layer_norm(x, (3,), weight) + weight.double()

    args = torch.randn(2, 3).half(), torch.randn(3)

    assert torch.equal(execute_ir(extract_ir(Norm(), args), args), Norm()(*args))


def test_a_cast_region_becomes_explicit_casts() -> None:
    class Autocast(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(2, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.autocast("cpu", dtype=torch.bfloat16):
                return self.linear(x)

    model, x = Autocast(), torch.randn(1, 2)

    graph = extract_ir(model, (x,))

    assert list(graph.nodes_of("aten._to_copy.default"))
    result = execute_ir(graph, (x,), weights=model.state_dict())
    assert result.dtype == torch.bfloat16
    assert torch.equal(result, model(x))
