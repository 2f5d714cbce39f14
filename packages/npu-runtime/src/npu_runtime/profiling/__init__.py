"""Profiles of a call: its time by node, by op and by module."""

from npu_runtime.profiling.measuring import profile
from npu_runtime.profiling.report import Profile, StepTime, Total
from npu_runtime.profiling.turns import Timing, take_turns

__all__ = ["Profile", "StepTime", "Timing", "Total", "profile", "take_turns"]
