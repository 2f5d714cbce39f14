"""`ContentHash`: the digest of Python objects by everything that running them may depend on.

Functions are their bytecode, with their defaults, closures and the globals that they read, and so on;
instances their class and attributes; tensors their bytes. Of classes and instances, an attribute counts if
some code that was reached uses its name: `_Members` keeps the others until then. What cannot be described
with certainty raises an `UnknownContentError`.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import hashlib
import re
import sys
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from typing import Any

import torch
from torch.nn import Module
from torch.optim import Optimizer

from npu_ir.core.tensor_bytes import content_buffer
from npu_runtime._torch.ops import OpOverload, OpOverloadPacket
from npu_runtime.training.cache.code_references import CodeReferences, Reference, find_references
from npu_runtime.training.cache.known_code import (
    DYNAMIC_NAMES,
    REFLECTIVE_NAMES,
    VOLATILE_BUILTINS,
    VOLATILE_NAMES,
    find_volatile,
    has_plain_state,
    is_known_class,
    is_known_function,
    is_known_module,
    is_of_library,
    names_used_by_pytorch,
)

_BY_REPR = (
    *(type(None), bool, int, str, bytes, complex, range, slice, type(Ellipsis), type(NotImplemented)),
    *(torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size),
)
_TYPING = (types.GenericAlias, types.UnionType, typing.TypeVar)
_SLOT_TYPES = (types.GetSetDescriptorType, types.MemberDescriptorType)
_C_DESCRIPTORS = (types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType)
# Attributes of classes that no code runs by: `REFLECTIVE_NAMES` has those that code could read.
_UNREAD = frozenset(
    {"__dict__", "__weakref__", "__doc__", "__module__", "__annotations__", "__abstractmethods__"}
    | {"_abc_impl", "__parameters__", "__orig_bases__", "__static_attributes__", "__firstlineno__"}
    | {"__annotate_func__", "__dataclass_params__"}
    | {"__annotations_cache__", "__type_params__", "__qualname__", "_backward_cls", "_autograd_function_id"}
)
# Methods of a class that run only where an instance is made.
_CONSTRUCTORS = frozenset({"__init__", "__new__", "__post_init__", "__init_subclass__", "__set_name__"})
_CONSTRUCTION = ("__class__", "type", *_CONSTRUCTORS)
_LIBRARY = "may read the environment, files, clocks or random numbers"
_MODULE_STATE = frozenset(vars(Module()))


class UnknownContentError(Exception):
    """Something that a step depends on cannot be described by content with certainty."""


class ContentHash:
    """A digest of objects, in the order in which they are added.

    Args:
        tensors: Tensors that stand for themselves, by name: their types count, their contents do not.
    """

    def __init__(self, tensors: Mapping[str, torch.Tensor] = types.MappingProxyType({})) -> None:
        self._sha = hashlib.sha256()
        self._numbers: dict[int, int] = {}
        self._alive: list[Any] = []  # an address is a name only as long as its object lives
        self._path: list[str] = []
        self._members = _Members()
        self._members.use(names_used_by_pytorch().difference(DYNAMIC_NAMES, _CONSTRUCTION))
        self._references: dict[types.CodeType, CodeReferences] = {}
        for name, tensor in tensors.items():
            self.add_text("tensor", name)
            self.add_tensor_type(tensor)
            self._remember(tensor)

    def digest(self) -> str:
        """Return the digest, after what the code so far may reach by name was added."""
        while (adding := self._members.next()) is not None:
            adding()
        for name in sorted(VOLATILE_NAMES & self._members.names):
            raise UnknownContentError(f"{name} reads state of the process")
        return self._sha.hexdigest()

    def add_text(self, *texts: str) -> None:
        """Add texts."""
        for text in texts:
            data = text.encode("utf-8", "surrogatepass")
            self._sha.update(len(data).to_bytes(8, "little") + data)

    def add(self, item: Any, where: str = "") -> None:
        """Add an object.

        Args:
            item: The object.
            where: The name by which it is reached, for the error.

        Raises:
            UnknownContentError: It cannot be described by content.
        """
        kind = type(item)
        if kind in _BY_REPR:
            self.add_text(kind.__name__, repr(item))
            return
        if kind is float:
            self.add_text("float", item.hex())
            return
        # Whether equal tuples are one object is up to the compiler.
        if kind not in (tuple, frozenset):
            if id(item) in self._numbers:
                self.add_text("seen", str(self._numbers[id(item)]))
                return
            self._remember(item)
        with self._within(where):
            try:
                self._add_object(item, kind)
            except RecursionError as error:
                raise self._unknown("it is nested too deeply") from error

    def _remember(self, item: Any) -> None:
        self._numbers[id(item)] = len(self._numbers)
        self._alive.append(item)

    @contextlib.contextmanager
    def _within(self, where: str) -> Iterator[None]:
        self._path.append(where)
        try:
            yield
        finally:
            self._path.pop()

    def _unknown(self, reason: str) -> UnknownContentError:
        place = " -> ".join(dict.fromkeys(filter(None, self._path)))
        return UnknownContentError(f"{reason} ({place})" if place else reason)

    def _add_object(self, item: Any, kind: type) -> None:
        adding = _ADDING.get(kind)
        if adding is not None:
            adding(self, item)
        elif isinstance(item, torch.Tensor):
            self._add_tensor(item)
        elif isinstance(item, Module):
            self._add_module(item)
        elif isinstance(item, Optimizer):
            raise self._unknown("it reads an optimizer that the step does not train with")
        elif isinstance(item, type):
            self._add_class(item, is_made=True)
        elif isinstance(item, Enum):
            self.add_text("enum", str(item.name))
            self.add(item.value)
            self._add_class(kind, is_made=False)
        elif isinstance(item, types.ModuleType):
            self._add_python_module(item)
        elif isinstance(item, _TYPING) or kind.__module__ == "typing":
            self.add_text("typing", repr(item))
        elif kind.__module__ == "numpy" and hasattr(item, "tobytes") and item.dtype.kind in "biufc":
            self.add_text("numpy", str(item.dtype), str(item.shape))
            self._add_bytes(item.tobytes())
        elif kind.__name__ == "_lru_cache_wrapper":
            self._add_memoized(item)
        else:
            self._add_instance(item, kind)

    def _add_bytes(self, data: bytes) -> None:
        self.add_text("bytes", hashlib.sha256(data).hexdigest())

    # Containers

    def _add_items(self, items: Iterable[Any]) -> None:
        items = list(items)
        self.add_text(type(items).__name__, str(len(items)))
        for index, item in enumerate(items):
            self.add(item, f"[{index}]")

    def _add_sequence(self, item: Iterable[Any]) -> None:
        self.add_text(type(item).__name__)
        self._add_items(item)

    def _add_set(self, item: Any) -> None:
        if any(type(element) not in _BY_REPR and type(element) is not float for element in item):
            raise self._unknown("the order of a set of objects is another in each process")
        self.add_text(type(item).__name__, *sorted(map(repr, item)))

    def _add_dict(self, item: Mapping[Any, Any]) -> None:
        self.add_text(type(item).__name__, str(len(item)))
        if isinstance(item, collections.defaultdict):
            self.add(item.default_factory)
        for key, value in item.items():
            self.add(key)
            self.add(value, f"[{key!r}]")

    # Code

    def _add_function(self, function: types.FunctionType) -> None:
        code = function.__code__
        if is_known_function(function):
            name, module = function.__qualname__, str(function.__globals__.get("__name__"))
            if reason := find_volatile(str(function.__module__), name):
                raise self._unknown(reason)
            # A wrapper of a known module, such as that of torch.no_grad(), may hold any function.
            self.add_text("known function", module, name, str(code.co_firstlineno))
            self._add_closure(function)
            self.add(vars(function))
            return
        if is_of_library(code.co_filename):
            raise self._unknown(f"{function.__module__}.{function.__qualname__} {_LIBRARY}")
        with self._within(f"{function.__qualname__} at {code.co_filename}:{code.co_firstlineno}"):
            self.add_text("function")
            self._add_code(code)
            self.add(function.__defaults__, "a default")
            self.add(function.__kwdefaults__, "a default")
            self.add(vars(function))
            self._add_closure(function)
            self._add_references(function)

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
        self.add_text("code", code.co_name, code.co_filename, str(code.co_firstlineno), repr((numbers, names)))
        self._add_bytes(code.co_code)
        self._add_bytes(repr(list(code.co_lines())).encode())
        self._add_bytes(getattr(code, "co_exceptiontable", b""))
        for item in code.co_consts:
            if isinstance(item, types.CodeType):
                self._add_code(item)
            else:
                self.add(item)

    def _add_references(self, function: types.FunctionType) -> None:
        found = self._references.get(function.__code__)
        if found is None:
            found = self._references[function.__code__] = find_references(function.__code__)
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

    def _add_global(
        self, reference: Reference, own: Mapping[str, Any], builtins: Mapping[str, Any]
    ) -> None:
        name = reference.name
        self.add_text("global", name)
        if name not in own and name not in builtins:
            self.add_text("undefined")
            return
        item = own[name] if name in own else builtins[name]
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
        if name.startswith("torch.ops"):
            raise self._unknown("ops of torch.ops may be anyone's: call those of PyTorch as torch.ops.aten")
        if is_known_module(name):
            return
        path = getattr(module, "__file__", None)
        if path is None and name != "__main__" or str(path).endswith((".so", ".pyd")):
            raise self._unknown(f"the module {name} is not written in Python")
        if is_of_library(str(path)):
            raise self._unknown(f"the module {name} {_LIBRARY}")
        for key, item in list(vars(module).items()):
            adding = functools.partial(self._add_member, f"{name}.{key}", item)
            if key == "__getattr__":  # called for what is not there
                self._members.queue(adding)
            else:
                self._members.add(key, adding)

    def _add_builtin(self, function: Any) -> None:
        owner, name = function.__self__, function.__name__
        if isinstance(owner, types.ModuleType):
            if not is_known_module(owner.__name__):
                raise self._unknown(f"{owner.__name__}.{name} is implemented in C")
            if reason := find_volatile(owner.__name__, name):
                raise self._unknown(reason)
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

    # Classes and instances

    def _add_class(self, kind: type, *, is_made: bool) -> None:
        """Add a class.

        Args:
            kind: The class.
            is_made: Whether code refers to the class itself, and may make instances of it.
        """
        self.add_text("class", kind.__module__, kind.__qualname__)
        if is_known_class(kind):
            if reason := find_volatile(kind.__module__, kind.__qualname__):
                raise self._unknown(reason)
            return
        marker = kind, is_made
        if marker in self._members.classes:
            return
        self._members.classes.add(marker)
        self._alive.append(kind)
        module = sys.modules.get(kind.__module__)
        if module is not None and is_of_library(str(getattr(module, "__file__", ""))):
            raise self._unknown(f"{kind.__module__}.{kind.__qualname__} {_LIBRARY}")
        if not has_plain_state(kind) and not issubclass(kind, (torch.autograd.Function, Enum)):
            raise self._unknown(f"the class {kind.__qualname__} is implemented in C")
        if getattr(kind, "_is_protocol", False):
            raise self._unknown(f"instances of the protocol {kind.__qualname__} are found by their attributes")
        if type(kind) is not type:
            self._add_class(type(kind), is_made=False)
        inherited = frozenset[str]().union(*(dir(base) for base in kind.__mro__ if is_known_class(base)))
        for base in kind.__mro__:
            self.add_text("base", base.__module__, base.__qualname__)
            if not is_known_class(base):
                self._add_class_members(base, inherited, is_made=is_made)

    def _add_class_members(self, kind: type, inherited: frozenset[str], *, is_made: bool) -> None:
        for key, item in vars(kind).items():
            if key in _UNREAD or key.startswith("_compiled_autograd"):
                continue
            adding = functools.partial(self._add_member, f"{kind.__qualname__}.{key}", item)
            is_constructor = key in _CONSTRUCTORS and not is_made
            if is_constructor:
                for name in _CONSTRUCTION:
                    self._members.add(name, adding)
            elif key in inherited or key.startswith("__") or issubclass(kind, Enum):
                self._members.queue(adding)
            else:
                self._members.add(key, adding)

    def _add_member(self, name: str, item: Any) -> None:
        self.add_text("member", name)
        if isinstance(item, _SLOT_TYPES):
            return
        self.add(item, name)

    def _add_instance(self, item: Any, kind: type) -> None:
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

    def _add_attributes(self, item: Any, *, is_read_by_known_code: bool, left_out: frozenset[str] = frozenset()) -> None:
        """Add the attributes of an instance; those that only its own code can read, when it does."""
        owner = f"{type(item).__qualname__}"
        for key, value in _attributes_of(item):
            if key in left_out:
                continue
            adding = functools.partial(self._add_member, f"{owner}().{key}", value)
            is_inherited = hasattr(Module, key) if isinstance(item, Module) else False
            if is_read_by_known_code or is_inherited:
                self._members.queue(adding)
            else:
                self._members.add(key, adding)

    # PyTorch

    def _add_module(self, module: Module) -> None:
        kind = type(module)
        if not has_plain_state(kind):
            raise self._unknown(f"the module {kind.__qualname__} is implemented in C")
        if getattr(module, "_compiled_call_impl", None) is not None:
            raise self._unknown(f"the module {kind.__qualname__} is compiled by torch.compile")
        self.add_text("nn.Module")
        self._add_class(kind, is_made=False)
        state = vars(module)
        for name in sorted(_MODULE_STATE & state.keys()):
            self.add_text(name)
            value = state[name]
            # Hooks are numbered in the order in which a process makes them.
            is_hooks = name.endswith(("_hooks", "_with_kwargs", "_always_called"))
            self.add(list(value.values()) if is_hooks and isinstance(value, dict) else value, name)
        known = [base for base in kind.__mro__ if base not in (object, Module) and is_known_class(base)]
        self._add_attributes(module, is_read_by_known_code=bool(known), left_out=_MODULE_STATE)

    def add_optimizer(self, optimizer: Optimizer, left_out: frozenset[str]) -> None:
        """Add the class of an optimizer, and its attributes but for some; then it is known."""
        self._remember(optimizer)
        with self._within(type(optimizer).__qualname__):
            self.add_text("optimizer")
            self._add_class(type(optimizer), is_made=False)
            self._add_attributes(optimizer, is_read_by_known_code=True, left_out=left_out)

    def add_tensor_type(self, tensor: torch.Tensor) -> None:
        """Add the class, the type and the flags of a tensor.

        Raises:
            UnknownContentError: It is of a subclass, or not a plain tensor.
        """
        if type(tensor) not in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer):
            raise self._unknown(f"a tensor is of the class {type(tensor).__qualname__}")
        if tensor.layout is not torch.strided or tensor.is_quantized:
            raise self._unknown(f"a tensor has the layout {tensor.layout} and the dtype {tensor.dtype}")
        flags = tensor.requires_grad, tensor.is_leaf, tensor.is_conj(), tensor.is_neg(), tensor.is_inference()
        types_ = tensor.shape, tensor.stride(), tensor.storage_offset(), tensor.dtype, tensor.device
        self.add_text(type(tensor).__name__, repr(types_), repr(flags))
        if vars(tensor):
            self.add(vars(tensor), "attributes of a tensor")

    def _add_tensor(self, tensor: torch.Tensor) -> None:
        """Add a tensor that is not a parameter or buffer: a trace takes over its content."""
        self.add_tensor_type(tensor)
        self.add_content(tensor)

    def add_content(self, tensor: torch.Tensor) -> None:
        """Add the bytes of a tensor."""
        if tensor.is_meta:
            return
        data = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous().reshape(-1).view(torch.uint8)
        self._sha.update(hashlib.sha256(content_buffer(data)).digest())


def _attributes_of(item: Any) -> Iterator[tuple[str, Any]]:
    """Yield the attributes of an instance, those in slots included."""
    for base in type(item).__mro__:
        slots = vars(base).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            key = f"_{base.__name__.lstrip('_')}{name}" if name.startswith("__") else name
            if name not in ("__dict__", "__weakref__") and hasattr(item, key):
                yield name, getattr(item, key)
    yield from getattr(item, "__dict__", {}).items()


class _Members:
    """Attributes that are added to a digest when code is found that uses their names.

    Attributes:
        names: The names that code uses.
        classes: The classes whose members are here.
    """

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.classes: set[tuple[type, bool]] = set()
        self._is_dynamic = False
        self._waiting: dict[str, list[Callable[[], None]]] = {}
        self._queue: collections.deque[Callable[[], None]] = collections.deque()

    def add(self, name: str, adding: Callable[[], None]) -> None:
        """Keep an attribute until its name is used."""
        if self._is_dynamic or name in self.names:
            self._queue.append(adding)
        else:
            self._waiting.setdefault(name, []).append(adding)

    def queue(self, adding: Callable[[], None]) -> None:
        """Have something added, whatever is used."""
        self._queue.append(adding)

    def use(self, names: Iterable[str]) -> None:
        """Take note that code uses these names."""
        for name in sorted(names):
            if name in self.names:
                continue
            self.names.add(name)
            if name in DYNAMIC_NAMES and not self._is_dynamic:
                self._is_dynamic = True
                for waiting in self._waiting.values():
                    self._queue.extend(waiting)
                self._waiting.clear()
            self._queue.extend(self._waiting.pop(name, ()))

    def next(self) -> Callable[[], None] | None:
        """Return what is to be added next; None if nothing is."""
        return self._queue.popleft() if self._queue else None


_CONTAINERS: Mapping[type, Callable[[ContentHash, Any], None]] = {
    dict: ContentHash._add_dict,
    list: ContentHash._add_sequence,
    tuple: ContentHash._add_sequence,
    set: ContentHash._add_set,
    frozenset: ContentHash._add_set,
    str: lambda self, item: self.add_text(str.__repr__(item)),
    int: lambda self, item: self.add_text(int.__repr__(item)),
    float: lambda self, item: self.add_text(float.hex(item)),
}
_ADDING: Mapping[type, Callable[[ContentHash, Any], None]] = {
    tuple: ContentHash._add_sequence,
    list: ContentHash._add_sequence,
    collections.deque: ContentHash._add_sequence,
    set: ContentHash._add_set,
    frozenset: ContentHash._add_set,
    dict: ContentHash._add_dict,
    collections.OrderedDict: ContentHash._add_dict,
    collections.defaultdict: ContentHash._add_dict,
    types.MappingProxyType: ContentHash._add_dict,
    types.FunctionType: ContentHash._add_function,
    types.BuiltinFunctionType: ContentHash._add_builtin,
    types.MethodWrapperType: ContentHash._add_builtin,
    types.ModuleType: ContentHash._add_python_module,
    types.MethodType: lambda self, item: self._add_parts(item, "__func__", "__self__"),
    functools.partial: lambda self, item: self._add_parts(item, "func", "args", "keywords", "__dict__"),
    functools.partialmethod: lambda self, item: self._add_parts(item, "func", "args", "keywords"),
    functools.cached_property: lambda self, item: self._add_parts(item, "func", "attrname"),
    property: lambda self, item: self._add_parts(item, "fget", "fset", "fdel"),
    classmethod: lambda self, item: self._add_parts(item, "__func__"),
    staticmethod: lambda self, item: self._add_parts(item, "__func__"),
    re.Pattern: lambda self, item: self._add_parts(item, "pattern", "flags"),
    OpOverload: ContentHash._add_op,
    OpOverloadPacket: ContentHash._add_op,
    **dict.fromkeys(_C_DESCRIPTORS, ContentHash._add_descriptor),
    **dict.fromkeys(_SLOT_TYPES, lambda self, item: self._add_descriptor(item)),
}
