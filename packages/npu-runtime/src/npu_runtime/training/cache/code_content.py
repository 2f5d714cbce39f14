"""`CodeContent`: functions as their bytecode, with defaults, free variables and the globals they read."""

from __future__ import annotations

import functools
import types
from collections.abc import Iterable, Mapping
from typing import Any

import torch

from npu_runtime.training.cache.code_references import CodeReferences, Reference, find_references
from npu_runtime.training.cache.digest import Digest
from npu_runtime.training.cache.known_code import (
    DYNAMIC_MODULES,
    DYNAMIC_NAMES,
    REFLECTIVE_NAMES,
    VOLATILE_BUILTINS,
    find_volatile,
    is_dynamic,
    is_known_function,
    is_known_module,
    is_of_library,
)

# The wrapper by which PyTorch keeps torch.compile out, and what it keeps from its first call.
_DISABLED = "DisableContext.__call__.<locals>._fn"
_MADE_ON_CALLS = ("__dynamo_disable",)
_LIBRARY = "may read the environment, files, clocks or random numbers"


class CodeContent(Digest):
    """A digest of functions, methods, modules and other callables."""

    def __init__(self) -> None:
        super().__init__()
        self._references: dict[types.CodeType, CodeReferences] = {}

    def _add_function(self, function: types.FunctionType) -> None:
        code = function.__code__
        if is_known_function(function):
            name, module = function.__qualname__, str(function.__globals__.get("__name__"))
            reason = find_volatile(str(function.__module__), name)
            if reason and name != _DISABLED:
                raise self._unknown(reason)
            self.add_text("known function", module, name, str(code.co_firstlineno))
            self._add_known_function(function)
            return
        if is_of_library(code.co_filename):
            raise self._unknown(f"{function.__module__}.{function.__qualname__} {_LIBRARY}")
        with self._within(f"{function.__qualname__} at {code.co_filename}:{code.co_firstlineno}"):
            # Registries and decorators set these, and code may branch on them.
            self.add_text("function", function.__name__, function.__qualname__, str(function.__module__))
            self._add_code(code)
            self.add(function.__defaults__, "a default")
            self.add(function.__kwdefaults__, "a default")
            self.add(vars(function))
            self._add_closure(function)
            self._add_references(function)

    def _add_known_function(self, function: types.FunctionType) -> None:
        """Add what a function of a known module holds: that of torch.no_grad() wraps any function."""
        if function.__qualname__ == _DISABLED:
            self.add(getattr(function, "__wrapped__", None), "a function that torch.compile leaves alone")
            return
        if is_dynamic(str(function.__module__), function.__qualname__):
            self._members.use_all()
        self._add_closure(function)
        self.add({name: item for name, item in vars(function).items() if name not in _MADE_ON_CALLS})

    def _add_closure(self, function: types.FunctionType) -> None:
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            self.add_text("free variable", name)
            try:
                item = cell.cell_contents
            except ValueError:  # not assigned yet
                self.add_text("empty")
                continue
            if name == "__class__" and isinstance(item, type):  # of super(): no instance is made
                self._add_class(item, is_made=False)
            else:
                self.add(item, name)

    def _add_code(self, code: types.CodeType) -> None:
        """Add bytecode, and the lines that it comes from: nodes of a graph name these."""
        numbers = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
        names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
        self.add_text(
            "code", code.co_name, code.co_filename, str(code.co_firstlineno), repr((numbers, names))
        )
        self._add_bytes(code.co_code)
        self._add_bytes(repr(list(code.co_lines())).encode())
        self._add_bytes(getattr(code, "co_exceptiontable", b""))
        for item in code.co_consts:
            if isinstance(item, types.CodeType):
                self._add_code(item)
            elif isinstance(item, frozenset):
                self._add_elements(item)
            else:
                self.add(item)

    def _add_references(self, function: types.FunctionType) -> None:
        found = self._references.get(function.__code__)
        if found is None:
            found = self._references[function.__code__] = find_references(function.__code__)
        for constant in found.unordered:
            self._add_set(constant)
        if found.written:
            raise self._unknown(f"it writes the global {found.written[0]!r}")
        read = found.attributes.union(item.name for item in found.globals)
        if reflective := sorted(REFLECTIVE_NAMES & read):
            raise self._unknown(f"it reads {reflective[0]}")
        for name, dots in found.imports:
            if dots or not is_known_module(name):
                raise self._unknown(f"it imports {'.' * dots}{name} when it runs")
        self._members.use(found.attributes)
        self._members.use(item.name for item in found.globals if item.name in (*DYNAMIC_NAMES, "type"))
        builtins = getattr(function, "__builtins__", None) or vars(__import__("builtins"))
        for reference in found.globals:
            self._add_global(reference, function.__globals__, builtins)

    def _add_global(self, reference: Reference, own: Mapping[str, Any], builtins: Mapping[str, Any]) -> None:
        name = reference.name
        self.add_text("global", name)
        if name not in own and name not in builtins:
            self.add_text("undefined")
            return
        item = own[name] if name in own else builtins[name]
        if item is type and name == "type":  # whether code makes classes with it is in its references
            self.add_text("builtin", name)
            return
        if name in VOLATILE_BUILTINS and name not in own:
            raise self._unknown(f"it calls {name}(), whose result is not that of its arguments alone")
        for attribute in reference.attributes:
            if not isinstance(item, types.ModuleType) or not is_known_module(item.__name__):
                break
            if not hasattr(item, attribute):
                break
            name = f"{name}.{attribute}"
            if item.__name__ == "torch.ops" and attribute not in ("aten", "prims"):
                raise self._unknown(f"{name} may be anyone's ops")
            item = getattr(item, attribute)
            self.add_text("attribute", attribute)
        self.add(item, name)

    def _add_python_module(self, module: types.ModuleType) -> None:
        name = module.__name__
        self.add_text("module", name)
        if reason := find_volatile(name, "*"):
            raise self._unknown(reason)
        if name == "builtins":
            raise self._unknown("any builtin may be meant where the module builtins is passed on")
        if name in DYNAMIC_MODULES:
            self._members.use_all()
        if name.startswith("torch.ops"):
            raise self._unknown("ops of torch.ops may be anyone's: call those of PyTorch as torch.ops.aten")
        if is_known_module(name):
            return
        path = getattr(module, "__file__", None)
        if (path is None and name != "__main__") or str(path).endswith((".so", ".pyd")):
            raise self._unknown(f"the module {name} is not written in Python")
        if is_of_library(str(path)):
            raise self._unknown(f"the module {name} {_LIBRARY}")
        members = list(vars(module).items())
        self._add_order(module, [key for key, _ in members])
        for key, item in members:
            adding = functools.partial(self._add_member, self._number_of(module), key, item)
            if key == "__getattr__":  # called for what is not there
                self._members.queue(adding)
            else:
                self._members.add(key, adding)

    def _add_builtin(self, function: Any) -> None:
        owner, name = function.__self__, function.__name__
        if is_dynamic(type(owner).__name__, name):
            self._members.use_all()
        if isinstance(owner, types.ModuleType):
            if not is_known_module(owner.__name__):
                raise self._unknown(f"{owner.__name__}.{name} is implemented in C")
            if reason := find_volatile(owner.__name__, name):
                raise self._unknown(reason)
            if owner.__name__ == "builtins" and name in VOLATILE_BUILTINS:
                raise self._unknown(f"it calls {name}(), whose result is not that of its arguments alone")
            self.add_text("builtin", owner.__name__, name)
        elif owner is None and getattr(torch, name, None) is function:
            if reason := find_volatile("torch", name):
                raise self._unknown(reason)
            self.add_text("builtin", "torch", name)
        else:
            self.add_text("builtin", name)
            if owner is None:
                raise self._unknown(f"{name} is implemented in C")
            self.add(owner, name)

    def _add_descriptor(self, item: Any) -> None:
        if not is_known_module(item.__objclass__.__module__):
            raise self._unknown(f"{item.__objclass__.__name__}.{item.__name__} is implemented in C")
        if is_dynamic(item.__objclass__.__name__, item.__name__):
            self._members.use_all()
        self.add_text("descriptor", item.__objclass__.__qualname__, item.__name__)

    def _add_memoized(self, function: Any) -> None:
        if function.cache_info().currsize:
            raise self._unknown(f"{function.__qualname__} returns results that were computed before")
        self.add_text("memoized")
        self.add(function.__wrapped__)

    def _add_parts(self, item: Any, *names: str) -> None:
        self.add_text(type(item).__name__)
        for name in names:
            self.add(getattr(item, name, None), name)

    def _add_op(self, item: Any) -> None:
        name = str(item)
        if not name.startswith(("aten.", "prims.")):
            raise self._unknown(f"{name} may be anyone's op")
        self.add_text("op", name)

    def _add_order(self, owner: Any, names: Iterable[str]) -> None:
        """Add the order of attributes, if code that was reached goes through them."""
        adding = functools.partial(self.add_text, "order", str(self._number_of(owner)), *names)
        self._members.add_for_dynamic(adding)

    def _add_member(self, owner: int, name: str, item: Any) -> None:
        """Add an attribute of an object, which is named by the number that it has here."""
        self.add_text("member", str(owner), name)
        if not isinstance(item, _SLOT_TYPES):
            self.add(item, name)


_SLOT_TYPES = (types.GetSetDescriptorType, types.MemberDescriptorType)
