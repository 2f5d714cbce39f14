"""The mutants of tools/mutate.py: wrong edits that compile, and are found again where code has moved."""

import ast
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from tests.support.scripts import TOOLS, forgotten, imported

PYTHON = '''
class Box:
    """Not "a < b", which is text."""

    def fits(self, sizes: list[int] | None, limit: int = 3) -> bool:
        assert limit != 0
        if not sizes or min(sizes) < 0:
            raise ValueError(f"{limit + 1} is wrong")
        self.count += len(sizes)
        return all(size <= limit - 1 for size in sizes)
'''
CPP = """
constexpr int kMost = 1 + 2;

Status Box::fits(int size) {
  if (size < 0 && size != kMost) return Status::invalid("size < 0");
  NPU_TRY(check(size));
  count_ = size;
  return size <= kMost;
}
"""


@pytest.fixture(scope="module")
def mutants() -> Iterator[ModuleType]:
    with forgotten(TOOLS):
        yield imported("mutants", TOOLS)


def test_mutants_of_python_are_in_statements_of_functions_and_compile(
    mutants: ModuleType, tmp_path: Path
) -> None:
    path = tmp_path / "box.py"
    path.write_text(PYTHON)

    found = mutants.find_mutants(tmp_path, path)

    assert {mutant.scope for mutant in found} == {"Box.fits"}
    assert [mutant.operator for mutant in found] == [
        "condition: negated",
        "logic: Or -> And",
        "condition: without not",
        "comparison: Lt -> LtE",
        "function: min -> max",
        "constant: 0 -> 1",
        "statement: deleted",
        "statement: deleted",
        "result: None",
        "function: all -> any",
        "comparison: LtE -> Lt",
        "arithmetic: Sub -> Add",
        "constant: 1 -> 2",
    ]
    sources = {mutant.applied_to(PYTHON.encode()) for mutant in found}
    assert len(sources) == len(found)
    assert all(ast.dump(ast.parse(source)) != ast.dump(ast.parse(PYTHON)) for source in sources)


def test_mutants_of_cpp_keep_what_stands_there_behind_a_switch(mutants: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "box.cpp"
    path.write_text(CPP)

    lines = [mutant.applied_to(CPP.encode()).decode() for mutant in mutants.find_mutants(tmp_path, path)]

    condition = "size < 0 && size != kMost"
    assert len(lines) == 8
    for changed in (
        f"if (npu_mutant(@) ? !({condition}) : ({condition})) return",
        f"if (npu_mutant(@) ? (size <= 0 && size != kMost) : ({condition})) return",
        f"if (npu_mutant(@) ? (size < 0 || size != kMost) : ({condition})) return",
        "  if (!npu_mutant(@)) NPU_TRY(check(size));",
        "  if (!npu_mutant(@)) count_ = size;",
        "return npu_mutant(@) ? (size < kMost) : (size <= kMost);",
    ):
        assert sum(changed in text for text in lines) == 1, changed


def test_a_mutant_is_the_same_one_where_other_lines_have_changed(mutants: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "box.py"
    path.write_text(PYTHON)
    before = mutants.find_mutants(tmp_path, path)
    path.write_text("import sys\n" + PYTHON.replace("self.count += len(sizes)", "print(sizes)"))

    after = mutants.find_mutants(tmp_path, path)

    assert len(set(before) & set(after)) == len(before) - 1
