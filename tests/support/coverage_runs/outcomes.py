"""Outcomes of the coverage run."""

import enum
import re
import tempfile
from pathlib import Path

import npu_ir
from npu_ir import Graph


class Outcome(str, enum.Enum):
    """What became of a call.

    Attributes:
        PASS: The graph returns what PyTorch returns.
        EAGER_REFUSES: PyTorch itself raises or crashes on the sample.
        EXPORT_REFUSES: ``torch.export`` raises or crashes on the module.
        SIZES_MISSTATED: PyTorch states sizes that are not those of the result, and we say so.
        RESHAPES_INPUT: The call gives a tensor of the caller another shape, and we say that a graph cannot.
        PYTORCH_DIFFERS: PyTorch does not agree with itself: two runs from one seed differ, or a call that
            writes and its functional form do (``ROUNDED_OTHERWISE``), and the graph gives the bits of the
            latter.
        FAIL: Everything else.
    """

    PASS = "pass"
    EAGER_REFUSES = "eager refuses"
    EXPORT_REFUSES = "export refuses"
    SIZES_MISSTATED = "sizes misstated"
    RESHAPES_INPUT = "reshapes its input"
    PYTORCH_DIFFERS = "PyTorch differs from itself"
    FAIL = "FAIL"


def saved_and_loaded(graph: Graph) -> Graph:
    """Return ``graph`` after a round trip through its file form."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "graph.json")
        npu_ir.save_ir(graph, path)
        return npu_ir.load_ir(path)


_ADDRESS = re.compile(r"0x[0-9a-f]+")


def first_line(error: BaseException) -> str:
    """Return the type of an error and the first line of its message, without memory addresses."""
    lines = str(error).strip().splitlines() or [""]
    return _ADDRESS.sub("0x...", f"{type(error).__name__}: {lines[0].strip()}")[:200]
