"""Profiles: the time of a call by node, op, module and phase, beside the limits of the machine.

In: an executor and arguments. Out: a `Profile`, as a table, JSON, Chrome trace or roofline. Open `measure.py`
first, then `op_times.py` for native programs.
"""

from npu_runtime.diagnostics.profile.interleave import Timing, take_turns
from npu_runtime.diagnostics.profile.machine_limits import MachineLimits, measure_limits
from npu_runtime.diagnostics.profile.measure import profile
from npu_runtime.diagnostics.profile.report import Costs, Profile, StepTime, Total
from npu_runtime.diagnostics.profile.roofline import to_roofline

__all__ = [
    "Costs",
    "MachineLimits",
    "Profile",
    "StepTime",
    "Timing",
    "Total",
    "measure_limits",
    "profile",
    "take_turns",
    "to_roofline",
]
