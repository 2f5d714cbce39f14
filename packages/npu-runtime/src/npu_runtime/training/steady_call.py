"""The call of a step while nothing has changed, as one generated function.

It holds in one place what a call does otherwise in a chain of functions: the guards, the binding of a batch,
the numbers of the optimizers, the planned program. After a program has run, each further function, and each
object that it reads, has to be fetched into the cache again: a chain takes twice as long as the same code in
one function. Whatever is not as usual is left to `TrainStep`, which runs that chain.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

import torch

from npu_ir.core.structure import LEAF
from npu_runtime._torch.state import below_autograd, record_gradients
from npu_runtime.codegen.call_binder import write_binding
from npu_runtime.codegen.compiled_function import load_function
from npu_runtime.training.capture.capture_state import STATE
from npu_runtime.training.capture.runners import PlannedRunner
from npu_runtime.training.compiled_step import CompiledStep
from npu_runtime.training.guards import Guards

# Takes the arguments of a step; returns its results, or `CHANGED` if no step was taken.
SteadyCall: TypeAlias = "Callable[[tuple[Any, ...], Mapping[str, Any]], Any]"

CHANGED: Final = object()

_CALL = """\
def call(args, kwargs):
    global {assigned}
    try:
        if not (
            step.runner is runner
            and {guards}
        ):
            return changed
{binding}
{numbers}
    except misfits:
        return changed
    own_state = state.__dict__  # of this thread
    if own_state.get("activity"):
        return changed
    is_recording = is_grad_enabled()
    try:
        own_state["activity"] = "replay"
        record_gradients(False)
        outside = below_autograd()
{program}
    except Exception as error:
        explain(error)
        raise
    finally:
        own_state["activity"] = ""
        outside = None
        record_gradients(is_recording)  # the last one: Ctrl-C is raised at the end of a call
    step.numbers = numbers
    return {results}
"""

# Read before the step reads them: another thread may change them meanwhile. A tensor may have other content
# in the next call.
_NUMBERS = """\
if not ({same}):
    {read} = {entries}
    current = current_numbers()
    if current is None: return changed
    numbers = current
    {last} = {read}
    if not ({floats}): {first} = unread
"""


def make_steady_call(step: CompiledStep, guards: Guards, borrow: bool) -> SteadyCall:
    """Return the call of a step; one that always returns `CHANGED` if the step does more than its program.

    Args:
        step: The step, which has been taken.
        guards: Guards that held when it was.
        borrow: As for `CompiledStep.step`.
    """
    binding = write_binding(step.batch, step.device, "changed") if step.is_steady else None
    runner = step.runner
    if binding is None or not guards.in_default_state or not isinstance(runner, PlannedRunner):
        return no_steady_call
    given = [name for name in binding.inputs.split(", ") if name]
    program, of_program = runner.write_step(given, borrow)
    numbers, of_numbers = _write_numbers(step)
    of_guards: dict[str, Any] = {}
    text = _CALL.format(
        assigned=", ".join(["numbers", *(name for name in of_numbers if name.startswith("last"))]),
        guards=guards.write(of_guards),
        binding=textwrap.indent("\n".join(binding.lines), " " * 8),
        numbers=textwrap.indent(numbers, " " * 8),
        results="results[0]" if step.graph.results[0].kind == LEAF else "unflatten(results)",
        program=textwrap.indent("\n".join(program), " " * 8),
    )
    space = {
        "changed": CHANGED,
        "step": step,
        "runner": runner,
        "state": STATE,
        "is_grad_enabled": torch.is_grad_enabled,
        "record_gradients": record_gradients,
        "below_autograd": below_autograd,
        "explain": runner.explain,
        "unflatten": step.unflatten,
    }
    call: SteadyCall = load_function(
        "call",
        f"{step.graph.name}-steady",
        text,
        {**of_guards, **binding.constants, **of_program, **of_numbers, **space},
    )
    return call


def _write_numbers(step: CompiledStep) -> tuple[str, dict[str, Any]]:
    """Return statements that keep ``numbers`` those of `CompiledStep.current_numbers`, and what they name."""
    entries, groups = step.write_numbers()
    unread = object()
    last = {f"last{index}": entry for index, entry in enumerate(entries)}
    if not last:
        return "", {"numbers": []}
    read = [f"now{index}" for index in range(len(last))]
    text = _NUMBERS.format(
        same=" and ".join(f"{entry} is {name}" for name, entry in last.items()),
        read=", ".join(read),
        entries=", ".join(entries),
        last=", ".join(last),
        floats=" and ".join(f"type({name}) is float" for name in read),
        first=next(iter(last)),
    )
    space = {"unread": unread, "numbers": None, "current_numbers": step.current_numbers}
    return text, {**groups, **space, **dict.fromkeys(last, unread)}


def no_steady_call(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:  # noqa: ARG001 - a `SteadyCall`
    return CHANGED
