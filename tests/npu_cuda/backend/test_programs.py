"""Programs of the backends: memory, alignment, threads, captures and failures."""

from __future__ import annotations

import dataclasses
import gc
import re
import types
import weakref
from typing import Any

import pytest
import torch
from torch._subclasses import FakeTensorMode

from npu_cuda import _C
from npu_cuda.backend import CudaBackend, HostBackend, native, program
from npu_cuda.backend.program import PreparedProgram
from npu_cuda.errors import DeviceError, InvalidArgumentError
from npu_ir import BackendError, Graph, extract_ir, parse_ir
from npu_runtime import IRExecutor
from tests.support.cuda.programs import refused
from tests.support.rows import each_row

HOST = HostBackend()
CPU = torch.device("cpu")
ADD = """
graph add {
  input %x: f32[33]
  input %y: f32[33]
  %add: f32[33] = aten.add.Tensor(self=%x, other=%y)
  %relu: f32[33] = aten.relu.default(self=%add)
  return (%relu,)
}
"""


def prepared(text: str = ADD) -> tuple[Graph, PreparedProgram]:
    """Return a graph and its program, an op for each node."""
    graph = parse_ir(text)
    return graph, HOST.prepare(graph, HOST.lower_one_by_one(graph), CPU)


def idle(made: PreparedProgram) -> int:
    return sum(map(len, made.idle.values()))


def test_a_tensor_between_ops_lies_in_the_arena_which_is_memory_of_pytorch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[tuple[int, Any]] = []
    empty = torch.empty

    def watched(size: int, **options: Any) -> torch.Tensor:
        asked.append((size, options["dtype"]))
        return empty(size, **options)

    monkeypatch.setattr(program.torch, "empty", watched)
    _, made = prepared()

    ((size, dtype),) = asked
    assert size >= 33 * 4
    assert dtype is torch.uint8
    assert made.feeds == [0, 1, 2]
    instance = program.ProgramInstance(made, is_aligned=True).native
    assert instance.kernels == ["add.f32.host", "relu.f32.host"]


@pytest.mark.smoke
def test_runs_one_after_another_use_one_program_and_let_their_memory_go() -> None:
    _, made = prepared()
    x = torch.ones(33)
    given = x.untyped_storage()  # held: until torch 2.9 each object of it in Python counts as a user
    before = torch._C._storage_Use_Count(given._cdata)

    for _ in range(5):
        (result,) = HOST.run(made, [x, x])
    kept = result.untyped_storage()
    del result

    assert torch._C._storage_Use_Count(given._cdata) == before
    assert torch._C._storage_Use_Count(kept._cdata) == 1
    assert idle(made) == 1


def test_a_program_that_is_bound_has_the_memory_it_was_prepared_with() -> None:
    _, made = prepared()
    x, results = torch.randn(33), [torch.empty(33), torch.empty(33)]

    first, second = (HOST.bind(made, [x, x], [result]) for result in results)
    first()
    second()

    assert idle(made) == 0
    assert HOST.memory_bytes(made) >= 33 * 4
    for result in results:
        assert torch.equal(result, HOST.run(made, [x, x])[0])


def test_a_program_that_has_let_its_tensors_go_wants_them_again() -> None:
    _, made = prepared()
    inputs = [torch.ones(33), torch.ones(33)]
    (expected,) = HOST.run(made, inputs)
    (instances,) = made.idle.values()

    for use in (instances[0].native.run, instances[0].native.capture):
        with refused(r"slot 0 \('x'\) was bound by call\(\), which has let .* go"):
            use()
    instances[0].bind(made.feeds, [*inputs, result := torch.zeros(33)])
    instances[0].native.run()
    assert torch.equal(result, expected)


def quick(made: PreparedProgram) -> Any:
    call = HOST.make_quick_run(made)
    assert call is not None
    return call


def test_quick_runs_use_one_program_and_return_tensors_like_any_other() -> None:
    _, made = prepared()
    call, x, y = quick(made), torch.randn(33), torch.randn(33)
    given = x.untyped_storage()
    before = torch._C._storage_Use_Count(given._cdata)

    results = [call([x, y]) for _ in range(3)]

    assert torch._C._storage_Use_Count(given._cdata) == before
    assert idle(made) == 1
    assert len({result.data_ptr() for (result,) in results}) == 3
    for (result,) in results:
        assert torch.equal(result, HOST.run(made, [x, y])[0])
        assert result.resize_(66).shape == (66,)


