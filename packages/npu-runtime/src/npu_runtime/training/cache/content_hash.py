"""`ContentHash`: the digest of Python objects by everything that running them may depend on.

Functions are their bytecode, with their defaults, closures and the globals that they read, and so on;
instances their class and attributes; tensors their bytes. Of classes and instances, an attribute counts if
some code that was reached uses its name: `Members` keeps the others until then. What cannot be described
with certainty raises an `UnknownContentError`.
"""

from __future__ import annotations

import collections
import functools
import hashlib
import re
import types
import typing
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

import torch
from torch.nn import Module
from torch.optim import Optimizer

from npu_ir.core.tensor_bytes import content_buffer
from npu_runtime._torch.ops import OpOverload, OpOverloadPacket
from npu_runtime.training.cache.class_content import ClassContent
from npu_runtime.training.cache.digest import BY_REPR, UnknownContentError
from npu_runtime.training.cache.known_code import VOLATILE_NAMES, has_plain_state, is_known_class

__all__ = ["ContentHash", "UnknownContentError"]

_SLOTS = (types.GetSetDescriptorType, types.MemberDescriptorType)
_TYPING = (types.GenericAlias, types.UnionType, typing.TypeVar)
_C_DESCRIPTORS = (types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType)
_NAMED_FIELD = type(
    vars(collections.namedtuple("_Named", "field"))["field"]
)  # its module depends on the release
_MODULE_STATE = frozenset(vars(Module()))
_WEIGHT_REFERENCES = frozenset({"_flat_weight_refs"})  # of recurrent layers, to the parameters that they have


class ContentHash(ClassContent):
    """A digest of objects, in the order in which they are added.

    Args:
        tensors: Tensors that stand for themselves, by name: their types count, their contents do not.
    """

    def __init__(self, tensors: Mapping[str, torch.Tensor] = types.MappingProxyType({})) -> None:
        super().__init__()
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

    def add(self, item: Any, where: str = "") -> None:
        """Add an object.

        Args:
            item: The object.
            where: The name by which it is reached, for the error.

        Raises:
            UnknownContentError: It cannot be described by content.
        """
        kind = type(item)
        if kind in BY_REPR:
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

    def _add_object(self, item: Any, kind: type) -> None:
        adding = _ADDING.get(kind) or next(
            (function for base, function in _ADDING_INSTANCES.items() if isinstance(item, base)), None
        )
        if adding is not None:
            adding(self, item)
        elif kind.__module__ == "typing":
            self._add_annotation(item)
        elif _is_array(kind) and item.dtype.kind in "biufc":
            self.add_text("numpy", kind.__name__, str(item.dtype), str(item.shape), str(item.strides))
            self._add_bytes(item.tobytes())
        elif kind.__name__ == "_lru_cache_wrapper":
            self._add_memoized(item)
        else:
            self._add_instance(item, kind)

    def _add_annotation(self, item: Any) -> None:
        """Add an object of `typing`: an alias of a generic class makes instances of that class."""
        self.add_text("typing", repr(item))
        if (origin := typing.get_origin(item)) is not None:
            self.add(origin, "the origin of an alias")
            self._add_items(typing.get_args(item))

    def _refuse_optimizer(self, _: Optimizer) -> None:
        raise self._unknown("it reads an optimizer that the step does not train with")

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
            if type(value) is set:  # of names, for which PyTorch only tests
                self._add_elements(value)
                continue
            self.add(list(value.values()) if is_hooks and isinstance(value, dict) else value, name)
        known = [base for base in kind.__mro__ if base not in (object, Module) and is_known_class(base)]
        left_out = _MODULE_STATE | (
            _WEIGHT_REFERENCES if isinstance(module, torch.nn.RNNBase) else frozenset()
        )
        self._add_attributes(module, is_read_by_known_code=bool(known), left_out=left_out)

    def add_optimizer(
        self, optimizer: Optimizer, left_out: frozenset[str], of_schedulers: frozenset[str]
    ) -> None:
        """Add the class of an optimizer, and its attributes; then it is known.

        Args:
            optimizer: The optimizer.
            left_out: Attributes that do not count.
            of_schedulers: Attributes that count only if code which was reached uses their names.
        """
        self._remember(optimizer)
        with self._within(type(optimizer).__qualname__):
            self.add_text("optimizer")
            self._add_class(type(optimizer), is_made=False)
            self._add_attributes(
                optimizer, is_read_by_known_code=True, left_out=left_out.union(of_schedulers)
            )
            owner, attributes = self._number_of(optimizer), vars(optimizer)
            for name in sorted(of_schedulers & attributes.keys()):
                self._members.add(name, functools.partial(self._add_member, owner, name, attributes[name]))

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


def _is_array(kind: type) -> bool:
    """Return whether a class is that of NumPy's arrays, or of a scalar of it."""
    return kind.__module__ == "numpy" and (
        kind.__name__ == "ndarray" or any(base.__name__ == "generic" for base in kind.__mro__)
    )


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
    _NAMED_FIELD: lambda self, item: self.add_text("field", repr(item.__reduce__()[1])),
    **dict.fromkeys(_C_DESCRIPTORS, ContentHash._add_descriptor),
    **dict.fromkeys(_SLOTS, lambda self, item: self._add_descriptor(item)),
}
# Of subclasses, too; the first one counts.
_ADDING_INSTANCES: Mapping[type, Callable[[ContentHash, Any], None]] = {
    torch.Tensor: ContentHash._add_tensor,
    Module: ContentHash._add_module,
    Optimizer: ContentHash._refuse_optimizer,
    type: lambda self, item: self._add_class(item, is_made=True),
    Enum: ContentHash._add_enum,
    types.ModuleType: ContentHash._add_python_module,
    **dict.fromkeys(_TYPING, ContentHash._add_annotation),
}
