"""Kernels that are Python functions: chosen, called and removed as any other kernel."""

import functools
import os
import struct
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch

import npu_cuda
from npu_cuda import _C, CallSpec, KernelCall
from npu_cuda.errors import NotSupportedError
from tests.support.cuda.programs import refused, registered
from tests.support.processes import run_python
from tests.support.rows import each_row


def relu(call: KernelCall) -> None:
    x, y = torch.from_dlpack(call.inputs[0]), torch.from_dlpack(call.outputs[0])
    torch.clamp(x, min=0, out=y)


def nothing(call: KernelCall) -> None:
    pass


def call_relu(x: object, y: object | None = None) -> None:
    npu_cuda.op_call(_C.OpKind.EltwiseRelu, [x], [x if y is None else y])


class OddError(Exception):
    def __str__(self) -> str:
        return "\ud800"


def test_a_function_around_torch_computes_an_op() -> None:
    for dtype in [torch.float32, torch.bfloat16, torch.float64, torch.int32]:
        x = (torch.randn(5, 3) * 10).to(dtype)
        y = torch.empty_like(x)

        with registered(relu):
            call_relu(x, y)

        torch.testing.assert_close(y, x.relu(), rtol=0, atol=0)


@pytest.mark.smoke
def test_a_kernel_gets_the_tensors_of_the_caller_and_supported_their_descriptions() -> None:
    calls: list[KernelCall] = []
    specs: list[CallSpec] = []
    shared: list[int] = []
    x, y = torch.randn(6, 4)[1:5, ::2], torch.empty(4, 2)

    def look(call: KernelCall) -> None:
        calls.append(call)
        shared.append(torch.from_dlpack(call.inputs[0]).data_ptr())

    with registered(look, supported=specs.append):
        call_relu(x, y)

    (call,), (spec,) = calls, specs
    assert [tensor.data_ptr for tensor in (*call.inputs, *call.outputs)] == [x.data_ptr(), y.data_ptr()]
    assert shared == [x.data_ptr()]
    for given in (call.inputs[0], spec.inputs[0]):
        assert (given.shape, given.strides, given.dtype) == ((4, 2), (4, 2), "float32")
    assert (call.outputs[0].device, call.workspace, call.attrs) == ("host", None, {})
    assert spec.inputs[0].alignment == 16
    assert spec.compute_capability == 0
    assert not hasattr(spec.inputs[0], "__dlpack__")


def test_a_kernel_says_what_it_does_not_take() -> None:
    def only_doubles(call: CallSpec) -> str | None:
        return None if call.inputs[0].dtype == "float64" else f"x is {call.inputs[0].dtype}, not float64"

    complexes = torch.zeros(2, dtype=torch.complex64)
    doubles = torch.tensor([-1.0, 1.0], dtype=torch.float64)

    with registered(relu, supported=only_doubles):
        call_relu(doubles)
        with pytest.raises(NotSupportedError, match="test.kernel: x is complex64, not float64\n"):
            call_relu(complexes)
        with refused("test.kernel does not take .*: x is complex64, not float64"):
            npu_cuda.launch_by_id("test.kernel", [complexes], [complexes])

    assert doubles.tolist() == [0.0, 1.0]


@each_row("options, text", [
    pytest.param({"supported": lambda call: 1 / 0}, "ZeroDivisionError: division by zero", id="raises"),
    pytest.param({"supported": lambda call: True}, "returned True: None or a reason is expected",
        id="returns no reason"),
    pytest.param({"workspace_bytes": lambda call: "many"}, "must be an int, not str", id="text"),
    pytest.param({"workspace_bytes": lambda call: -1}, "workspace_bytes is -1", id="negative"),
])  # fmt: skip
def test_a_kernel_that_fails_to_answer_is_left_out(options: dict[str, Any], text: str) -> None:
    x = torch.tensor([-1.0, 1.0])

    with registered(nothing, **options):
        with pytest.warns(RuntimeWarning, match=f"the kernel test.kernel is left out, .*{text}"):
            call_relu(x)
        with (
            pytest.warns(RuntimeWarning, match="test.kernel"),
            pytest.raises(NotSupportedError, match="test.kernel: "),
        ):
            call_relu(x.cfloat())

    assert x.tolist() == [0.0, 1.0]


