"""Places of the repository, for tests that read what is outside their folder."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
