"""The environment of a step: versions, sources, machine and settings that its compilation depends on."""

from __future__ import annotations

import builtins
import functools
import hashlib
import importlib
import importlib.util
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from pathlib import Path
from types import (
    BuiltinFunctionType,
    FunctionType,
    MethodDescriptorType,
    MethodType,
    ModuleType,
    WrapperDescriptorType,
)
from typing import Any

import torch

from npu_ir.plugins import plugin_manager
from npu_runtime._torch.registrations import foreign_kernels, global_module_hooks
from npu_runtime._torch.state import (
    active_modes,
    active_tracer,
    autocast_settings,
    has_default_torch_state,
    kernel_settings,
)
from npu_runtime.backends.measured_costs import describe_machine
from npu_runtime.training.cache.content_hash import ContentHash, UnknownContentError
from npu_runtime.training.cache.known_code import (
    OWN_PACKAGES,
    PURE_MODULES,
    is_imported,
    is_known_function,
    is_known_module,
    is_of_imported_package,
)

# Variables that decide what these packages and PyTorch do, or which kernels run.
_VARIABLES = (
    "NPU_",
    "TORCH",
    "PYTORCH_",
    "ATEN_",
    "OMP_",
    "MKL_",
    "KMP_",
    "DNNL_",
    "ONEDNN_",
    "CUDA_",
    "CUBLAS_",
)
# The last one is set by the first trace: no step runs what it is for.
_NOT_DECISIVE = ("NPU_CACHE", "NPU_CUDA_CACHE", "TORCHINDUCTOR_CACHE_DIR")
# Attributes of PyTorch that it sets itself as it runs, and that no step on a CPU depends on.
_SET_BY_PYTORCH = frozenset({"_foreach_supported_types", "_default_device_type"})
_COMPILE = os.path.join("torch", "_compile.py")
_SUFFIXES = (".py", ".so", ".pyd", ".dylib")
# Parts of PyTorch that neither a trace nor a kernel runs.
_OF_NO_TRACE = ("torch._dynamo", "torch._inductor", "torch.distributed", "torch.onnx", "torch.testing")
_LOADED_AT = time.time()
_PROCESS = Path("/proc/self/stat")


def add_environment(content: ContentHash) -> None:
    """Add the environment to a key.

    Raises:
        UnknownContentError: It changes what PyTorch does in a way that cannot be described.
    """
    content.add_text("versions", sys.version, repr(sys.flags), platform.machine(), *_versions())
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
    if tracer := active_tracer() or active_modes():
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
    """Add functions that somebody has put into known modules and classes.

    Of modules that models call, all names count, each with the name of what it stands for.
    """
    is_own = _OwnFunctions()
    for module_name in sorted(filter(_is_patchable, list(sys.modules))):
        for name, item in _names_of_code(module_name, is_own.harmless):
            if is_own.is_patch(item):
                _add_patch(content, f"{module_name}.{name}", item)
        if module_name in _CORE:
            content.add_text(module_name, *_names_in(sys.modules[module_name], content))
    _add_patches_of_python(content, is_own)


def _names_of_code(module_name: str, left_out: Set[type]) -> Iterator[tuple[str, Any]]:
    """Yield each name in a module and in its classes, with its item, but for items of some types."""
    for key, item in list(vars(sys.modules[module_name]).items()):
        if type(item) in left_out:
            continue
        if issubclass(type(item), type) and item.__module__ == module_name:
            for name, member in list(vars(item).items()):
                if type(member) not in left_out:
                    yield f"{key}.{name}", member
        else:
            yield key, item


def _add_patches_of_python(content: ContentHash, is_own: _OwnFunctions) -> None:
    """Add functions, and numbers, that stand in those modules of Python that count as known."""
    content.add_text("builtins", _identity_of(_BUILTINS, content))  # once, though each module has them
    for module_name in _STANDARD:
        for key, item in sorted(vars(sys.modules[module_name]).items()):
            if is_own.is_patch(item):
                _add_patch(content, f"{module_name}.{key}", item)
            elif type(item) in (float, int, BuiltinFunctionType, FunctionType) and not key.startswith("__"):
                content.add_text(f"{module_name}.{key}", _identity_of(item, content))


_FUNCTION_OF: Mapping[type, Callable[[Any], Any]] = {
    property: lambda item: item.fget,
    classmethod: lambda item: item.__func__,
    staticmethod: lambda item: item.__func__,
}


def _itself(item: Any) -> Any:
    return item


class _OwnFunctions:
    """A test whether functions are of known modules or imported there, made once for a file and module."""

    def __init__(self) -> None:
        self.harmless: set[type] = set()  # types of which no item is a patch
        self._known: dict[tuple[str, str], bool] = {}
        self._kinds: dict[type, bool] = {}

    def __call__(self, function: FunctionType) -> bool:
        where = function.__code__.co_filename, str(function.__globals__.get("__name__"))
        known = self._known.get(where)
        if known is None:
            known = is_known_function(function) or is_imported(function)
            if not where[0].startswith("<string>"):  # a file is that of a module, a text anyone's
                self._known[where] = known
        return known

    def is_patch(self, item: Any, depth: int = 4) -> bool:
        """Return whether an item is, wraps or binds a function that is not of a known module."""
        kind = type(item)
        if kind in _FUNCTION_OF:
            item = _FUNCTION_OF[kind](item)
        if type(item) is FunctionType:
            if not self(item):
                return not _is_of_named_tuple(item)
            return depth > 0 and any(self.is_patch(part, depth - 1) for part in _wrapped_in(item))
        if kind in _BINDING:
            return self._binds_patch(item, depth)
        is_foreign = self._is_foreign(kind)
        if not is_foreign and kind not in _FUNCTION_OF and not issubclass(kind, type):
            self.harmless.add(kind)
        return is_foreign

    def _binds_patch(self, item: Any, depth: int) -> bool:
        if type(item) is MethodType:
            return self.is_patch(item.__func__) or self._is_foreign(type(item.__self__))
        return depth > 0 and self.is_patch(item.func, depth - 1)

    def _is_foreign(self, kind: type) -> bool:
        """Return whether a class is of neither Python, PyTorch, this project nor what they import."""
        known = self._kinds.get(kind)
        if known is None:
            root = str(kind.__module__).partition(".")[0]
            known = self._kinds[kind] = (
                root in sys.stdlib_module_names or is_known_module(root) or is_of_imported_package(root)
            )
        return not known


