"""Fusion of pointwise ops: ops over one shape become one, which passes over memory once.

What only they read stays in the first cache of the CPU, or in registers of the GPU. Those that follow a
product or a convolution by packed weights become steps of it. The results are those of the ops one by one,
to the bit. Rotary embeddings by the same angles, of queries and of keys, become one op of them all.
"""

from __future__ import annotations

import functools
import math
import struct
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import torch

from npu_cuda import _C, attrs
from npu_cuda.backend.selection import kind_of, kinds_by_bytes, pointwise_instructions, select_kernel
from npu_cuda.backend.tensor_views import tensor_type
from npu_cuda.backend.view_rules import VIEW
from npu_ir.core.types import contiguous_strides
from npu_ir.plugins.backend import BackendOp, Operand

FUSED = "Fused"
PRODUCTS = ("PackedGemm", "PackedConv")
_ROTARY = "Rotary"
_ANGLES = 2  # its first inputs, which are those of all
_HEADER_BYTES = 8  # the counts of temporaries and steps, behind the other attributes of a product
_MANY_BYTES = 4096  # below it another call costs more than a step of numbers of eight bytes
_MOST_STEPS = 64


@dataclass(eq=False, slots=True)
class _Unit:
    """Ops that are launched together: pointwise ops over one shape, rotations, or a single op of any kind.

    Units are in the order in which they run, and each reads only earlier ones: an op joins no unit but the
    last of those that it reads, or the last of all.
    """

    place: int
    ops: list[BackendOp]
    shape: tuple[int | Operand, ...] | None  # or the angles of rotations; None: nothing joins it
    views: list[BackendOp] = field(default_factory=list)  # of its results and of views of these


def fuse(ops: Sequence[BackendOp], results: Iterable[Operand], device: str) -> list[BackendOp]:
    """Return ops that compute the same, pointwise ops over one shape joined.

    Args:
        ops: In execution order, with their kernels.
        results: What is read after them.
        device: "host" or "cuda", whose kernels they have.
    """
    units = _units(ops)
    unit_of = {id(op): unit for unit in units for op in unit.ops}
    read_outside = set(results)
    producers = {operand: op for op in ops for operand in op.outputs}
    for op in ops:
        for operand in op.inputs:
            if operand in producers and unit_of.get(id(producers[operand])) is not unit_of.get(id(op)):
                read_outside.add(operand)
    return [op for unit in units for op in (*_joined(unit.ops, read_outside, device), *unit.views)]


def _units(ops: Sequence[BackendOp]) -> list[_Unit]:
    """Return the units of the ops; the first one has no ops, but the views of what is there before."""
    units = [_Unit(0, [], None)]
    writers: dict[Operand, _Unit] = {}  # of a view: of what it is a view of
    views: set[Operand] = set()
    for op in ops:
        read = [writers[operand] for operand in op.inputs if operand in writers]
        last_read = max(read, key=lambda unit: unit.place, default=units[0])
        if op.kind == VIEW:
            unit = last_read
            unit.views.append(op)
            views.update(op.outputs)
        else:
            shape = _angles(op) or _product_shape(op) or _iteration_shape(op)
            apart = [writers[operand] for operand in op.inputs if operand in views]
            candidates = [] if shape is None or op.kind in PRODUCTS else [last_read, units[-1]]
            if op.kind == _ROTARY:
                apart = read
            fitting = (item for item in candidates if item.shape == shape and item not in apart)
            unit = next(fitting, None) or _Unit(len(units), [], shape)
            if not unit.ops:
                units.append(unit)
            unit.ops.append(op)
        writers.update(dict.fromkeys(op.outputs, unit))
    return units


def _angles(op: BackendOp) -> tuple[Operand, ...] | None:
    return op.inputs[:_ANGLES] if op.kind == _ROTARY else None


@functools.cache
def _is_fusable(kind: str, kernel: str) -> bool:
    """Return whether a kernel of an op is a pointwise one of this package, which can be a step of another."""
    number = int(kind_of(kind))
    own = (item["id"] for item in _C.kernels(number) if item["origin"] == "npu-cuda")
    return number in pointwise_instructions() and kernel in own


