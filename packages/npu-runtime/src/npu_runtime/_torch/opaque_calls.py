"""Calls that ``torch.compile`` makes as they are: it breaks its graph there, and looks into none of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from torch._C._dynamo import eval_frame

_Function = TypeVar("_Function", bound="Callable[..., Any]")

_SKIP = eval_frame._FrameAction.SKIP
# Neither the frame of a function nor those of what it calls, such as a user's model while a step is traced.
_SKIP_ALL = eval_frame._FrameExecStrategy(_SKIP, _SKIP)


def opaque(function: _Function) -> _Function:
    """Mark a function that TorchDynamo must not trace, and return it.

    As `torch.compiler.disable`, which wraps the function, and takes a second to import (torch 2.13): here
    only marks are set, and a call takes no longer.
    """
    eval_frame.set_code_exec_strategy(function.__code__, _SKIP_ALL)
    vars(function).update(
        _torchdynamo_disable=True,
        _torchdynamo_disable_recursive=True,
        _torchdynamo_disable_msg="what it runs is compiled already: call it outside of fullgraph=True",
    )
    return function
