"""op_call, launch_by_id, prepare_call and select on the host."""

import inspect
from concurrent.futures import ThreadPoolExecutor

import hypothesis
import numpy as np
import pytest
import torch
from hypothesis import strategies as st

import npu_cuda
from npu_cuda import InvalidArgumentError, NotSupportedError, NpuCudaError, OpKind, Status, TensorSpec
from tests.support.cuda.programs import refused, relu_chain
from tests.support.tiers import examples

KINDS = {
    "EltwiseAdd": 0, "EltwiseRelu": 1, "Gemm": 2, "BiasAdd": 3, "ReduceSum": 4, "MseGrad": 5, "ReluBwd": 6,
    "SgdStep": 7, "Copy": 8, "GradZero": 9, "AdamStep": 10, "StepInc": 11, "BiasCorr": 12, "LayerNormFwd": 13,
    "LayerNormBwd": 14, "BatchNormFwd": 15, "BatchNormBwd": 16, "GemmEpilogue": 17, "MultiSgd": 18,
    "MultiAdam": 19,
}  # fmt: skip


def test_the_numbers_of_op_kinds_and_statuses_are_pinned() -> None:
    statuses = ["Ok", "InvalidArgument", "NotImplemented", "Internal", "DeviceError", "Unavailable"]

    named = {kind.name: int(kind) for kind in OpKind}
    assert {name: kind for name, kind in named.items() if kind < 20} == KINDS
    assert {name: kind for name, kind in named.items() if kind >= 20}.items() <= npu_cuda.kinds().items()
    assert {status.name: int(status) for status in Status} == {name: i for i, name in enumerate(statuses)}


def tensors() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return torch.randn(5, 3), torch.randn(5, 3), torch.full((5, 3), torch.nan)


@pytest.mark.smoke
def test_an_op_takes_tensors_of_several_libraries_and_attributes_with_bytes() -> None:
    schema, data = npu_cuda.attrs("EADD", alpha=-0.5)
    for kind in (OpKind.EltwiseAdd, 0, np.int64(0)):
        for given in (data, bytearray(data), memoryview(data), np.frombuffer(data, np.uint8)):
            a, b, y = tensors()
            npu_cuda.op_call(kind, [a, b.numpy()], (y,), schema, given)
            torch.testing.assert_close(y, torch.add(a, b, alpha=-0.5), rtol=0, atol=0)

    a, b, _ = tensors()
    own = npu_cuda.empty([5, 3])
    npu_cuda.op_call(0, (a, b.numpy()), [own])
    torch.testing.assert_close(torch.from_dlpack(own), a + b, rtol=0, atol=0)


def test_threads_call_at_the_same_time() -> None:
    def work(seed: int) -> bool:
        a = torch.full((1 << (seed * 3 % 18),), float(seed))  # large ones let go of the GIL
        y = torch.empty_like(a)
        is_right = True
        for _ in range(50):
            npu_cuda.op_call(0, [a, a], [y])
            is_right &= bool((y == 2 * seed).all())
        return is_right

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(8)))


def test_a_wrong_argument_is_named() -> None:
    cases = [
        (("add", [], []), TypeError, "op_call: kind must be an int, not str"),
        ((True, [], []), TypeError, "op_call: kind must be an int, not bool"),
        ((None, [], []), TypeError, "op_call: kind must be an int, not NoneType"),
        ((-1, [], []), InvalidArgumentError, "op_call: kind is -1; 0 to 2147483647 are possible"),
        ((1 << 80, [], []), InvalidArgumentError, "op_call: kind is 1208925819614629174706176"),
        ((99, [], []), NotSupportedError, "op kind 99 has no kernels in this build"),
        ((1, iter([]), []), TypeError, "inputs must be a list or tuple of tensors, not list_iterator"),
        ((1, torch.ones(2), []), TypeError, "op_call: inputs must be a list or tuple of tensors, not"),
        ((1, [], {}), TypeError, "op_call: outputs must be a list or tuple of tensors, not dict"),
        ((1, [3], []), TypeError, r"op_call: inputs\[0\] must be a tensor, not int, which has no __dlpack__"),
        ((1, [torch.ones(1)] * 65, []), InvalidArgumentError, "EltwiseRelu takes 1 input .*, not 65"),
        ((1, [], [torch.ones(1)]), InvalidArgumentError, "Relu takes 1 input and 1 output, not 0 and 1"),
        ((1, [], [], "x"), TypeError, "op_call: schema_id must be an int, not str"),
        ((1, [], [], -1), InvalidArgumentError, "op_call: schema_id is -1"),
        ((1, [], [], 0, "x"), TypeError, "op_call: attrs_bytes must be bytes, not str"),
        ((1, [], [], 0, 5), TypeError, "op_call: attrs_bytes must be bytes, not int"),
        ((1, [], [], 0, b"", -1), InvalidArgumentError, "op_call: stream_handle is -1"),
        ((1, [], [], 0, b"", 0.0), TypeError, "op_call: stream_handle must be an int, not float"),
    ]  # fmt: skip
    for arguments, error, text in cases:
        with pytest.raises(error, match=text):
            npu_cuda.op_call(*arguments)


