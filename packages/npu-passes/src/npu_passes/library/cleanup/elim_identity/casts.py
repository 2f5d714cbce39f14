"""Redundant casts: to the same dtype, and to a wider dtype and back."""

from __future__ import annotations

import torch

from npu_ir import Graph, OpNode, Value
from npu_ir.core.types import dtype_name
from npu_passes.library.cleanup.elim_identity.findings import Finding, Refused
from npu_passes.rewriting.arguments import arguments_of

CASTS = frozenset(
    {
        "aten.to.dtype",
        "aten.to.dtype_layout",
        "aten.to.device",
        "aten.to.other",
        "aten._to_copy.default",
        "aten.type_as.default",
        "prims.convert_element_type.default",
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
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.uint8,
    torch.uint16,
    torch.uint32,
    torch.uint64,
)


class Casts:
    """Casts of one graph seen so far."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._devices: frozenset[torch.device] | None = None
        # By value: the tensors with the same numbers, by dtype; lossless casts share one dict.
        self._same: dict[Value, dict[torch.dtype, Value]] = {}
        # By result of a lossy cast: its input.
        self._rounded: dict[Value, Value] = {}

    def find_identity(self, node: OpNode) -> Finding | Refused | None:
        """Return an earlier value that equals the result of a cast; None if there is none."""
        result, source = node.outputs[0], node.inputs[0]
        dtype, source_dtype = result.tensor_type.dtype, source.tensor_type.dtype
        reason = self._movement_problem(node)
        known = self._same.setdefault(source, {source_dtype: source})
        same = known.get(dtype)
        if same is not None and same.type == result.type:
            rule = "cast" if same is source else "casts"
            return Finding(rule, result, same) if reason is None else Refused(rule, reason)
        if same is None and any(is_lossless(item, dtype) for item in known):
            known[dtype] = result
            self._same[result] = known
        elif same is None:
            self._rounded[result] = source
        origin = self._rounded.get(source)
        if origin is not None and origin.type == result.type:
            return Refused("casts", f"{dtype_name(source_dtype)} does not hold every {dtype_name(dtype)}")
        return None

    def _movement_problem(self, node: OpNode) -> str | None:
        """Return the reason why a cast may also move or pin the tensor; None if it cannot."""
        args = arguments_of(node)
        if args.get("pin_memory"):
            return "it pins the memory"
        names_device = args.get("device") is not None or len(node.inputs) > 1
        if names_device and len(self._all_devices()) > 1:
            named = ", ".join(sorted(map(str, self._all_devices())))
            return f"it may move the tensor: the graph names the devices {named}"
        return None

    def _all_devices(self) -> frozenset[torch.device]:
        """Return the devices named anywhere in the program; with only one, no cast moves a tensor."""
        if self._devices is None:
            root = self._graph
            while root.owner is not None and root.owner.graph is not None:
                root = root.owner.graph
            self._devices = frozenset(
                item
                for part in root.graphs()
                for node in part.nodes
                for item in node.attrs.values()
                if isinstance(item, torch.device)
            )
        return self._devices


def is_lossless(narrow: torch.dtype, wide: torch.dtype) -> bool:
    """Return whether ``wide`` represents every number of ``narrow``, including infinities and NaN."""
    if narrow == wide or (narrow == torch.bool and wide in (*_INTEGERS, *_FLOATS)):
        return True
    if narrow in _INTEGERS and wide in _INTEGERS:
        low, high = torch.iinfo(narrow), torch.iinfo(wide)
        return high.min <= low.min and low.max <= high.max
    if narrow in _INTEGERS and wide in _FLOATS:
        # 2 / eps is 2 ** (mantissa bits + 1): every integer up to it is exact.
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
