"""Executors of graphs with open sizes have programs of fixed sizes, which backends run."""

import gc
import itertools
import threading
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim

from npu_ir import ExecutionError, Graph, OpNode, WeightError, extract_ir
from npu_ir.core.types import TensorType
from npu_ir.plugins.backend import BackendOp
from npu_runtime import IRExecutor
from npu_runtime.diagnostics.compare import compare
from npu_runtime.diagnostics.explain import explain
from npu_runtime.diagnostics.profile import profile
from tests.support.backends.tiny_backend import TinyBackend


class FixedBackend(TinyBackend):
    """Takes products and rectifiers of fixed sizes."""

    def supports(self, node: OpNode) -> str | None:
        types = (value.type for value in (*node.inputs, *node.outputs))
        is_open = any(isinstance(type, TensorType) and type.symbols for type in types)
        return "it takes fixed sizes" if is_open else super().supports(node)


class OpenBackend(TinyBackend):
    """Takes single products of any sizes."""

    def prepare(self, graph: Graph, ops: Sequence[BackendOp], device: torch.device) -> Any:
        return "mm"

    def run(self, program: Any, inputs: Sequence[Any]) -> Sequence[Any]:
        return [torch.mm(*inputs)]


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = (nn.Parameter(torch.randn(4, 4)) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x.mm(self.first)).mm(self.second)


class Scaled(Layers):
    """Takes a number, and returns a size."""

    def forward(self, x: Tensor, count: int = 2) -> Any:
        return {"y": super().forward(x) * count, "rows": x.shape[0]}


class Counting(Layers):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return super().forward(x) + self.calls


def graph_of(model: nn.Module, *others: Any, sizes: Sequence[Any] = ()) -> Graph:
    rows = Dim("rows", min=2, max=1000)
    return extract_ir(model, (torch.randn(3, 4), *others), dynamic_shapes=({0: rows}, *sizes))


def executor_of(model: nn.Module, graph: Graph | None = None, **options: Any) -> IRExecutor:
    options = {"backend": FixedBackend(), "passes": None, **options}
    return IRExecutor(graph_of(model) if graph is None else graph, model.state_dict(), **options)


def backends_of(executor: IRExecutor, *args: Any) -> set[str]:
    return {instruction.backend for instruction in executor.for_call(args).instructions}


def rows(count: int) -> Tensor:
    return torch.randn(count, 4)


@pytest.mark.smoke
def test_each_size_has_a_program_that_the_backend_runs() -> None:
    model = Layers()
    executor = executor_of(model)

    for count in (2, 3, 7, 2, 7):
        x = rows(count)
        assert torch.equal(executor(x), model(x))
        assert backends_of(executor, x) == {"tiny"}
        assert executor.for_call((x,)).graph.inputs[0].type.static_shape == (count, 4)
    assert {instruction.backend for instruction in executor.instructions} == {"aten"}


def test_calls_of_one_size_share_a_program() -> None:
    executor = executor_of(Layers())

    first, second, other = (executor.for_call((rows(count),)) for count in (5, 5, 6))

    assert first is second
    assert other is not first


@pytest.mark.parametrize(("limit", "native"), [(0, 0), (1, 1), (2, 2)])
def test_sizes_beyond_the_limit_run_on_aten(limit: int, native: int) -> None:
    model = Layers()
    executor = executor_of(model, max_fixed_sizes=limit)

    found = []
    for count in (2, 3, 4, 2):
        x = rows(count)
        assert torch.equal(executor(x), model(x))
        found.append("tiny" in backends_of(executor, x))

    assert found == [index < native for index in (0, 1, 2, 0)]


def test_numbers_and_sizes_among_inputs_and_results_are_those_of_the_call() -> None:
    model = Scaled()
    graph = graph_of(model, 5, sizes=(Dim.DYNAMIC,))
    executor = executor_of(model, graph)

    for count, factor in itertools.product((2, 6), (3, 4)):
        x = rows(count)
        expected = model(x, factor)
        found = executor(x, factor)
        assert torch.equal(found["y"], expected["y"])
        assert found["rows"] == expected["rows"] == count
        assert "tiny" in backends_of(executor, x, factor)


