"""Native programs overwrite rows of state in place; a failure in them, or after them, restores the rows."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn, randn

import npu_cuda
from npu_cuda.backend import HostBackend
from npu_ir import BackendError, ExecutionError, extract_ir
from npu_ir.plugins.backend import Backend
from npu_runtime import IRExecutor
from tests.support.backends.native_backends import HOST, NATIVE_BACKENDS
from tests.support.caches import WRITES, Cached, Write, batch
from tests.support.corpus.comparison import assert_same
from tests.support.rows import each_row

ROWS = {name: write for name, write in WRITES.items() if name != "select"}


def native(model: nn.Module, args: Any, backend: Backend) -> IRExecutor:
    return IRExecutor(extract_ir(model, args), model.state_dict(), backend=backend, passes="default")


def memory(executor: IRExecutor) -> list[int]:
    return [item.data_ptr() for item in executor._engine._state.tensors]


@pytest.mark.parametrize("backend", NATIVE_BACKENDS)
@each_row("write", ROWS)
def test_rows_are_written_in_place_and_restored_if_a_later_op_fails(write: Write, backend: Backend) -> None:
    model = Cached(write)
    executor = native(model, batch(), backend)
    before = memory(executor)
    assert [item.backend for item in executor.instructions] == [backend.name]

    for at in ((1, 0), (5, 2), (4, 4)):
        args = batch(at)
        assert_same(executor(*args), model(*args), "the result", tolerance=1e-6)
        assert_same(executor.state_dict(), dict(model.state_dict()), "the state")
        if backend is HOST:
            with pytest.raises(BackendError, match="index 7 .*IndexSelect|index 7"):
                executor(*batch((3, 0), last=7))
            assert_same(executor.state_dict(), dict(model.state_dict()), "the state after a failure")

    assert memory(executor) == before


def test_a_write_that_fails_restores_those_before_it() -> None:
    model = Cached(WRITES["index_copy-twice"])
    executor = native(model, batch(), HOST)
    state = executor.state_dict()
    x, _, last = batch()

    with pytest.raises(BackendError, match="index"):
        executor(x, torch.tensor([2, -1]), last)

    assert_same(executor.state_dict(), state, "the state")


class FailingElsewhere(nn.Module):
    """Writes to caches natively, the second one at places that are computed, then fails in ATen."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("cache", randn(6, 4))
        self.register_buffer("other", randn(6, 4))

    def forward(self, x: Tensor, at: Tensor, last: Tensor) -> Any:
        self.cache.index_copy_(0, at, x)  # type: ignore[operator]
        self.other.index_copy_(0, at + 1, x * 2)  # type: ignore[operator]
        return self.cache + self.other, torch.linalg.cholesky(last)  # type: ignore[operator]


@each_row(
    "write",
    [
        lambda cache, at, x: (cache[1].copy_(x[0]), cache.index_copy_(0, at, x)),
        lambda cache, at, x: (cache.index_put_((at,), x, accumulate=True), cache.index_copy_(0, at, -x)),
        lambda cache, at, x: (
            cache.index_copy_(0, at, x),
            cache[1].copy_(x[0]),
            cache.index_copy_(0, at, -x),
        ),
    ],
)
def test_writes_in_place_follow_others(write: Any) -> None:
    class Model(nn.Module):
        cache: Tensor

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("cache", randn(6, 4))

        def forward(self, x: Tensor, at: Tensor) -> Tensor:
            write(self.cache, at, x)
            return self.cache * 2

    model = Model()
    args = randn(2, 4), torch.tensor([3, 0])
    executor = native(model, args, HOST)

    for _ in range(2):
        assert_same(executor(*args), model(*args), "the result")
        state = executor.state_dict()
        with pytest.raises(BackendError, match="index"):
            executor(randn(2, 4), torch.tensor([2, 9]))
        assert_same(executor.state_dict(), state, "the state")