def test_quick_runs_leave_what_is_not_exactly_as_stated_to_runs() -> None:
    _, made = prepared()
    call, x = quick(made), torch.ones(33)
    others = [
        torch.ones(34),
        torch.ones(33, dtype=torch.float64),
        torch.ones(66)[::2],
        x.numpy(),
        FakeTensorMode().from_tensor(x),
        None,
    ]

    assert [call([x, other]) for other in others] == [None] * len(others)
    assert torch.equal(call((x, torch.nn.Parameter(x)))[0], torch.full((33,), 2.0))


def test_quick_runs_take_the_inputs_that_are_not_bound() -> None:
    _, made = prepared()
    x, y = torch.randn(33), torch.randn(33)
    bound = HOST.bind_constants(made, {0: x})
    assert bound is not None

    (result,) = quick(bound)([y])

    assert torch.equal(result, (x + y).relu())
    with pytest.raises(BackendError, match="compute: 3 tensors were given, .* 2 external slots that"):
        quick(bound)([x, y])


def test_programs_whose_results_are_views_have_no_quick_runs() -> None:
    _, made = prepared(ADD.replace("return (%relu,)", "return (%relu, %x)"))

    assert HOST.make_quick_run(made) is None


def test_a_failure_of_a_quick_run_names_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    _, made = prepared()
    call = quick(made)
    failing = DeviceError("op 1 (EltwiseRelu, relu.f32.host): the device is lost")
    native_program = types.SimpleNamespace(compute=lambda *_: (_ for _ in ()).throw(failing))
    monkeypatch.setattr(made.idle[0, made.needs_alignment, ()][0], "native", native_program)

    with pytest.raises(BackendError, match=r"(?s)'host' failed: .*device is lost\n.*at: node 'relu'$"):
        call([torch.ones(33), torch.ones(33)])


def test_a_kernel_that_does_not_exist_is_refused_with_the_node() -> None:
    graph = parse_ir(ADD)
    ops = [dataclasses.replace(op, kernel="relu.f32.nowhere") for op in HOST.lower(graph)]

    with pytest.raises(BackendError, match=r"(?s)'host' failed: .*relu\.f32\.nowhere.*at: node"):
        HOST.prepare(graph, ops, CPU)


def test_another_number_of_inputs_is_refused() -> None:
    _, made = prepared()

    for call in (HOST.run, HOST.capture, lambda program, inputs: HOST.bind(program, inputs, [])):
        with pytest.raises(BackendError, match="1 inputs for a program that takes 2"):
            call(made, [torch.ones(33)])


def test_a_tensor_of_another_type_is_refused_by_name() -> None:
    _, made = prepared()
    cases = [
        (torch.ones(34), r"float32\[33\], the tensor is float32\[34\]"),
        (torch.ones(33, dtype=torch.float64), r"the tensor is float64\[33\]"),
        (torch.ones(66)[::2], r"the tensor is float32\[33\] strides \[2\]"),
    ]  # fmt: skip
    for x, text in cases:
        with pytest.raises(BackendError, match=rf"(?s)'host' failed: .*x.*{text}"):
            HOST.run(made, [x, torch.ones(33)])
        HOST.run(made, [torch.ones(33), torch.ones(33)])


@each_row(
    "error, text",
    [
        (DeviceError("op 1 (EltwiseRelu, relu.f32.host): the device is lost"), "at: node 'relu'$"),
        (InvalidArgumentError("the stream is null"), "at: nodes 'add' to 'relu'$"),
    ],
)
def test_a_failure_names_the_node(error: Exception, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: Any, **options: Any) -> None:
        raise error

    _, made = prepared()
    (instances,) = made.idle.values()
    monkeypatch.setattr(instances[0], "native", types.SimpleNamespace(call=fail))

    with pytest.raises(BackendError, match=rf"(?s)'host' failed: {re.escape(str(error))}.*{text}"):
        HOST.run(made, [torch.ones(33), torch.ones(33)])

    assert idle(made) == 1


def test_a_result_that_is_an_input_is_copied_in_a_capture_alone() -> None:
    _, made = prepared(ADD.replace("return (%relu,)", "return (%x, %relu)"))
    x = torch.ones(33)
    captured = HOST.capture(made, [x, x])

    captured.inputs[0].fill_(5.0)
    assert captured.outputs[0].eq(1.0).all()

    HOST.replay(captured)
    assert captured.outputs[0].eq(5.0).all()
    assert HOST.run(made, [x, x])[0] is x


