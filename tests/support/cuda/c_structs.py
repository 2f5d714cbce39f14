"""The structs of npu_cuda/kernel.h as ctypes has them, and a C compiler for libraries of kernels."""

from __future__ import annotations

import ctypes
import subprocess
from ctypes import (
    c_char,
    c_char_p,
    c_double,
    c_int32,
    c_int64,
    c_uint8,
    c_uint16,
    c_uint32,
    c_uint64,
    c_void_p,
)
from pathlib import Path

import npu_cuda

KERNEL_LIBRARY = Path(__file__).with_name("kernel_library.c")
FLAGS = ("-std=c99", "-Wall", "-Wextra", "-pedantic", "-Werror", "-fPIC", "-shared", "-fvisibility=hidden")


def compile_library(source: Path, library: Path, *flags: str) -> Path:
    """Compile a library of kernels with nothing but the C compiler and the header."""
    include = f"-I{npu_cuda.get_include()}"
    subprocess.run(["cc", *FLAGS, *flags, include, str(source), "-o", str(library), "-lm"], check=True)
    return library


class DType(ctypes.Structure):
    _fields_ = (("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16))


class Tensor(ctypes.Structure):
    _fields_ = (
        ("data", c_void_p),
        ("numel", c_int64),
        ("shape", c_int64 * 8),
        ("strides", c_int64 * 8),
        ("rank", c_int32),
        ("dtype", DType),
        ("device_type", c_int32),
        ("device_id", c_int32),
        ("flags", c_uint32),
        ("alignment", c_uint32),
    )


class Attrs(ctypes.Structure):
    _fields_ = (("schema_id", c_uint32), ("bytes", c_uint32), ("data", c_void_p))


class Call(ctypes.Structure):
    _fields_ = (
        ("struct_size", c_uint32),
        ("num_inputs", c_int32),
        ("num_outputs", c_int32),
        ("compute_capability", c_int32),
        ("inputs", ctypes.POINTER(Tensor)),
        ("outputs", ctypes.POINTER(Tensor)),
        ("attrs", Attrs),
        ("workspace", c_void_p),
        ("workspace_bytes", c_uint64),
        ("stream", c_void_p),
        ("state", c_void_p),
    )


class Kernel(ctypes.Structure):
    _fields_ = (
        ("struct_size", c_uint32),
        ("op", c_char_p),
        ("kernel_id", c_char_p),
        ("priority", c_int32),
        ("flags", c_uint32),
        ("device_type", c_int32),
        ("min_compute_capability", c_int32),
        ("max_compute_capability", c_int32),
        ("supported", c_void_p),
        ("launch", c_void_p),
        ("workspace_bytes", c_void_p),
        ("prepare", c_void_p),
        ("release", c_void_p),
        ("cost", c_void_p),
    )


class AttrField(ctypes.Structure):
    _fields_ = (("name", c_char_p), ("default_value", c_double), ("code", c_char))


class Op(ctypes.Structure):
    _fields_ = (
        ("struct_size", c_uint32),
        ("name", c_char_p),
        ("min_inputs", c_int32),
        ("max_inputs", c_int32),
        ("num_outputs", c_int32),
        ("in_place", c_uint64 * 8),
        ("schema_id", c_uint32),
        ("attr_bytes", c_uint32),
        ("attrs_required", c_uint32),
        ("num_attr_fields", c_uint32),
        ("attr_fields", ctypes.POINTER(AttrField)),
    )


class Library(ctypes.Structure):
    _fields_ = (
        ("struct_size", c_uint32),
        ("abi_major", c_uint16),
        ("abi_minor", c_uint16),
        ("name", c_char_p),
        ("ops", ctypes.POINTER(Op)),
        ("num_ops", c_uint32),
        ("kernels", ctypes.POINTER(Kernel)),
        ("num_kernels", c_uint32),
    )


class Error(ctypes.Structure):
    _fields_ = (("text", c_char * 512),)


class Cost(ctypes.Structure):
    _fields_ = (("bytes", c_double), ("flops", c_double))


STRUCTS = {
    "npu_dtype": DType,
    "npu_tensor": Tensor,
    "npu_attrs": Attrs,
    "npu_call": Call,
    "npu_kernel": Kernel,
    "npu_attr_field": AttrField,
    "npu_op": Op,
    "npu_kernel_library": Library,
    "npu_error": Error,
    "npu_cost": Cost,
}


class Offer:
    """The exports of kernel_library.c, as laid out in memory: load_library reads what is set here."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.shared = ctypes.CDLL(str(path))
        self.library = Library.in_dll(self.shared, "library")
        self.ops = (Op * 1).in_dll(self.shared, "ops")
        self.kernels = (Kernel * 2).in_dll(self.shared, "kernels")
        self.fields = (AttrField * 3).in_dll(self.shared, "fields")
        self.offered = c_void_p.in_dll(self.shared, "offered")

    def count(self, what: str) -> int:
        """Return how often it has ``prepared``, ``released`` or ``launched``."""
        return c_int64.in_dll(self.shared, what).value

    def saved(self) -> bytes:
        parts = (self.library, self.ops, self.kernels, self.fields, self.offered)
        return b"".join(bytes(part) for part in parts)

    def restore(self, saved: bytes) -> None:
        for part in (self.library, self.ops, self.kernels, self.fields, self.offered):
            ctypes.memmove(ctypes.addressof(part), saved, ctypes.sizeof(part))
            saved = saved[ctypes.sizeof(part) :]
