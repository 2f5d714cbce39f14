"""Ops that PyTorch removed are replaced by those that compute the same; hidden here, they stand for such."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import npu_ir.serial.compatibility.absent_ops as absent_ops
import npu_ir.serial.compatibility.comparison as comparison
from npu_ir import check_compatibility, execute_ir, migrate_ir, parse_ir, save_ir
from npu_ir.ops.schema import resolve
from npu_ir.serial.compatibility import Verdict, compare_op
from npu_ir.serial.compatibility.successors import SUCCESSORS, Successor
from tests.support.rows import each_row

CHOLESKY = """graph G {
  input %x: f32[3, 3]

  %l: f32[3, 3]@[1, 3] = aten.cholesky.default(self=%x)ATTRS

  return %l
}
"""
QR = """graph G {
  input %x: f32[3, 2]

  %q: f32[3, 2]@[1, 3], %r: f32[2, 2]@[1, 2] = aten.qr.default(self=%x)ATTRS

  return (%q, %r)
}
"""
COMPLETE = QR.replace("%q: f32[3, 2]", "%q: f32[3, 3]").replace(
    "%r: f32[2, 2]@[1, 2]", "%r: f32[3, 2]@[1, 3]"
)
SQUARE = torch.tensor([[4.0, 1.0, 2.0], [1.0, 5.0, 3.0], [2.0, 3.0, 6.0]])
TALL = SQUARE[:, :2].contiguous()


@pytest.fixture(autouse=True)
def _without_what_2_14_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "resolve", lambda name: None if name in SUCCESSORS else resolve(name))
    monkeypatch.setattr(absent_ops, "is_executable", lambda _: False)
    monkeypatch.setattr(absent_ops, "overloads_of", lambda *_: [])


# The calls, each with what PyTorch's own warning says to call instead.
@each_row("text, attrs, x, called", [
    (CHOLESKY, "", SQUARE, torch.linalg.cholesky),
    (CHOLESKY, " {upper=False}", SQUARE, torch.linalg.cholesky),
    (CHOLESKY, " {upper=True}", SQUARE, lambda x: torch.linalg.cholesky(x).mH),
    (QR, "", TALL, torch.linalg.qr),
    (QR, " {some=True}", TALL, torch.linalg.qr),
    (COMPLETE, " {some=False}", TALL, lambda x: torch.linalg.qr(x, mode="complete")),
])  # fmt: skip
def test_a_migrated_call_computes_what_pytorch_says_to_call_instead(
    tmp_path: Path, text: str, attrs: str, x: Tensor, called: Callable[[Tensor], Any]
) -> None:
    old = parse_ir(text.replace("ATTRS", attrs))
    save_ir(old, tmp_path / "old.json")

    report, graph = check_compatibility(tmp_path / "old.json"), migrate_ir(tmp_path / "old.json")

    assert (report.is_compatible, report.is_migratable) == (False, True)
    results, op_type = execute_ir(graph, (x,)), old.nodes[0].op_type
    torch.testing.assert_close(tuple(results), tuple(called(x)), rtol=0, atol=0)
    if resolve(op_type) is not None:
        torch.testing.assert_close(execute_ir(old, (x,)), results, rtol=0, atol=0, check_stride=True)


@pytest.mark.smoke
def test_the_report_names_the_successor() -> None:
    graph = parse_ir(CHOLESKY.replace("ATTRS", ""))

    op = compare_op("aten.cholesky.default", "as it was", graph.nodes)

    assert [(change.kind, change.nodes) for change in op.changes] == [("removed op", ("l",))]
    assert op.changes[0].text == "the namespace 'aten' has no op 'cholesky' here"
    assert op.changes[0].fix.endswith("NEW calls aten.linalg_cholesky.default, which computes the same")


@each_row("attrs, successor", [
    ({"some": 7}, SUCCESSORS["aten.qr.default"]),
    ({"extra": 1}, SUCCESSORS["aten.qr.default"]),
    ({}, Successor("aten.vanished.default")),
    ({}, Successor("aten.linalg_qr.default")),  # its input is called A
])  # fmt: skip
def test_a_call_that_the_successor_does_not_take_is_not_migrated(
    monkeypatch: pytest.MonkeyPatch, attrs: dict[str, Any], successor: Successor
) -> None:
    monkeypatch.setattr(absent_ops, "SUCCESSORS", {"aten.qr.default": successor})
    graph = parse_ir(QR.replace("ATTRS", ""))
    graph.set_attrs(graph.nodes[0], attrs)

    op = compare_op("aten.qr.default", "as it was", graph.nodes)

    assert op.verdict is Verdict.INCOMPATIBLE
    assert op.changes[0].fix.startswith("use the PyTorch that the file was made with, or export the model")
