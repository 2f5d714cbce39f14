"""Isolation from global torch state: modes, default dtypes and devices, autocast, gradients, seeds."""

import contextlib
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest
import torch
from torch import Tensor, nn, randn
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from npu_ir import ExecutionError, extract_ir
from npu_runtime import IRExecutor
from tests.support.backends.choosing_backend import Some
from tests.support.corpus.comparison import assert_same
from tests.support.processes import run_python


class Model(nn.Module):
    """A model that global state might affect: created tensors, numbers, a product, an advancing buffer."""

    count: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x: Tensor) -> Any:
        self.count += 1
        made = torch.full((3,), 0.1) + torch.arange(3)
        return self.linear(x).relu() + made, x / 3, torch.zeros(2), self.count * 2, x.sum() * 0.1


@contextlib.contextmanager
def default_dtype() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


class Dispatched(TorchDispatchMode):
    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return function(*args, **(kwargs or {}))


class Called(TorchFunctionMode):
    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return function(*args, **(kwargs or {}))


SURROUNDINGS: list[Any] = [
    pytest.param(lambda: torch.autocast("cpu", torch.bfloat16), id="autocast"),
    pytest.param(default_dtype, id="default-dtype"),
    pytest.param(torch.no_grad, id="no-grad"),
    pytest.param(torch.enable_grad, id="grad"),
    pytest.param(torch.inference_mode, id="inference-mode"),
    pytest.param(Dispatched, id="dispatch-mode"),
    pytest.param(Called, id="function-mode"),
    pytest.param(lambda: torch.device("meta"), id="default-device"),
]


@pytest.mark.parametrize("surroundings", SURROUNDINGS)
def test_surroundings_change_no_call(surroundings: Callable[[], AbstractContextManager[Any]]) -> None:
    model = Model().eval()
    x = randn(2, 3)
    executor = IRExecutor(extract_ir(model, (x,)), model.state_dict(), passes="default")
    with torch.no_grad():
        expected = [model(x) for _ in range(3)]
    executor(x)

    with surroundings():
        actual = executor(x)
        observed = executor.run((x,)).results

    assert_same(actual, expected[1], "the result")
    assert_same(observed, expected[2], "the result node by node")
    assert not any(item.requires_grad for item in actual)
    assert torch.is_grad_enabled()
    assert torch.get_default_dtype() is torch.float32


@pytest.mark.parametrize("surroundings", SURROUNDINGS)
def test_surroundings_change_no_compilation(surroundings: Callable[[], AbstractContextManager[Any]]) -> None:
    model = Model().eval()
    x = randn(2, 3)
    graph = extract_ir(model, (x,))
    state = model.state_dict()
    with torch.no_grad():
        expected = model(x)
    source = IRExecutor(graph, {**state, "count": torch.zeros(())}, passes="default").source

    with surroundings():
        executor = IRExecutor(
            graph, {**state, "count": torch.zeros((), device="cpu", dtype=torch.float32)}, passes="default"
        )

    assert_same(executor(x), expected, "the result")
    assert executor.source == source


def fake(call: Callable[[Tensor], Any], x: Tensor) -> Any:
    with FakeTensorMode() as mode:
        return call(mode.from_tensor(x))


@pytest.mark.filterwarnings("ignore:.*torch.jit.trace:DeprecationWarning", "ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize(("trace", "name"), [
    pytest.param(lambda call, x: torch.func.vmap(call)(x[None]), "a transform of torch.func", id="vmap"),
    pytest.param(lambda call, x: torch.func.grad(call)(x), "a transform of torch.func", id="grad"),
    pytest.param(lambda call, x: torch.jit.trace(call, (x,)), "torch.jit.trace", id="jit-trace"),
    pytest.param(lambda call, x: make_fx(call)(x), "ProxyTorchDispatchMode", id="make_fx"),
    pytest.param(fake, "FakeTensorMode", id="fake"),
])  # fmt: skip
def test_a_trace_of_what_a_backend_computes_is_refused(trace: Callable[..., Any], name: str) -> None:
    x = randn(2, 3)
    executor = IRExecutor(extract_ir(nn.ReLU(), (x,)), backend=Some(ops=["aten.relu.default"]), passes=None)

    message = f"{name} does not see what the backend 'some' computes\n.*\n  fix: call the executor outside"
    with pytest.raises(ExecutionError, match=message):
        trace(lambda given: executor(given).sum(), x)

    assert torch.equal(executor(x), x.relu())


def test_a_transform_of_what_pytorch_computes_is_that_of_eager() -> None:
    model, x = nn.Sequential(nn.Linear(3, 3), nn.ReLU()), randn(5, 2, 3)
    executor = IRExecutor(extract_ir(model, (x[0],)), model.state_dict(), backend="aten")

    actual = torch.func.vmap(executor)(x)

    torch.testing.assert_close(actual, torch.func.vmap(model)(x).detach())


