"""The C interface of kernels: its header compiles by itself, and its structs keep their layout."""

import ctypes
import subprocess
from pathlib import Path

import npu_cuda
from tests.support.cuda.c_structs import STRUCTS
from tests.support.rows import each_row

# The numbers of version 1.1, as STRUCTS are its structs. Libraries are compiled with them: nothing here ever
# changes, what is new comes at the end.
VALUES = {
    "NPU_ABI_MAJOR": 1, "NPU_ABI_MINOR": 1, "NPU_MAX_RANK": 8, "NPU_OK": 0, "NPU_INVALID_ARGUMENT": 1,
    "NPU_NOT_IMPLEMENTED": 2, "NPU_INTERNAL": 3, "NPU_DEVICE_ERROR": 4, "NPU_UNAVAILABLE": 5, "NPU_CPU": 1,
    "NPU_CUDA": 2,
    "NPU_TENSOR_CONTIGUOUS": 1, "NPU_KERNEL_CAPTURE_SAFE": 1, "NPU_KERNEL_DETERMINISTIC": 2,
    "NPU_FOURCC('G', 'E', 'M', 'M')": int.from_bytes(b"GEMM", "little"),
}  # fmt: skip


def layout_program() -> str:
    """Return C that prints the layout of STRUCTS, and then VALUES, as the compiler sees them."""
    lines = ["#include <stddef.h>", "#include <stdio.h>", '#include "npu_cuda/kernel.h"', "int main(void) {"]
    for name, struct in STRUCTS.items():
        lines.append(f'  printf("{name} %u: ", (unsigned)sizeof({name}));')
        for number, field in enumerate(field[0] for field in struct._fields_):
            comma = ", " if number else ""
            lines.append(f'  printf("{comma}{field} %u", (unsigned)offsetof({name}, {field}));')
        lines.append('  printf("\\n");')
    lines += [f'  printf("%u\\n", (unsigned)({name}));' for name in VALUES]
    return "\n".join([*lines, "  return 0;", "}", ""])


def layout_of(name: str, struct: type[ctypes.Structure]) -> str:
    places = (f"{field[0]} {getattr(struct, field[0]).offset}" for field in struct._fields_)
    return f"{name} {ctypes.sizeof(struct)}: {', '.join(places)}"


@each_row("compiler", [("cc", "-std=c99", "-xc"), ("cc", "-std=c11", "-xc"), ("c++", "-std=c++17", "-xc++")])
def test_structs_have_the_layout_of_version_1(compiler: tuple[str, ...], tmp_path: Path) -> None:
    source, program = tmp_path / "layout.c", tmp_path / "layout"
    source.write_text(layout_program())
    flags = ["-Wall", "-Wextra", "-pedantic", "-Werror", f"-I{npu_cuda.get_include()}"]

    subprocess.run([*compiler, *flags, str(source), "-o", str(program)], check=True)
    lines = subprocess.run([str(program)], check=True, capture_output=True, text=True).stdout.splitlines()

    assert lines[: len(STRUCTS)] == [layout_of(*item) for item in STRUCTS.items()]
    assert [int(line) for line in lines[len(STRUCTS) :]] == list(VALUES.values())