def test_op_call_takes_its_arguments_by_place_or_by_name() -> None:
    schema, data = npu_cuda.attrs("EADD", alpha=-0.5)
    for places, names in [
        ((), {"kind": 0, "schema_id": schema, "attrs_bytes": data}),
        ((0,), {"attrs_bytes": data, "stream_handle": 0, "schema_id": schema}),
    ]:
        a, b, y = tensors()
        npu_cuda.op_call(*places, outputs=[y], inputs=[a, b], **names)
        torch.testing.assert_close(y, torch.add(a, b, alpha=-0.5), rtol=0, atol=0)

    assert str(inspect.signature(npu_cuda.op_call)).startswith("(kind, inputs, outputs, schema_id=0,")
    assert (npu_cuda.op_call.__name__, npu_cuda.op_call.__module__) == ("op_call", "npu_cuda._C")
    cases = [
        ((0,) * 7, {}, "op_call: 7 arguments are given, and it takes 6"),
        ((0, []), {}, "op_call: the argument 'outputs' is missing"),
        ((0, [], []), {"kernel": 1}, "op_call: there is no argument 'kernel'"),
        ((0, [], []), {"kind": 1}, "op_call: the argument 'kind' is given twice"),
    ]
    for given, named, text in cases:
        with refused(text, TypeError):
            npu_cuda.op_call(*given, **named)  # type: ignore[arg-type]


def test_launch_by_id_runs_the_kernel_that_is_named() -> None:
    y = torch.empty(3)

    npu_cuda.launch_by_id("relu.f32.host", [torch.tensor([-1.0, 0.0, 2.0])], [y])

    assert y.tolist() == [0.0, 0.0, 2.0]
    with refused("there is no kernel"):
        npu_cuda.launch_by_id("nothing", [y], [y])
    with pytest.raises(TypeError, match="launch_by_id: kernel_id must be a str, not int"):
        npu_cuda.launch_by_id(3, [y], [y])
    with refused("relu.f32.host does not take"):
        npu_cuda.launch_by_id("relu.f32.host", [y], [torch.empty(4)])


def test_a_prepared_call_runs_on_what_its_tensors_hold_and_keeps_them() -> None:
    x, y, z = torch.randn(6), torch.empty(6), torch.tensor([-1.0, 1.0])
    call, in_place = npu_cuda.prepare_call(OpKind.EltwiseRelu, [x], [y]), npu_cuda.prepare_call(1, [z], [z])
    kept = npu_cuda.prepare_call(1, [torch.ones(1000)], [torch.empty(1000)])
    x.copy_(torch.randn(6))

    for each in (call, in_place, kept):
        each()

    assert call.kernel_id == "relu.f32.host"
    torch.testing.assert_close(y, x.relu(), rtol=0, atol=0)
    assert z.tolist() == [0.0, 1.0]


def test_select_says_which_kernel_and_why_not_the_others() -> None:
    spec, other = TensorSpec("float32", [3]), TensorSpec("complex64", [3])

    assert npu_cuda.select(0, [spec, spec], [spec]).kernel_id == "add.f32.host"
    assert npu_cuda.select(0, [other, other], [other]).kernel_id is None
    with refused("select: EltwiseAdd takes 2 inputs"):
        npu_cuda.select(0, [spec], [spec])
    with refused("there is no device 'tpu'"):
        npu_cuda.select(0, [spec], [spec], device="tpu")
    with pytest.raises(TypeError, match=r"select: inputs\[0\] must be a TensorSpec, not str"):
        npu_cuda.select(0, ["x"], [spec])


GARBAGE = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=3), st.binary(max_size=30),
    st.builds(object),
    st.sampled_from([torch.ones(3), np.ones(3, np.float32), torch.ones(2, 2).T, [], (), {}]),
)  # fmt: skip


@examples(300)
@hypothesis.given(
    st.tuples(
        st.integers(0, 9) | GARBAGE,
        st.lists(GARBAGE, max_size=4) | GARBAGE,
        st.lists(GARBAGE, max_size=4) | GARBAGE,
        GARBAGE,
        GARBAGE,
        GARBAGE,
    )
)
def test_garbage_is_refused_with_an_error_that_says_what_is_wrong(arguments: tuple[object, ...]) -> None:
    try:
        npu_cuda.op_call(*arguments)
    except NpuCudaError as error:
        assert str(error)
    except TypeError as error:
        assert "op_call: " in str(error)


def test_compute_says_what_it_cannot_bind() -> None:
    program, x = relu_chain(), torch.tensor([-1.0, 2, 3])
    made = [lambda: torch.empty(3)]

    def meddle() -> torch.Tensor:
        program.call([x, torch.empty(3)])
        raise AssertionError

    for arguments, text, error in [
        ((7, made), "compute: inputs must be a list or tuple", TypeError),
        (([x], 7), "compute: makers must be a list or tuple", TypeError),
        (([x], made, 7), "compute: places", TypeError),
        (([x], made, [0, 2]), "compute: places has 2, there are 2 tensors", InvalidArgumentError),
        (([x], made, [0]), "compute: 1 tensors were given, .* 2 external slots", InvalidArgumentError),
        (([x], []), "compute: 1 tensors were given, .* 2 external slots", InvalidArgumentError),
        (([x], [meddle]), "call: this program is in use", InvalidArgumentError),
        (([x], [lambda: 1 // 0]), "by zero", ZeroDivisionError),
    ]:
        with refused(text, error):
            program.compute(*arguments)

    assert program.compute([x], [lambda: None]) is None
    assert program.compute([x], made, (0, 1))[0].tolist() == [0, 2, 3]
    with refused("run: slot 0 .* was bound by call.., which has let its tensor go"):
        program.run()
