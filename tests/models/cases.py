"""All models of the run."""

from tests.models.case import Case


def all_cases() -> tuple[Case, ...]:
    from tests.models import cases_transformers, cases_vision

    return (*cases_transformers.CASES, *cases_vision.CASES)
