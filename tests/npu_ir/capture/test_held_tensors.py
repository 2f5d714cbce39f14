"""Tensors held outside modules: their kind in a graph, and their part in verification."""

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses import FakeTensorMode

from npu_ir import (
    ConversionError,
    ExportError,
    Graph,
    WeightError,
    execute_ir,
    extract_ir,
    load_ir,
    parse_ir,
    save_ir,
    verify_ir,
)
from tests.support.corpus.case import Holding
from tests.support.rows import each_row
from tests.support.tiers import thin

ROW, PLACE = torch.tensor([[1.0, -2.0, 3.0]]), torch.tensor([2])


class Holder:
    """A cache as libraries have them: a plain object with a tensor."""

    def __init__(self, tensor: Tensor) -> None:
        self.keys = tensor


class SlottedHolder:
    __slots__ = ("keys",)

    def __init__(self, tensor: Tensor) -> None:
        self.keys = tensor


class Cache(nn.Module):
    """Writes a row into a tensor that ``self.held`` holds, and sums it up.

    Args:
        register: Registers the tensor with the module.
        hold: Returns what holds it.
        get: Returns it, given what holds it.
    """

    def __init__(self, register: str, hold: Callable[[Tensor], Any], get: Callable[[Any], Tensor]) -> None:
        super().__init__()
        tensor = torch.zeros(4, 3)
        if register == "parameter":
            self.keys = tensor = nn.Parameter(tensor, requires_grad=False)
        elif register:
            self.register_buffer("keys", tensor, persistent=register == "persistent buffer")
        self.held = hold(tensor)
        self.get = get

    def forward(self, row: Tensor, place: Tensor) -> Tensor:
        self.get(self.held).index_copy_(0, place, row)
        return self.get(self.held).sum(0)


HOLDERS: dict[str, tuple[Any, Any, str]] = {
    "object": (Holder, lambda held: held.keys, "held.keys"),
    "slots": (SlottedHolder, lambda held: held.keys, "held.keys"),
    "list": (lambda tensor: [tensor], lambda held: held[0], "held.0"),
    "nested": (lambda tensor: {"keys": (tensor,)}, lambda held: held["keys"][0], "held.keys.0"),
    "attribute": (lambda tensor: tensor, lambda held: held, "held"),
}
PLACES = [*itertools.product(["", "buffer", "persistent buffer", "parameter"], HOLDERS, ["cpu", "meta"])]


@pytest.mark.parametrize("place", thin(PLACES, 11, "-".join))
def test_a_tensor_that_is_changed_is_known_by_its_name_or_else_by_its_path(
    place: tuple[str, str, str],
) -> None:
    register, holder, device = place
    hold, get, path = HOLDERS[holder]
    with torch.device(device):
        captured = Cache(register, hold, get)
    model, name = Cache(register, hold, get), "keys" if register else path

    graph = extract_ir(captured, (ROW, PLACE))

    assert [target.argument.target for target in graph.updates if target.argument] == [name]
    assert not graph.constants
    results, mutations = execute_ir(
        graph, (ROW, PLACE), constants={name: torch.zeros(4, 3)}, return_mutations=True
    )
    assert torch.equal(results, ROW[0])
    assert torch.equal(mutations[name][2], ROW[0])
    report = verify_ir(graph, model, (ROW, PLACE))
    assert str(report).startswith("graph and model agree: 1 result and ")
    assert torch.equal(model.get(model.held), torch.zeros(4, 3))


def check(model: nn.Module, *args: Tensor) -> Graph:
    graph = extract_ir(model, args)
    report = verify_ir(graph, model, args)
    assert report.ok, str(report)
    return graph


def add_to_what_to_returns(count: Tensor) -> Tensor:
    return count.to(torch.device("cpu")).add_(1)


def add_behind_what_to_returns(count: Tensor) -> Tensor:
    seen = count.to(torch.device("cpu"))
    count.add_(1)
    return seen


def add_to_a_view(count: Tensor) -> Tensor:
    count.view(1)[0].add_(1)
    return count


@each_row("step", [add_to_what_to_returns, add_behind_what_to_returns, add_to_a_view])
def test_capturing_leaves_what_is_changed_as_it_was_and_starts_from_there(step: Any) -> None:
    model = Holding(lambda self, x: x + step(self.held.keys), held=Holder(torch.tensor(3)))

    graph = check(model, torch.zeros(2))

    assert model.held.keys == 3
    result, mutations = execute_ir(graph, (torch.zeros(2),), return_mutations=True)
    assert torch.equal(result, torch.full((2,), 4.0))
    assert mutations["held.keys"] == 4


def test_a_branch_by_a_tensor_that_is_changed_is_refused() -> None:
    def branch(self: Any, x: Tensor) -> Tensor:
        self.held.keys.add_(1)
        return x if self.held.keys > 3 else -x

    with pytest.raises(
        ExportError, match=r"(?s)cannot capture Holding.*fix: the model decides by the content"
    ):
        extract_ir(Holding(branch, held=Holder(torch.tensor(3))), (torch.zeros(2),))


def test_what_is_only_read_is_a_constant_by_its_path() -> None:
    def forward(self: Any, x: Tensor) -> Tensor:
        return self.layers[0](x * self.inner.scale + self.table["shifts"][0]) + torch.tensor([3.0])

    inner = nn.Module()
    inner.scale = torch.tensor([2.0])
    # The layer is in no ModuleList: nobody registers it.
    model = Holding(forward, inner=inner, table={"shifts": [torch.tensor([1.0])]}, layers=[nn.Linear(1, 1)])

    graph = check(model, torch.randn(2, 1))

    paths = {"inner.scale", "table.shifts.0", "layers.0.weight", "layers.0.bias"}
    assert paths < graph.constants.keys()
    assert len(graph.constants) == len(paths) + 1