def _iteration_shape(op: BackendOp) -> tuple[int, ...] | None:
    """Return the shape that a pointwise op runs over; None if it is not fused."""
    if op.overwrites or not op.kernel or not _is_fusable(op.kind, op.kernel):
        return None
    types = [tensor_type(operand) for operand in (*op.inputs, *op.outputs)]
    shape = types[-1].static_shape
    are_bytes = all(type.dtype.itemsize == 1 for type in types) and op.kernel.endswith(".host")
    if are_bytes and math.prod(shape) >= _MANY_BYTES and int(kind_of(op.kind)) in kinds_by_bytes():
        return None
    if op.kind == "Copy" and any(type.static_strides != contiguous_strides(shape) for type in types):
        return None  # a copy into another layout goes by tiles
    return shape


def _product_shape(op: BackendOp) -> tuple[int, ...] | None:
    """Return the shape of a product that steps can follow; None if it is none."""
    if op.kind not in PRODUCTS or not op.kernel or len(op.outputs) > 1:
        return None
    left, result = tensor_type(op.inputs[0]), tensor_type(op.outputs[0])
    return result.static_shape if left.dtype == result.dtype else None


def _joined(ops: Sequence[BackendOp], read_outside: Collection[Operand], device: str) -> Iterator[BackendOp]:
    """Yield the ops as one, or as several where one would have too many tensors."""
    if len(ops) <= 1:
        yield from ops
        return
    if ops[0].kind == _ROTARY:
        yield _rotations(ops)
        return
    fused = _fused_op(ops, read_outside, device) if len(ops) <= _MOST_STEPS else None
    if fused is not None:
        yield fused
        return
    middle = len(ops) // 2
    halves = ops[:middle], ops[middle:]
    between = {operand for op in halves[1] for operand in op.inputs}
    yield from _joined(halves[0], {*read_outside, *between}, device)
    yield from _joined(halves[1], read_outside, device)


def _rotations(ops: Sequence[BackendOp]) -> BackendOp:
    """Return rotations by the same angles as one op."""
    rows = [operand for op in ops for operand in op.inputs[_ANGLES:]]
    results = tuple(operand for op in ops for operand in op.outputs)
    nodes = tuple(dict.fromkeys(node for op in ops for node in op.nodes))
    return BackendOp(_ROTARY, (*ops[0].inputs[:_ANGLES], *rows), results, nodes, ops[0].kernel)


def _fused_op(ops: Sequence[BackendOp], read_outside: Collection[Operand], device: str) -> BackendOp | None:
    product = ops[0] if ops[0].kind in PRODUCTS else None
    steps = ops[1:] if product else ops
    written = [operand for op in steps for operand in op.outputs]
    inputs = dict.fromkeys(operand for op in steps for operand in op.inputs if operand not in set(written))
    kind, kernel, own_attrs = FUSED, f"fused.{device}", b""
    given: Sequence[Operand] = ()
    if product:
        kind, kernel, given = product.kind, product.kernel, product.inputs
        own_attrs = product.attrs[:-_HEADER_BYTES]
        inputs = {product.outputs[0]: None, **inputs}
        if product.outputs[0] in read_outside:
            return None
    outputs = [operand for operand in written if operand in read_outside]
    temporaries = [operand for operand in written if operand not in read_outside]
    numbers = {operand: place for place, operand in enumerate((*inputs, *outputs, *temporaries))}
    payload = [struct.pack("<II", *_dlpack_type(tensor_type(operand).dtype)) for operand in temporaries]
    payload += [_step(op, numbers) for op in steps]
    schema_id, header = attrs("FUSE", temporaries=len(temporaries), steps=len(steps))
    if product:
        schema_id = product.schema_id
    packed = b"".join((own_attrs, header, *payload))
    nodes = tuple(dict.fromkeys(node for op in ops for node in op.nodes))
    read = (*given, *(operand for operand in inputs if product is None or operand is not product.outputs[0]))
    fused = BackendOp(kind, read, tuple(outputs), nodes, kernel, schema_id, packed)
    return fused if outputs and select_kernel(fused, device, 0)[0] else None


def _step(op: BackendOp, numbers: dict[Operand, int]) -> bytes:
    kind = int(kind_of(op.kind))
    tensors = [numbers[operand] for operand in (*op.inputs, *op.outputs)]
    counts = len(op.inputs), len(op.outputs), op.schema_id, len(op.attrs)
    words = struct.pack(f"<5I{len(tensors)}I", kind, *counts, *tensors)
    return words + op.attrs + bytes(-len(op.attrs) % 4)


def _dlpack_type(dtype: torch.dtype) -> tuple[int, int]:
    """Return code and bits of a dtype in DLPack."""
    special = {torch.bool: 6, torch.bfloat16: 4, torch.uint8: 1}
    return special.get(dtype, 2 if dtype.is_floating_point else 0), dtype.itemsize * 8
