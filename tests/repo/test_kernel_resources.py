"""The table of what kernels use: read from the words of ptxas, compared, and written."""

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from tests.support.scripts import TOOLS, forgotten, imported

LOG = """
-- npu-cuda 0.1.0: CUDA kernels for 80-real 90-real, by nvcc 13.0.88 (/bin/nvcc)
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_ZN3npu4reluIfEEvPKfPfl' for 'sm_80'
ptxas info    : Function properties for _ZN3npu4reluIfEEvPKfPfl
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 31 registers, used 0 barriers, 376 bytes cmem[0]
ptxas info    : Compiling entry function '_ZN3npu4reluIfEEvPKfPfl' for 'sm_90'
ptxas info    : Function properties for _ZN3npu4reluIfEEvPKfPfl
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 30 registers, used 1 barriers, 512 bytes smem, 376 bytes cmem[0]
"""


@pytest.fixture(name="tool")
def load() -> Iterator[ModuleType]:
    with forgotten(TOOLS):
        yield imported("kernel_resources", TOOLS)


def test_a_row_has_registers_per_architecture_shared_memory_and_the_name(tool: ModuleType) -> None:
    rows = tool.table(tool.read_log(LOG), "13.0").splitlines()

    assert rows[1].startswith("# nvcc 13.0. Per kernel: registers per thread on sm_80, sm_90;")
    assert rows[2:] == ["  31  30    512  relu<float>"]


@pytest.fixture
def path(tool: ModuleType, tmp_path: Path) -> Path:
    path = tmp_path / "table.txt"
    tool.problems(tool.read_log(LOG), LOG, path, update=True)
    return path


def test_other_registers_are_shown_as_old_and_new_rows(tool: ModuleType, path: Path) -> None:
    changed = LOG.replace("Used 30", "Used 44")

    wrong = tool.problems(tool.read_log(changed), changed, path)

    assert wrong[1:] == ["-   31  30    512  relu<float>", "+   31  44    512  relu<float>"]
    assert tool.problems(tool.read_log(LOG), LOG, path) == []
    with pytest.raises(SystemExit, match="the log of the build has no kernel"):
        tool.problems({}, "by nvcc 13.0.88")


def test_a_build_for_one_architecture_is_compared_with_its_column(tool: ModuleType, path: Path) -> None:
    first, block, *_ = LOG.split("ptxas info    : Compiling")
    alone = f"{first}ptxas info    : Compiling{block}"
    without_shared = path.read_text().replace("   512  relu", "     0  relu")
    path.write_text(without_shared)

    assert tool.problems(tool.read_log(alone), alone, path) == []
    changed = alone.replace("Used 31", "Used 33")
    wrong = tool.problems(tool.read_log(changed), changed, path)
    assert wrong[1:] == ["-   31      0  relu<float>", "+   33      0  relu<float>"]


def test_spills_are_wrong_whatever_the_table_says(tool: ModuleType, path: Path) -> None:
    spilling = LOG.replace("0 bytes spill stores, 0", "8 bytes spill stores, 16", 1)

    wrong = tool.problems(tool.read_log(spilling), spilling, path, update=True)

    assert wrong == ["relu<float> spills 24 bytes on sm_80: it needs more registers than there are"]
