"""The threads of host kernels where a part fails, or the system refuses threads."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.emulator.building import CSRC, FLAGS, run_compiler

THROWS = """
#include <cstdio>
#include <stdexcept>
#include "ops/threads.h"

int main() {
  for (int thrower = 0; thrower < 4; ++thrower) {
    std::atomic<int> ended{0};
    const auto part = [&](int number) {
      if (number == thrower) throw std::runtime_error("of a part");
      ++ended;
    };
    try {
      npu::run_parts(4, part);
      return 1;
    } catch (const std::runtime_error& error) {
      std::printf("%s after %d ", error.what(), ended.load());
    }
  }
  std::atomic<int> further{0};
  if (!npu::run_parts(4, [&](int) { ++further; })) return 2;
  std::printf("then %d", further.load());
}
"""

# Each thread wants memory for its stack. Scripts without PyTorch begin sooner.
REFUSED = """
import array, random, resource
from npu_cuda import OpKind, _C, empty, op_call
a, b, d = (empty([300, 300]) for _ in range(3))
for matrix in (a, b):
    matrix.copy_from(array.array("f", [random.gauss(0, 1) for _ in range(300 * 300)]).tobytes())
_C.set_thread_count(1)
op_call(OpKind.Gemm, [a, b], [d])
alone, pages = d.to_bytes(), int(open("/proc/self/statm").read().split()[0])
d.copy_from(bytes(d.nbytes))
resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (32 << 20),) * 2)
_C.set_thread_count(64)
op_call(OpKind.Gemm, [a, b], [d])
print("the same" if d.to_bytes() == alone else "another product")
"""

# Of attention: of four heads of 16 queries, then of 512.
STARTED = """
import os
from npu_cuda import _C, empty, op_call
_C.set_thread_count(4)
before, started = len(os.listdir("/proc/self/task")), []
for queries in (16, 512):
    tensors = [empty([1, 4, queries, 8]) for _ in range(4)]
    for tensor in tensors:
        tensor.copy_from(bytes(tensor.nbytes))
    op_call(_C.kinds()["Attention"], tensors[:3], tensors[3:])
    started.append(len(os.listdir("/proc/self/task")) - before)
print(*started)
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    if shutil.which("g++") is None:
        pytest.skip("the program is compiled by g++, which is not on PATH")
    source = tmp_path / "throws.cpp"
    source.write_text(THROWS)
    return run_compiler(tmp_path / "throws", *FLAGS, source, CSRC / "ops" / "threads.cpp", "-lpthread")


def test_what_a_part_throws_is_thrown_when_all_parts_have_ended(program: Path) -> None:
    result = subprocess.run([program], check=False, capture_output=True, text=True, timeout=60)

    assert result.returncode == 0, result.stderr
    assert result.stdout == "of a part after 3 " * 4 + "then 4"


@pytest.mark.skipif(sys.platform != "linux", reason="the limit of memory is that of Linux")
def test_without_threads_the_caller_works_alone() -> None:
    command = [sys.executable, "-c", REFUSED]

    result = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)

    assert result.stdout.split("\n")[-2:-1] == ["the same"], result.stderr[-2000:]


@pytest.mark.skipif(sys.platform != "linux", reason="the threads of a process are counted by Linux")
def test_attention_of_few_queries_starts_no_threads() -> None:
    command = [sys.executable, "-c", STARTED]

    result = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)

    assert result.stdout.split()[-2:] == ["0", "3"], result.stderr[-2000:]
