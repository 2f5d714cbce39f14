"""``backend="auto"`` and ``passes="auto"``: what an executor takes that is not told."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from npu_ir import OpNode, parse_ir
from npu_ir.errors import UsageError
from npu_ir.plugins import plugin_manager
from npu_runtime import Backend, BackendError, IRExecutor
from npu_runtime.backends.registry import named_backends
from npu_runtime.cli.saved_graph import select_backends
from tests.support.backends.broken_backends import Sound

GRAPH = parse_ir(
    """graph two {
  input %x: f32[8]
  %s: f32[8] = aten.sin.default(self=%x)
  %t: f32[8] = aten.sin.default(self=%x)
  %y: f32[8] = aten.add.Tensor(self=%s, other=%t)
  return %y
}
"""
)


class Fast(Sound):
    """Runs ``sin`` in no time."""

    name = "fast"

    def cost(self, node: OpNode) -> float | None:
        return 0.0 if node.op_type == "aten.sin.default" else 1.0

    def by_cost(self) -> Backend:
        return self

    def pipeline(self, device: torch.device) -> str:
        return "minimal"


class Elsewhere(Fast):
    name = "elsewhere"

    def devices(self) -> Sequence[torch.device]:
        return []


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have three more backends installed, and no others that state costs."""
    backends = plugin_manager.get_plugins().backends
    for name in list(backends):
        if name != "aten":
            monkeypatch.delitem(backends, name)
    for backend in (Fast(), Elsewhere(), Sound()):
        monkeypatch.setitem(backends, backend.name, backend)


def names(executor: IRExecutor) -> list[str]:
    return [item.name for item in executor.backends]


@pytest.mark.usefixtures("installed")
def test_whoever_states_costs_and_runs_here_is_considered() -> None:
    x = torch.rand(8)

    executor = IRExecutor(GRAPH, passes=None, backend="auto")

    assert names(executor) == ["fast", "aten"]  # sound states no costs, and elsewhere has no device here
    assert [item.backend.name for item in (part.partition for part in executor.lowered.partitions)] == names(
        executor
    )
    assert torch.equal(executor(x), x.sin() * 2)
    assert [item.name for item in named_backends("auto")] == ["fast", "elsewhere", "aten"]


@pytest.mark.usefixtures("installed")
def test_an_executor_that_is_told_nothing_takes_what_suits() -> None:
    told, exact, untold = IRExecutor(GRAPH, backend="aten"), IRExecutor(GRAPH, passes=None), IRExecutor(GRAPH)

    assert names(untold) == ["fast", "aten"]
    assert names(exact) == names(told) == ["aten"]
    assert len(exact.graph) == 3
    assert len(untold.graph) == 2  # the pipeline of fast computes the sine once


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(("member", "answer", "message"), [
    ("by_cost", "fast", "answers 'fast' where .*competes for it\n  at: class .*\n  fix: by_cost"),
    ("by_cost", Sound(), "answers <.* where it should say what competes for it"),
    ("pipeline", "magic", "answers 'magic' where .*suits it\n  at: .*\n  fix: pipeline.. returns one of"),
    ("pipeline", None, "answers None where it should say which pipeline suits it"),
])  # fmt: skip
def test_a_backend_that_does_not_say_properly_is_named(
    monkeypatch: pytest.MonkeyPatch, member: str, answer: Any, message: str
) -> None:
    monkeypatch.setattr(Fast, member, lambda *_: answer)

    with pytest.raises(BackendError, match=f"the backend 'fast' {message}"):
        IRExecutor(GRAPH)


def test_one_cannot_name_others_beside_auto() -> None:
    with pytest.raises(BackendError, match="'auto' stands for all .*\n  fix: backend='auto', without others"):
        IRExecutor(GRAPH, backend=["auto", "aten"])
    with pytest.raises(UsageError, match="auto stands for all backends\n  fix: name auto alone, or others"):
        select_backends(["auto", "aten"])
