"""Tensors that op_call accepts, and their specs; npu_cuda's own tensors."""

from __future__ import annotations

import ctypes

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
        return capsule(ctypes.addressof(self.managed), b"dltensor_versioned")

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


class Table(ctypes.Structure):
    _fields_ = (
        ("version", ctypes.c_uint32 * 2), ("previous", ctypes.c_void_p), ("allocate", ctypes.c_void_p),
        ("export", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(ctypes.c_void_p))),
        ("from_managed", ctypes.c_void_p), ("borrow", ctypes.c_void_p), ("stream", ctypes.c_void_p),
    )  # fmt: skip


def capsule(address: int, name: bytes) -> object:
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    return new(address, name, None)


def with_table(**members: object) -> type[Exporter]:
    """Return a class of exporters with a table of C functions."""

    class Tabled(Exporter):
        def __dlpack__(self, **keywords: object) -> object:
            raise AssertionError("the table was not used")

    def export(tensor: Exporter, out: ctypes._Pointer[ctypes.c_void_p]) -> int:
        out[0] = ctypes.addressof(tensor.managed)
        return 0

    table = Table((1, 3), export=Table._fields_[3][1](export), stream=1)
    for name, value in members.items():
        setattr(table, name, value)
    Tabled.table = table
    Tabled.__dlpack_c_exchange_api__ = capsule(ctypes.addressof(table), b"dlpack_exchange_api")
    return Tabled


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


def test_what_is_read_only_or_a_copy_is_an_input_but_no_output() -> None:
    x = X.numpy().copy()
    x.flags.writeable = False

    tabled = with_table()
    cases = [
        (x, "is read-only"),
        (Exporter(flags=2), "is exported as a copy"),
        (tabled(flags=1), "is read-only"),
        (tabled(flags=2), "is exported as a copy"),
    ]
    for given, text in cases:
        assert relu(given).tolist() == [0.0, 0.5, 2.0]
        with refused(rf"op_call: outputs\[0\] {text}, and cannot be an output"):
            relu(X, given)


def test_tables_of_c_functions_are_used_where_they_are_what_they_should_be() -> None:
    written = with_table()()
    relu(X, written)
    assert list(written.memory) == [0.0, 0.5, 2.0]
    with refused(r"op_call: inputs\[0\]: is exported as version 2 of DLPack"):
        relu(with_table()(version=(2, 0)))

    for members in ({"version": (1, 1)}, {"version": (2, 3)}, {"stream": None}):
        with refused("the table was not used"):
            relu(with_table(**members)())


def test_an_address_is_believed_of_pytorch_alone() -> None:
    class Liar(Exporter):
        __c_dlpack_exchange_api__ = 64

    assert relu(Liar()).tolist() == [0.0, 0.5, 2.0]


def test_what_is_no_tensor_in_memory_is_refused() -> None:
    with FakeTensorMode():
        fake = torch.empty(3)
    cases = [
        (torch.eye(3).to_sparse(), "a .*Tensor, cannot be .* in memory: (Runtime|Buffer)Error"),
        (torch.empty(3, device="meta"), "cannot be used as a tensor in memory"),
        (fake, "is a .*FakeTensor, which has __torch_dispatch__"),
        (torch.tensor([1 + 2j]).conj(), "(is lazily conjugated: .*resolve_conj|the conjugate bit set)"),
        (torch.tensor([1 + 2j, 3j]).conj().imag, "is lazily negated: .*resolve_neg"),
        (torch.zeros([1] * 9), "has rank 9; 0 to 8 are possible"),
        (X.numpy()[::-1], "has the stride -1 in axis 0; negative strides"),
        (X.numpy().astype(">f4"), "cannot be used as a tensor in memory: BufferError"),
        (Producer(X, ("cpu", 0)), "a .*Producer, cannot be .* in memory: TypeError"),
        (Producer(KeyError("no")), "a .*Producer, cannot be .* in memory: KeyError: 'no'"),
        (Producer(Producer(3)), "cannot be used as a tensor in memory: AttributeError"),
        (Exporter(shape=None), "has rank 1, and no shape"),
        (Exporter(ndim=-1), "has rank -1; 0 to 8 are possible"),
        (Exporter(version=(2, 0)), "is exported as version 2 of DLPack"),
        (Exporter(dtype=(2, 0, 1, 0)), "has a dtype of 0 bits"),
        (Exporter(dtype=(2, 32, 0, 0)), "has a dtype of 0 bits"),
    ]  # fmt: skip
    for x, text in cases:
        with refused(r"op_call: inputs\[0\].*" + text):
            relu(x)
    with refused("input 0: has no memory: its pointer is null"):
        relu(Exporter(data=None))


def test_dtypes_have_the_names_of_pytorch() -> None:
    truth = torch.zeros(3, dtype=torch.bool)
    for dtype in (
        torch.bool, torch.bfloat16, torch.complex64, torch.int64, torch.uint8, torch.float64,
        torch.float8_e4m3fn, torch.float8_e5m2fnuz,
    ):  # fmt: skip
        name = str(dtype).removeprefix("torch.")
        with pytest.raises(NotSupportedError, match=rf"\({name}\[3\]\) -> bool\[3\]"):
            npu_cuda.op_call(OpKind.Exp, [torch.zeros(3, dtype=dtype)], [truth])


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
    assert (view.shape, view.strides, view.nbytes) == ((3, 2), (1, 3), 24)
    assert (view.dtype, view.device) == ("float32", "host")
    view.copy_from(np.zeros(6, np.float32))
    assert shared.sum() == 0


def test_a_tensor_that_cannot_be_is_refused() -> None:
    export = npu_cuda.empty([1]).__dlpack__
    cases = [
        (lambda: npu_cuda.empty([2], "float31"), "empty: dtype is 'float31'; possible are bool, .*bfloat16"),
        (lambda: npu_cuda.empty([1] * 9), "empty: shape has rank 9"),
        (lambda: npu_cuda.empty([-1]), r"empty: shape\[0\] is -1"),
        (lambda: npu_cuda.empty([1 << 40, 1 << 40]), "more elements than an int64 can count"),
        (lambda: npu_cuda.empty([2, 3], "float32", "host", [1]), "empty: strides has 1 entries, shape has 2"),
        (lambda: npu_cuda.empty([2], "float32", "moon"), "there is no device 'moon'"),
    ]  # fmt: skip
    wrong_types = [
        (lambda: npu_cuda.empty(b"ab"), "empty: shape must be a list or tuple of ints, not bytes"),
        (lambda: export(max_version=("a", 0)), r"__dlpack__: max_version\[0\] must be an int, not str"),
        (lambda: export(stream="a"), "Tensor.__dlpack__: stream must be an int, not str"),
        (lambda: relu(npu_cuda.Tensor.__new__(npu_cuda.Tensor)),
         r"op_call: inputs\[0\] is a Tensor that was never initialized: make one"),
    ]  # fmt: skip
    for call, text in cases:
        with refused(text):
            call()
    for call, text in wrong_types:
        with refused(text, TypeError):
            call()


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
