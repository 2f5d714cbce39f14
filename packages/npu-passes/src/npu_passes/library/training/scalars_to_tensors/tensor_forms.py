"""Equivalents of ops that read numbers, with 0-d tensors in their place, and the overloads that take them."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import torch

from npu_ir import OpNode, TensorType, Value
from npu_ir.ops.schema import ArgKind, OpSchema, find_op, op_type_of, resolve, schema_of
from npu_passes._torch import OpOverload
from npu_passes.library.training.scalars_to_tensors.arithmetic import Caller, cast, tensor_of_number
from npu_passes.rewriting.arguments import arguments_of

_TENSORS = (ArgKind.TENSOR, ArgKind.OPTIONAL_TENSOR, ArgKind.TENSOR_LIST)


@dataclass(frozen=True, slots=True)
class Overload:
    """Overload that takes tensors."""

    op_type: str  # its full name
    names: dict[str, str]  # by argument of the other overload: the name of that argument here
    tensors: frozenset[str]  # the arguments that take a tensor here, by their name in the other overload
    lists: frozenset[str]  # the subset of ``tensors`` that take a list of tensors

    @property
    def reads_memory(self) -> bool:
        """True if it takes numbers in full precision, for backends that read them from memory."""
        return self.op_type.endswith(".tensor_numbers")


def overload_for(
    op_type: str, numbers: Set[str], plain: Set[str] = frozenset(), *, in_memory: bool = False
) -> Overload | None:
    """Return the overload of an op that takes tensors for most of ``numbers``.

    Arguments in ``plain`` may be tensors, too: they are literals, or absent. With `in_memory`, it may be one
    that reads numbers as they are in memory.
    """
    candidates = [
        item
        for item in _overloads(op_type)
        if (in_memory or not item.reads_memory)
        and item.tensors & numbers
        and item.tensors <= numbers | plain
        and item.lists <= numbers
    ]
    return max(candidates, key=lambda item: (len(item.tensors & numbers), -len(item.lists)), default=None)


@functools.cache
def _overloads(op_type: str) -> tuple[Overload, ...]:
    return tuple(_find_overloads(op_type))


def _find_overloads(op_type: str) -> Iterator[Overload]:
    op = resolve(op_type)
    if op is None:
        return
    schema = schema_of(op)
    packet = op.overloadpacket
    for name in packet.overloads():
        other: OpOverload = getattr(packet, name)
        if other is not op and not schema_of(other).writes:
            overload = _match_overload(schema, schema_of(other))
            if overload is not None:
                yield overload


def _match_overload(schema: OpSchema, other: OpSchema) -> Overload | None:
    """Return ``other`` as an overload of ``schema``; None if they differ in more than tensors for numbers."""
    if len(other.args) < len(schema.args) or any(
        not arg.has_default for arg in other.args[len(schema.args) :]
    ):
        return None
    pairs = list(zip(schema.args, other.args, strict=False))
    changed = {
        mine.name: theirs for mine, theirs in pairs if mine.kind is ArgKind.PLAIN and theirs.kind in _TENSORS
    }
    rest = [(mine, theirs) for mine, theirs in pairs if mine.name not in changed]
    if not all(mine.name == theirs.name and mine.kind is theirs.kind for mine, theirs in rest):
        return None
    return Overload(
        op_type_of(other.op),
        {mine.name: theirs.name for mine, theirs in pairs},
        frozenset(changed),
        frozenset(name for name, arg in changed.items() if arg.kind is ArgKind.TENSOR_LIST),
    )


_LISTS = "_foreach_"
# By op without overload, and by argument that is a factor: the term of the sum that it scales.
_FACTORS: Mapping[str, Mapping[str, str]] = {
    "add": {"alpha": "other"},
    "sub": {"alpha": "other"},
    "rsub": {"alpha": "self"},
    "addcmul": {"value": "tensor1"},
    "addcdiv": {"value": "tensor1"},
    "addmm": {"alpha": "mat1", "beta": "self"},
    "baddbmm": {"alpha": "batch1", "beta": "self"},
}
# By op that fills a new tensor with a number: the argument with the number.
_FILLS = {"full": "fill_value", "full_like": "fill_value", "new_full": "fill_value", "scalar_tensor": "s"}
_COARSE = (torch.float16, torch.bfloat16)


class Form:
    """Computation equivalent to a node, with tensors in place of numbers.

    Args:
        node: A node that reads numbers; its op must be registered.
        numbers: The arguments of the node that are numbers which may become tensors.
        in_memory: As for `overload_for`.
    """

    def __init__(self, node: OpNode, numbers: frozenset[str], in_memory: bool = False) -> None:
        self._node = node
        self._schema = _schema(node.op_type)
        self._is_aten = node.op_type.startswith("aten.")
        packet = node.op_type.split(".")[1] if self._is_aten else ""
        table = _FACTORS.get(packet.removeprefix(_LISTS), {})
        self._factors = {name: term for name, term in table.items() if name in numbers}
        self._fill = _FILLS[packet] if _FILLS.get(packet) in numbers else None
        kinds = self._schema.by_name
        # Arguments that the schema declares as tensors, although they are given as numbers, need no other
        # overload.
        here = {name for name in numbers if kinds[name].kind is not ArgKind.PLAIN}
        rest = numbers - here - self._factors.keys() - {self._fill}
        args = arguments_of(node)
        plain = {arg.name for arg in self._schema.args if _is_plain_number(args.get(arg.name))}
        # Ops that read numbers from memory may have them in float32.
        in_memory = in_memory and self._dtype != torch.float64
        self._overload = overload_for(node.op_type, rest, plain, in_memory=in_memory) if rest else None
        moved = frozenset() if self._overload is None else self._overload.tensors & rest
        filled = frozenset() if self._fill is None else frozenset({self._fill})
        # The arguments that become tensors; the others stay numbers.
        self.tensors = frozenset({*self._factors, *here, *moved, *filled})

    def results(self, caller: Caller, given: Mapping[str, Value]) -> Sequence[Value]:
        """Return the results of the node, computed from tensors.

        Raises:
            GraphError: The ops do not accept these arguments.
        """
        dtype = self._dtype
        is_coarse = dtype in _COARSE
        wide = torch.float32 if is_coarse else dtype
        is_cast = self._overload is None or not self._overload.reads_memory
        tensors = {name: cast(caller, value, wide) if is_cast else value for name, value in given.items()}
        if self._fill is not None:
            return [_full_tensor(caller, given[self._fill], self._node.outputs[0].tensor_type)]
        args = arguments_of(self._node)
        if is_coarse and self._is_aten:
            # A kernel uses a number in float32 and rounds once, but would round a tensor to 16 bits first.
            args = {name: _widen(caller, item) for name, item in args.items()}
        for name, term in self._factors.items():
            args[term] = self._scale(caller, args[term], tensors[name])
            del args[name]
        op_type = self._substitute(caller, args, tensors)
        types = None if self._is_aten else [value.type for value in self._node.outputs]
        results = caller.calls(op_type, types=types, **args)
        if not is_coarse or not self._is_aten:
            return results
        return [
            cast(caller, made, old.tensor_type.dtype)
            for made, old in zip(results, self._node.outputs, strict=True)
        ]

    def _substitute(self, caller: Caller, args: dict[str, Any], tensors: Mapping[str, Value]) -> str:
        """Replace numbers by tensors in ``args``; return the op that takes them."""
        if self._overload is not None and self._overload.reads_memory:
            for name in self._overload.tensors - self.tensors:  # literals
                args[name] = tensor_of_number(caller, args[name], torch.float64)
        for name in self.tensors - self._factors.keys():
            is_list = self._overload is not None and name in self._overload.lists
            args[name] = [tensors[name]] * len(self._node.outputs) if is_list else tensors[name]
        if self._overload is None:
            return self._node.op_type
        named = {self._overload.names[name]: item for name, item in args.items()}
        args.clear()
        args.update(named)
        return self._overload.op_type

    def _scale(self, caller: Caller, term: Any, factor: Value) -> Any:
        is_list = isinstance(term, list)
        op_type = "aten._foreach_mul.Tensor" if is_list else "aten.mul.Tensor"
        results = caller.calls(op_type, term, factor)
        return list(results) if is_list else results[0]

    @property
    def _dtype(self) -> torch.dtype:
        """Dtype in which the op computes with numbers."""
        types = [value.type for value in (*self._node.inputs, *self._node.outputs)]
        dtypes = [type.dtype.to_real() for type in types if isinstance(type, TensorType)]
        floating = next((dtype for dtype in dtypes if dtype.is_floating_point), torch.float64)
        if self._is_aten:
            return floating
        return floating if floating == torch.float64 else torch.float32


def _schema(op_type: str) -> OpSchema:
    op = find_op(op_type)
    assert op is not None, "the op of a node with a form is registered"
    return schema_of(op)


def _is_plain_number(item: object) -> bool:
    return item is None or type(item) in (int, float)


def _full_tensor(caller: Caller, value: Value, type: TensorType) -> Value:
    """Return a tensor of ``type`` in memory of its own, filled with ``value``."""
    one = cast(caller, value, type.dtype)
    if type.shape:
        one = caller.calls("aten.expand.default", one, list(type.shape))[0]
    if one is not value and not type.shape:
        return one
    return caller.calls("aten.clone.default", one, memory_format=torch.contiguous_format)[0]


def _widen(caller: Caller, item: Any) -> Any:
    if isinstance(item, list):
        return [_widen(caller, part) for part in item]
    is_coarse = isinstance(item, Value) and isinstance(item.type, TensorType) and item.type.dtype in _COARSE
    return cast(caller, item, torch.float32) if is_coarse else item
