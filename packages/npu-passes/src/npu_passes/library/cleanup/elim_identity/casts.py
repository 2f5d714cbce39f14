"""Casts to the dtype that a tensor has, and to a wider one and back."""

from __future__ import annotations

import torch

from npu_ir import Graph, OpNode, Value
from npu_ir.core.types import dtype_name
from npu_passes.library.cleanup.elim_identity.matches import Finding, Refused
from npu_passes.rewriting.arguments import arguments_of

CASTS = frozenset(
    {
        *(f"aten.to.{overload}" for overload in ("dtype", "dtype_layout", "device", "other")),
        *("aten._to_copy.default", "aten.type_as.default", "prims.convert_element_type.default"),
    }
)
_FLOATS = (
    torch.float64,
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.float8_e5m2,
    torch.float8_e4m3fn,
)
_INTEGERS = (
    *(torch.int8, torch.int16, torch.int32, torch.int64),
    *(torch.uint8, torch.uint16, torch.uint32, torch.uint64),
)


class Casts:
    """The casts of one graph that were met so far.

    Args:
        graph: The graph, or a region of it.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._devices: frozenset[torch.device] | None = None
        # Tensors with the same numbers, by dtype.
        self._same: dict[Value, dict[torch.dtype, Value]] = {}
        self._rounded: dict[Value, Value] = {}

    def look_at(self, node: OpNode) -> Finding | Refused | None:
        """Return a value that a cast gives again."""
        made, source = node.outputs[0], node.inputs[0]
        dtype, given = made.tensor_type.dtype, source.tensor_type.dtype
        reason = self._movement(node)
        known = self._same.setdefault(source, {given: source})
        found = known.get(dtype)
        if found is not None and found.type == made.type:
            rule = "cast" if found is source else "casts"
            return Finding(rule, made, found) if reason is None else Refused(rule, reason)
        if found is None and any(is_lossless(item, dtype) for item in known):
            known[dtype] = made
            self._same[made] = known
        elif found is None:
            self._rounded[made] = source
        origin = self._rounded.get(source)
        if origin is not None and origin.type == made.type:
            return Refused("casts", f"{dtype_name(given)} does not hold every {dtype_name(dtype)}")
        return None

    def _movement(self, node: OpNode) -> str | None:
        """Return why a cast may do more than its dtype says; None if it does not."""
        args = arguments_of(node)
        if args.get("pin_memory"):
            return "it pins the memory"
        names_device = args.get("device") is not None or len(node.inputs) > 1
        if names_device and len(self._all_devices()) > 1:
            named = ", ".join(sorted(map(str, self._all_devices())))
            return f"it may move the tensor: the graph names the devices {named}"
        return None

    def _all_devices(self) -> frozenset[torch.device]:
        """Return the devices that the program names: the tensors of one that names one are all there."""
        if self._devices is None:
            program = self._graph
            while program.owner is not None and program.owner.graph is not None:
                program = program.owner.graph
            self._devices = frozenset(
                item
                for part in program.graphs()
                for node in part.nodes
                for item in node.attrs.values()
                if isinstance(item, torch.device)
            )
        return self._devices


def is_lossless(narrow: torch.dtype, wide: torch.dtype) -> bool:
    """Return whether ``wide`` holds every number of ``narrow``, infinities and NaN too."""
    if narrow == wide or (narrow == torch.bool and wide in (*_INTEGERS, *_FLOATS)):
        return True
    if narrow in _INTEGERS and wide in _INTEGERS:
        low, high = torch.iinfo(narrow), torch.iinfo(wide)
        return high.min <= low.min and low.max <= high.max
    if narrow in _INTEGERS and wide in _FLOATS:
        largest = max(torch.iinfo(narrow).max, -torch.iinfo(narrow).min)
        return largest <= 2 / torch.finfo(wide).eps
    if narrow in _FLOATS and wide in _FLOATS:
        low_float, high_float = torch.finfo(narrow), torch.finfo(wide)
        return (
            high_float.eps <= low_float.eps
            and high_float.max >= low_float.max
            and high_float.smallest_normal <= low_float.smallest_normal
        )
    return False
