"""Worker process that judges the models it is sent, with a memory limit (see tests.support.coverage_runs)."""

import dataclasses
import sys

from tests.models.cases import all_cases
from tests.models.verdicts import FORMS, STATIC, judge
from tests.support.coverage_runs.serving import Say, serve

MEMORY_LIMIT_BYTES = 12 * 2**30


def main() -> None:
    _limit_memory()
    cases = {case.name: case for case in all_cases()}

    def do(name: str, skip: int, say: Say) -> None:
        case = cases[name]
        for form in [form for form in FORMS if form == STATIC or case.varying][skip:]:
            call = {"call": form, "dtype": "", "variant": ""}
            verdict = judge(case, form, lambda stage, call=call: say(event="stage", call=call, stage=stage))
            say(event="result", result={**call, **dataclasses.asdict(verdict)})

    serve(do)


def _limit_memory() -> None:
    if sys.platform != "win32":
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT_BYTES, MEMORY_LIMIT_BYTES))


if __name__ == "__main__":
    main()
