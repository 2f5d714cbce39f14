"""Profiles of a call: its time by node, by op and by module."""

from npu_runtime.diagnostics.profile.interleave import Timing, take_turns
from npu_runtime.diagnostics.profile.measure import profile
from npu_runtime.diagnostics.profile.report import Profile, StepTime, Total

__all__ = ["Profile", "StepTime", "Timing", "Total", "profile", "take_turns"]