class Noisy(nn.Module):
    def forward(self, x: Tensor) -> Any:
        noise = torch.rand(3) + torch.bernoulli(torch.full((3,), 0.5))
        return torch.dropout(x, 0.5, True) + noise, torch.randint(0, 9, (2,)), torch.randn_like(x).relu()


def test_random_numbers_are_those_of_eager_and_compiling_draws_none() -> None:
    x = randn(3)
    graph = extract_ir(Noisy(), (x,))
    before = torch.get_rng_state()
    executor = IRExecutor(graph)
    assert torch.equal(torch.get_rng_state(), before)

    for call in (executor, lambda x: executor.run((x,)).results):
        torch.manual_seed(5)
        actual = call(x), call(x), torch.rand(1)
        torch.manual_seed(5)
        expected = Noisy()(x), Noisy()(x), torch.rand(1)
        assert_same(actual, expected, "the result")


FORK = """
import os, signal, threading
from npu_runtime.executor.engine import thread_count

held, ended = threading.Event(), threading.Event()

def hold():
    with thread_count(1):
        held.set()
        ended.wait()

threading.Thread(target=hold).start()
held.wait()
child = os.fork()
if child == 0:
    signal.alarm(20)
    with thread_count(None):
        os._exit(7)
ended.set()
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked here")
def test_a_forked_process_does_not_wait_for_a_thread_of_its_parent() -> None:
    assert run_python(FORK).stdout.split() == ["7"]


FORK_WITHIN_A_CALL = """
import os, signal, sys, threading
import torch
from torch import nn
from npu_ir import ExecutionError, extract_ir
from npu_runtime import IRExecutor

class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(2))

    def forward(self, x):
        self.count += x
        return self.count * 1

graph = extract_ir(Counter(), (torch.ones(2),))
executor = IRExecutor(graph, {"count": torch.zeros(2)}, backend="aten")
executor(torch.ones(2))
held, ended = threading.Event(), threading.Event()

def wait(*_):
    held.set()
    ended.wait()

def hold():
    if sys.argv[1] == "call":
        executor.run((torch.ones(2),), on_node=wait)
    else:  # it reads the state, and changes nothing
        with executor._engine._state.lock:
            wait()

thread = threading.Thread(target=hold)
thread.start()
held.wait()
child = os.fork()
if child == 0:
    signal.alarm(20)
    seen = []
    for use in (lambda: executor(torch.ones(2)), executor.state_dict):
        try:
            use()
            seen.append("used")
        except ExecutionError as error:
            seen.append(error.message)
    executor.reset()
    seen.append(str(executor(torch.ones(2)).tolist()))
    print(*seen, sep="\\n", flush=True)
    os._exit(7)
status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
ended.set()
thread.join()
print(status, executor.state_dict()["count"].tolist())
"""
_TORN = (
    "this process was forked while another thread changed the buffers of the executor, which are half-written"
    " here"
)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked here")
@pytest.mark.parametrize(
    ("held_by", "seen", "count"), [("call", _TORN, "[2.0, 2.0]"), ("reader", "used", "[1.0, 1.0]")]
)
def test_an_executor_in_a_forked_process_does_not_wait_for_the_state_of_its_parent(
    held_by: str, seen: str, count: str
) -> None:
    done = run_python(FORK_WITHIN_A_CALL, held_by)

    assert done.stdout.splitlines() == [seen, seen, "[1.0, 1.0]", f"7 {count}"], done.stderr


FORK_WHILE_ONE_IS_MADE = """
import os, signal, threading
import torch
from torch import nn
from npu_ir import extract_ir
from npu_runtime import IRExecutor

model = nn.Linear(3, 4)
graph = extract_ir(model, (torch.ones(5, 3),), dynamic_shapes=({0: torch.export.Dim("b")},))
executor = IRExecutor(graph, model.state_dict(), backend="host")
sizes, held, ended = executor._engine.fixed_sizes, threading.Event(), threading.Event()
make = sizes._make

def wait(*arguments):
    held.set()
    ended.wait()
    return make(*arguments)

sizes._make = wait
thread = threading.Thread(target=executor, args=(torch.ones(5, 3),))
thread.start()
held.wait()
child = os.fork()
if child == 0:
    signal.alarm(20)
    sizes._make = make
    x = torch.ones(7, 3)
    os._exit(7 if torch.allclose(executor(x), model(x)) else 1)
status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
ended.set()
thread.join()
print(status)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked here")
def test_a_forked_process_does_not_wait_for_an_executor_of_other_sizes_that_its_parent_makes() -> None:
    done = run_python(FORK_WHILE_ONE_IS_MADE)

    assert done.stdout.split() == ["7"], done.stderr
