"""Kernels that are Python functions: chosen, called and removed as any other kernel."""

from __future__ import annotations

import functools
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch

import npu_cuda
from npu_cuda import _C, CallSpec, KernelCall
from npu_cuda.errors import NotSupportedError, UnavailableError
from npu_cuda.extension.python_kernels import RegisteredKernel
from tests.support.cuda.programs import refused

RELU = _C.OpKind.EltwiseRelu


@contextmanager
def registered(function: Callable[[KernelCall], None], **options: Any) -> Iterator[RegisteredKernel]:
    """Have a function as a kernel of relu on the host, or of what the options say, for a while."""
    options = {"op": "EltwiseRelu", "kernel_id": "test.kernel", "device": "host", "priority": 200, **options}
    kernel = npu_cuda.kernel(options.pop("op"), **options)(function)
    try:
        yield kernel
    finally:
        kernel.remove()


def relu(call: KernelCall) -> None:
    x, y = torch.from_dlpack(call.inputs[0]), torch.from_dlpack(call.outputs[0])
    torch.clamp(x, min=0, out=y)


def nothing(call: KernelCall) -> None:
    pass


def test_a_function_around_torch_computes_an_op() -> None:
    for dtype in [torch.float32, torch.bfloat16, torch.float64, torch.int32]:
        x = (torch.randn(5, 3) * 10).to(dtype)
        y = torch.empty_like(x)

        with registered(relu):
            npu_cuda.op_call(RELU, [x], [y])

        torch.testing.assert_close(y, x.relu(), rtol=0, atol=0)


@pytest.mark.smoke
def test_tensors_are_those_of_the_caller_and_not_copied() -> None:
    seen: list[KernelCall] = []
    shared: list[torch.Tensor] = []
    x, y = torch.randn(6, 4)[1:5, ::2], torch.empty(4, 2)

    def look(call: KernelCall) -> None:
        seen.append(call)
        shared.append(torch.from_dlpack(call.inputs[0]))

    with registered(look):
        npu_cuda.op_call(RELU, [x], [y])

    (call,) = seen
    assert [tensor.data_ptr for tensor in (*call.inputs, *call.outputs)] == [x.data_ptr(), y.data_ptr()]
    assert shared[0].data_ptr() == x.data_ptr()
    assert (call.inputs[0].shape, call.inputs[0].strides, call.inputs[0].dtype) == ((4, 2), (4, 2), "float32")
    assert call.outputs[0].device == "host"
    assert call.workspace is None
    assert call.attrs == {}


def test_a_kernel_says_what_it_does_not_take() -> None:
    def only_doubles(call: CallSpec) -> str | None:
        return None if call.inputs[0].dtype == "float64" else f"x is {call.inputs[0].dtype}, not float64"

    complexes = torch.zeros(2, dtype=torch.complex64)
    doubles = torch.tensor([-1.0, 1.0], dtype=torch.float64)

    with registered(relu, supported=only_doubles):
        npu_cuda.op_call(RELU, [doubles], [doubles])
        with pytest.raises(NotSupportedError, match="test.kernel: x is complex64, not float64\n"):
            npu_cuda.op_call(RELU, [complexes], [complexes])
        with refused("test.kernel does not take .*: x is complex64, not float64"):
            npu_cuda.launch_by_id("test.kernel", [complexes], [complexes])

    assert doubles.tolist() == [0.0, 1.0]


def test_supported_sees_descriptions_without_memory() -> None:
    seen: list[CallSpec] = []
    x = torch.zeros(4, 6)[:, 1:]

    with registered(nothing, supported=seen.append):
        npu_cuda.op_call(RELU, [x], [torch.zeros(4, 5)])

    (spec,) = seen
    assert (spec.inputs[0].dtype, spec.inputs[0].shape, spec.inputs[0].strides) == ("float32", (4, 5), (6, 1))
    assert spec.inputs[0].alignment == 4
    assert spec.compute_capability == 0
    assert not hasattr(spec.inputs[0], "__dlpack__")


