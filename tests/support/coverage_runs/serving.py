"""The side of a worker process: it does the jobs it is told to, and reports each step (see workers.py)."""

import json
import os
import sys
from collections.abc import Callable
from typing import Any, TextIO

import torch

Say = Callable[..., None]


def serve(do: Callable[[str, int, Say], None]) -> None:
    """Answer requests until there are no more.

    Args:
        do: Does the job of this name but for so many first parts, and says what becomes of each part.
    """
    torch.set_num_threads(1)
    answers = _own_output()

    def say(**event: Any) -> None:
        answers.write(json.dumps(event) + "\n")
        answers.flush()

    say(event="ready")
    for line in sys.stdin:
        request = json.loads(line)
        do(request["op"], request["skip"], say)
        say(event="done")


def _own_output() -> TextIO:
    """Return the standard output; what anything else prints goes to the error output from now on."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return answers
