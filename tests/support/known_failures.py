"""Tests that fail on some releases of PyTorch for reasons of its own, each with the cause."""

import fnmatch
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KnownFailure:
    """Tests that are expected to fail: one that passes fails the run, and its row is to be removed.

    Attributes:
        releases: The minor releases of PyTorch on which they fail.
        cause: What PyTorch does there, as a sentence; it is on the page.
        tests: Their ids, as patterns of `fnmatch`, in which ``[`` stands for itself.
    """

    releases: frozenset[str]
    cause: str
    tests: tuple[str, ...]

    def has(self, test: str, release: str) -> bool:
        """Return whether a test, by its id, is expected to fail on a minor release."""
        return release in self.releases and any(
            fnmatch.fnmatchcase(test, pattern.replace("[", "[[]")) for pattern in self.tests
        )


KNOWN_FAILURES: tuple[KnownFailure, ...] = ()


def minor_release(version: str) -> str:
    """Return the minor release of a version: "2.9" of "2.9.1+cpu"."""
    return ".".join(version.split(".")[:2])


def known_failure(test: str, version: str) -> KnownFailure | None:
    """Return the row of a test, by its id, for a version of PyTorch."""
    return next((row for row in KNOWN_FAILURES if row.has(test, minor_release(version))), None)