@pytest.mark.parametrize(
    ("supported", "text"),
    [
        pytest.param(lambda call: 1 / 0, "ZeroDivisionError: division by zero", id="raises"),
        pytest.param(lambda call: True, "returned True: None or a reason is expected", id="no-reason"),
    ],
)
def test_a_kernel_that_fails_to_say_what_it_supports_is_left_out(
    supported: Callable[[CallSpec], Any], text: str
) -> None:
    x = torch.tensor([-1.0, 1.0])

    with registered(nothing, supported=supported):
        with pytest.warns(RuntimeWarning, match=f"the kernel test.kernel is left out, .*{text}"):
            npu_cuda.op_call(RELU, [x], [x])
        with (
            pytest.warns(RuntimeWarning, match="test.kernel"),
            pytest.raises(
                NotSupportedError, match=f"test.kernel: it failed to say what it supports: .*{text}"
            ),
        ):
            npu_cuda.op_call(RELU, [x.cfloat()], [x.cfloat()])

    assert x.tolist() == [0.0, 1.0]


class OwnError(Exception):
    def __init__(self, code: int) -> None:
        super().__init__(f"code {code}")
        self.code = code


@pytest.mark.parametrize(
    "error",
    [OwnError(7), KeyError("k"), KeyboardInterrupt(), NotSupportedError("no"), UnavailableError("gone")],
    ids=lambda error: type(error).__name__,
)
def test_what_a_kernel_raises_reaches_the_caller_unchanged(error: BaseException) -> None:
    def fail(call: KernelCall) -> None:
        raise error

    x = torch.zeros(2)

    with registered(fail), pytest.raises(type(error)) as caught:
        npu_cuda.op_call(RELU, [x], [x])

    assert caught.value is error
    assert any(entry.name == "fail" for entry in caught.traceback)
    if sys.version_info >= (3, 11):
        assert error.__notes__ == ["in the kernel test.kernel"]


def test_an_error_of_the_next_call_is_its_own() -> None:
    x = torch.zeros(2)

    def fail(call: KernelCall) -> None:
        raise OwnError(1)

    with registered(fail):
        for _ in range(2):
            with pytest.raises(OwnError, match="code 1"):
                npu_cuda.op_call(RELU, [x], [x])
    with refused("takes 1 input and 1 output, not 0 and 1"):
        npu_cuda.op_call(RELU, [], [x])


def test_a_kernel_returns_nothing() -> None:
    x = torch.zeros(2)

    with (
        registered(lambda call: torch.ones(2)),  # type: ignore[arg-type, return-value]
        pytest.raises(TypeError, match="the kernel test.kernel returned a Tensor: it writes to call.outputs"),
    ):
        npu_cuda.op_call(RELU, [x], [x])


def test_a_workspace_is_there_for_the_call() -> None:
    sizes: list[int] = []

    def through_workspace(call: KernelCall) -> None:
        assert call.workspace is not None
        sizes.append(call.workspace.nbytes)
        assert call.workspace.data_ptr % 256 == 0
        x = torch.from_dlpack(call.inputs[0])
        between = torch.from_dlpack(call.workspace)[: x.numel() * 4].view(torch.float32)
        torch.clamp(x.reshape(-1), min=0, out=between)
        torch.from_dlpack(call.outputs[0]).copy_(between.view(x.shape))

    x = torch.randn(7, 9)
    y = torch.empty_like(x)

    with registered(
        through_workspace, workspace_bytes=lambda call: np.int64(call.inputs[0].shape[0] * 9 * 4 + 5)
    ):
        npu_cuda.op_call(RELU, [x], [y])

    assert sizes == [7 * 9 * 4 + 5]
    torch.testing.assert_close(y, x.relu(), rtol=0, atol=0)


def test_an_error_whose_text_is_no_unicode_reaches_the_caller() -> None:
    class OddError(Exception):
        def __str__(self) -> str:
            return "\ud800"

    def fail(call: KernelCall) -> None:
        raise OddError

    x = torch.tensor([-1.0])

    with registered(fail), pytest.raises(OddError, match="\ud800"):
        npu_cuda.op_call(RELU, [x], [x])


@pytest.mark.parametrize("answer", ["many", -1], ids=["text", "negative"])
def test_a_kernel_that_fails_to_say_its_workspace_is_left_out(answer: Any) -> None:
    x = torch.tensor([-1.0])

    with (
        registered(nothing, workspace_bytes=lambda call: answer),
        pytest.warns(RuntimeWarning, match="the kernel test.kernel is left out"),
    ):
        npu_cuda.op_call(RELU, [x], [x])

    assert x.tolist() == [0.0]


