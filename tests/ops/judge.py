"""A worker process: judges the operators it is told to, and reports each step (see workers.py)."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any, TextIO

import torch

from tests.ops.cases import Call, calls_of, operators
from tests.ops.outcomes import Outcome, Verdict, first_line, judge
from tests.ops.workers import Result


def main() -> None:
    """Answer requests until there are no more."""
    torch.set_num_threads(1)
    answers = _own_output()

    def say(**event: Any) -> None:
        answers.write(json.dumps(event) + "\n")
        answers.flush()

    ops = operators()
    say(event="ready")
    for line in sys.stdin:
        request = json.loads(line)
        judge_operator(ops[request["op"]], request["skip"], say)
        say(event="done")


def _own_output() -> TextIO:
    """Return the standard output; what anything else prints goes to the error output from now on."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return answers


def judge_operator(op: Any, skip: int, say: Callable[..., None]) -> None:
    """Judge the calls of an operator but the first ``skip``, and say what becomes of each."""
    calls = calls_of(op)
    count = 0
    while True:
        try:
            call = next(calls, None)
        except Exception as error:  # noqa: BLE001 - OpInfo's own failure to make samples is an outcome
            if count >= skip:
                verdict = Verdict(Outcome.EAGER_REFUSES, f"samples: {first_line(error)}")
                say(
                    event="result", result=result_of({"call": "samples", "dtype": "", "variant": ""}, verdict)
                )
            return
        if call is None:
            return
        if count >= skip:
            named = names_of(call)
            verdict = judge(
                call, announce=lambda stage, named=named: say(event="stage", call=named, stage=stage)
            )
            say(event="result", result=result_of(named, verdict))
        count += 1


def names_of(call: Call) -> Result:
    """Return what tells a call from the others of its operator."""
    dtype = str(call.dtype).removeprefix("torch.")
    return {"call": f"{call.variant} {dtype} {call.sample}", "dtype": dtype, "variant": call.variant}


def result_of(named: Result, verdict: Verdict) -> Result:
    """Return a verdict as it is written down."""
    return {
        **named,
        "outcome": verdict.outcome.value,
        "reason": verdict.reason,
        "same_strides": verdict.same_strides,
    }


if __name__ == "__main__":
    main()
