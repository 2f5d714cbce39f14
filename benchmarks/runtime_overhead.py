"""The kernel calls of an executor in a row, with fixed arguments: the cost without an executor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from npu_runtime import IRExecutor
from npu_runtime._torch.state import below_autograd
from npu_runtime.executor.bound_weights import bind
from npu_runtime.lowering.instruction import Returns


def kernel_calls(executor: IRExecutor, args: tuple[Any, ...]) -> tuple[Callable[[], None], int]:
    """Return a function that makes the calls of one run, and how many these are.

    Every step is run once to find its arguments, and they are kept: so nothing is checked, passed on or
    freed at its last use.
    """
    graph = executor.graph
    values = {**bind(graph, executor.state_dict(), None, executor.device).values}
    values.update(zip(graph.inputs, args, strict=True))
    calls = []
    for step in executor.instructions:
        given = step.binding.arguments([values[value] for value in step.inputs], executor.device)
        with below_autograd():
            result = step.function(*given[0], **given[1])
        values.update(
            zip(step.outputs, [result] if step.returns is Returns.ONE else result or (), strict=True)
        )
        calls.append((step.function, *given))
    return _straight(calls), len(calls)


def _straight(calls: list[tuple[Callable[..., Any], list[Any], dict[str, Any]]]) -> Callable[[], None]:
    space: dict[str, Any] = {}
    lines = []
    for index, (function, args, kwargs) in enumerate(calls):
        space[f"f{index}"] = function
        space |= {f"a{index}_{place}": item for place, item in enumerate(args)}
        space |= {f"k{index}_{name}": item for name, item in kwargs.items()}
        words = [f"a{index}_{place}" for place in range(len(args))]
        words += [f"{name}=k{index}_{name}" for name in kwargs]
        lines.append(f"f{index}({', '.join(words)})")
    names = ", ".join(space)
    body = "\n            ".join(lines)
    text = (
        f"def bind(below_autograd, {names}):\n    def run():\n        with below_autograd():\n"
        f"            {body}\n    return run\n"
    )
    made: dict[str, Any] = {}
    exec(text, made)  # noqa: S102 - written above
    return made["bind"](below_autograd, **space)