def test_a_removed_kernel_is_asked_no_more() -> None:
    calls: list[KernelCall] = []
    x = torch.tensor([-1.0])

    with registered(functools.partial(list.append, calls)) as kernel:  # whatever can be called
        kernel(KernelCall([], [], {}, 0, None))
        npu_cuda.op_call(RELU, [x], [x])
    npu_cuda.op_call(RELU, [x], [x])

    assert len(calls) == 2
    assert x.tolist() == [0.0]
    with refused("remove_kernel: there is no kernel test.kernel"):
        kernel.remove()


def test_the_registry_shows_what_a_kernel_promises() -> None:
    with registered(relu, deterministic=False, priority=-3):
        kernel = next(kernel for kernel in _C.kernels() if kernel["id"] == "test.kernel")

    assert kernel["priority"] == -3
    assert kernel["flags"] == ["capture_safe"]
    assert kernel["origin"] == f"the Python function {__name__}.relu"


def test_an_id_is_taken_once() -> None:
    with registered(relu):
        text = r"the kernel test.kernel of .*\.nothing is there already, from the Python function .*\.relu"
        with refused(text):
            npu_cuda.kernel("EltwiseRelu", kernel_id="test.kernel", device="host")(nothing)
        with refused("the kernel relu.f32.host of .* is there already, from npu-cuda"):
            npu_cuda.kernel("EltwiseRelu", kernel_id="relu.f32.host", device="host")(nothing)


def test_a_kernel_that_cannot_be_registered_says_why() -> None:
    cases = [
        ("Frobnicate", {}, "there is no op 'Frobnicate'; there are .*EltwiseRelu.*npu_cuda.op adds an op"),
        (999, {}, "the kernel test.x of the Python function .* is of an op that is not there: kind 999"),
        ("EltwiseRelu", {"device": "tpu"}, "register_kernel: device is 'tpu'; 'host' and 'cuda'"),
        ("EltwiseRelu", {"kernel_id": ""}, "register_kernel: kernel_id is empty"),
        ("EltwiseRelu", {"kernel_id": "a b"}, "kernel_id has characters other than"),
    ]  # fmt: skip
    for op, options, match in cases:
        with refused(match):
            npu_cuda.kernel(op, **{"kernel_id": "test.x", "device": "host", **options})(nothing)


def test_what_is_no_function_is_no_kernel() -> None:
    cases = [
        (3, {}, "the kernel test.x: what computes it must be a function, not int"),
        (nothing, {"supported": 3}, "the kernel test.x: supported must be a function"),
        (nothing, {"workspace_bytes": 64}, "workspace_bytes must be a function, not int"),
    ]  # fmt: skip
    for function, options, match in cases:
        with pytest.raises(TypeError, match=match):
            npu_cuda.kernel("EltwiseRelu", kernel_id="test.x", device="host", **options)(function)


def test_the_tensors_of_a_call_end_with_it() -> None:
    calls: list[KernelCall] = []
    x = torch.tensor([-1.0])

    with registered(calls.append):
        npu_cuda.op_call(RELU, [x], [x])

    kept = calls[0].inputs[0]
    for use in (kept.to_bytes, kept.__dlpack__, lambda: kept.copy_from(b"1234"), lambda: kept.view([1])):
        with refused("belongs to the call of a kernel that has returned: copy"):
            use()
    with refused("belongs to the call of a kernel that has returned"):
        npu_cuda.op_call(RELU, [kept], [x])


def test_calls_that_a_kernel_makes_have_workspaces_of_their_own() -> None:
    seen: list[set[int]] = []

    def fill(call: KernelCall, value: int) -> None:
        assert call.workspace is not None
        np.from_dlpack(call.workspace)[:] = value

    def outer(call: KernelCall) -> None:
        fill(call, 1)
        npu_cuda.launch_by_id("test.inner", call.inputs, call.outputs)
        assert call.workspace is not None
        seen.append(set(call.workspace.to_bytes()))

    x = torch.tensor([-1.0])

    with (
        registered(lambda call: fill(call, 2), kernel_id="test.inner", workspace_bytes=lambda call: 1 << 20),
        registered(outer, priority=300, workspace_bytes=lambda call: 1000),
    ):
        npu_cuda.op_call(RELU, [x], [x])
        npu_cuda.op_call(RELU, [x], [x])

    assert seen == [{1}, {1}]


