"""Tensors held outside modules: their kind in a graph, and their part in verification."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
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
from tests.support.rows import each_row

ROW, PLACE = torch.tensor([[1.0, -2.0, 3.0]]), torch.tensor([2])


class Holder:
    """A cache as libraries have them: a plain object with a tensor."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.keys = tensor


class SlottedHolder:
    __slots__ = ("keys",)

    def __init__(self, tensor: torch.Tensor) -> None:
        self.keys = tensor


class Cache(nn.Module):
    """Writes a row into a tensor that ``self.held`` holds, and sums it up.

    Args:
        register: Registers the tensor with the module.
        hold: Returns what holds it.
        get: Returns it, given what holds it.
    """

    def __init__(
        self,
        register: Callable[[nn.Module, torch.Tensor], object] = lambda *_: None,
        hold: Callable[[torch.Tensor], Any] = Holder,
        get: Callable[[Any], torch.Tensor] = lambda held: held.keys,
    ) -> None:
        super().__init__()
        keys = nn.Parameter(torch.zeros(4, 3), requires_grad=False)
        tensor = keys if register is as_parameter else keys.detach()
        register(self, tensor)
        self.held = hold(tensor)
        self.get = get

    def forward(self, row: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
        self.get(self.held).index_copy_(0, place, row)
        return self.get(self.held).sum(0)


def as_buffer(module: nn.Module, tensor: torch.Tensor) -> None:
    module.register_buffer("keys", tensor, persistent=False)


def as_persistent_buffer(module: nn.Module, tensor: torch.Tensor) -> None:
    module.register_buffer("keys", tensor)


def as_parameter(module: nn.Module, tensor: torch.Tensor) -> None:
    module.keys = tensor


def first(held: Any) -> torch.Tensor:
    tensor: torch.Tensor = held[0]
    return tensor


HOLDERS = [
    pytest.param(Holder, lambda held: held.keys, id="object"),
    pytest.param(SlottedHolder, lambda held: held.keys, id="slots"),
    pytest.param(lambda tensor: [tensor], first, id="list"),
    pytest.param(lambda tensor: (tensor,), first, id="tuple"),
    pytest.param(lambda tensor: {"keys": [tensor]}, lambda held: held["keys"][0], id="nested"),
]


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize(("hold", "get"), HOLDERS)
@pytest.mark.parametrize("register", [as_buffer, as_persistent_buffer, as_parameter])
def test_a_registered_tensor_keeps_its_name_whatever_else_holds_it(
    register: Any, hold: Any, get: Any, device: str
) -> None:
    with torch.device(device):
        captured = Cache(register, hold, get)
    model = Cache(register, hold, get)

    graph = extract_ir(captured, (ROW, PLACE))

    assert [target.argument.target for target in graph.updates if target.argument] == ["keys"]
    assert not graph.constants
    weights = {name: tensor for name, tensor in model.state_dict().items() if register is not as_buffer}
    constants = {"keys": torch.zeros(4, 3)} if register is as_buffer else {}
    results, mutations = execute_ir(
        graph, (ROW, PLACE), weights=weights, constants=constants, return_mutations=True
    )
    assert torch.equal(results, ROW[0])
    assert torch.equal(mutations["keys"][2], ROW[0])
    assert str(verify_ir(graph, model, (ROW, PLACE))).startswith(
        "graph and model agree: 1 result and 1 mutation"
    )
    assert torch.equal(model.get(model.held), torch.zeros(4, 3))


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize(
    ("hold", "get", "path"),
    [
        pytest.param(Holder, lambda held: held.keys, "held.keys", id="object"),
        pytest.param(SlottedHolder, lambda held: held.keys, "held.keys", id="slots"),
        pytest.param(lambda tensor: [tensor], first, "held.0", id="list"),
        pytest.param(
            lambda tensor: {"keys": [tensor]}, lambda held: held["keys"][0], "held.keys.0", id="nested"
        ),
        pytest.param(lambda tensor: tensor, lambda held: held, "held", id="attribute"),
    ],
)
def test_a_tensor_that_is_changed_and_not_registered_is_a_buffer_by_its_path(
    hold: Any, get: Any, path: str, device: str
) -> None:
    with torch.device(device):
        captured = Cache(hold=hold, get=get)
    model = Cache(hold=hold, get=get)

    graph = extract_ir(captured, (ROW, PLACE))

    assert list(graph.buffers) == [path]
    assert not graph.constants
    assert torch.equal(execute_ir(graph, (ROW, PLACE), constants={path: torch.zeros(4, 3)}), ROW[0])
    assert str(verify_ir(graph, model, (ROW, PLACE))).startswith(
        "graph and model agree: 1 result and 1 mutation"
    )
    assert torch.equal(model.get(model.held), torch.zeros(4, 3))


class Counter(nn.Module):
    """Counts its calls in a tensor that an object holds, as static caches do."""

    def __init__(self, step: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.held = Holder(torch.tensor(3))
        self.step = step

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.step(self.held.keys)


def add_one(count: torch.Tensor) -> torch.Tensor:
    return count.add_(1)


def add_to_what_to_returns(count: torch.Tensor) -> torch.Tensor:
    return count.to(torch.device("cpu")).add_(1)


def add_behind_what_to_returns(count: torch.Tensor) -> torch.Tensor:
    seen = count.to(torch.device("cpu"))
    count.add_(1)
    return seen


def add_to_a_view(count: torch.Tensor) -> torch.Tensor:
    count.view(1)[0].add_(1)
    return count


@pytest.mark.parametrize(
    "step",
    [add_one, add_to_what_to_returns, add_behind_what_to_returns, add_to_a_view],
    ids=lambda f: f.__name__,
)
def test_capturing_leaves_what_is_changed_as_it_was_and_starts_from_there(step: Any) -> None:
    model, x = Counter(step), torch.zeros(2)

    graph = extract_ir(model, (x,))

    assert model.held.keys == 3
    result, mutations = execute_ir(graph, (x,), return_mutations=True)
    assert torch.equal(result, torch.full((2,), 4.0))
    assert mutations["held.keys"] == 4
    assert verify_ir(graph, model, (x,)).ok
    assert model.held.keys == 3


def test_a_branch_by_a_tensor_that_is_changed_is_refused() -> None:
    class Branch(Counter):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.held.keys.add_(1)
            return x if self.held.keys > 3 else -x

    with pytest.raises(
        ExportError, match=r"(?s)cannot capture Branch.*fix: the model decides by the content"
    ):
        extract_ir(Branch(add_one), (torch.zeros(2),))


def test_what_is_only_read_is_a_constant_by_its_path() -> None:
    class Reader(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Module()
            self.inner.scale = torch.tensor([2.0])
            self.table = {"shifts": [torch.tensor([1.0])]}
            self.layers = [nn.Linear(1, 1)]  # no ModuleList: nobody registers it

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            made: torch.Tensor = self.layers[0](x * self.inner.scale + self.table["shifts"][0])
            return made + torch.tensor([3.0])

    model, x = Reader(), torch.randn(2, 1)

    graph = extract_ir(model, (x,))

    paths = {"inner.scale", "table.shifts.0", "layers.0.weight", "layers.0.bias"}
    assert paths < graph.constants.keys()
    assert len(graph.constants) == len(paths) + 1
    assert verify_ir(graph, model, (x,)).ok


def test_an_attribute_that_forward_computes_anew_is_not_asked_for() -> None:
    class Normed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.direction = nn.Parameter(torch.ones(2))
            self.weight = self.direction.detach() * 2

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.weight = self.direction * 2
            return x * self.weight

    with torch.device("meta"):
        graph = extract_ir(Normed(), (torch.randn(2),))

    assert not graph.buffers
    assert verify_ir(graph, Normed(), (torch.randn(2),)).ok


def test_control_flow_beside_what_is_held_is_captured_and_verified() -> None:
    class Branching(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("keys", torch.zeros(2))
            self.held = Holder(self.keys)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.held.keys.add_(x)
            result: torch.Tensor = torch.cond(x.sum() > 0, torch.sin, torch.cos, (self.held.keys * 1,))
            return result

    model, x = Branching(), torch.ones(2)

    graph = extract_ir(model, (x,))

    assert str(verify_ir(graph, model, (x,))).startswith("graph and model agree: 1 result and 1 mutation")


def test_a_decision_by_a_constant_that_is_held_is_made_while_capturing() -> None:
    class Sized(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.held = [torch.tensor([2, 3])]

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.reshape(self.held[0].tolist())

    graph = extract_ir(Sized(), (torch.arange(6),))

    assert [str(value.type) for value in graph.outputs] == ["i64[2, 3]"]


def test_an_argument_that_the_model_holds_too_is_an_input() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.held = [torch.ones(3)]
            self.weight = nn.Parameter(torch.ones(3))

        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return x * self.held[0] + y * self.weight

    model = Scaled()

    graph = extract_ir(model, (model.held[0], model.weight))

    assert [value.name for value in graph.inputs] == ["x", "y"]
    assert verify_ir(graph, model, (torch.randn(3), torch.randn(3))).ok


def test_what_forward_hangs_on_an_object_is_taken_off_again() -> None:
    class Lazy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.held = Holder(torch.zeros(2))
            self.log: list[torch.Tensor] = []
            self.sizes: list[int] = []

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.held.last, self.held.is_ready = x * 2, True
            self.log.append(x)
            self.sizes.append(len(x))
            return self.held.last + self.held.keys

    model = Lazy()

    extract_ir(model, (torch.randn(2),))

    assert vars(model.held).keys() == {"keys"}
    assert model.log == []
    assert model.sizes == []


def test_tensors_in_the_metadata_of_an_fx_graph_are_none_of_the_model() -> None:
    program = torch.export.export(Counter(lambda count: count + 1), (torch.zeros(2),), strict=False)

    graph = extract_ir(program.module(), (torch.zeros(2),))

    assert len(graph.arguments) == 2


def test_a_fake_tensor_that_something_left_behind_is_passed_over() -> None:
    with FakeTensorMode():
        left_behind = torch.zeros(2)
    model = nn.Linear(2, 2)
    model.cache = {"last": left_behind}

    graph = extract_ir(model, (torch.zeros(1, 2),))

    assert graph.parameters.keys() == {"weight", "bias"}
    assert not graph.buffers


def test_a_buffer_that_forward_replaces_is_another_one_than_what_was_held() -> None:
    class Replacing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("keys", torch.ones(2))
            self.held = Holder(self.keys)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.keys = self.keys + x
            return self.held.keys * 2

    model, x = Replacing(), torch.full((2,), 3.0)

    graph = extract_ir(model, (x,))

    result, mutations = execute_ir(graph, (x,), weights=model.state_dict(), return_mutations=True)
    assert torch.equal(result, torch.full((2,), 2.0))
    assert torch.equal(mutations["keys"], torch.full((2,), 4.0))
    assert verify_ir(graph, model, (x,)).ok


class PlainAttribute(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(2, 2)
        self.scale = torch.arange(2.0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.inner(x) * self.scale
        return result


@pytest.fixture
def graph_without_data() -> Graph:
    with torch.device("meta"):
        return extract_ir(PlainAttribute(), (torch.randn(1, 2),))


def test_a_plain_attribute_on_meta_is_bound_when_the_graph_is_run(graph_without_data: Graph) -> None:
    model, x = PlainAttribute(), torch.randn(1, 2)

    result = execute_ir(
        graph_without_data, (x,), weights=model.state_dict(), constants={"scale": model.scale}
    )

    assert torch.equal(result, model(x))
    assert verify_ir(graph_without_data, model, (x,)).ok


def test_a_plain_attribute_of_a_model_of_fake_tensors_is_bound_likewise(graph_without_data: Graph) -> None:
    with FakeTensorMode() as mode:
        model, x = PlainAttribute(), torch.randn(1, 2)

    assert model.scale.fake_mode is mode  # type: ignore[attr-defined]
    assert extract_ir(model, (x,)) == graph_without_data


def test_a_plain_attribute_that_is_not_given_is_named_with_where_it_goes(graph_without_data: Graph) -> None:
    with pytest.raises(
        WeightError, match=r"missing: scale, f32\[2\] \(not in the state_dict: pass it in constants=\)"
    ):
        execute_ir(graph_without_data, (torch.randn(1, 2),), weights=PlainAttribute().state_dict())


def test_text_and_files_keep_a_plain_attribute_without_data(graph_without_data: Graph, tmp_path: Any) -> None:
    save_ir(graph_without_data, tmp_path / "graph.json")

    assert parse_ir(str(graph_without_data)) == graph_without_data
    assert load_ir(tmp_path / "graph.json") == graph_without_data
    assert "buffer %scale: f32[2] non_persistent\n" in str(graph_without_data)


def test_a_tensor_on_meta_that_nothing_of_the_model_holds_is_refused_with_advice() -> None:
    scale = torch.ones(2, device="meta")

    class Closure(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(2, 2, device="meta")

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = self.inner(x) * scale
            return result

    with pytest.raises(ExportError, match=r"(?s)cpu and meta.*fix: a tensor on meta .* make it an attribute"):
        extract_ir(Closure(), (torch.randn(1, 2),))


@each_row("device", ["cpu", "meta"])
def test_a_view_of_a_buffer_overlaps_it_on_meta_as_well(device: str) -> None:
    class Row(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("rows", torch.zeros(2, 2))
            self.row = self.rows[0]

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.row.add_(x)
            return self.rows * 2

    with torch.device(device):
        model = Row()

    with pytest.raises(ConversionError, match="rows, row overlap in memory, and one of them is changed"):
        extract_ir(model, (torch.ones(2),))


def test_a_tensor_that_is_held_may_be_the_result() -> None:
    class Returned(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.held = Holder(torch.zeros(2))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.held.keys.add_(x)
            return self.held.keys

    model, x = Returned(), torch.ones(2)

    graph = extract_ir(model, (x,))

    assert torch.equal(execute_ir(graph, (x,)), x)
    assert verify_ir(graph, model, (x,)).ok
