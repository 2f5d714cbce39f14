"""Comparison of two ways to run a model, value by value, up to the first value that diverges.

In: two sides (a module, a graph, an executor) and inputs. Out: a `Comparison`. Start with `compare`.
"""

from npu_runtime.comparing.comparison import Comparison
from npu_runtime.comparing.float64_side import Float64, float64
from npu_runtime.comparing.making import after_pass
from npu_runtime.comparing.metrics import Difference, Error
from npu_runtime.comparing.replaying import replay
from npu_runtime.comparing.row import NOISE_MULTIPLE, NOISE_MULTIPLE_RMS, Row
from npu_runtime.comparing.running import compare

__all__ = [
    "NOISE_MULTIPLE",
    "NOISE_MULTIPLE_RMS",
    "Comparison",
    "Difference",
    "Error",
    "Float64",
    "Row",
    "after_pass",
    "compare",
    "float64",
    "replay",
]
