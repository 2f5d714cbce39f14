"""Claims of the demo, each with its measurement; they determine the exit code."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Claim:
    """A sentence that is true or false.

    Attributes:
        subject: What it is about: the name of a model.
        text: The sentence.
        measured: What it was judged by.
        holds: Whether it is true.
    """

    subject: str
    text: str
    measured: str
    holds: bool
