"""Graphs as modules and exported programs of PyTorch, and the tools that take these."""

from __future__ import annotations

import copy
import io
import re
import shutil
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.export import Dim, ExportedProgram

from npu_ir import ConversionError, Graph, WeightError, convert_exported_program, extract_ir, parse_ir
from npu_passes import bake, optimize
from npu_runtime import to_exported_program, to_torch
from tests.support.corpus.case import Function


class Classifier(nn.Module):
    """Tied weights, running statistics, a constant, a non-persistent buffer, keywords, nested results."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU())
        self.first = nn.Linear(8, 4)
        self.second = nn.Linear(8, 4)
        self.second.weight = self.first.weight
        self.register_buffer("shift", torch.ones(4), persistent=False)

    def forward(self, x: torch.Tensor, *, scale: float = 2.0) -> dict[str, Any]:
        hidden = self.body(x)
        return {
            "first": self.first(hidden) * scale,
            "rest": (self.second(hidden) + self.shift, torch.tensor([1.0, 2])),
        }


def test_the_model_stays_as_it_was_and_shares_the_memory_of_what_is_not_updated() -> None:
    model = Classifier()
    before = copy.deepcopy(model.state_dict())
    graph = extract_ir(model, (torch.rand(3, 4),), {"scale": 2.0})

    module = to_torch(graph, model.state_dict())
    module(torch.rand(3, 4), scale=2.0)

    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    shared = module.get_parameter("first.weight")
    assert shared.data_ptr() == model.first.weight.data_ptr()
    assert module.get_parameter("second.weight") is shared
    assert not shared.requires_grad


AT_ONCE = """
graph "at once" {
  buffer %a: f32[2]
  buffer %b: f32[2]
  buffer %c: f32[2]
  update %a = %b
  update %b = %a
  update %c = %a
  return %c
}
"""


def test_updates_with_the_old_content_of_others_happen_at_once() -> None:
    module = to_torch(
        parse_ir(AT_ONCE), {"a": torch.zeros(2), "b": torch.ones(2), "c": torch.full((2,), 7.0)}
    )

    results = [module().tolist() for _ in range(3)]

    assert results == [[7, 7], [0, 0], [1, 1]]
    state = {name: tensor.tolist() for name, tensor in module.state_dict().items()}
    assert state == {"a": [1, 1], "b": [0, 0], "c": [0, 0]}


OLD = """
graph old {
  input %x: f32[2]
  buffer %state: f32[2]
  %total: f32[2] = aten.add.Tensor(self=%state, other=%x)
  %view: f32[1, 2] = aten.view.default(self=%state) {size=[1, 2]}
  update %state = %total
  return (%state, %view)
}
"""


def test_a_result_of_an_earlier_call_keeps_the_content_that_a_buffer_had() -> None:
    module = to_torch(parse_ir(OLD), {"state": torch.zeros(2)})

    first = module(torch.ones(2))
    second = module(torch.ones(2))

    assert [item.tolist() for item in first] == [[0, 0], [[0, 0]]]
    assert [item.tolist() for item in second] == [[1, 1], [[1, 1]]]


OF_ONE_SIZE = """
graph "one size" {
  symbol n in [2, 16]
  require mod(n, 2) == 0
  input %x: f32[n]
  %relu: f32[n] = aten.relu.default(self=%x)
  return %relu
}
"""


def of_two_sizes(least: int) -> str:
    """Return a graph of a nested argument with one size, and a keyword with another, smaller one."""
    return f"""