def test_a_failure_after_a_program_restores_what_it_has_written() -> None:
    model = FailingElsewhere()
    args = randn(2, 4), torch.tensor([0, 3]), torch.eye(2)
    executor = native(model, args, HOST)
    assert {item.backend for item in executor.instructions} == {"aten", "host"}
    before = memory(executor)

    for _ in range(3):
        assert_same(executor(*args), model(*args), "the results")
        state = executor.state_dict()
        with pytest.raises(ExecutionError, match="not positive-definite"):
            executor(randn(2, 4), torch.tensor([4, 1]), -torch.eye(2))
        assert_same(executor.state_dict(), state, "the state")

    assert memory(executor) == before


def test_autograd_sees_what_a_program_has_overwritten() -> None:
    class Appending(nn.Module):
        def forward(self, cache: Tensor, x: Tensor, at: Tensor) -> Tensor:
            return cache.index_copy(0, at, x * 2)

    cache, x, at = randn(6, 4), randn(2, 4), torch.tensor([0, 3])
    graph = extract_ir(Appending(), (cache, x, at))
    executor = IRExecutor(graph, backend=HOST, passes="default", donate=("cache",))
    assert {item.backend for item in executor.instructions} == {"host"}
    weight = torch.ones(6, 4, requires_grad=True)
    loss = (weight * cache).sum()

    executor(cache, x, at)

    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()  # type: ignore[no-untyped-call]


class PassedIn(nn.Module):
    """Takes a cache and returns its next content, natively, and then a factor that may fail in ATen."""

    def forward(self, cache: Tensor, x: Tensor, at: Tensor, last: Tensor) -> Any:
        new = cache.index_copy(0, at, x * 2)
        return new, new.sum(0), torch.linalg.cholesky(last)


def test_a_donated_cache_is_written_by_programs_and_restored_after_a_failure() -> None:
    cache, x, at, last = randn(6, 4), randn(2, 4), torch.tensor([0, 3]), torch.eye(2)
    graph = extract_ir(PassedIn(), (cache, x, at, last))
    executor = IRExecutor(graph, backend=HOST, passes="default", donate=("cache",))
    assert {item.backend for item in executor.instructions} == {"aten", "host"}
    address = cache.data_ptr()

    for _ in range(3):
        expected = PassedIn()(cache.clone(), x, at, last)
        cache, *found = executor(cache, x, at, last)
        assert_same((cache, *found), expected, "the results", tolerance=1e-6)
        with pytest.raises(ExecutionError, match="not positive-definite"):
            executor(cache, randn(2, 4), torch.tensor([4, 1]), -last)
        assert_same(cache, expected[0], "the cache")

    assert cache.data_ptr() == address


class OnlyRead(nn.Module):
    """Writes rows of a cache, reads them in the same program, and does not return the cache."""

    def forward(self, cache: Tensor, x: Tensor, at: Tensor, last: Tensor) -> Any:
        return cache.index_copy(0, at, x * 2).sum(0), torch.linalg.cholesky(last)


def test_a_donated_cache_that_only_its_program_reads_is_restored_and_shares_no_memory() -> None:
    cache, x, at, last = randn(6, 4), randn(2, 4), torch.tensor([0, 3]), torch.eye(2)
    graph = extract_ir(OnlyRead(), (cache, x, at, last))
    executor = IRExecutor(graph, backend=HOST, passes="default", donate=("cache",))
    assert {item.backend for item in executor.instructions} == {"aten", "host"}
    before, expected = cache.clone(), OnlyRead()(cache, x, at, last)

    with pytest.raises(ExecutionError, match="not positive-definite"):
        executor(cache, x, at, -last)
    assert_same(cache, before, "the cache after a failure")
    with pytest.raises(ExecutionError, match="%cache is donated, but .* shares memory with %x"):
        executor(cache, cache[1:3], at, last)

    assert_same(executor(cache, x, at, last), expected, "the results", tolerance=1e-6)
    assert_same(cache, before.index_copy(0, at, x * 2), "the cache")


@each_row("kind", ["index_put accumulates", "strides", "another dtype"])
def test_what_no_kernel_can_restore_is_copied(kind: str) -> None:
    class Model(nn.Module):
        cache: Tensor

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("cache", randn(4, 6).t() if kind == "strides" else randn(6, 4))

        def forward(self, x: Tensor, at: Tensor) -> Tensor:
            if kind == "index_put accumulates":
                self.cache.index_put_((at,), x, accumulate=True)
            elif kind == "strides":
                self.cache.index_copy_(0, at, x)
            else:
                self.cache[1:3] = x.double()
            return self.cache.sum(0)

    model = Model()
    args = randn(2, 4), torch.tensor([3, 3])
    executor = native(model, args, HOST)

    for _ in range(2):
        assert_same(executor(*args), model(*args), "the result", tolerance=1e-5)
        assert_same(executor.state_dict(), dict(model.state_dict()), "the state", tolerance=1e-6)


