"""The C interface of kernels: its header compiles by itself, and its structs keep their layout."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import pytest

import npu_cuda
from tests.support.cuda.c_structs import STRUCTS

# Version 1.0. Libraries are compiled with these numbers: nothing here ever changes, what is new comes at the
# end.
LAYOUT = """
npu_dtype 4: code 0, bits 1, lanes 2
npu_tensor 168: data 0, numel 8, shape 16, strides 80, rank 144, dtype 148, device_type 152, device_id 156, \
flags 160, alignment 164
npu_attrs 16: schema_id 0, bytes 4, data 8
npu_call 80: struct_size 0, num_inputs 4, num_outputs 8, compute_capability 12, inputs 16, outputs 24, attrs \
32, workspace 48, workspace_bytes 56, stream 64, state 72
npu_kernel 96: struct_size 0, op 8, kernel_id 16, priority 24, flags 28, device_type 32, \
min_compute_capability 36, max_compute_capability 40, supported 48, launch 56, workspace_bytes 64, prepare \
72, release 80, cost 88
npu_attr_field 24: name 0, default_value 8, code 16
npu_op 120: struct_size 0, name 8, min_inputs 16, max_inputs 20, num_outputs 24, in_place 32, schema_id 96, \
attr_bytes 100, attrs_required 104, num_attr_fields 108, attr_fields 112
npu_kernel_library 48: struct_size 0, abi_major 4, abi_minor 6, name 8, ops 16, num_ops 24, kernels 32, \
num_kernels 40
npu_error 512: text 0
npu_cost 16: bytes 0, flops 8
"""

# What the numbers of the enumerations are.
VALUES = {
    "NPU_ABI_MAJOR": 1, "NPU_ABI_MINOR": 0, "NPU_MAX_RANK": 8, "NPU_OK": 0, "NPU_INVALID_ARGUMENT": 1,
    "NPU_NOT_IMPLEMENTED": 2, "NPU_INTERNAL": 3, "NPU_DEVICE_ERROR": 4, "NPU_UNAVAILABLE": 5, "NPU_CPU": 1,
    "NPU_CUDA": 2,
    "NPU_TENSOR_CONTIGUOUS": 1, "NPU_KERNEL_CAPTURE_SAFE": 1, "NPU_KERNEL_DETERMINISTIC": 2,
    "NPU_FOURCC('G', 'E', 'M', 'M')": int.from_bytes(b"GEMM", "little"),
}  # fmt: skip


def layout_program() -> str:
    """Return C that prints LAYOUT, and then VALUES, as the compiler sees them."""
    lines = ["#include <stddef.h>", "#include <stdio.h>", '#include "npu_cuda/kernel.h"', "int main(void) {"]
    for name, struct in STRUCTS.items():
        lines.append(f'  printf("{name} %u: ", (unsigned)sizeof({name}));')
        for number, field in enumerate(field[0] for field in struct._fields_):
            comma = ", " if number else ""
            lines.append(f'  printf("{comma}{field} %u", (unsigned)offsetof({name}, {field}));')
        lines.append('  printf("\\n");')
    lines += [f'  printf("%u\\n", (unsigned)({name}));' for name in VALUES]
    return "\n".join([*lines, "  return 0;", "}", ""])


@pytest.mark.parametrize(
    "compiler",
    [
        pytest.param(("cc", "-std=c99", "-xc"), id="c99"),
        pytest.param(("cc", "-std=c11", "-xc"), id="c11"),
        pytest.param(("c++", "-std=c++17", "-xc++"), id="c++17"),
    ],
)
def test_structs_have_the_layout_of_version_1(compiler: tuple[str, ...], tmp_path: Path) -> None:
    source, program = tmp_path / "layout.c", tmp_path / "layout"
    source.write_text(layout_program())
    flags = ["-Wall", "-Wextra", "-pedantic", "-Werror", f"-I{npu_cuda.get_include()}"]

    subprocess.run([*compiler, *flags, str(source), "-o", str(program)], check=True)
    lines = subprocess.run([str(program)], check=True, capture_output=True, text=True).stdout.splitlines()

    assert lines[: len(STRUCTS)] == LAYOUT.strip().splitlines()
    assert [int(line) for line in lines[len(STRUCTS) :]] == list(VALUES.values())


def test_the_structs_of_the_tests_are_those_of_the_header() -> None:
    lines = [
        f"{name} {ctypes.sizeof(struct)}: "
        + ", ".join(f"{field[0]} {getattr(struct, field[0]).offset}" for field in struct._fields_)
        for name, struct in STRUCTS.items()
    ]

    assert lines == LAYOUT.strip().splitlines()