def test_other_weights_reach_every_size() -> None:
    model, other = Layers(), Layers()
    executor, x = executor_of(model), rows(4)
    executor(x)

    executor.load_state_dict(other.state_dict())

    assert torch.equal(executor(x), other(x))
    assert "tiny" in backends_of(executor, x)


def test_what_depends_on_weights_alone_is_computed_once_for_all_sizes() -> None:
    class Halved(Layers):
        def forward(self, x: Tensor) -> Tensor:
            return torch.relu(x.mm(self.first * 0.5))

    model = Halved()
    graph = graph_of(model)
    graph.move_to_prologue(next(node for node in graph.nodes if node.op_type == "aten.mul.Tensor"))
    executor = executor_of(model, graph)

    addresses = {
        item.data_ptr()
        for count in (2, 3)
        for value, item in executor.for_call((rows(count),))._engine.bound.values.items()
        if value.producer is not None
    }

    assert len(addresses) == 1
    assert torch.equal(executor(x := rows(3)), model(x))


def test_a_model_that_writes_to_its_buffers_runs_on_aten() -> None:
    model = Counting()
    executor = executor_of(model, threads=1)

    for count in (2, 3):
        x = rows(count)
        assert torch.equal(executor(x), model(x))
        assert executor.for_call((x,)) is executor