@each_row("error", [KeyError("k"), KeyboardInterrupt(), NotSupportedError("no"), OddError()])
def test_what_a_kernel_raises_reaches_the_caller_unchanged(error: BaseException) -> None:
    def fail(call: KernelCall) -> None:
        raise error

    x = torch.zeros(2)

    with registered(fail):
        for _ in range(2):
            with pytest.raises(type(error)) as caught:
                call_relu(x)
    with refused("takes 1 input and 1 output, not 0 and 1"):  # the error of the next call is its own
        npu_cuda.op_call(_C.OpKind.EltwiseRelu, [], [x])

    assert caught.value is error
    assert any(entry.name == "fail" for entry in caught.traceback)
    if sys.version_info >= (3, 11):
        assert error.__notes__ == ["in the kernel test.kernel"] * 2


def test_a_kernel_returns_nothing() -> None:
    with (
        registered(lambda call: torch.ones(2)),  # type: ignore[arg-type, return-value]
        pytest.raises(TypeError, match="the kernel test.kernel returned a Tensor: it writes to call.outputs"),
    ):
        call_relu(torch.zeros(2))


def test_a_workspace_is_there_for_the_call() -> None:
    workspaces: list[tuple[int, int]] = []
    x, y = torch.randn(7, 9), torch.empty(7, 9)

    def through_workspace(call: KernelCall) -> None:
        assert call.workspace is not None
        workspaces.append((call.workspace.nbytes, call.workspace.data_ptr % 256))
        between = torch.from_dlpack(call.workspace)[: 7 * 9 * 4].view(torch.float32).view(7, 9)
        torch.clamp(torch.from_dlpack(call.inputs[0]), min=0, out=between)
        torch.from_dlpack(call.outputs[0]).copy_(between)

    with registered(
        through_workspace, workspace_bytes=lambda call: np.int64(call.inputs[0].shape[0] * 9 * 4 + 5)
    ):
        call_relu(x, y)

    assert workspaces == [(7 * 9 * 4 + 5, 0)]
    torch.testing.assert_close(y, x.relu(), rtol=0, atol=0)


def test_a_removed_kernel_is_asked_no_more() -> None:
    calls: list[KernelCall] = []
    x = torch.tensor([-1.0])

    with registered(functools.partial(list.append, calls)) as kernel:  # whatever can be called
        kernel(KernelCall([], [], {}, 0, None))
        call_relu(x)
    call_relu(x)

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


def test_a_kernel_that_cannot_be_registered_says_why() -> None:
    cases = [
        ("Frobnicate", {}, "there is no op 'Frobnicate'; npu_cuda.kinds.* lists them,.* npu_cuda.op adds"),
        ("EltwiseRelus", {}, r"there is no op 'EltwiseRelus' \(did you mean 'EltwiseRelu'\?\); npu_cuda"),
        (999, {}, "the kernel test.x of the Python function .* is of an op that is not there: kind 999"),
        ("EltwiseRelu", {"device": "tpu"}, "register_kernel: device is 'tpu'; 'host' and 'cuda'"),
        ("EltwiseRelu", {"kernel_id": ""}, "register_kernel: kernel_id is empty"),
        ("EltwiseRelu", {"kernel_id": "a b"}, "kernel_id has characters other than"),
        ("EltwiseRelu", {"kernel_id": "test.kernel"},
         r"the kernel test.kernel of .*\.nothing is there already, from the Python function .*\.relu"),
        ("EltwiseRelu", {"kernel_id": "relu.f32.host"},
         "the kernel relu.f32.host of .* is there already, from npu-cuda"),
    ]  # fmt: skip
    for op, options, match in cases:
        with registered(relu), refused(match):
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
        call_relu(x)

    kept = calls[0].inputs[0]
    for use in (
        kept.to_bytes, kept.__dlpack__, lambda: kept.copy_from(b"1234"), lambda: kept.view([1]),
        lambda: call_relu(kept, x),
    ):  # fmt: skip
        with refused("belongs to the call of a kernel that has returned: copy"):
            use()


