"""A worker process: judges the operators it is told to, and reports each step."""

from typing import Any

from npu_ir.testing import OpCall
from tests.ops.cases import calls_of, operators
from tests.ops.pipe import Verdict, judge
from tests.support.coverage_runs.outcomes import Outcome, first_line
from tests.support.coverage_runs.serving import Say, serve
from tests.support.coverage_runs.workers import Result


def main() -> None:
    ops = operators()
    serve(lambda op, skip, say: judge_operator(ops[op], skip, say))


def judge_operator(op: Any, skip: int, say: Say) -> None:
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


def names_of(call: OpCall) -> Result:
    dtype = str(call.dtype).removeprefix("torch.")
    return {"call": f"{call.variant} {dtype} {call.sample}", "dtype": dtype, "variant": call.variant}


def result_of(named: Result, verdict: Verdict) -> Result:
    return {
        **named,
        "outcome": verdict.outcome.value,
        "reason": verdict.reason,
        "same_strides": verdict.same_strides,
    }


if __name__ == "__main__":
    main()