def _is_of_named_tuple(function: FunctionType) -> bool:
    """Return whether a function is the one that makes named tuples."""
    is_made = str(function.__globals__.get("__name__")).startswith("namedtuple_")
    return is_made and function.__code__.co_names == ("_tuple_new",)


def _wrapped_in(function: FunctionType) -> Sequence[Any]:
    """Return what may be called of what a function wraps or closes over."""
    wrapped = getattr(function, "__wrapped__", None)
    if function.__closure__ is None and wrapped is None:  # most
        return ()
    return [part for part in (wrapped, *_closed_over(function)) if type(part) in _CALLABLES]


def _closed_over(function: FunctionType) -> Iterator[Any]:
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # not assigned yet
            continue


_BUILTINS = vars(builtins)
_CALLABLES = (FunctionType, MethodType, functools.partial)
_BINDING = (functools.partial, functools.partialmethod, MethodType)


def _add_patch(content: ContentHash, name: str, item: Any) -> None:
    content.add_text("patch", name)
    content.add(item, name)


def _names_in(module: ModuleType, content: ContentHash) -> Iterator[str]:
    """Yield each name in a module, and in its classes, with what it stands for."""
    for key, item in list(vars(module).items()):
        is_submodule = type(item) is ModuleType and item.__name__ == f"{module.__name__}.{key}"
        if is_submodule or key in _SET_BY_PYTORCH or item is _BUILTINS:
            continue
        yield f"{key} {_identity_of(item, content)}"
        if issubclass(type(item), type) and item.__module__ == module.__name__:
            for name, member in list(vars(item).items()):
                if name not in _SET_BY_PYTORCH:
                    yield f"{key}.{name} {_identity_of(member, content)}"


def _identity_of(item: Any, content: ContentHash, depth: int = 3) -> str:
    """Return a text that tells an item from others in its place: a value, or a name and a line."""
    kind = type(item)
    if _is_plain(item):
        return repr(item)
    item = _FUNCTION_OF.get(kind, _itself)(item)
    if type(item) is FunctionType and item.__code__.co_filename.endswith(_COMPILE):
        item = getattr(item, "__wrapped__", item)  # torch.compile, once used, leaves it alone
    if type(item) is FunctionType:
        plain = [value for value in item.__defaults__ or () if _is_plain(value)]
        return f"{item.__module__}.{item.__qualname__} {item.__code__.co_firstlineno} {plain}"
    if kind in (functools.partial, functools.partialmethod, MethodType):
        content.add(item, "a callable in PyTorch")
    elif kind in (dict, list, tuple) and depth:
        items = (*item, *item.values()) if kind is dict else item
        return f"{kind.__name__} {[_identity_of(part, content, depth - 1) for part in items]}"
    elif not kind.__module__.startswith(_DESCRIBED_ELSEWHERE) and not is_known_module(kind.__module__):
        content.add(item, f"a {kind.__qualname__} in PyTorch")
    name = kind.__name__ if kind not in _NAMED else f"{getattr(item, '__module__', '')}.{item.__qualname__}"
    return str(name)


def _is_plain(item: Any) -> bool:
    kind = type(item)
    if kind in (tuple, list):
        return all(map(_is_plain, item))
    if kind is dict:
        return all(map(_is_plain, item)) and all(map(_is_plain, item.values()))
    return kind in _PLAIN


# C types, and those of packages that PyTorch imports.
_DESCRIBED_ELSEWHERE = ("pybind11", "numpy", "sympy", *sys.stdlib_module_names)
_PLAIN = (bool, int, float, str, type(None), torch.dtype)
_NAMED = (type, BuiltinFunctionType, MethodDescriptorType, WrapperDescriptorType)


def _is_patchable(name: str) -> bool:
    return name.partition(".")[0] in ("torch", *OWN_PACKAGES) and not name.startswith(_OF_NO_TRACE)


def _is_core(name: str) -> bool:
    """Return whether a module is one that models call."""
    return name in _CALLED or name.startswith(("torch.nn", "torch.optim", "torch.amp"))


_CALLED = (
    *("torch", "torch._tensor", "torch.autograd", "torch.autograd.function", "torch.fft", "torch.functional"),
    *("torch.linalg", "torch.special", "torch.utils.checkpoint"),
)
# Of these, exchanged functions count, too. What a trace loads is not among them: a loaded step has none.
_CORE = frozenset(filter(_is_core, list(sys.modules)))
# Loaded here, so that it is the same in each process.
_STANDARD = sorted(PURE_MODULES - {"__future__", "typing_extensions"})
for _name in _STANDARD:
    importlib.import_module(_name)