@pytest.mark.parametrize("from_dlpack", [torch.from_dlpack, np.from_dlpack])
def test_a_kernel_may_not_keep_what_from_dlpack_makes_of_its_tensors(from_dlpack: Any) -> None:
    kept: list[Any] = []
    x = torch.tensor([-1.0])

    with (
        registered(lambda call: kept.append(from_dlpack(call.inputs[0]))),
        refused(
            "EltwiseRelu by test.kernel: it kept a tensor that from_dlpack made of one of its call.*: copy"
        ),
    ):
        call_relu(x)


def test_a_kernel_may_leave_its_tensors_in_reference_cycles() -> None:
    def leave_cycle(call: KernelCall) -> None:
        cycle: list[Any] = [torch.from_dlpack(tensor) for tensor in (*call.inputs, *call.outputs)]
        cycle[1].fill_(4)
        cycle.append(cycle)

    x = torch.tensor([-1.0])

    with registered(leave_cycle):
        call_relu(x)

    assert x.tolist() == [4]


def test_calls_that_a_kernel_makes_have_workspaces_of_their_own() -> None:
    seen: list[set[int]] = []
    x = torch.tensor([-1.0])

    def inner(call: KernelCall) -> None:
        np.from_dlpack(call.workspace)[:] = 2

    def outer(call: KernelCall) -> None:
        assert call.workspace is not None
        np.from_dlpack(call.workspace)[:] = 1
        npu_cuda.launch_by_id("test.inner", call.inputs, call.outputs)
        seen.append(set(call.workspace.to_bytes()))

    with (
        registered(inner, kernel_id="test.inner", workspace_bytes=lambda call: 1 << 20),
        registered(outer, priority=300, workspace_bytes=lambda call: 1000),
    ):
        call_relu(x)
        call_relu(x)

    assert seen == [{1}, {1}]


def test_errors_of_threads_stay_apart() -> None:
    def fail(call: KernelCall) -> None:
        raise IndexError(int(torch.from_dlpack(call.inputs[0])[0, 0]))

    def caught(number: int) -> object:
        with pytest.raises(IndexError, match=r"\d") as error:
            call_relu(torch.full((1000, 100), float(number)))
        return error.value.args[0]

    with registered(fail), ThreadPoolExecutor(8) as pool:
        found = list(pool.map(caught, range(8)))

    assert found == list(range(8))


SCALE = npu_cuda.op(
    "test_python_kernels.scale",
    inputs=1,
    outputs=1,
    in_place={0: 0},
    attrs=[("alpha", "f", 1.5), ("shift", "q", -3), ("mask", "I", 7)],
)


def test_an_op_of_python_gives_its_attributes_to_kernels() -> None:
    seen: list[dict[str, int | float]] = []
    schema_id = _C.attr_schemas()[SCALE.schema]["id"]
    x = torch.ones(3)

    def scale(call: KernelCall) -> None:
        seen.append(call.attrs)
        torch.from_dlpack(call.outputs[0]).mul_(call.attrs["alpha"]).add_(call.attrs["shift"])

    with registered(scale, op=SCALE, kernel_id="test.scale"):
        npu_cuda.op_call(SCALE.kind, [x], [x], schema_id, struct.pack("<fqI", 0.5, 1 << 40, 3))
        x.fill_(2.0)
        npu_cuda.op_call(SCALE.kind, [x], [x])

    assert seen == [{"alpha": 0.5, "shift": 1 << 40, "mask": 3}, {"alpha": 1.5, "shift": -3, "mask": 7}]
    assert x.tolist() == [0.0, 0.0, 0.0]


