"""Profiles: the time of a call by node, op and module.

In: an executor and arguments. Out: a `Profile`, as a table, JSON, or Chrome trace. Open `measure.py` first.
"""

from npu_runtime.diagnostics.profile.interleave import Timing, take_turns
from npu_runtime.diagnostics.profile.measure import profile
from npu_runtime.diagnostics.profile.report import Costs, Profile, StepTime, Total

__all__ = ["Costs", "Profile", "StepTime", "Timing", "Total", "profile", "take_turns"]
