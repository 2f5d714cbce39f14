"""Known code: packages that a version identifies, and what of them a key must not rely on.

Functions of PyTorch, of this project and of the part of the standard library that computes the same each
time stand in a key by their names, since the key has the versions. All other code is read as it is.
"""

from __future__ import annotations

import abc
import functools
import importlib.util
import os
import sys
import sysconfig
from types import FunctionType, SimpleNamespace
from typing import Any

import torch
from torch import nn
from torch.nn.utils import parametrize

from npu_runtime.training.cache.code_references import find_references

OWN_PACKAGES = ("npu_ir", "npu_passes", "npu_runtime", "npu_cuda")
# Modules whose functions compute the same from the same arguments. Not among them is what reads the
# environment, files, clocks, or random numbers.
PURE_MODULES = frozenset(
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
    | {"methodcaller", "getmembers", "__getattr__", "__setattr__", "__delattr__", "__dir__"}
    | {"format_map", "asdict", "astuple", "getattr_static", "Formatter"}
)
# Others of the standard library, which are only recognized as what they are: their names mean much.
_DYNAMIC = frozenset(
    {("dataclasses", "fields"), ("dataclasses", "replace"), ("copy", "copy"), ("copy", "deepcopy")}
    | {("contextlib", "closing"), ("contextlib", "aclosing"), ("functools", "update_wrapper")}
    | {("functools", "singledispatchmethod"), ("functools", "wraps"), ("str", "format")}
)
DYNAMIC_MODULES = frozenset(module for module, _ in _DYNAMIC)
# What runs a class's `__init_subclass__`: class statements, and what makes classes otherwise.
CLASS_CREATION = ("__build_class__", "__init_subclass__", "make_dataclass", "new_class")
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
    return name.partition(".")[0] in ("torch", *OWN_PACKAGES) or name in PURE_MODULES


def is_known_function(function: FunctionType) -> bool:
    """Return whether a function is of a known module, and was defined in its files.

    A module may have been made by its name only, and functions may be compiled from text: of these, those
    that dataclasses and named tuples of a known module have count.
    """
    own = function.__globals__
    name = str(own.get("__name__"))
    path = function.__code__.co_filename
    if not is_known_module(name):
        return False
    if path.startswith("<string>"):
        return function.__name__.startswith("__") and vars(sys.modules.get(name, functools)) is own
    return path.startswith((*_folders(), "<frozen ")) and name in sys.modules


def is_imported(function: FunctionType) -> bool:
    """Return whether a function is of a package that known modules import from."""
    name, path = str(function.__globals__.get("__name__")), function.__code__.co_filename
    return name.partition(".")[0] in _IMPORTED_PACKAGES or is_of_library(path)


def is_of_imported_package(root: str) -> bool:
    """Return whether known modules import from the package of this name."""
    return root in _IMPORTED_PACKAGES or root in ("pybind11_builtins", "nanobind")


def is_of_library(path: str) -> bool:
    """Return whether a file is one of the standard library."""
    return path.startswith((_library(), "<frozen ")) and "site-packages" not in path


@functools.cache
def _library() -> str:
    return sysconfig.get_paths()["stdlib"] + os.sep


def is_known_class(kind: type) -> bool:
    """Return whether a class is the one of its name in a known module."""
    module = sys.modules.get(kind.__module__)
    is_plain = (kind.__module__, kind.__qualname__) == ("argparse", "Namespace")
    if module is None or not (is_plain or is_known_module(kind.__module__)):
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


_PLAIN_BASES = (
    *(object, dict, list, tuple, set, frozenset, str, int, float, BaseException, Exception),
    SimpleNamespace,
)


def find_registered(kind: type) -> str | None:
    """Return the name of a class that is registered as a subclass of an abstract one; None if none is.

    Of an abstract class of a known module, such classes as belong to known packages do not count.
    """
    if not isinstance(kind, abc.ABCMeta):
        return None
    registry, *_ = abc._get_dump(kind)  # type: ignore[attr-defined]
    for reference in registry:
        found = reference()
        if found is None:
            continue
        root = str(found.__module__).partition(".")[0]
        is_known = root in sys.stdlib_module_names or root in _IMPORTED_PACKAGES or is_known_module(root)
        if not is_known or not is_known_class(kind):
            return f"{found.__module__}.{found.__qualname__}"
    return None


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


def is_dynamic(module: str, name: str) -> bool:
    """Return whether a function or class of a known module reaches attributes by computed names."""
    return name in DYNAMIC_NAMES or (module, name) in _DYNAMIC


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
    names = [f"{name.partition('.')[0]}" for name in PURE_MODULES]
    standard = [f"{_library()}{name}{end}" for name in names for end in (".py", os.sep)]
    return (*folders, *standard, *([extensions.origin] if extensions and extensions.origin else []))
