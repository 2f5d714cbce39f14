"""`ClassContent`: classes and instances as their members, as far as some code uses them."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from types import MemberDescriptorType
from typing import Any

import torch
from torch.nn import Module

from npu_runtime.training.cache.code_content import CodeContent
from npu_runtime.training.cache.digest import Digest
from npu_runtime.training.cache.known_code import (
    CLASS_CREATION,
    CONSTRUCTION,
    CONSTRUCTORS,
    find_registered,
    find_volatile,
    has_plain_state,
    is_dynamic,
    is_known_class,
    is_of_library,
)

# Attributes of classes that no code runs by: `REFLECTIVE_NAMES` has those that code could read.
_UNREAD = frozenset(
    {"__dict__", "__weakref__", "__doc__", "__module__", "__annotations__", "__abstractmethods__"}
    | {"_abc_impl", "__parameters__", "__orig_bases__", "__static_attributes__", "__firstlineno__"}
    | {"__annotate_func__", "__dataclass_params__"}
    | {"__annotations_cache__", "__type_params__", "__qualname__", "_backward_cls", "_autograd_function_id"}
)


class ClassContent(CodeContent):
    """A digest of classes and instances."""

    def _add_class(self, kind: type, *, is_made: bool) -> None:
        """Add a class.

        Args:
            kind: The class.
            is_made: Whether code refers to the class itself, and may make instances of it.
        """
        self.add_text("class", kind.__module__, kind.__qualname__, kind.__name__)
        if is_known_class(kind):
            self._add_known_class(kind, is_made=is_made)
            return
        self.add_text(str(self._number_of(kind)))
        marker = kind, is_made
        if marker in self._members.classes:
            return
        self._members.classes.add(marker)
        module = sys.modules.get(kind.__module__)
        if module is not None and is_of_library(str(getattr(module, "__file__", ""))):
            raise self._unknown(f"{kind.__module__}.{kind.__qualname__} is of the standard library")
        if not has_plain_state(kind) and not issubclass(kind, (torch.autograd.Function, Enum)):
            raise self._unknown(f"the class {kind.__qualname__} is implemented in C")
        if getattr(kind, "_is_protocol", False):
            raise self._unknown(f"the protocol {kind.__qualname__} knows instances by their attributes")
        self._refuse_registered(kind)
        if type(kind) is not type:
            self._add_class(type(kind), is_made=False)
        inherited = frozenset[str]().union(*(dir(base) for base in kind.__mro__ if is_known_class(base)))
        for base in kind.__mro__:
            self.add_text("base", base.__module__, base.__qualname__)
            if not is_known_class(base):
                self._add_class_members(base, inherited, is_made=is_made)

    def _add_known_class(self, kind: type, *, is_made: bool) -> None:
        if reason := find_volatile(kind.__module__, kind.__qualname__):
            raise self._unknown(reason)
        self._refuse_registered(kind)
        if is_dynamic(kind.__module__, kind.__qualname__):
            self._members.use_all()
        if kind is type and is_made:  # behind another name
            self._members.use(("type", *CLASS_CREATION))

    def _refuse_registered(self, kind: type) -> None:
        if name := find_registered(kind):
            raise self._unknown(f"{name} is registered as a subclass of {kind.__qualname__}")

    def _add_class_members(self, kind: type, inherited: frozenset[str], *, is_made: bool) -> None:
        members = {
            key: item
            for key, item in vars(kind).items()
            if key not in _UNREAD and not key.startswith("_compiled_autograd")
        }
        self._add_order(kind, members)
        for key, item in members.items():
            adding = functools.partial(self._add_member, self._number_of(kind), key, item)
            is_constructor = key in CONSTRUCTORS and not is_made
            if key == "__init_subclass__":
                for name in CLASS_CREATION:
                    self._members.add(name, adding)
            elif key == "__match_args__":
                self._members.add(key, functools.partial(self._use_names, item))
            elif is_constructor:
                for name in CONSTRUCTION:
                    self._members.add(name, adding)
            elif key in inherited or key.startswith("__") or key == "keys" or issubclass(kind, Enum):
                self._members.queue(adding)
            else:
                self._members.add(key, adding)

    def _use_names(self, names: Any) -> None:
        """Take note that a pattern uses attributes by their positions."""
        self.add(names)
        if isinstance(names, tuple):
            self._members.use(name for name in names if isinstance(name, str))

    def _add_instance(self, item: Any, kind: type) -> None:
        if isinstance(item, BaseException):
            raise self._unknown(f"an exception of the class {kind.__qualname__} is not described")
        if not has_plain_state(kind):
            raise self._unknown(f"a {kind.__module__}.{kind.__qualname__} is not described by its attributes")
        self.add_text("instance")
        is_container = isinstance(item, (tuple, list, dict, set, frozenset, str, int, float))
        self._add_class(kind, is_made=is_container)
        for base, adding in _CONTAINERS.items():
            if isinstance(item, base):
                adding(self, item)
        known = [base for base in kind.__mro__ if base is not object and is_known_class(base)]
        self._add_attributes(item, is_read_by_known_code=bool(known))

    def _add_attributes(
        self, item: Any, *, is_read_by_known_code: bool, left_out: frozenset[str] = frozenset()
    ) -> None:
        """Add the attributes of an instance; those that only its own code can read, when it does."""
        owner = self._number_of(item)
        attributes = [pair for pair in _attributes_of(item) if pair[0] not in left_out]
        self._add_order(item, [key for key, _ in attributes])
        for key, value in attributes:
            adding = functools.partial(self._add_member, owner, key, value)
            is_inherited = hasattr(Module, key) if isinstance(item, Module) else False
            if is_read_by_known_code or is_inherited:
                self._members.queue(adding)
            else:
                self._members.add(key, adding)

    def _add_enum(self, item: Enum) -> None:
        self.add_text("enum", str(item.name))
        self.add(item.value)
        self._add_class(type(item), is_made=True)  # its members are made by the class statement
        self._add_attributes(item, is_read_by_known_code=True)


def _attributes_of(item: Any) -> Iterator[tuple[str, Any]]:
    """Yield the attributes of an instance, those in slots included."""
    for base in type(item).__mro__:
        for name, slot in vars(base).items():
            if type(slot) is MemberDescriptorType and "__slots__" in vars(base):
                with contextlib.suppress(AttributeError):  # not assigned yet
                    yield name, slot.__get__(item)
    yield from getattr(item, "__dict__", {}).items()


_CONTAINERS: Mapping[type, Callable[[Digest, Any], None]] = {
    dict: Digest._add_dict,
    list: Digest._add_sequence,
    tuple: Digest._add_sequence,
    set: Digest._add_set,
    frozenset: Digest._add_set,
    str: lambda self, item: self.add_text(str.__repr__(item)),
    int: lambda self, item: self.add_text(int.__repr__(item)),
    float: lambda self, item: self.add_text(float.hex(item)),
}
