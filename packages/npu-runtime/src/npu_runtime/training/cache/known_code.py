"""Known code: packages that a version identifies, and what of them a key must not rely on.

Functions of PyTorch, of this project and of the part of the standard library that computes the same each
time stand in a key by their names, since the key has the versions. All other code is read as it is.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import sys
import sysconfig
from types import FunctionType
from typing import Any

import torch
from torch import nn
from torch.nn.utils import parametrize

from npu_runtime.training.cache.code_references import find_references

OWN_PACKAGES = ("npu_ir", "npu_passes", "npu_runtime", "npu_cuda")
# Modules whose functions compute the same from the same arguments. Not among them is what reads the
# environment, files, clocks, or random numbers.
_PURE_MODULES = frozenset(
    {
        *("__future__", "_abc", "_collections", "_collections_abc", "_functools", "_operator", "_weakrefset"),
        *("abc", "bisect", "builtins", "cmath", "collections", "collections.abc", "contextlib", "copy"),
        *("dataclasses", "enum", "fractions", "functools", "heapq", "itertools", "math", "numbers"),
        *("operator", "re", "string", "types", "typing", "typing_extensions", "warnings"),
    }
)
# Parts of PyTorch whose results do not follow from arguments and the global settings in a key.
_VOLATILE_MODULES = (
    *("torch._dynamo", "torch._inductor", "torch.cuda", "torch.distributed", "torch.hub", "torch.jit"),
    *("torch.multiprocessing", "torch.serialization", "torch.utils.cpp_extension", "torch.utils.data"),
    *("torch.xpu", "torch.mps", "torch.profiler", "torch.futures"),
)
# Packages that PyTorch and this project import names from.
_IMPORTED_PACKAGES = frozenset(
    {"filelock", "fsspec", "jinja2", "mpmath", "networkx", "numpy", "optree", "packaging", "pluggy"}
    | {
        "functorch",
        "psutil",
        "safetensors",
        "sympy",
        "torchgen",
        "tqdm",
        "triton",
        "typing_extensions",
        "yaml",
    }
)
VOLATILE_NAMES = frozenset({"initial_seed", "get_worker_info"})
_VOLATILE_FUNCTIONS = frozenset({"initial_seed", "seed", "load", "from_file", "get_num_interop_threads"})
VOLATILE_BUILTINS = frozenset(
    {
        "__import__",
        "breakpoint",
        "compile",
        "eval",
        "exec",
        "globals",
        "hash",
        "id",
        "input",
        "locals",
        "open",
    }
)
# Builtins and attributes that reach attributes by names which are not in the code.
DYNAMIC_NAMES = frozenset(
    {"getattr", "setattr", "delattr", "hasattr", "vars", "dir", "__dict__", "__getattribute__", "attrgetter"}
    | {"methodcaller", "getmembers", "__getattr__"}
)
# Methods of a class that run only where an instance is made, and what code that makes one may name.
CONSTRUCTORS = frozenset({"__init__", "__new__", "__post_init__", "__init_subclass__", "__set_name__"})
CONSTRUCTION = ("__class__", "type", *sorted(CONSTRUCTORS))
# Attributes by which code reads itself, its callers, or what a key leaves out.
REFLECTIVE_NAMES = frozenset(
    {"__code__", "__globals__", "__builtins__", "__closure__", "__annotations__", "__doc__", "__subclasses__"}
    | {"f_globals", "f_locals", "f_back", "gi_frame", "_getframe", "tb_frame", "get_type_hints"}
)


def is_known_module(name: str) -> bool:
    """Return whether a version identifies the module of this name."""
    return name.partition(".")[0] in ("torch", *OWN_PACKAGES) or name in _PURE_MODULES


def is_known_function(function: FunctionType) -> bool:
    """Return whether a function is of a known module, and was defined in its files."""
    name = str(function.__globals__.get("__name__"))
    path = function.__code__.co_filename
    if name.startswith("namedtuple_"):
        return path.startswith("<string>")
    return is_known_module(name) and path.startswith((*_folders(), "<"))


def is_imported(function: FunctionType) -> bool:
    """Return whether a function is of a package that known modules import from."""
    name, path = str(function.__globals__.get("__name__")), function.__code__.co_filename
    return name.partition(".")[0] in _IMPORTED_PACKAGES or is_of_library(path)


def is_of_library(path: str) -> bool:
    """Return whether a file is one of the standard library."""
    return path.startswith((_library(), "<frozen ")) and "site-packages" not in path


@functools.cache
def _library() -> str:
    return sysconfig.get_paths()["stdlib"] + os.sep


def is_known_class(kind: type) -> bool:
    """Return whether a class is the one of its name in a known module."""
    module = sys.modules.get(kind.__module__)
    if module is None or not is_known_module(kind.__module__):
        return False
    found: Any = module
    for name in kind.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is kind or _is_extension(kind)


def _is_extension(kind: type) -> bool:
    """Return whether a class is implemented in C: those may be called otherwise in their module."""
    return not kind.__flags__ & _HEAP_TYPE or bool(kind.__flags__ & _IMMUTABLE_TYPE)


_HEAP_TYPE, _IMMUTABLE_TYPE = 1 << 9, 1 << 8


def has_plain_state(kind: type) -> bool:
    """Return whether everything that instances of a class hold is in their attributes and items."""
    return all(
        base in _PLAIN_BASES
        or (
            not _is_extension(base)
            and base.__module__ not in ("pybind11_builtins", "nanobind")
            and not str(getattr(sys.modules.get(base.__module__), "__file__", "")).endswith((".so", ".pyd"))
        )
        for base in kind.__mro__
    )


_PLAIN_BASES = (object, dict, list, tuple, set, frozenset, str, int, float, BaseException, Exception)


@functools.cache
def names_used_by_pytorch() -> frozenset[str]:
    """Return names of attributes that PyTorch reads of given modules, besides those of its own classes."""
    layers = (nn.TransformerEncoder, nn.TransformerDecoder, nn.Transformer, nn.MultiheadAttention)
    functions = [layer.forward for layer in layers]
    functions += [item for item in vars(parametrize).values() if isinstance(item, FunctionType)]
    functions += [
        item for item in vars(parametrize.ParametrizationList).values() if isinstance(item, FunctionType)
    ]
    return frozenset[str]().union(*(find_references(item.__code__).attributes for item in functions))


def find_volatile(module: str, name: str) -> str | None:
    """Return why a key cannot rely on a known function; None if it can."""
    if module.startswith(_VOLATILE_MODULES) and not module.startswith("torch.cuda.amp"):
        return f"{module}.{name} does not compute from its arguments alone"
    if module.partition(".")[0] == "torch" and name in _VOLATILE_FUNCTIONS:
        return f"{module}.{name} reads state of the process"
    return None


@functools.cache
def _folders() -> tuple[str, ...]:
    """Return the folders that known functions are defined in."""
    specs = [importlib.util.find_spec(name) for name in OWN_PACKAGES]
    files = [torch.__file__, *(found.origin for found in specs if found is not None)]
    folders = [os.path.dirname(file) + os.sep for file in files if file]
    extensions = importlib.util.find_spec("typing_extensions")
    names = [f"{name.partition('.')[0]}" for name in _PURE_MODULES]
    standard = [f"{_library()}{name}{end}" for name in names for end in (".py", os.sep)]
    return (*folders, *standard, *([extensions.origin] if extensions and extensions.origin else []))