def test_an_undo_that_nothing_asked_for_is_refused_by_other_backends() -> None:
    with pytest.raises(NotImplementedError, match="the backend 'quiet' writes to no state"):
        Backend.undo(type("Quiet", (HostBackend,), {"name": "quiet"})(), None, ())


def test_what_a_kernel_in_python_raises_restores_the_rows(request: pytest.FixtureRequest) -> None:
    is_failing = [False]

    def supported(call: npu_cuda.CallSpec) -> str | None:
        return None if call.inputs[0].shape[0] == 3 else "it selects rows of the table"

    @npu_cuda.kernel("IndexSelect", kernel_id="test.failing", device="host", priority=90, supported=supported)
    def select(call: npu_cuda.KernelCall) -> None:
        if is_failing[0]:
            raise ZeroDivisionError("as asked")
        x, index, y = (torch.from_dlpack(item) for item in (*call.inputs, *call.outputs))
        torch.index_select(x, 0, index, out=y)

    request.addfinalizer(select.remove)
    model = Cached(WRITES["index_copy"])
    args = batch()
    executor = native(model, args, HOST)
    assert_same(executor(*args), model(*args), "the result", tolerance=1e-6)
    is_failing[0] = True

    with pytest.raises(ExecutionError, match="ZeroDivisionError: as asked"):
        executor(*batch((3, 4)))

    assert_same(executor.state_dict(), dict(model.state_dict()), "the state")


@pytest.mark.parametrize("backend", NATIVE_BACKENDS)
def test_rows_are_saved_by_the_op_that_overwrites_them_where_its_kernel_can(backend: Backend) -> None:
    def saving(name: str) -> list[tuple[str, int]]:
        executor = native(Cached(WRITES[name]), batch(), backend)
        ops = [op for item in executor.lowered.partitions for op in item.ops]
        kinds = ("IndexPut", "SliceScatter", "AxisMap")
        return [(op.kind, len(op.outputs)) for op in ops if op.kind in kinds]

    assert saving("index_copy") == [("IndexPut", 2)]
    assert saving("slice") == [("AxisMap", 1), ("SliceScatter", 1)]


def test_a_kernel_of_another_package_is_not_asked_to_save(request: pytest.FixtureRequest) -> None:
    outputs = []

    @npu_cuda.kernel("IndexPut", kernel_id="test.put", device="host", priority=90)
    def put(call: npu_cuda.KernelCall) -> None:
        outputs.append(len(call.outputs))
        x, values, index, y = (torch.from_dlpack(item) for item in (*call.inputs, *call.outputs))
        y.copy_(x.index_copy(1, index, values))

    request.addfinalizer(put.remove)
    model, args = Cached(WRITES["index_copy"]), batch()
    executor = native(model, args, HOST)

    assert_same(executor(*args), model(*args), "the result", tolerance=1e-6)
    assert outputs == [1]
    with pytest.raises(BackendError, match="index 7"):
        executor(*batch((3, 0), last=7))
    assert_same(executor.state_dict(), dict(model.state_dict()), "the state")


class Rewritten(nn.Module):
    """A buffer with an update in place, and one behind it that is not."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("b", torch.zeros(4, 3))

    def forward(self, i: Tensor, x: Tensor) -> Tensor:
        self.b.index_copy_(0, i, x)
        self.b[0, :2] = self.b.flatten()[:2]
        return self.b.t()


def test_a_result_does_not_share_memory_with_state_whose_last_update_is_elsewhere() -> None:
    args = (torch.tensor([1]), torch.ones(1, 3))
    executor = IRExecutor(
        extract_ir(Rewritten(), args), Rewritten().state_dict(), backend="host", passes=None
    )

    executor(*args).fill_(99.0)

    assert executor.state_dict()["b"].max() == 1.0
