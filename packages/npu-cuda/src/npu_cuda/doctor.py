"""Checks of npu-cuda for ``npu doctor``."""

from __future__ import annotations

import functools
import os
import shutil
import struct
from collections.abc import Iterator
from typing import Any

import torch

from npu_cuda import _C
from npu_cuda.installation import status
from npu_ir.cli.doctor import Check, State, run_check

TOPIC = "npu-cuda"
# The C interface through which PyTorch exchanges tensors without Python in between.
EXCHANGE = "__dlpack_c_exchange_api__"


def all_checks() -> list[Check]:
    """Return the checks of the native part, its devices, NVRTC, nvcc, and the exchange of tensors."""
    build = Check(TOPIC, "native part", State.OK, str(status()).partition("\n")[0])
    return [build, *_device_checks(), *_chain_checks(), _compiler_check(), _exchange_check()]


def _device_checks() -> Iterator[Check]:
    for device in _C.devices():
        yield run_check(TOPIC, device["name"], functools.partial(_run_kernel, device))
    absence = _C.cuda_absence()
    if absence:
        is_missed = torch.cuda.is_available() and _C.build_info()["mode"] == "OFF"
        fix = "build npu-cuda where nvcc is: NPU_CUDA=ON" if is_missed else ""
        yield Check(TOPIC, "cuda", State.ABSENT, absence, fix)


def _run_kernel(device: dict[str, Any]) -> str:
    """Run a kernel and return the description of its device."""
    given, wanted = (-1.0, 0.0, 2.0), (0.0, 0.0, 2.0)
    x, y = (_C.empty((3,), device=device["name"]) for _ in range(2))
    x.copy_from(struct.pack("<3f", *given))
    y.copy_from(struct.pack("<3f", *given))  # new memory may hold the right result of an earlier run
    _C.op_call(_C.OpKind.EltwiseRelu, [x], [y])
    found = struct.unpack("<3f", y.to_bytes())
    if found != wanted:
        raise ValueError(f"EltwiseRelu of {given} is {found}")
    return f"{device['description']}: runs kernels"


def _chain_checks() -> Iterator[Check]:
    found = status()
    if not found.cuda_absence:
        state = State.ABSENT if found.chain_compiler["absence"] else State.OK
        yield Check(TOPIC, "chains on cuda", state, found.chains())


def _compiler_check() -> Check:
    named = os.environ.get("CUDACXX", "nvcc")
    path = shutil.which(named)
    if path is None:
        return Check(TOPIC, "nvcc", State.ABSENT, f"{named} is not found; only building with CUDA needs it")
    return Check(TOPIC, "nvcc", State.OK, path)


def _exchange_check() -> Check:
    name = "DLPack exchange"
    if hasattr(torch.Tensor, EXCHANGE):
        return Check(TOPIC, name, State.OK, "calls read tensors of PyTorch without Python in between")
    text = f"this PyTorch has no torch.Tensor.{EXCHANGE}: each call takes some microseconds more"
    return Check(TOPIC, name, State.ABSENT, text, fix="install a newer PyTorch")
