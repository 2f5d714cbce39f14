"""The structs of npu_cuda/kernel.h as ctypes has them, and a C compiler for libraries of kernels."""

import ctypes
import subprocess
from pathlib import Path
from struct import pack
from typing import Any

import npu_cuda

KERNEL_LIBRARY = Path(__file__).with_name("kernel_library.c")
FLAGS = ("-std=c99", "-Wall", "-Wextra", "-pedantic", "-Werror", "-fPIC", "-shared", "-fvisibility=hidden")


def compile_library(source: Path, library: Path, *flags: str) -> Path:
    include = f"-I{npu_cuda.get_include()}"
    subprocess.run(["cc", *FLAGS, *flags, include, str(source), "-o", str(library), "-lm"], check=True)
    return library


def compile_kernel_library(library: Path, prefix: str = "kernel_library", letter: str = "K") -> Path:
    """Compile the library of the tests, whose ops, kernels and schema have names that begin like this."""
    return compile_library(KERNEL_LIBRARY, library, f'-DPREFIX="{prefix}"', f"-DLETTER='{letter}'")


def scale_attrs(letter: str, alpha: float = 1.0, code: int = 0, silent: int = 0) -> tuple[int, bytes]:
    """Return the attributes of its op: a factor, what it returns, and whether it gives no text."""
    return int.from_bytes(f"{letter}LSC".encode(), "little"), pack("<fii", alpha, code, silent)


TYPES = {
    "u8": ctypes.c_uint8, "u16": ctypes.c_uint16, "u32": ctypes.c_uint32, "u64": ctypes.c_uint64,
    "i32": ctypes.c_int32, "i64": ctypes.c_int64, "f64": ctypes.c_double, "char": ctypes.c_char,
    "text": ctypes.c_char_p, "address": ctypes.c_void_p,
}  # fmt: skip


def struct(members: str, /, **types: Any) -> type[ctypes.Structure]:
    pairs = [field.split(":") for field in members.split()]
    fields = [(name, types.get(kind) or TYPES[kind]) for name, kind in pairs]
    return type("Struct", (ctypes.Structure,), {"_fields_": fields})


DType = struct("code:u8 bits:u8 lanes:u16")
Tensor = struct(
    "data:address numel:i64 shape:sizes strides:sizes rank:i32 dtype:dtype device_type:i32 device_id:i32 "
    "flags:u32 alignment:u32",
    sizes=ctypes.c_int64 * 8, dtype=DType,
)  # fmt: skip
Attrs = struct("schema_id:u32 bytes:u32 data:address")
Call = struct(
    "struct_size:u32 num_inputs:i32 num_outputs:i32 compute_capability:i32 inputs:address outputs:address "
    "attrs:attrs workspace:address workspace_bytes:u64 stream:address state:address",
    attrs=Attrs,
)
Kernel = struct(
    "struct_size:u32 op:text kernel_id:text priority:i32 flags:u32 device_type:i32 "
    "min_compute_capability:i32 max_compute_capability:i32 supported:address launch:address "
    "workspace_bytes:address prepare:address release:address cost:address"
)
AttrField = struct("name:text default_value:f64 code:char")
Op = struct(
    "struct_size:u32 name:text min_inputs:i32 max_inputs:i32 num_outputs:i32 in_place:masks schema_id:u32 "
    "attr_bytes:u32 attrs_required:u32 num_attr_fields:u32 attr_fields:fields "
    "input_lists:i32 output_lists:i32",
    masks=ctypes.c_uint64 * 8, fields=ctypes.POINTER(AttrField),
)  # fmt: skip
Library = struct(
    "struct_size:u32 abi_major:u16 abi_minor:u16 name:text ops:ops num_ops:u32 kernels:kernels "
    "num_kernels:u32",
    ops=ctypes.POINTER(Op), kernels=ctypes.POINTER(Kernel),
)  # fmt: skip

STRUCTS = {
    "npu_dtype": DType, "npu_tensor": Tensor, "npu_attrs": Attrs, "npu_call": Call, "npu_kernel": Kernel,
    "npu_attr_field": AttrField, "npu_op": Op, "npu_kernel_library": Library,
    "npu_error": struct("text:text", text=ctypes.c_char * 512), "npu_cost": struct("bytes:f64 flops:f64"),
}  # fmt: skip


class Offer:
    """The exports of kernel_library.c, as laid out in memory: load_library reads what is set here."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.shared = ctypes.CDLL(str(path))
        self.library = Library.in_dll(self.shared, "library")
        self.ops = (Op * 1).in_dll(self.shared, "ops")
        self.kernels = (Kernel * 2).in_dll(self.shared, "kernels")
        self.fields = (AttrField * 3).in_dll(self.shared, "fields")
        self.offered = ctypes.c_void_p.in_dll(self.shared, "offered")

    def count(self, what: str) -> int:
        return ctypes.c_int64.in_dll(self.shared, what).value

    def saved(self) -> bytes:
        parts = (self.library, self.ops, self.kernels, self.fields, self.offered)
        return b"".join(bytes(part) for part in parts)

    def restore(self, saved: bytes) -> None:
        for part in (self.library, self.ops, self.kernels, self.fields, self.offered):
            ctypes.memmove(ctypes.addressof(part), saved, ctypes.sizeof(part))
            saved = saved[ctypes.sizeof(part) :]