def test_an_op_packs_its_own_attributes() -> None:
    plain = npu_cuda.op("test_python_kernels.plain", inputs=1, outputs=1)
    required = npu_cuda.op(
        "test.required", inputs=1, outputs=1, attrs=[("alpha", "d", 0.0)], attrs_required=True, schema="TREQ"
    )

    assert SCALE.attrs(shift=4)[1] == struct.pack("<fqI", 1.5, 4, 7)
    assert plain.attrs() == (0, b"")
    with refused("test_python_kernels.plain has no attributes, not alpha"):
        plain.attrs(alpha=1.0)
    with refused(
        r"test_python_kernels.scale has no attribute 'alph' \(did you mean 'alpha'\?\); it has alpha, shift"
    ):
        SCALE.attrs(alph=1)
    with refused("mask is -1, which does not fit"):
        SCALE.attrs(mask=-1)
    with refused("test.required has no default attributes: give schema TREQ, format '<d'"):
        npu_cuda.op_call(required.kind, [torch.ones(1)], [torch.ones(1)])


def test_an_op_of_python_is_in_the_registry() -> None:
    op = next(op for op in _C.ops() if op["name"] == SCALE.name)

    assert npu_cuda.find_op(SCALE.name) == SCALE
    assert op["kind"] == SCALE.kind >= 1000
    assert (op["inputs"], op["outputs"], op["in_place"]) == ((1, 1), 1, [(0, 0)])
    assert _C.attr_schemas()[op["schema"]]["format"] == "<fqI"
    with pytest.raises(NotSupportedError, match="test_python_kernels.scale has no kernels on host"):
        npu_cuda.op_call(SCALE.kind, [torch.ones(1)], [torch.ones(1)])
    with refused(r"there is no op 'EltwiseRelus' \(did you mean 'EltwiseRelu'\?\).*load_plugins\(\) loads"):
        npu_cuda.find_op("EltwiseRelus")


def test_an_op_can_be_declared_again_if_nothing_differs() -> None:
    declared: dict[str, Any] = {
        "inputs": (1, 2), "outputs": 1, "in_place": {0: [0, 1]}, "attrs": [("a", "f", 0.1), ("b", "q", 3)],
    }  # fmt: skip
    name = "test_python_kernels.again"
    first = npu_cuda.op(name, **declared)

    assert npu_cuda.op(name, **declared) == first
    for part, value, message in (
        ("inputs", 2, r"with inputs=\(1, 2\), not \(2, 2\)"),
        ("in_place", {0: 1}, r"with in_place=\[\(0, 0\), \(0, 1\)\], not \[\(0, 1\)\]"),
        ("attrs", [("a", "f", 0.5)], r"with attrs=\[.*\('b', 'q', 3.*\], not \[\('a', 'f', 0.5\)\]"),
        ("attrs_required", True, "with attrs_required=False, not True: give the new one another name"),
    ):
        with refused(f"the op {name} is there already, {message}"):
            npu_cuda.op(name, **{**declared, part: value})