def test_a_backend_that_takes_all_with_open_sizes_has_one_program_for_all() -> None:
    class Product(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return x.mm(self.weight)

    model = Product(4, 4)
    executor, x = executor_of(model, backend=OpenBackend()), rows(5)

    assert executor.for_call((x,)) is executor
    assert torch.equal(executor(x), model(x))


def test_arguments_that_do_not_fit_are_refused_as_before() -> None:
    executor = executor_of(Layers())
    executor(rows(2))

    for call in (executor, lambda x: executor.for_call((x,))):
        with pytest.raises(ExecutionError, match=r"dimension 0 of %x is 1, the graph was made for rows in"):
            call(rows(1))
        with pytest.raises(ExecutionError, match=r"input %x is f32\[2, 3\], the graph needs f32\[rows, 4\]"):
            call(torch.randn(2, 3))


def test_sizes_that_the_graph_asserts_against_fail_as_on_aten() -> None:
    class Even(Layers):
        def forward(self, x: Tensor) -> Tensor:
            torch._check(x.shape[0] % 2 == 0)
            return super().forward(x)

    model = Even()
    rows_of = 2 * Dim("half", min=1, max=100)
    graph = extract_ir(model, (rows(4),), dynamic_shapes=({0: rows_of},))
    fixed, open_sizes = executor_of(model, graph), executor_of(model, graph, max_fixed_sizes=0)

    messages = []
    for executor in (fixed, open_sizes):
        with pytest.raises(ExecutionError) as caught:
            executor(rows(5))
        messages.append(str(caught.value))

    assert messages[0] == messages[1]
    assert torch.equal(fixed(x := rows(6)), model(x))


def test_threads_that_call_at_once_get_right_results_and_one_program_per_size() -> None:
    model = Layers()
    executor = executor_of(model)
    failed: list[Mapping[str, Any]] = []
    start = threading.Barrier(4)

    def work(seed: int) -> None:
        start.wait()
        for step in range(20):
            x = torch.randn(2 + (seed + step) % 3, 4)
            with torch.no_grad():
                if not torch.equal(executor(x), model(x)):
                    failed.append({"seed": seed, "step": step})

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert not failed
    assert len({id(executor.for_call((rows(count),))) for count in (2, 3, 4)}) == 3


def test_profiles_and_explanations_are_of_the_program_that_runs() -> None:
    executor, x = executor_of(Layers()), rows(4)

    measured, explained = profile(executor, (x,), repeat=2, warmup=0), explain(executor, (x,), repeat=2)

    assert {step.backend for step in measured.steps} == {"tiny"}
    assert {node.backend for node in explained.nodes} == {"tiny"}
    assert {node.backend for node in explain(executor).nodes} == {"aten"}


def test_a_number_among_the_inputs_makes_no_program_of_its_own() -> None:
    model = Scaled()
    executor = executor_of(model, graph_of(model, 5, sizes=(Dim.DYNAMIC,)), max_fixed_sizes=1)
    x = rows(4)

    for factor in (2, 3, 4):
        assert torch.equal(executor(x, factor)["y"], model(x, factor)["y"])
        assert executor.for_call((x, factor)) is executor.for_call((x, 2))
    assert "tiny" in backends_of(executor, x, 2)


def test_sizes_keep_their_programs_when_weights_change() -> None:
    model = Layers()
    executor = executor_of(model, max_fixed_sizes=1)
    executor(rows(3))
    executor(rows(4))

    executor.load_state_dict(Layers().state_dict())
    executor(rows(4))

    assert ["tiny" in backends_of(executor, rows(count)) for count in (3, 4)] == [True, False]


def test_an_executor_is_freed_as_soon_as_nothing_refers_to_it() -> None:
    executor = executor_of(Layers())
    executor(rows(3))
    gc.disable()
    try:
        seen = weakref.ref(executor)
        del executor
        assert seen() is None
    finally:
        gc.enable()


def test_transforms_of_calls_see_the_ops_of_aten() -> None:
    model = Layers()
    executor = executor_of(model)
    x = torch.randn(2, 3, 4)

    mapped = torch.func.vmap(executor)(x)

    torch.testing.assert_close(mapped, torch.stack([model(part) for part in x]))


def test_under_other_kernel_settings_the_open_graph_runs_and_nothing_is_made() -> None:
    model, x = Layers(), rows(4)
    executor = executor_of(model, max_fixed_sizes=1)

    with torch.backends.mkldnn.flags(enabled=not torch._C._get_mkldnn_enabled()):
        assert executor.for_call((x,)) is executor
        assert torch.equal(executor(x), model(x))
    assert "tiny" in backends_of(executor, rows(5))  # the only place was still free


def test_node_by_node_runs_and_comparisons_run_what_calls_run() -> None:
    class Doubling(FixedBackend):
        def run(self, program: Any, inputs: Sequence[Any]) -> Sequence[Any]:
            return [2 * item for item in super().run(program, inputs)]

    model, x = Layers(), rows(4)
    graph = graph_of(model)
    executor = executor_of(model, graph, backend=Doubling())

    assert torch.equal(executor.run((x,)).results, executor(x))
    assert torch.equal(executor.run_flat((x,), observe=lambda *_: None)[0][0], executor(x))
    compared = compare(graph, executor, (x,), weights=model.state_dict())
    assert not compared.ok
    assert not torch.equal(executor(x), model(x))


def test_weights_are_not_loaded_for_one_size_alone() -> None:
    model, x = Layers(), rows(4)
    executor = executor_of(model)

    with pytest.raises(WeightError, match="is for some sizes of a graph with open ones.*\n.*\n.*for_call"):
        executor.for_call((x,)).load_state_dict(Layers().state_dict())
    assert torch.equal(executor(x), model(x))


@pytest.mark.parametrize("limit", [-1, None, "8", 1.0])
def test_a_limit_that_is_no_number_of_programs_is_refused(limit: Any) -> None:
    with pytest.raises(ExecutionError, match=f"max_fixed_sizes={limit!r} is not a number of programs"):
        executor_of(Layers(), max_fixed_sizes=limit)


def test_a_loaded_executor_runs_open_sizes_on_aten(tmp_path: Any) -> None:
    model, x = Layers(), rows(3)
    executor = executor_of(model, backend="aten")
    executor.save(tmp_path / "layers.npux")

    loaded = IRExecutor.load(tmp_path / "layers.npux")

    assert loaded.for_call((x,)) is loaded
    assert torch.equal(loaded(x), model(x))