def test_errors_of_threads_stay_apart() -> None:
    def fail(call: KernelCall) -> None:
        raise OwnError(int(torch.from_dlpack(call.inputs[0])[0, 0]))

    caught: dict[int, int] = {}

    def work(number: int) -> None:
        x = torch.full((1000, 100), float(number))
        try:
            npu_cuda.op_call(RELU, [x], [x])
        except OwnError as error:
            caught[number] = error.code

    with registered(fail):
        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert caught == {number: number for number in range(8)}


SCALE = npu_cuda.op(
    "test_python_kernels.scale",
    inputs=1,
    outputs=1,
    in_place={0: 0},
    attrs=[("alpha", "f", 1.5), ("shift", "q", -3), ("mask", "I", 7)],
)


def test_an_op_of_python_packs_its_attributes_as_ours_do() -> None:
    seen: list[dict[str, int | float]] = []

    def scale(call: KernelCall) -> None:
        seen.append(call.attrs)
        torch.from_dlpack(call.outputs[0]).mul_(call.attrs["alpha"]).add_(call.attrs["shift"])

    schema_id, _ = (_C.attr_schemas()[SCALE.schema][key] for key in ("id", "bytes"))
    x = torch.ones(3)

    with registered(scale, op=SCALE, kernel_id="test.scale"):
        npu_cuda.op_call(SCALE.kind, [x], [x], schema_id, struct.pack("<fqI", 0.5, 1 << 40, 3))
        x.fill_(2.0)
        npu_cuda.op_call(SCALE.kind, [x], [x])

    assert seen == [{"alpha": 0.5, "shift": 1 << 40, "mask": 3}, {"alpha": 1.5, "shift": -3, "mask": 7}]
    assert x.tolist() == [0.0, 0.0, 0.0]


def test_an_op_is_found_by_its_name() -> None:
    for name in ["EltwiseRelu", "Gemm", SCALE.name]:
        known = next(op for op in _C.ops() if op["name"] == name)

        found = npu_cuda.find_op(name)

        assert found == npu_cuda.Op(name, npu_cuda.kinds()[name], known["schema"])
        assert found.attrs() == (npu_cuda.attrs(known["schema"]) if known["schema"] else (0, b""))


def test_an_op_that_is_not_there_is_not_found() -> None:
    with refused(r"there is no op 'Relu'; there are .*EltwiseRelu.*load_plugins\(\) loads"):
        npu_cuda.find_op("Relu")


def test_an_op_packs_its_own_attributes() -> None:
    plain = npu_cuda.op("test_python_kernels.plain", inputs=1, outputs=1)

    assert SCALE.attrs(shift=4)[1] == struct.pack("<fqI", 1.5, 4, 7)
    assert plain.attrs() == (0, b"")
    with refused("test_python_kernels.plain has no attributes, not alpha"):
        plain.attrs(alpha=1.0)


def test_an_op_of_python_is_in_the_registry() -> None:
    op = next(op for op in _C.ops() if op["name"] == SCALE.name)

    assert op["kind"] == SCALE.kind >= 1000
    assert (op["inputs"], op["outputs"], op["in_place"]) == ((1, 1), 1, [(0, 0)])
    assert _C.attr_schemas()[op["schema"]]["format"] == "<fqI"
    with pytest.raises(NotSupportedError, match="test_python_kernels.scale has no kernels on host"):
        npu_cuda.op_call(SCALE.kind, [torch.ones(1)], [torch.ones(1)])


