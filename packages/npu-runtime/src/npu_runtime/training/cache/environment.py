"""The environment of a step: versions, sources, machine and settings that its compilation depends on."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import os
import platform
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FunctionType
from typing import Any

import torch
from torch.nn import functional as F

from npu_ir.plugins import plugin_manager
from npu_runtime._torch.state import active_tracer, has_default_torch_state, kernel_settings
from npu_runtime._torch.tracing import autocast_settings, foreign_kernels, global_module_hooks
from npu_runtime.backends.measured_costs import describe_machine
from npu_runtime.training.cache.content_hash import ContentHash, UnknownContentError
from npu_runtime.training.cache.known_code import OWN_PACKAGES, is_imported, is_known_class, is_known_function

# Variables that decide what these packages and PyTorch do, or which kernels run.
_VARIABLES = ("NPU_", "TORCH", "PYTORCH_", "ATEN_", "OMP_", "MKL_", "KMP_", "DNNL_", "ONEDNN_", "CUDA_", "CUBLAS_")
_NOT_DECISIVE = ("NPU_CACHE", "NPU_CUDA_CACHE")
_SUFFIXES = (".py", ".so", ".pyd", ".dylib")
_LOADED_AT = time.time()
_PROCESS = Path("/proc/self/stat")


def add_environment(content: ContentHash) -> None:
    """Add the environment to a key.

    Raises:
        UnknownContentError: It changes what PyTorch does in a way that cannot be described.
    """
    content.add_text("versions", sys.version, platform.machine(), *_versions())
    content.add_text("sources", *(f"{name} {digest}" for name, digest in source_digests().items()))
    content.add_text("machine", repr(sorted(describe_machine((), None).items())))
    variables = ((key, value) for key, value in os.environ.items() if key.startswith(_VARIABLES))
    content.add_text("variables", repr(sorted(pair for pair in variables if pair[0] not in _NOT_DECISIVE)))
    _add_settings(content)
    _add_plugins(content)
    _add_patches(content)


def _versions() -> tuple[str, ...]:
    return (
        str(torch.__version__),
        str(torch.version.git_version),
        torch.backends.cpu.get_cpu_capability(),
        str(torch.version.cuda),
    )


def _add_settings(content: ContentHash) -> None:
    """Add the settings of PyTorch that a trace or a kernel reads."""
    if tracer := active_tracer():
        raise UnknownContentError(f"{tracer} takes part in calls of PyTorch")
    if kernels := foreign_kernels():
        raise UnknownContentError(f"torch.library has other kernels: {kernels[0]}")
    settings = (
        torch.get_default_dtype(),
        torch.get_default_device(),
        has_default_torch_state(),
        autocast_settings(),
        kernel_settings(),
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.get_float32_matmul_precision(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        torch.get_num_threads(),
        torch.is_anomaly_enabled(),
        torch.is_autocast_cache_enabled(),
    )
    content.add_text("settings", repr(settings))
    for hooks in global_module_hooks():
        content.add(list(hooks.values()), "a hook of all modules")


def _add_plugins(content: ContentHash) -> None:
    """Add what plugins have registered that conversion and execution use."""
    registry = plugin_manager.registry()
    for table in ("conversion", "execution"):
        for op_type, entry in sorted(registry.table(table).items()):
            content.add_text(table, op_type, entry.origin)
            content.add(entry.function, f"{table} of {op_type}")


# Sources


def source_digests() -> Mapping[str, str]:
    """Return the digest of the files of each package of this project.

    Raises:
        UnknownContentError: A file has changed since this process began: the code that runs is not known.
    """
    return {name: _folder_digest(name) for name in OWN_PACKAGES}


def _folder_digest(package: str) -> str:
    found = importlib.util.find_spec(package)
    folders = () if found is None else found.submodule_search_locations or ()
    sha = hashlib.sha256()
    began = process_start()
    for folder in folders:
        for path, status in sorted(_walk(folder)):
            if max(status.st_mtime, status.st_ctime) > began:
                raise UnknownContentError(f"{path} has changed since this process began")
            sha.update(f"{os.path.relpath(path, folder)} {_file_digest(path, status.st_mtime_ns)}\n".encode())
    return sha.hexdigest()


def _walk(folder: str) -> Iterator[tuple[str, os.stat_result]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir():
                if entry.name != "__pycache__":
                    yield from _walk(entry.path)
            elif entry.name.endswith(_SUFFIXES):
                yield entry.path, entry.stat()


@functools.cache
def _file_digest(path: str, _: int) -> str:
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


@functools.cache
def process_start() -> float:
    """Return when this process began, or if the system does not say, when this module was loaded."""
    try:
        ticks = int(_PROCESS.read_text().rpartition(")")[2].split()[19])
        age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, AttributeError, ValueError, IndexError):
        return _LOADED_AT
    return time.time() - age


# Patches


def _add_patches(content: ContentHash) -> None:
    """Add functions that somebody has put into known modules and classes, and the names of those there."""
    for module_name in sorted(name for name in list(sys.modules) if _is_patchable(name)):
        module = sys.modules[module_name]
        is_core = _is_core(module_name)
        names: list[str] = []
        for key, item in list(vars(module).items()):
            if issubclass(type(item), type) and item.__module__ == module_name and is_known_class(item):
                for name, member in list(vars(item).items()):
                    _add_patch(content, f"{module_name}.{key}.{name}", member, names if is_core else None)
            else:
                _add_patch(content, f"{module_name}.{key}", item, names if is_core else None)
        if names:
            content.add_text(*names)


def _add_patch(content: ContentHash, name: str, item: Any, names: list[str] | None) -> None:
    function = item.__func__ if type(item) in (classmethod, staticmethod) else item
    if type(item) is property:
        function = item.fget
    if type(function) is FunctionType:
        if not is_known_function(function) and not is_imported(function):
            content.add_text("patch", name)
            content.add(function, name)
        elif names is not None:
            defaults = repr(function.__defaults__) if function.__defaults__ else ""
            is_plain = " at 0x" not in defaults
            names.append(f"{name} {function.__qualname__} {function.__code__.co_firstlineno}{defaults if is_plain else ''}")
    elif names is not None and (item is None or type(item) in (bool, int, float, str)):
        names.append(f"{name} {item!r}")
    elif names is not None and callable(item):
        names.append(f"{name} {getattr(item, '__name__', '')}")


def _is_patchable(name: str) -> bool:
    return name.partition(".")[0] in ("torch", *OWN_PACKAGES)


def _is_core(name: str) -> bool:
    """Return whether a module is one that models call: of these, exchanged functions count, too."""
    return name in ("torch", "torch.functional", "torch._tensor", F.__name__) or name.startswith(
        ("torch.nn.modules", "torch.optim")
    )
