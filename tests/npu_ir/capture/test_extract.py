"""extract_ir: what it accepts, what it costs, what it leaves untouched, and what it says of a node."""

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
from tests.support.corpus.case import Holding
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


def test_a_constant_without_data_in_a_program_of_ones_own_is_refused_with_advice() -> None:
    model = Holding(lambda self, x: x * self.held[0], held=[torch.ones(2)])
    program = torch.export.export(model, (torch.randn(2),), strict=False)
    (name,) = program.constants
    program.constants[name] = torch.ones(2, device="meta")

    with pytest.raises(ConversionError, match=r"(?s)'lifted_tensor_0'.*no data.*fix: make it a parameter"):
        convert_exported_program(program)


@each_row("device_of", {
    "input": lambda model, x: x.device,
    "weight": lambda model, x: model.linear.weight.device,
    "stored": lambda model, x: model.device,
    "name": lambda model, x: str(model.device),
})  # fmt: skip
def test_a_cache_made_in_forward_is_on_the_device_of_a_model_on_meta(device_of: Any) -> None:
    def decode(self: Any, x: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
        cache = torch.zeros(3, 2, device=device_of(self, x))
        cache.index_copy_(0, place.to(device_of(self, x)), self.linear(x))
        return cache

    def decoder() -> nn.Module:
        linear = nn.Linear(2, 2)
        return Holding(decode, linear=linear, device=linear.weight.device)

    with torch.device("meta"):
        graph = extract_ir(decoder(), (torch.empty(1, 2), torch.zeros(1, dtype=torch.long)))
    model, args = decoder(), (torch.randn(1, 2), torch.tensor([1]))

    assert torch.equal(execute_ir(graph, args, weights=model.state_dict()), model(*args))


def test_a_meta_model_gets_its_own_tensors_back_even_when_export_fails() -> None:
    def branches(self: Any, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) if x.sum() > 0 else x

    with torch.device("meta"):
        model = Holding(branches, linear=nn.Linear(2, 2))
    weight = model.linear.weight

    with pytest.raises(ExportError, match=r"torch\.export cannot capture Holding"):
        extract_ir(model, (torch.randn(1, 2),))

    assert model.linear.weight is weight


@each_row("item, message", {
    "a function": (torch.nn.functional.relu, r"function\n  fix: wrap the function in a module"),
    "a class": (nn.ReLU, r"type\n  fix: give an object of the class: ReLU\(\.\.\.\)"),
    "a name": ("resnet", r"str\n  fix: make the model first"),
    "a program": (torch.export.export(nn.ReLU(), (torch.ones(2),)), r"\w+\n  fix: convert_exported_program"),
})  # fmt: skip
def test_what_is_no_module_is_refused(item: Any, message: str) -> None:
    with pytest.raises(ExportError, match=f"expected a torch.nn.Module, got {message}"):
        extract_ir(item, (torch.randn(2),))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_module_of_torchscript_is_refused() -> None:
    traced = torch.jit.trace(nn.ReLU(), torch.ones(2))  # type: ignore[no-untyped-call]

    with pytest.raises(ExportError, match=r"fix: TorchScript cannot be captured: give the module"):
        extract_ir(traced, (torch.ones(2),))


def test_a_name_that_is_no_text_is_refused() -> None:
    with pytest.raises(ExportError, match=r"the name of a graph is text, not 3\n  fix: give a string"):
        extract_ir(nn.ReLU(), (torch.ones(2),), name=3)  # type: ignore[arg-type]


@each_row("arguments, problem", {
    "a tensor": ((torch.ones(2),), r"positional arguments are a tuple, not Tensor.*\n  fix: pass \(x,\)"),
    "two tensors": ((torch.ones(2), torch.ones(2)), "positional arguments are a tuple, not Tensor"),
    "a list": (((torch.ones(2),), [1]), "keyword arguments are a dict by name, not list"),
    "numbers as names": (((torch.ones(2),), {1: 2}), "keyword arguments are a dict by name, not by 1"),
})  # fmt: skip
def test_arguments_without_their_tuple_are_refused(arguments: Any, problem: str) -> None:
    with pytest.raises(ExportError, match=f"(?s){problem}"):
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


def test_converting_leaves_the_exported_program_as_it_was() -> None:
    count = torch.zeros(())
    model = Holding(lambda self, x: x * self.count.add_(1), count=count, also_count=count)
    program = torch.export.export(model, (torch.randn(2),))
    before = str(program)

    convert_exported_program(program)

    assert str(program) == before
