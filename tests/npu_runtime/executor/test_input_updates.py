"""Models that write to their inputs: the executor reports it, and nothing is lost silently."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from npu_ir import BackendError, ExecutionError, Graph, extract_ir, parse_ir
from npu_runtime import IRExecutor, profile


class Cache(nn.Module):
    """One step of a decoder: writes a row into the cache that it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.row = nn.Linear(4, 4)
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))

    def forward(self, x: Tensor, caches: dict[str, Tensor], position: Tensor) -> Tensor:
        self.steps += 1
        caches["keys"].index_copy_(0, position, self.row(x))
        caches["values"].add_(1)
        return caches["keys"].sum(0) * self.steps


def arguments() -> tuple[Any, ...]:
    torch.manual_seed(0)
    return torch.randn(1, 4), {"keys": torch.randn(6, 4), "values": torch.randn(3)}, torch.tensor([2])


def executor_of(model: nn.Module, **options: Any) -> IRExecutor:
    return IRExecutor(extract_ir(model, arguments()), model.state_dict(), **options)


def test_written_inputs_are_those_of_eager() -> None:
    model, ours, theirs = Cache(), arguments(), arguments()
    executor = executor_of(model, updates="write")

    for _ in range(3):
        found, expected = executor(*ours), model(*theirs)

        torch.testing.assert_close(found, expected)
        torch.testing.assert_close(ours[1], theirs[1])


@pytest.mark.parametrize("choice", ["return", "ignore"])
def test_updates_that_are_returned_or_ignored_change_nothing(choice: Any) -> None:
    model, ours, theirs = Cache(), arguments(), arguments()
    executor = executor_of(model, updates=choice)

    found = executor(*ours)

    expected = model(*theirs)
    if choice == "return":
        updates = {"caches_keys": theirs[1]["keys"], "caches_values": theirs[1]["values"]}
        torch.testing.assert_close(found, (expected, updates))
    else:
        torch.testing.assert_close(found, expected)
    torch.testing.assert_close(ours[1], arguments()[1])


def test_a_call_that_would_lose_a_write_is_refused_where_nothing_was_said() -> None:
    executor, args = executor_of(Cache()), arguments()

    with pytest.raises(
        ExecutionError,
        match=r"the model writes to its inputs %caches_keys, %caches_values,"
        r" and the option updates= is not given"
        r'[\s\S]*updates="write"[\s\S]*run\(\) and run_flat\(\) always return',
    ):
        executor(*args)

    assert "caches_keys" in executor.run(args).mutations
    assert executor.state_dict()["steps"] == 1


def test_another_choice_is_refused() -> None:
    with pytest.raises(
        ExecutionError, match="updates='copy' is none of the choices\n  fix: give updates=\"write\""
    ):
        executor_of(Cache(), updates="copy")


@pytest.mark.parametrize("choice", [None, "write", "ignore", "return"])
def test_a_model_that_writes_to_no_input_returns_its_results(choice: Any) -> None:
    x = torch.randn(3)

    found = IRExecutor(extract_ir(nn.ReLU(), (x,)), updates=choice)(x)

    result, updates = found if choice == "return" else (found, {})
    assert torch.equal(result, x.relu())
    assert updates == {}


def refused(item: Tensor, text: str, *, no_grad: bool = False) -> None:
    """Assert that a call is refused, and that neither inputs nor buffers have changed."""
    executor, (x, caches, position) = executor_of(Cache(), updates="write"), arguments()
    before = caches["values"].clone()

    with torch.set_grad_enabled(not no_grad), pytest.raises(ExecutionError, match=text):
        executor(x, {"keys": item, "values": caches["values"]}, position)

    assert torch.equal(caches["values"], before)
    assert executor.state_dict()["steps"] == 0


