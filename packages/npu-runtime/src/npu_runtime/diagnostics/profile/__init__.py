"""Where the time of a call goes: node by node, op by op, module by module."""

from npu_runtime.diagnostics.profile.interleave import Timing, take_turns
from npu_runtime.diagnostics.profile.measure import profile
from npu_runtime.diagnostics.profile.report import Profile, StepTime, Total

__all__ = ["Profile", "StepTime", "Timing", "Total", "profile", "take_turns"]