def test_an_op_that_cannot_be_says_why() -> None:
    cases = [
        ({"name": "EltwiseRelu"}, "the op EltwiseRelu of Python is there already, from npu-cuda"),
        ({"name": ""}, "its name is empty"),
        ({"outputs": 0}, "the op test.bad has 0 outputs; 1 to 8 are possible"),
        ({"outputs": 9}, "the op test.bad: it has more than 8 outputs"),
        ({"inputs": (2, 1)}, "test.bad .*no proper counts of inputs and outputs"),
        ({"in_place": {1: 0}}, "the op test.bad: in_place names output 1 of 1"),
        ({"in_place": {0: [0, 1]}}, "the op test.bad: in_place names input 1 of 1"),
        ({"attrs": [("a", "x", 0)]}, "the code of the attribute a is character 120, none of"),
        ({"attrs": [("a", "i", 1.5)]}, "the default of the attribute a, 1.5, is no number of the code i"),
        ({"attrs": [("a", "I", -1)]}, "the default of the attribute a, -1, is no number of the code I"),
        ({"attrs": [("a", "q", 2**63)]}, "the default of the attribute a, 9.2.*e.18, is no number"),
        ({"attrs": [("a", "i", float("nan"))]}, "the default of the attribute a, nan, is no number"),
        ({"attrs": [("a", "f", 1e300)]}, r"the default of the attribute a, 1.*e\+300, is no number"),
        ({"attrs": [("a", "i", 0), ("a", "f", 1)]}, "it has two attributes called a"),
        ({"attrs": [("", "f", 0)]}, "the name of attribute 0 is empty"),
        ({"attrs": [("a", "f", 0)], "schema": "GEMM"}, "schema GEMM of test.bad is that of Gemm"),
        ({"attrs": [("a", "f", 0)], "schema": "TOOLONG"}, "schema is 'TOOLONG', not four letters"),
        ({"attrs_required": True}, "it has attributes, and no schema_id"),
    ]  # fmt: skip
    for options, match in cases:
        with refused(match):
            npu_cuda.op(**{"name": "test.bad", "inputs": 1, "outputs": 1, **options})

        assert "test.bad" not in _C.kinds()


def test_required_attributes_have_no_defaults() -> None:
    op = npu_cuda.op(
        "test.required", inputs=1, outputs=1, attrs=[("alpha", "d", 0.0)], attrs_required=True, schema="TREQ"
    )

    with refused("test.required has no default attributes: give schema TREQ, format '<d'"):
        npu_cuda.op_call(op.kind, [torch.ones(1)], [torch.ones(1)])


AT_EXIT = """
import atexit, threading, time
import numpy as np
import npu_cuda

x = np.ones(4, dtype=np.float32)
keep = [npu_cuda.empty([4])]  # what a function refers to is given back, too

@npu_cuda.kernel("EltwiseRelu", kernel_id="at.exit", device="host", supported=lambda call: None)
def relu(call):
    keep[0]
    np.maximum(np.from_dlpack(call.inputs[0]), 0, out=np.from_dlpack(call.outputs[0], copy=False))

npu_cuda.op_call(1, [x], [x])

def late():
    try:
        npu_cuda.launch_by_id("at.exit", [x], [x])
    except npu_cuda.errors.NpuCudaError as error:
        print(type(error).__name__, error)

class Late:
    def __del__(self):
        late()

module_global = Late()
%s
print("end")
"""


@pytest.mark.parametrize(
    "further",
    [
        pytest.param("", id="plain"),
        pytest.param(
            "try:\n    npu_cuda.op_call(1, [x[::2]], [x[:3]])\nexcept Exception:\n    pass",
            id="after-an-error",
        ),
        pytest.param(
            "def spin():\n    while True:\n        npu_cuda.op_call(1, [x], [x])\n"
            "threading.Thread(target=spin, daemon=True).start()\ntime.sleep(0.05)",
            id="daemon",
        ),
        pytest.param(
            "large = np.ones(1 << 18, dtype=np.float32)\n"
            "def spin():\n    while True:\n        npu_cuda.launch_by_id('relu.f32.host', [large], [large])\n"
            "for _ in range(3):\n    threading.Thread(target=spin, daemon=True).start()\ntime.sleep(0.05)",
            id="daemon-without-the-gil",
        ),
    ],
)
def test_the_end_of_the_interpreter_is_clean(further: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", AT_EXIT % further], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == "end"
    assert "Fatal" not in done.stderr
    if "daemon" not in further:  # such a thread never lets go of what it holds
        assert "leaked" not in done.stderr
