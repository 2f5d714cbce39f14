"""The page of the native ops: dtypes, tolerances and nodes, from the tables of cases and of rules."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from npu_cuda import _C
from npu_cuda.backend.rules import RULES
from npu_cuda.testing import rows
from npu_cuda.testing.case import OpRow
from npu_cuda.testing.tolerance import tolerance_of

_HEAD = """\
# Native ops

This page is generated from the table of test cases: `python -m npu_cuda.backend.native_ops_page` prints it.
Each op has kernels for every dtype on the devices `host` and `cuda`, for any strides; packed products, those
of rounded rows (`DynamicQuantizedGemm`), convolutions, attention, recurrent layers and `TopK` have them on
`host` alone, that of `Fused` on `cuda` is compiled at run time, and ops on lists take tensors of one layout
at each place on `cuda`. Every case is compared with a reference in float64, on `host` and on the
[emulator](../concepts/emulator.md), by each kernel, in programs and in graphs. The number behind a dtype is
the largest relative error (Frobenius norm) that passes; results without a number are the reference rounded
once. How to add one is in [add a kernel](../how-to/add-a-kernel.md).

| op | kind | attributes | computes | dtypes |
|---|---:|---|---|---|
"""


def native_ops_page() -> str:
    """Return the page in Markdown."""
    kinds = _C.kinds()
    lines = (_line(row, int(kinds[row.op])) for row in sorted(rows(), key=lambda row: int(kinds[row.op])))
    return _HEAD + "".join(f"{line}\n" for line in lines)


def _line(row: OpRow, kind: int) -> str:
    schema = _C.attr_schemas()[row.schema]["fields"] if row.schema else ()
    fields = ", ".join(name for name, _, _ in schema)
    attributes = f"`{row.schema}`: {fields}" if row.schema else ""
    nodes, dtypes = ", ".join(_nodes_of(row.op)), ", ".join(_dtypes_of(row))
    return f"| {row.op} | {kind} | {attributes} | {nodes} | {dtypes} |"


def _nodes_of(op: str) -> Iterator[str]:
    """Yield the ops of nodes that rules give to a native op of their own."""
    for name, alternatives in sorted(RULES.items()):
        if any(getattr(rule, "kind", None) == op for rule in alternatives):
            yield f"`{name.removeprefix('aten.').removesuffix('.default')}`"


def _dtypes_of(row: OpRow) -> Iterator[str]:
    """Yield the dtypes of results, each with its tolerance."""
    errors: dict[str, float] = {}
    for case in row.cases():
        for output in case.outputs:
            tolerance = tolerance_of(case, output.dtype).relative
            errors[output.dtype] = max(errors.get(output.dtype, 0.0), tolerance)
    for dtype, error in errors.items():
        yield f"{dtype} {error:.0e}".replace("e-0", "e-") if error else dtype


if __name__ == "__main__":
    sys.stdout.write(native_ops_page())
