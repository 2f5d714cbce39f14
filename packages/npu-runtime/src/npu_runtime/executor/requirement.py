"""The refusal of what is not an executor, for functions that take one."""

from __future__ import annotations

from npu_ir import ExecutionError, Graph


def require_executor(item: object) -> None:
    """Raise unless ``item`` is an executor.

    Raises:
        ExecutionError: It is not; says how to get one from what was given.
    """
    from npu_runtime.executor.executor import IRExecutor

    if isinstance(item, IRExecutor):
        return
    fix = "IRExecutor(graph, weights) makes one of a graph"
    if not isinstance(item, Graph):
        fix += ", npu_ir.extract_ir(model, args) a graph of a model"
    raise ExecutionError(f"expected an IRExecutor, got {type(item).__name__}", fix=fix)
