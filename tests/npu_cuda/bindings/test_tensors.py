"""Tensors that op_call accepts, and their specs; npu_cuda's own tensors."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import npu_cuda
from npu_cuda import NotSupportedError, OpKind
from tests.support.cuda.programs import refused


def relu(x: object, y: object | None = None) -> torch.Tensor:
    out = torch.empty(3) if y is None else y
    npu_cuda.op_call(1, [x], [out])
    return out


class Plain(torch.Tensor):
    """A subclass that changes nothing."""


class WithoutTable(torch.Tensor):
    """As tensors of versions of PyTorch that have only ``__dlpack__``."""

    __dlpack_c_exchange_api__ = None


class Producer:
    """Has __dlpack__, and nothing else."""

    def __init__(self, tensor: object, device: tuple[int, int] = (1, 0)) -> None:
        self.tensor = tensor
        self.device = device

    def __dlpack__(self, **keywords: object) -> object:
        if isinstance(self.tensor, Exception):
            raise self.tensor
        return self.tensor.__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device


X = torch.tensor([-1.0, 0.5, 2.0])


def test_tensors_are_read_where_they_are() -> None:
    cases = [
        X,
        X.clone().requires_grad_(),
        torch.nn.Parameter(X.clone()),
        X.clone().as_subclass(Plain),
        X.clone().as_subclass(WithoutTable),
        torch.cat([X, X])[3:],
        X.numpy(),
        Producer(X),
        Producer(X.numpy()),
    ]  # fmt: skip
    for x in cases:
        assert relu(x).tolist() == [0.0, 0.5, 2.0]


def test_a_numpy_array_that_is_read_only_is_an_input_but_no_output() -> None:
    x = X.numpy().copy()
    x.flags.writeable = False

    assert relu(x).tolist() == [0.0, 0.5, 2.0]
    with refused(r"op_call: outputs\[0\] is read-only, and cannot be an output"):
        relu(X, x)


def sparse() -> torch.Tensor:
    return torch.eye(3).to_sparse()


def fake() -> torch.Tensor:
    with FakeTensorMode():
        return torch.empty(3)


def test_what_is_no_tensor_in_memory_is_refused() -> None:
    cases = [
        (sparse(), "a .*Tensor, cannot be used as a tensor in memory: (Runtime|Buffer)Error"),
        (torch.empty(3, device="meta"), "cannot be used as a tensor in memory"),
        (fake(), "is a .*FakeTensor, which has __torch_dispatch__"),
        (torch.tensor([1 + 2j]).conj(), "(is lazily conjugated: .*resolve_conj|the conjugate bit set)"),
        (torch.tensor([1 + 2j, 3j]).conj().imag, "is lazily negated: .*resolve_neg"),
        (torch.zeros([1] * 9), "has rank 9; 0 to 8 are possible"),
        (X.numpy()[::-1], "has the stride -1 in axis 0; negative strides"),
        (X.numpy().astype(">f4"), "cannot be used as a tensor in memory: BufferError"),
        (np.array(["a"]), "cannot be used as a tensor in memory: BufferError"),
        (Producer(X, ("cpu", 0)), "a .*Producer, cannot be .* in memory: TypeError"),
        (Producer(KeyError("no")), "a .*Producer, cannot be .* in memory: KeyError: 'no'"),
        (Producer(Producer(3)), "cannot be used as a tensor in memory: AttributeError"),
    ]  # fmt: skip
    for x, text in cases:
        with refused(r"op_call: inputs\[0\].*" + text):
            relu(x)


def test_dtypes_have_the_names_of_pytorch() -> None:
    cases = [
        (torch.bool, "bool"),
        (torch.bfloat16, "bfloat16"),
        (torch.complex64, "complex64"),
        (torch.int64, "int64"),
        (torch.uint8, "uint8"),
        (torch.float64, "float64"),
        (torch.float8_e4m3fn, "float8_e4m3fn"),
        (torch.float8_e5m2fnuz, "float8_e5m2fnuz"),
    ]  # fmt: skip
    for dtype, name in cases:
        with pytest.raises(NotSupportedError, match=rf"\({name}\[3\]\) -> bool\[3\]|{name}\[3\]"):
            npu_cuda.op_call(OpKind.Exp, [torch.zeros(3, dtype=dtype)], [torch.zeros(3, dtype=torch.bool)])


def test_what_is_contiguous_for_pytorch_is_contiguous_here() -> None:
    cases = [
        torch.ones(3, 1, 4).transpose(0, 1),
        torch.ones(0, 3).t(),
        torch.ones(()),
        torch.ones(4, 4)[:1],
        torch.ones(1, 4).t(),
    ]  # fmt: skip
    for x in cases:
        assert x.is_contiguous()
        y = torch.empty_like(x, memory_format=torch.contiguous_format)

        npu_cuda.op_call(1, [x], [y])

        torch.testing.assert_close(y, x, rtol=0, atol=0)


def test_own_tensors_share_their_memory() -> None:
    tensor = npu_cuda.empty([2, 3])
    tensor.copy_from(np.arange(6, dtype=np.float32))
    shared, view = torch.from_dlpack(tensor), tensor.view([3, 2], [1, 3])
    del tensor

    shared[0, 1] = 9

    assert np.frombuffer(view.to_bytes(), np.float32).reshape(3, 2).tolist() == [[0, 3], [9, 4], [2, 5]]
    assert (view.shape, view.strides, view.dtype, view.device, view.nbytes) == (
        (3, 2),
        (1, 3),
        "float32",
        "host",
        24,
    )
    view.copy_from(np.zeros(6, np.float32))
    assert shared.sum() == 0


def test_a_tensor_that_cannot_be_is_refused() -> None:
    cases = [
        (([2], "float31"), "empty: dtype is 'float31'; possible are bool, .*bfloat16"),
        (([1] * 9,), "empty: shape has rank 9"),
        (([-1],), r"empty: shape\[0\] is -1"),
        (([1 << 40, 1 << 40],), "more elements than an int64 can count"),
        (([2, 3], "float32", "host", [1]), "empty: strides has 1 entries, shape has 2"),
        (([2], "float32", "moon"), "there is no device 'moon'"),
    ]  # fmt: skip
    for arguments, text in cases:
        with refused(text):
            npu_cuda.empty(*arguments)


def test_a_view_stays_in_the_memory() -> None:
    tensor = npu_cuda.empty([4])

    with refused(r"at byte 4 ends after the 16 bytes of the tensor"):
        tensor.view([4], None, 1)
    with refused("has 16 bytes, not 3"):
        tensor.copy_from(b"abc")
    with refused(r"at byte 4 ends after the 16 bytes of the tensor"):
        tensor.view([2], [2**61 - 2], 1)
    with pytest.raises(TypeError, match="Tensor.copy_from: data must be bytes, not int"):
        tensor.copy_from(16)


def test_a_tensor_that_was_never_initialized_is_refused() -> None:
    with pytest.raises(
        TypeError, match=r"op_call: inputs\[0\] is a Tensor that was never initialized: make one"
    ):
        relu(npu_cuda.Tensor.__new__(npu_cuda.Tensor))


def test_bytes_are_no_shape() -> None:
    with pytest.raises(TypeError, match="empty: shape must be a list or tuple of ints, not bytes"):
        npu_cuda.empty(b"ab")


@pytest.mark.parametrize(
    ("keywords", "text"),
    [
        ({"max_version": ("a", 0)}, r"Tensor.__dlpack__: max_version\[0\] must be an int, not str"),
        ({"stream": "a"}, "Tensor.__dlpack__: stream must be an int, not str"),
    ],
)
def test_an_export_says_which_argument_is_wrong(keywords: dict[str, Any], text: str) -> None:
    with pytest.raises(TypeError, match=text):
        npu_cuda.empty([1]).__dlpack__(**keywords)


class Managed(ctypes.Structure):
    """DLManagedTensorVersioned of DLPack."""

    _fields_ = (
        ("version", ctypes.c_uint32 * 2), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64), ("data", ctypes.c_void_p), ("device", ctypes.c_int32 * 2),
        ("ndim", ctypes.c_int32),
        ("dtype", ctypes.c_uint8 * 4), ("shape", ctypes.c_void_p), ("strides", ctypes.c_void_p),
        ("offset", ctypes.c_uint64),
    )  # fmt: skip


class Exporter:
    """Three floats, and what the C struct says of them."""

    def __init__(self, **fields: object) -> None:
        self.memory, self.shape = (ctypes.c_float * 3)(-1, 0.5, 2), (ctypes.c_int64 * 1)(3)
        self.managed = Managed((1, 0), None, None, 0, ctypes.addressof(self.memory), (1, 0), 1, (2, 32, 1, 0))
        self.managed.shape = ctypes.addressof(self.shape)
        for name, value in fields.items():
            setattr(self.managed, name, value)

    def __dlpack__(self, **keywords: object) -> object:
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return new(ctypes.addressof(self.managed), b"dltensor_versioned", None)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


def test_an_export_that_lies_is_refused() -> None:
    cases = [
        ({"shape": None}, r"inputs\[0\]: has rank 1, and no shape"),
        ({"ndim": -1}, r"inputs\[0\]: has rank -1; 0 to 8 are possible"),
        ({"data": None}, "input 0: has no memory: its pointer is null"),
        ({"version": (2, 0)}, r"inputs\[0\]: is exported as version 2 of DLPack"),
        ({"dtype": (2, 0, 1, 0)}, r"inputs\[0\]: has a dtype of 0 bits"),
        ({"dtype": (2, 32, 0, 0)}, r"inputs\[0\]: has a dtype of 0 bits"),
    ]  # fmt: skip
    for fields, text in cases:
        assert relu(Exporter()).tolist() == [0.0, 0.5, 2.0]
        with refused(text):
            relu(Exporter(**fields))


def test_a_copy_is_an_input_but_no_output() -> None:
    copy = Exporter(flags=2)

    assert relu(copy).tolist() == [0.0, 0.5, 2.0]
    with refused(r"outputs\[0\] is exported as a copy, and cannot be an output"):
        npu_cuda.op_call(1, [X], [copy])