def test_an_attribute_that_forward_computes_anew_is_not_asked_for() -> None:
    class Normed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.direction = nn.Parameter(torch.ones(2))
            self.weight = self.direction.detach() * 2

        def forward(self, x: Tensor) -> Tensor:
            self.weight = self.direction * 2
            return x * self.weight

    with torch.device("meta"):
        graph = extract_ir(Normed(), (torch.randn(2),))

    assert not graph.buffers
    assert verify_ir(graph, Normed(), (torch.randn(2),)).ok


def test_a_decision_by_a_constant_that_is_held_is_made_while_capturing() -> None:
    model = Holding(lambda self, x: x.reshape(self.held[0].tolist()), held=[torch.tensor([2, 3])])

    graph = extract_ir(model, (torch.arange(6),))

    assert [str(value.type) for value in graph.outputs] == ["i64[2, 3]"]


def test_an_argument_that_the_model_holds_too_is_an_input() -> None:
    model = Holding(
        lambda self, x, y: x * self.held[0] + y * self.weight,
        held=[torch.ones(3)],
        weight=nn.Parameter(torch.ones(3)),
    )

    graph = extract_ir(model, (model.held[0], model.weight))

    assert len(graph.inputs) == 2
    assert verify_ir(graph, model, (torch.randn(3), torch.randn(3))).ok


def test_what_forward_hangs_on_an_object_is_taken_off_again() -> None:
    def lazy(self: Any, x: Tensor) -> Tensor:
        self.held.last, self.held.is_ready = x * 2, True
        self.log.append(x)
        self.sizes.append(len(x))
        return self.held.last + self.held.keys

    model = Holding(lazy, held=Holder(torch.zeros(2)), log=[], sizes=[])

    extract_ir(model, (torch.randn(2),))

    assert vars(model.held).keys() == {"keys"}
    assert model.log == model.sizes == []


def test_tensors_in_the_metadata_of_an_fx_graph_are_none_of_the_model() -> None:
    model = Holding(lambda self, x: x + self.held[0], held=[torch.tensor(3)])
    program = torch.export.export(model, (torch.zeros(2),), strict=False)

    graph = extract_ir(program.module(), (torch.zeros(2),))

    assert len(graph.arguments) == 2


def test_a_fake_tensor_that_something_left_behind_is_passed_over() -> None:
    with FakeTensorMode():
        left_behind = torch.zeros(2)
    model = Holding(lambda self, x: self.layer(x), layer=nn.Linear(2, 2), cache={"last": left_behind})

    graph = extract_ir(model, (torch.zeros(1, 2),))

    assert graph.parameters.keys() == {"layer.weight", "layer.bias"}
    assert not graph.buffers


def test_a_buffer_that_forward_replaces_is_another_one_than_what_was_held() -> None:
    def replace(self: Any, x: Tensor) -> Tensor:
        self.keys = self.keys + x
        return self.held[0] * 2

    keys, x = torch.ones(2), torch.full((2,), 3.0)
    model = Holding(replace, keys=keys, held=[keys])

    graph = check(model, x)

    result, mutations = execute_ir(graph, (x,), weights=model.state_dict(), return_mutations=True)
    assert torch.equal(result, torch.full((2,), 2.0))
    assert torch.equal(mutations["keys"], torch.full((2,), 4.0))


class PlainAttribute(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(2, 2)
        self.scale = torch.arange(2.0)

    def forward(self, x: Tensor) -> Any:
        return self.inner(x) * self.scale


def test_a_plain_attribute_without_data_is_asked_for_by_its_name(tmp_path: Path) -> None:
    model, x = PlainAttribute(), torch.randn(1, 2)
    with torch.device("meta"):
        graph = extract_ir(PlainAttribute(), (torch.randn(1, 2),))
    with FakeTensorMode() as mode:
        fake, fake_x = PlainAttribute(), torch.randn(1, 2)

    save_ir(graph, tmp_path / "graph.json")

    assert "buffer %scale: f32[2] non_persistent\n" in str(graph)
    assert parse_ir(str(graph)) == load_ir(tmp_path / "graph.json") == graph
    assert fake.scale.fake_mode is mode
    assert extract_ir(fake, (fake_x,)) == graph
    result = execute_ir(graph, (x,), weights=model.state_dict(), constants={"scale": model.scale})
    assert torch.equal(result, model(x))
    assert verify_ir(graph, model, (x,)).ok
    with pytest.raises(
        WeightError, match=r"missing: scale, f32\[2\] \(not in the state_dict: pass it in constants=\)"
    ):
        execute_ir(graph, (x,), weights=model.state_dict())


def test_a_tensor_on_meta_that_nothing_of_the_model_holds_is_refused_with_advice() -> None:
    scale = torch.ones(2, device="meta")

    model = Holding(lambda self, x: self.inner(x) * scale, inner=nn.Linear(2, 2, device="meta"))

    with pytest.raises(ExportError, match=r"(?s)cpu(,| and) meta.*fix: a tensor on meta .* make it"):
        extract_ir(model, (torch.randn(1, 2),))


@each_row("device", ["cpu", "meta"])
def test_a_view_of_a_buffer_overlaps_it_on_meta_as_well(device: str) -> None:
    def change(self: Any, x: Tensor) -> Tensor:
        self.row[0].add_(x)
        return self.rows * 2

    with torch.device(device):
        rows = torch.zeros(2, 2)
        model = Holding(change, rows=rows, row=[rows[0]])

    with pytest.raises(ConversionError, match="rows, row.0 overlap in memory, and one of them is changed"):
        extract_ir(model, (torch.ones(2),))