def test_an_op_that_cannot_be_says_why() -> None:
    cases = [
        ({"name": "EltwiseRelu"}, "the op EltwiseRelu of Python is there already, from npu-cuda"),
        ({"name": ""}, "its name is empty"),
        ({"outputs": 0}, "the op test.bad has 0 outputs; 1 to 8 are possible"),
        ({"outputs": 9}, "the op test.bad: it has more than 8 outputs"),
        ({"in_place": {1: 0}}, "the op test.bad: in_place names output 1 of 1"),
        ({"in_place": {0: [0, 1]}}, "the op test.bad: in_place names input 1 of 1"),
        ({"attrs": [("a", "i", 1.5)]}, "the default of the attribute a, 1.5, is no number of the code i"),
        ({"attrs": [("a", "i", float("nan"))]}, "the default of the attribute a, nan, is no number"),
        ({"attrs": [("a", "I", -1)]}, "the default of the attribute a, -1, is no number of the code I"),
        ({"attrs": [("a", "q", 2**63)]}, "the default of the attribute a, 9.2.*e.18, is no number"),
        ({"attrs": [("a", "q", 2**60 + 1)]}, "the default of a is 1152921504606846977, which is not exact"),
        ({"attrs": [("a", "f", 1e300)]}, r"the default of the attribute a, 1.*e\+300, is no number"),
        ({"attrs": [("a", "i", 0), ("a", "f", 1)]}, "it has two attributes called a"),
        ({"attrs": [("a", "f", 0)], "schema": "TOOLONG"}, "schema is 'TOOLONG', not four letters"),
        ({"attrs": [("a", "float", 1.0)]}, "attribute a: code 'float' is none of i I q Q f d"),
        ({"attrs": [("a", 1.0)]}, r"an attribute is \(name, code, default\), not \('a', 1.0\)"),
        ({"attrs": [("a", "f", "x")]}, "the default of a is 'x', not a number"),
        ({"attrs_required": True}, "it has attributes, and no schema_id"),
    ]  # fmt: skip
    for options, match in cases:
        with refused(match):
            npu_cuda.op(**{"name": "test.bad", "inputs": 1, "outputs": 1, **options})

        assert "test.bad" not in _C.kinds()


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


SPIN = """
def spin():
    while True:
        %s
for _ in range(3):
    threading.Thread(target=spin, daemon=True).start()
time.sleep(0.05)
"""


PROGRAM = """
def make_program():
    program, spec = npu_cuda.Program(), npu_cuda.TensorSpec("float32", [4])
    slots = [program.slot(spec, external=external) for external in (True, False, True)]
    program.add(1, [slots[0]], [slots[1]])
    program.add("relu.f32.host", [slots[1]], [slots[2]])
    program.finalize(lambda size: np.empty(size, dtype=np.uint8))
"""


@each_row("further", {
    "plain": "",
    "after an error": "try:\n    npu_cuda.op_call(1, [x[::2]], [x[:3]])\nexcept Exception:\n    pass",
    "daemons": SPIN % "npu_cuda.op_call(1, [x], [x])",
    "daemons that make programs and let them go": PROGRAM + SPIN % "make_program()",
    "daemons without the GIL": "large = np.ones(1 << 18, dtype=np.float32)"
    + SPIN % "npu_cuda.launch_by_id('relu.f32.host', [large], [large])",
})  # fmt: skip
def test_the_end_of_the_interpreter_is_clean(further: str) -> None:
    done = run_python(AT_EXIT % further, env={**os.environ, "NPU_CUDA_LEAK_WARNINGS": "1"})

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == "end"
    assert "Fatal" not in done.stderr
    if "daemon" not in further:  # such a thread never lets go of what it holds
        assert "leaked" not in done.stderr


KEPT_BY_PYTORCH = """
import torch
import npu_cuda

@torch.library.custom_op("at_exit::twice", mutates_args=())  # its registry keeps the globals of this script
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2

spec = npu_cuda.TensorSpec("float32", [4])
"""


@each_row("setting, warns", {
    "by default": ({}, False),
    "on request": ({"NPU_CUDA_LEAK_WARNINGS": "1"}, True),
})  # fmt: skip
def test_what_outlives_the_interpreter_is_reported_on_request_only(
    setting: dict[str, str], warns: bool
) -> None:
    done = run_python(KEPT_BY_PYTORCH, env={**os.environ, **setting})

    assert done.returncode == 0, done.stderr
    assert ("leaked" in done.stderr) == warns
