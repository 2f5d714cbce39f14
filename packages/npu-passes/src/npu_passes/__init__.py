"""npu-passes: passes over npu-ir graphs."""

from npu_passes.core.base import EXACT, Numerics, Pass, within
from npu_passes.core.edit import Edit
from npu_passes.core.journal import Journal, Refusal, Rewrite
from npu_passes.core.options import Option, options_of
from npu_passes.core.pass_text import format_passes, parse_passes, passes_of
from npu_passes.core.registry import Pipeline, all_passes, all_pipelines, find_pass
from npu_passes.errors import PassError
from npu_passes.manager.bisect import bisect
from npu_passes.manager.checked_mode import Checked
from npu_passes.manager.manager import PassManager, optimize
from npu_passes.manager.reproduction import Culprit
from npu_passes.manager.statistics import GraphStatistics, PassResult, PassStatistics, graph_statistics
from npu_passes.prologue.bake import bake
from npu_passes.rewriting.weight_dependence import is_weight

__version__ = "0.1.0"

__all__ = [
    "EXACT",
    "Checked",
    "Culprit",
    "Edit",
    "GraphStatistics",
    "Journal",
    "Numerics",
    "Option",
    "Pass",
    "PassError",
    "PassManager",
    "PassResult",
    "PassStatistics",
    "Pipeline",
    "Refusal",
    "Rewrite",
    "__version__",
    "all_passes",
    "all_pipelines",
    "bake",
    "bisect",
    "find_pass",
    "format_passes",
    "graph_statistics",
    "is_weight",
    "optimize",
    "options_of",
    "parse_passes",
    "passes_of",
    "within",
]