graph "two sizes" {{
  symbol long in [{least}, inf]
  symbol short in [2, inf]
  require short < long
  input %x: f32[long]
  input %y: f32[short]
  call ({{"parts": [%x]}}, mask=%y)
  %relu: f32[long] = aten.relu.default(self=%x)
  return %relu
}}
"""


def nested(long: int, short: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return ({"parts": [torch.ones(long)]},), {"mask": torch.ones(short)}


@pytest.mark.parametrize(
    ("text", "fitting", "wrong", "message"),
    [
        (OF_ONE_SIZE, ((torch.ones(8),), {}), ((torch.ones(18),), {}), r"x.size\(\)\[0\] <= 16"),
        (OF_ONE_SIZE, ((torch.ones(8),), {}), ((torch.ones(7),), {}), r"x.size\(\)\[0\] % 2 == 0"),
        (of_two_sizes(least=4), nested(8, 3), nested(5, 6), ""),
    ],
    ids=["range", "constraint", "nested arguments"],
)
def test_sizes_that_the_graph_was_not_made_for_are_refused(
    text: str, fitting: Any, wrong: Any, message: str
) -> None:
    module = to_torch(parse_ir(text))

    assert module(*fitting[0], **fitting[1]).tolist() == [1] * 8
    with pytest.raises(AssertionError, match=f"Guard failed: .*{message}"):
        module(*wrong[0], **wrong[1])


def test_constraints_that_no_example_is_found_for_are_refused() -> None:
    with pytest.raises(
        ConversionError,
        match=(
            "a program needs an example of its sizes, and no size 'short' is "
            r"found(?s:.*)\n  at: graph 'two sizes'"
        ),
    ):
        to_torch(parse_ir(of_two_sizes(least=2)))


def test_sizes_that_depend_on_data_are_introduced_where_torch_export_does() -> None:
    model = Function(lambda x: torch.nonzero(x > 0).float() * x[x > 0].shape[0])
    x = torch.tensor([1.0, -1.0, 2.0])
    program = to_exported_program(extract_ir(model, (x,)))

    original = torch.export.export(model, (x,))
    places = [
        [str(node.target) for node in item.graph.nodes if node.meta.get("unbacked_bindings")]
        for item in (program, original)
    ]

    assert places[0] == places[1]
    assert torch.equal(program.run_decompositions().module()(x), model(x))


@pytest.mark.parametrize(("args", "kwargs", "message"), [
    pytest.param((torch.rand(3, 5),), {"scale": 2.0}, r"x.size\(\)\[1\] == 4", id="another size"),
    pytest.param((torch.rand(3, 4),), {"scale": 3.0}, "scale == 2.0", id="another number"),
])  # fmt: skip
def test_arguments_that_the_graph_was_not_made_for_are_refused(
    args: tuple[Any, ...], kwargs: dict[str, Any], message: str
) -> None:
    model = Classifier()
    module = to_torch(extract_ir(model, (torch.rand(3, 4),), {"scale": 2.0}), model.state_dict())

    with pytest.raises(AssertionError, match=message):
        module(*args, **kwargs)


def test_a_module_can_be_put_into_evaluation_mode() -> None:
    module = to_torch(extract_ir(nn.ReLU(), (torch.rand(2),)))

    assert module.eval()(torch.tensor([-1.0, 1.0])).tolist() == [0, 1]


def test_nodes_say_where_they_come_from() -> None:
    model = Classifier()
    graph = extract_ir(model, (torch.rand(3, 4),), {"scale": 2.0})

    program = to_exported_program(graph, model.state_dict())

    node = next(node for node in program.graph.nodes if node.name == "linear")
    assert [path for path, _ in node.meta["nn_module_stack"].values()] == ["", "body", "body.0"]
    assert re.fullmatch(r'  File ".*/test_exported_program.py", line \d+, in .*', node.meta["stack_trace"])


def test_nodes_of_the_prologue_are_nodes_and_bake_evaluates_them_before() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)).eval()
    x = torch.rand(1, 3, 8, 8)
    graph = optimize(extract_ir(model, (x,)))
    assert graph.prologue

    module, baked = to_torch(graph, model.state_dict()), to_torch(*bake(graph, model.state_dict()))

    torch.testing.assert_close(module(x), model(x))
    assert torch.equal(module(x), baked(x))
    assert {"0.weight", "1.running_mean"} <= module.state_dict().keys() <= model.state_dict().keys()
    assert all(name.startswith("folded.") for name in baked.state_dict())


def test_constants_take_the_place_of_the_graphs() -> None:
    model = Classifier()
    graph = extract_ir(model, (torch.rand(3, 4),), {"scale": 2.0})
    (constant,) = graph.constants

    module = to_torch(graph, model.state_dict(), constants={constant: torch.tensor([5.0, 6.0])})

    assert module(torch.rand(3, 4), scale=2.0)["rest"][1].tolist() == [5, 6]


def test_a_constant_of_the_module_is_not_that_of_the_graph() -> None:
    graph = extract_ir(Function(lambda x: torch.tensor([1.0, 2.0]) + x), (torch.zeros(2),))
    module = to_torch(graph)

    for name in graph.constants:
        getattr(module, name).zero_()

    assert to_torch(graph)(torch.zeros(2)).tolist() == [1, 2]


def test_missing_weights_are_listed() -> None:
    graph = extract_ir(nn.Linear(4, 2), (torch.rand(1, 4),))

    with pytest.raises(WeightError, match=r"missing: weight, f32\[2, 4\]"):
        to_torch(graph)


@pytest.fixture
def _two_lists() -> Iterator[None]:
    library = torch.library.Library("lists", "DEF")
    library.define("both(Tensor x) -> (Tensor[], Tensor[])")
    yield
    library._destroy()


OF_A_NUMBER = """
  input %flag: bool[]
  %item: bool = aten.item.default(self=%flag)
  %y: f32[2] = higher_order.cond(pred=%flag, operands=(%item, %x))
  region true_fn = graph true_fn {
    input %count: bool
    input %x: f32[2]
    return (%x,)
  }
  region false_fn = graph false_fn {
    input %count: bool
    input %x: f32[2]
    return (%x,)
  }"""


@pytest.mark.parametrize(("body", "message"), [
    pytest.param("  %y: f32[2] = nowhere.sort.default(x=%x)",
        "nowhere.sort.default is not an operator of PyTorch", id="unknown operator"),
    pytest.param("  %y: f32[2], %z: f32[2] = lists.both.default(x=%x)",
        "lists.both.default returns several lists.*\n  at: .*\n  fix: give the operator one", id="lists"),
    pytest.param("  input %w: f32[4, 4]@_mkldnn\n  %y: f32[2, 4] = aten.linear.default(input=%x, weight=%w)",
        "no packed weights, such as f32.4, 4.@_mkldnn\n  at: graph 'refused'\n", id="packed weights"),
    pytest.param(OF_A_NUMBER, "region 'true_fn' takes %count, bool, which depends on data", id="region"),
    pytest.param("  input %factor: float\n  %y: f32[2] = aten.mul.Scalar(self=%x, other=%factor)",
        "input %factor is a float: .*\n  at: graph 'refused'\n", id="a float that is not fixed"),
])  # fmt: skip
@pytest.mark.usefixtures("_two_lists")
def test_what_a_program_cannot_hold_is_refused(body: str, message: str) -> None:
    graph = parse_ir(f"graph refused {{\n  input %x: f32[2]\n{body}\n  return %y\n}}\n")

    with pytest.raises(ConversionError, match=message):
        to_exported_program(graph)


@pytest.mark.smoke
def test_what_pytorch_refuses_names_the_graph() -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer('say "hi"\nto', torch.ones(2))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + self._buffers['say "hi"\nto']

    model = Odd()
    graph = extract_ir(model, (torch.rand(2),))

    with pytest.raises(
        ConversionError,
        match=r"PyTorch refuses the program: SyntaxError: .*\n  at: graph 'Odd'\n  fix: rename or leave",
    ):
        to_torch(graph, model.state_dict())


needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="Inductor compiles with g++")


def network() -> nn.Module:
    layers = (
        nn.Conv2d(3, 4, 3),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(4, 2),
    )
    return nn.Sequential(*layers)


def of_any_batch(model: nn.Module) -> Graph:
    return extract_ir(model, (torch.rand(2, 3, 8, 8),), dynamic_shapes=({0: Dim("batch", min=2, max=64)},))


def saved_and_loaded(program: ExportedProgram) -> ExportedProgram:
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    return torch.export.load(file)


def test_a_program_of_open_sizes_is_saved_and_loaded() -> None:
    model = network().eval()

    loaded = saved_and_loaded(to_exported_program(of_any_batch(model), model.state_dict())).module()

    x = torch.rand(5, 3, 8, 8)
    torch.testing.assert_close(loaded(x), model(x))
    with pytest.raises(AssertionError, match="Guard failed"):
        loaded(torch.rand(65, 3, 8, 8))


@pytest.mark.parametrize("mode", ["eval", "train"])
def test_torch_export_exports_the_module_again(mode: str) -> None:
    model = network().train(mode == "train")
    x = torch.rand(2, 3, 8, 8)
    module = to_torch(extract_ir(model, (x,)), model.state_dict())

    program = torch.export.export(module, (x,))

    wanted = model(x)
    torch.testing.assert_close(program.module()(x), wanted, rtol=0, atol=0)
    again = to_torch(convert_exported_program(program), program.state_dict)
    assert again.state_dict().keys() == module.state_dict().keys()


@needs_compiler
@pytest.mark.exhaustive
def test_inductor_compiles_the_module() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.BatchNorm1d(8)).train()
    x = torch.rand(3, 4)
    module = to_torch(extract_ir(model, (x,)), model.state_dict())

    compiled = torch.compile(module, backend="inductor", fullgraph=True)

    torch.testing.assert_close(compiled(x), model(x))
    torch.testing.assert_close(module.get_buffer("2.running_mean"), model[2].running_mean)