def test_a_tensor_that_cannot_be_written_to_is_refused() -> None:
    with torch.inference_mode():
        frozen = torch.zeros(6, 4)

    refused(
        torch.zeros(1, 4).expand(6, 4), "%caches_keys, but the tensor that is given is expanded[\\s\\S]*clone"
    )
    refused(torch.zeros(6, 4, requires_grad=True), "%caches_keys, but .* requires gradients[\\s\\S]*no_grad")
    refused(frozen, "%caches_keys, but .* inference mode[\\s\\S]*inference_mode")
    refused(torch.zeros(6, 4, dtype=torch.float64), r"input %caches_keys is .*f64\[6, 4\]")
    refused(torch.zeros(6, 5), r"input %caches_keys is .*f32\[6, 5\]")


@pytest.mark.parametrize("passes", [None, "default", "auto"])
def test_a_tensor_in_the_memory_of_a_weight_is_refused(passes: Any) -> None:
    class Shifts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.eye(64))

        def forward(self, x: Tensor) -> Tensor:
            return x.add_(1) @ self.weight

    model = Shifts()
    graph = extract_ir(model, (torch.zeros(64, 64),))
    executor = IRExecutor(graph, model.state_dict(), passes=passes, updates="write")
    shared = model.weight.detach()

    for item in (shared, shared.t().t(), torch.zeros(64, 64), shared):
        if item.data_ptr() != shared.data_ptr():
            executor(item)
            continue
        with pytest.raises(
            ExecutionError, match=r"%x, but .* shares memory with %weight[\s\S]*fix: pass a copy"
        ):
            executor(item)
    assert torch.equal(shared, torch.eye(64))


def test_a_failed_call_writes_nothing() -> None:
    x, caches, _ = arguments()
    executor = executor_of(Cache(), updates="write")

    with pytest.raises((ExecutionError, BackendError), match="index"):
        executor(x, caches, torch.tensor([7]))

    torch.testing.assert_close(caches, arguments()[1])
    assert executor.state_dict()["steps"] == 0


def test_tensors_that_eager_can_write_to_are_written_to() -> None:
    executor, model = executor_of(Cache(), updates="write"), Cache()
    model.load_state_dict(executor.state_dict())
    x, caches, position = arguments()
    turned = torch.zeros(4, 6).t()
    requiring = torch.zeros(6, 4, requires_grad=True)
    with torch.no_grad():
        executor(x, {**caches, "keys": requiring}, position)
    executor(x, {**caches, "keys": turned}, position)
    with torch.inference_mode():
        frozen = torch.zeros(6, 4)
        executor(x, {**caches, "keys": frozen}, position)

    model(x, {**caches, "keys": (expected := torch.zeros(6, 4))}, position)
    for found in (turned, requiring, frozen):
        torch.testing.assert_close(found.detach(), expected.detach())


SWAPPED = """
graph swapped {
  input %a: f32[2, 2]
  input %b: f32[2, 2]
  call (%a, %b)
  %turned: f32[2, 2]@[1, 2] = aten.t.default(self=%a)
  %row: f32[2] = aten.select.int(self=%a) {dim=0, index=0}
  update %a = %b
  update %b = %turned
  return (%a, %row)
}
"""


def test_contents_and_results_that_lie_in_inputs_are_those_of_before() -> None:
    graph: Graph = parse_ir(SWAPPED)
    a, b = torch.arange(4.0).view(2, 2), torch.arange(4.0, 8.0).view(2, 2)
    before = a.clone(), b.clone()

    found, row = IRExecutor(graph, updates="write")(a, b)

    assert torch.equal(found, before[0])
    assert torch.equal(row, before[0][0])
    assert torch.equal(a, before[1])
    assert torch.equal(b, before[0].t())


def test_profiling_and_comparing_write_to_no_argument() -> None:
    from npu_runtime import compare

    model, args = Cache(), arguments()
    executor = executor_of(model)

    profile(executor, args, repeat=1, warmup=1)
    assert compare(model, executor, arguments()).ok

    torch.testing.assert_close(args[1], arguments()[1])