class Recorder:
    """An instance that says on which stream it is run."""

    def __init__(self, prepared: PreparedProgram, *, is_aligned: bool, strides: Any) -> None:
        self.native = self
        self.streams: list[int] = []

    def call(self, tensors: Any, stream: int, *, keep: bool) -> None:
        self.streams.append(stream)


def test_streams_have_programs_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    _, made = prepared()
    made.idle.clear()
    monkeypatch.setattr(program, "ProgramInstance", Recorder)
    monkeypatch.setattr(_C, "find_capture", lambda device, stream: 0)

    for stream in (5, 6, 5, 5):
        made.run([torch.ones(33)] * 3, stream)

    assert [item.streams for idle in made.idle.values() for item in idle] == [[5, 5, 5], [6]]


def test_captures_have_programs_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    _, made = prepared()
    made.idle.clear()
    instances: list[weakref.ref[Recorder]] = []

    class Watched(Recorder):
        def __init__(self, prepared: PreparedProgram, *, is_aligned: bool, strides: Any) -> None:
            super().__init__(prepared, is_aligned=is_aligned, strides=strides)
            instances.append(weakref.ref(self))

    monkeypatch.setattr(program, "ProgramInstance", Watched)
    for capture in (0, 71, 71, 72, 0):
        monkeypatch.setattr(_C, "find_capture", lambda device, stream, capture=capture: capture)
        made.run([torch.ones(33)] * 3, 5)
        gc.collect()

    # One outside, and one for each capture; what the graph of the first one needs is its own affair.
    assert [len(seen.streams) if (seen := instance()) else None for instance in instances] == [2, None, 1]


def test_memory_that_is_not_aligned_has_a_program_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    _, made = prepared()
    made.idle.clear()
    made.needs_alignment = True
    monkeypatch.setattr(program, "ProgramInstance", Recorder)

    for start in (0, 4, 1, 2, 8):
        made.run([torch.ones(33), torch.ones(64)[start : start + 33], torch.ones(33)], 0)

    counts = {is_aligned: len(idle[0].streams) for (_, is_aligned, _), idle in made.idle.items()}
    assert counts == {True: 3, False: 2}


class TestCudaDevices:
    """What the backend says of devices, told by a PyTorch and a native part that see two GPUs."""

    @pytest.fixture(autouse=True)
    def _two_devices(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(native, "_is_emulated", lambda: False)
        monkeypatch.setattr(native._C, "cuda_absence", lambda: "")
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)

    def test_they_are_those_of_pytorch(self) -> None:
        assert CudaBackend().devices() == [torch.device("cuda", 0), torch.device("cuda", 1)]
        assert CudaBackend().native_device(torch.device("cuda", 1)) == "cuda:1"

    def test_a_pytorch_or_a_native_part_that_sees_none_says_so(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
        absence = "the installed PyTorch finds no CUDA device"
        assert (CudaBackend().devices(), CudaBackend().absence()) == ([], absence)

        monkeypatch.setattr(native._C, "cuda_absence", lambda: "no driver")
        assert (CudaBackend().devices(), CudaBackend().absence()) == ([], "no driver")

    def test_work_goes_to_the_current_stream(self, monkeypatch: pytest.MonkeyPatch) -> None:
        stream = types.SimpleNamespace(cuda_stream=7)
        monkeypatch.setattr(torch.cuda, "current_stream", lambda device: stream)

        assert CudaBackend().stream(torch.device("cuda", 0)) == 7


def test_a_call_uses_as_many_threads_as_pytorch() -> None:
    graph = extract_ir(torch.nn.Softmax(-1), (torch.randn(4, 5),))
    executor = IRExecutor(graph, backend="host", passes=None)
    before, used = torch.get_num_threads(), []
    try:
        for count in (1, 2):
            torch.set_num_threads(count)
            executor(torch.randn(4, 5))
            used.append(_C.thread_count())
    finally:
        torch.set_num_threads(before)

    IRExecutor(graph, backend="host", passes=None, threads=before + 1)(torch.randn(4, 5))
    assert [*used, _C.thread_count()] == [1, 2, before + 1]
    executor(torch.randn(4, 5))
    assert _C.thread_count() == before
