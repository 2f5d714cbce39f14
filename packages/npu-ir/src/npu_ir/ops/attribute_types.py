"""The types of the arguments that attributes fill, and which literals PyTorch accepts for them."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import torch

from npu_ir.core.literals import Literal

_END = 1 << 63  # PyTorch's integers are int64
_NUMBERS = (bool, int, float, complex)
_CONSTANTS = (torch.dtype, torch.layout, torch.memory_format)

# By the name of a type in schemas.
_CLASSES: dict[str, tuple[type, ...]] = {
    "int": (bool, int),
    "float": (bool, int, float),
    "bool": (type(None), *_NUMBERS),
    "number": _NUMBERS,
    "str": (str,),
    "ScalarType": (bool, int, torch.dtype),
    "Layout": (bool, int, torch.layout),
    "MemoryFormat": (bool, int, torch.memory_format),
    "Device": (str, torch.device),
    "Generator": (),
    "Tensor": (),
}
_INTEGERS = ("int", "ScalarType", "Layout", "MemoryFormat")


@dataclass(frozen=True, slots=True)
class AttributeType:
    """The type of an argument: what PyTorch converts to it.

    Attributes:
        text: As in schemas: ``int[2]?``.
        classes: Those of single literals that are accepted.
        elements: Those of the elements of a list; None if no list is accepted.
        has_end: Whether integers are int64.
    """

    text: str
    classes: frozenset[type]
    elements: frozenset[type] | None
    has_end: bool

    def accepts(self, value: Literal) -> bool:
        """Return whether an op takes ``value`` as this argument."""
        if value.__class__ is list:
            return self.elements is not None and all(self._is_one(item, self.elements) for item in value)
        return self._is_one(value, self.classes)

    def accepts_with_gaps(self, value: Literal) -> bool:
        """Return the same of a list that has None where an input belongs."""
        filled = [item for item in value if item is not None] if value.__class__ is list else value
        return value is None or self.accepts(filled)

    def _is_one(self, value: Literal, classes: frozenset[type]) -> bool:
        kind = value.__class__
        return kind in classes and not (self.has_end and kind is int and not -_END <= value < _END)


@functools.cache
def attribute_type(name: str, size: int | None, takes_numbers: bool) -> AttributeType | None:
    """Return the type of an argument; None for one that is not known here, such as a class.

    Args:
        name: The type as PyTorch prints it: ``Optional[List[int]]``.
        size: For lists, the length to which PyTorch repeats a single number; None if it does not.
        takes_numbers: Whether numbers stand for tensors.
    """
    optional = name.startswith("Optional[")
    inner = name.removeprefix("Optional[").removesuffix("]") if optional else name
    is_list = inner.startswith("List[")
    element = inner.removeprefix("List[").removesuffix("]") if is_list else inner
    if element not in _CLASSES:
        return None
    known = _NUMBERS if element == "Tensor" and takes_numbers else _CLASSES[element]
    if inner == "int":
        known = (*known, *_CONSTANTS)  # to PyTorch they are integers
    list_text = f"[{'' if size is None else size}]" if is_list else ""
    # A number stands for a list of known length; a string is a list of characters to PyTorch.
    is_single = not is_list or (size is not None and element == "int") or element == "str"
    return AttributeType(
        text=f"{element}{list_text}{'?' * optional}",
        classes=frozenset(known if is_single else ()) | frozenset((type(None),) * optional),
        elements=frozenset(known) if is_list else None,
        has_end=element in _INTEGERS,
    )


def attribute_type_of(argument: Any, takes_numbers: bool) -> AttributeType | None:
    """Return the type of an argument of ``torch._C.FunctionSchema``; None as for `attribute_type`."""
    return attribute_type(str(argument.real_type), argument.N, takes_numbers)
