"""Graphs as modules and exported programs of PyTorch, and the tools that take these."""

from __future__ import annotations

import copy
import io
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from torch.export import Dim, ExportedProgram
from torch.export.graph_signature import OutputKind

from npu_ir import (
    Constraint,
    ConversionError,
    Graph,
    Range,
    ScalarType,
    TensorType,
    WeightError,
    convert_exported_program,
    extract_ir,
)
from npu_passes import bake, optimize
from npu_runtime import to_exported_program, to_torch
from tests.support.same_program import described


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


class Swap(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("a", torch.zeros(2))
        self.register_buffer("b", torch.ones(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept = self.a.clone()
        self.a.copy_(self.b)
        self.b.copy_(kept)
        return x + self.a


def test_the_module_is_called_as_the_model_and_its_buffers_advance() -> None:
    model = Classifier()
    graph = extract_ir(model, (torch.rand(3, 4),), {"scale": 2.0})
    module, twin = to_torch(graph, model.state_dict()), copy.deepcopy(model)

    for _ in range(3):
        x = torch.rand(3, 4)
        actual, wanted = module(x, scale=2.0), twin(x, scale=2.0)
        assert torch.equal(actual["first"], wanted["first"])
        assert torch.equal(actual["rest"][0], wanted["rest"][0])
        assert torch.equal(actual["rest"][1], wanted["rest"][1])

    assert list(module.state_dict()) == list(twin.state_dict())
    for name, tensor in twin.state_dict().items():
        assert torch.equal(module.state_dict()[name], tensor), name


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


def test_buffers_that_take_each_others_content_swap() -> None:
    model = Swap()
    graph = optimize(extract_ir(model, (torch.zeros(2),)))
    module = to_torch(graph, model.state_dict())

    results = [module(torch.zeros(2)).tolist() for _ in range(3)]

    assert results == [[1, 1], [0, 0], [1, 1]]


def test_updates_with_the_old_content_of_others_happen_at_once() -> None:
    type = TensorType((2,), torch.float32)
    graph = Graph("at once")
    a, b, c = (graph.add_buffer(name, type) for name in "abc")
    graph.set_update(a, b)
    graph.set_update(b, a)
    graph.set_update(c, a)
    graph.set_outputs(c)
    module = to_torch(graph, {"a": torch.zeros(2), "b": torch.ones(2), "c": torch.full((2,), 7.0)})

    results = [module().tolist() for _ in range(3)]

    assert results == [[7, 7], [0, 0], [1, 1]]
    assert {name: tensor.tolist() for name, tensor in module.state_dict().items()} == {
        "a": [1, 1],
        "b": [0, 0],
        "c": [0, 0],
    }


def test_a_result_of_an_earlier_call_keeps_the_content_that_a_buffer_had() -> None:
    graph = Graph("old")
    state = graph.add_buffer("state", TensorType((2,), torch.float32))
    x = graph.add_input("x", TensorType((2,), torch.float32))
    total = graph.insert("aten.add.Tensor", (state, x), operands=("self", "other"), types=state.type)
    view = graph.insert(
        "aten.view.default",
        (state,),
        {"size": [1, 2]},
        operands=("self",),
        types=TensorType((1, 2), torch.float32),
    )
    graph.set_update(state, total.outputs[0])
    graph.set_outputs((state, view.outputs[0]))
    module = to_torch(graph, {"state": torch.zeros(2)})

    first = module(torch.ones(2))
    second = module(torch.ones(2))

    assert [item.tolist() for item in first] == [[0, 0], [[0, 0]]]
    assert [item.tolist() for item in second] == [[1, 1], [[1, 1]]]


def test_inputs_that_the_model_changes_are_changed() -> None:
    class AddsOne(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.add_(1) * 2

    graph = extract_ir(AddsOne(), (torch.zeros(2),))
    x = torch.zeros(2)

    result = to_torch(graph)(x)

    assert (x.tolist(), result.tolist()) == ([1, 1], [2, 2])
    kinds = [spec.kind for spec in to_exported_program(graph).graph_signature.output_specs]
    assert kinds == [OutputKind.USER_INPUT_MUTATION, OutputKind.USER_OUTPUT]


def test_open_sizes_stay_open_in_their_range() -> None:
    model = nn.Linear(4, 2)
    shapes = ({0: Dim("batch", max=16)},)
    module = to_torch(extract_ir(model, (torch.rand(3, 4),), dynamic_shapes=shapes), model.state_dict())

    x = torch.rand(7, 4)

    torch.testing.assert_close(module(x), model(x), rtol=0, atol=0)
    with pytest.raises(AssertionError, match=r"Guard failed: input.size\(\)\[0\] <= 16"):
        module(torch.rand(17, 4))


def test_sizes_that_violate_a_constraint_are_refused() -> None:
    graph = Graph("even")
    size = graph.add_symbol("n", Range(2))
    x = graph.add_input("x", TensorType((size,), torch.float32))
    graph.set_outputs(graph.insert("aten.relu.default", (x,), types=x.type, operands=("self",)).outputs[0])
    graph.add_constraint(Constraint(size % 2, "==", 0))
    module = to_torch(graph)

    assert module(torch.ones(8)).tolist() == [1] * 8
    with pytest.raises(AssertionError, match=r"Guard failed: x.size\(\)\[0\] % 2 == 0"):
        module(torch.ones(7))


def of_two_sizes(least: int) -> Graph:
    """Return a graph of a nested argument with one size, and a keyword with another, smaller one."""
    graph = Graph("two sizes")
    long, short = graph.add_symbol("long", Range(least)), graph.add_symbol("short", Range(2))
    x = graph.add_input("x", TensorType((long,), torch.float32))
    y = graph.add_input("y", TensorType((short,), torch.float32))
    graph.set_call(({"parts": [x]},), {"mask": y})
    graph.add_constraint(Constraint(short, "<", long))
    node = graph.insert("aten.relu.default", (x,), types=x.type, operands=("self",))
    graph.set_outputs(node.outputs[0])
    return graph


def test_sizes_of_nested_arguments_are_compared() -> None:
    module = to_torch(of_two_sizes(least=4))

    assert module({"parts": [torch.ones(5)]}, mask=torch.ones(3)).tolist() == [1] * 5
    with pytest.raises(AssertionError, match="Guard failed"):
        module({"parts": [torch.ones(5)]}, mask=torch.ones(6))


def test_constraints_that_no_example_is_found_for_are_refused() -> None:
    with pytest.raises(
        ConversionError,
        match=(
            "a program needs an example of its sizes, and no size 'short' is "
            r"found(?s:.*)\n  at: graph 'two sizes'"
        ),
    ):
        to_torch(of_two_sizes(least=2))


def test_sizes_that_depend_on_data_are_introduced_where_torch_export_does() -> None:
    class Positive(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.nonzero(x > 0).float() * x[x > 0].shape[0]

    model, x = Positive(), torch.tensor([1.0, -1.0, 2.0])
    program = to_exported_program(extract_ir(model, (x,)))

    original = torch.export.export(model, (x,))
    places = [
        [str(node.target) for node in item.graph.nodes if node.meta.get("unbacked_bindings")]
        for item in (program, original)
    ]

    assert places[0] == places[1]
    assert torch.equal(program.run_decompositions().module()(x), model(x))


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        pytest.param((torch.rand(3, 5),), {"scale": 2.0}, r"x.size\(\)\[1\] == 4", id="another size"),
        pytest.param((torch.rand(3, 4),), {"scale": 3.0}, "scale == 2.0", id="another number"),
    ],
)
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


def test_weights_may_be_a_file(tmp_path: Path) -> None:
    model = nn.Linear(4, 2)
    graph, x = extract_ir(model, (torch.rand(1, 4),)), torch.rand(1, 4)
    save_file(model.state_dict(), tmp_path / "weights.safetensors")

    module = to_torch(graph, tmp_path / "weights.safetensors")

    assert torch.equal(module(x), model(x))


def test_constants_take_the_place_of_the_graphs() -> None:
    model = Classifier()
    graph = extract_ir(model, (torch.rand(3, 4),), {"scale": 2.0})
    (constant,) = graph.constants

    module = to_torch(graph, model.state_dict(), constants={constant: torch.tensor([5.0, 6.0])})

    assert module(torch.rand(3, 4), scale=2.0)["rest"][1].tolist() == [5, 6]


def test_a_constant_of_the_module_is_not_that_of_the_graph() -> None:
    class Constant(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.tensor([1.0, 2.0]) + x

    graph = extract_ir(Constant(), (torch.zeros(2),))
    module = to_torch(graph)

    for name in graph.constants:
        getattr(module, name).zero_()

    assert to_torch(graph)(torch.zeros(2)).tolist() == [1, 2]


def test_missing_weights_are_listed() -> None:
    graph = extract_ir(nn.Linear(4, 2), (torch.rand(1, 4),))

    with pytest.raises(WeightError, match=r"missing: weight, f32\[2, 4\]"):
        to_torch(graph)


def _without_operator(graph: Graph) -> None:
    x = graph.add_input("x", TensorType((2,), torch.float32))
    graph.set_outputs(graph.insert("nowhere.sort.default", (x,), types=x.type, operands=("x",)).outputs[0])


def _with_a_float(graph: Graph) -> None:
    x, factor = (
        graph.add_input("x", TensorType((2,), torch.float32)),
        graph.add_input("factor", ScalarType("float")),
    )
    node = graph.insert("aten.mul.Scalar", (x, factor), types=x.type, operands=("self", "other"))
    graph.set_outputs(node.outputs[0])


def _with_packed_weights(graph: Graph) -> None:
    packed = TensorType((4, 4), torch.float32, layout=torch._mkldnn)
    x, weight = graph.add_input("x", TensorType((2, 4), torch.float32)), graph.add_input("weight", packed)
    node = graph.insert("aten.linear.default", (x, weight), types=x.type, operands=("input", "weight"))
    graph.set_outputs(node.outputs[0])


def _with_a_number_in_a_region(graph: Graph) -> None:
    x, flag = (
        graph.add_input("x", TensorType((2,), torch.float32)),
        graph.add_input("flag", TensorType((), torch.bool)),
    )
    count = graph.insert("aten.item.default", (flag,), types=ScalarType("bool"), operands=("self",)).outputs[
        0
    ]
    regions = {}
    for name in ("true_fn", "false_fn"):
        regions[name] = region = Graph(name)
        region.add_input("count", ScalarType("bool"))
        region.set_outputs((region.add_input("x", x.type),))
    node = graph.insert(
        "higher_order.cond",
        (flag, count, x),
        {"operands": [None, None]},
        types=x.type,
        operands=("pred", "operands[0]", "operands[1]"),
        regions=regions,
    )
    graph.set_outputs(node.outputs[0])


@pytest.fixture
def _two_lists() -> Iterator[None]:
    """An op that returns two lists."""

    library = torch.library.Library("lists", "DEF")
    library.define("both(Tensor x) -> (Tensor[], Tensor[])")
    yield
    library._destroy()


def _with_two_lists(graph: Graph) -> None:
    x = graph.add_input("x", TensorType((2,), torch.float32))
    node = graph.insert("lists.both.default", (x,), types=[x.type, x.type], operands=("x",))
    graph.set_outputs(tuple(node.outputs))


@pytest.mark.parametrize(
    ("build", "message"),
    [
        pytest.param(
            _without_operator, "nowhere.sort.default is not an operator of PyTorch", id="unknown operator"
        ),
        pytest.param(
            _with_two_lists,
            "lists.both.default returns several lists.*\n  at: .*\n  fix: give the operator one",
            id="lists",
        ),
        pytest.param(
            _with_packed_weights,
            "no packed weights, such as f32.4, 4.@_mkldnn\n  at: graph 'refused'\n",
            id="packed weights",
        ),
        pytest.param(
            _with_a_number_in_a_region,
            "region 'true_fn' takes %count, bool, which depends on data",
            id="region",
        ),
        pytest.param(
            _with_a_float,
            "input %factor is a float: .*\n  at: graph 'refused'\n",
            id="a float that is not fixed",
        ),
    ],
)
@pytest.mark.usefixtures("_two_lists")
def test_what_a_program_cannot_hold_is_refused(build: Callable[[Graph], None], message: str) -> None:
    graph = Graph("refused")
    build(graph)

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


def test_a_program_is_saved_and_loaded() -> None:
    model = network().train()
    graph = extract_ir(model, (torch.rand(2, 3, 8, 8),))

    loaded = saved_and_loaded(to_exported_program(graph, model.state_dict()))

    x = torch.rand(2, 3, 8, 8)
    assert described(convert_exported_program(loaded, name=graph.name)) == described(graph)
    assert torch.equal(loaded.module()(x), model(x))


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


def test_a_program_is_decomposed() -> None:
    model = network().eval()
    program = to_exported_program(of_any_batch(model), model.state_dict())

    decomposed = program.run_decompositions()

    x = torch.rand(5, 3, 8, 8)
    assert not any("linear" in str(node.target) for node in decomposed.graph.nodes)
    torch.testing.assert_close(decomposed.module()(x), model(x))


def test_fx_interpreters_run_the_module() -> None:
    model = network().eval()
    x = torch.rand(2, 3, 8, 8)
    module = to_torch(optimize(extract_ir(model, (x,))), model.state_dict())

    result = torch.fx.Interpreter(module).run(x)

    torch.testing.assert_close(result, model(x))


@needs_compiler
def test_inductor_compiles_the_module() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.BatchNorm1d(8)).train()
    x = torch.rand(3, 4)
    module = to_torch(extract_ir(model, (x,)), model.state_dict())

    compiled = torch.compile(module, backend="inductor", fullgraph=True)

    torch.testing.assert_close(compiled(x), model(x))
    torch.testing.assert_close(module.get_buffer("2.running_mean"), model[2].running_mean)


@needs_compiler
@pytest.mark.exhaustive
def test_aotinductor_compiles_the_program(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 2)).eval()
    graph = extract_ir(model, (torch.rand(2, 4),), dynamic_shapes=({0: Dim("batch", min=2, max=64)},))
    program = to_exported_program(optimize(graph), model.state_dict())

    package = torch._inductor.aoti_compile_and_package(program, package_path=str(tmp_path / "model.pt2"))
    runner = torch._inductor.aoti_load_package(package)

    for rows in (2, 7):
        x = torch.rand(rows, 4)
        torch.testing.assert_close(runner(x), model(x))
