"""Questions to backends, most about nodes; an answer that the interface does not allow is an error.

Raises:
    BackendError: In each function: names the backend, and the node or the plugin.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable
from typing import Any

import torch

from npu_ir import OpNode
from npu_ir.errors import BackendError
from npu_ir.plugins.backend import Backend
from npu_passes import all_pipelines
from npu_runtime.backends.registry import provider_text

_LONGEST = 1e100  # seconds: more than anything takes


def ask_support(backend: Backend, node: OpNode) -> str | None:
    """Return why a backend cannot run a node; None if it can."""
    reason: Any = _ask(backend, backend.supports, node, "supports() returns None or a reason in words")
    if reason is None or (isinstance(reason, str) and reason):
        return reason
    raise BackendError(
        f"the backend {backend.name!r} answers {reason!r} where it should say why it cannot run a node",
        where=f"node {node.name!r} ({node.op_type})",
        fix="supports() returns None or a reason in words",
    )


def ask_cost(backend: Backend, node: OpNode) -> float | None:
    """Return what a supported node costs on a backend; None for any cost."""
    cost: float | None = _ask(backend, backend.cost, node, "cost() returns None or seconds")
    if cost is None or _is_time(cost):
        return cost
    raise BackendError(
        f"the backend {backend.name!r} answers {reprlib.repr(cost)} where it should say what a node costs",
        where=f"node {node.name!r} ({node.op_type})",
        fix="cost() returns None or seconds",
    )


def ask_free(backend: Backend, node: OpNode) -> bool:
    """Return whether a supported node is free on a backend."""
    return _ask_bool(backend, "is_free", node, "a node is free")


def ask_in_place(backend: Backend, node: OpNode) -> bool:
    """Return whether a backend can update tensors in place by a supported node."""
    return _ask_bool(backend, "updates_in_place", node, "a node updates in place")


def ask_rows(backend: Backend, node: OpNode) -> bool:
    """Return whether a backend can write what a supported node overwrites into the memory of its input."""
    return _ask_bool(backend, "overwrites_rows", node, "a node overwrites rows in place")


def _ask_bool(backend: Backend, question: str, node: OpNode, what: str) -> bool:
    fix = f"{question}() returns a bool"
    answer: Any = _ask(backend, getattr(backend, question), node, fix)
    if type(answer) is bool:
        return answer
    raise BackendError(
        f"the backend {backend.name!r} answers {reprlib.repr(answer)} where it should say whether {what}",
        where=f"node {node.name!r} ({node.op_type})",
        fix=fix,
    )


def ask_pipeline(backend: Backend, device: torch.device, *, is_step: bool = False) -> str:
    """Return the pipeline that prepares graphs, or those of training steps, for a backend."""
    known = all_pipelines()
    question = "training_pipeline" if is_step else "pipeline"
    name: Any = getattr(backend, question)(device)
    if isinstance(name, str) and name in known:
        return name
    raise BackendError(
        f"the backend {backend.name!r} answers {reprlib.repr(name)}"
        " where it should say which pipeline suits it",
        where=provider_text(backend),
        fix=f"{question}() returns one of {', '.join(sorted(known))}",
    )


def require_overhead(backend: Backend) -> None:
    """Refuse a backend whose `Backend.call_overhead` is not a number of seconds."""
    overhead: Any = backend.call_overhead
    if not _is_time(overhead):
        raise BackendError(
            f"the backend {backend.name!r} has call_overhead {reprlib.repr(overhead)}"
            " where it should say what a call costs",
            where=provider_text(backend),
            fix="call_overhead is in seconds, 0.0 or more",
        )


def _is_time(item: Any) -> bool:
    """Return whether an answer is a number of seconds; sums of such numbers are finite."""
    return type(item) in (int, float) and 0 <= item <= _LONGEST


def _ask(backend: Backend, question: Callable[[OpNode], Any], node: OpNode, rule: str) -> Any:
    try:
        return question(node)
    except Exception as error:
        raise BackendError(
            f"the backend {backend.name!r} raised an error where it was asked about a node: {error}",
            where=f"node {node.name!r} ({node.op_type})",
            fix=f"{rule}, for any node",
        ) from error
