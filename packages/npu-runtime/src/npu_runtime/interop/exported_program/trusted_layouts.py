"""Modules of PyTorch whose kernels get the layouts that they trust (`npu_ir.ops.trusted_layouts`)."""

from __future__ import annotations

import torch
from torch.fx import GraphModule, Node

from npu_ir.ops.trusted_layouts import trusted_places


def make_trusted_layouts(module: GraphModule) -> None:
    """Let a module make contiguous what a kernel reads without a look at its strides.

    A tensor that is so already is not copied. The strides that the graph states may be wrong.
    """
    for node in module.graph.nodes:
        places = trusted_places(str(node.target))
        tensors = [node.args[place] for place in places]
        with module.graph.inserting_before(node):
            for place, tensor in zip(places, tensors, strict=True):
                node.update_arg(place, _contiguous(tensor, _common_format(tensors)))
    module.recompile()


def _contiguous(tensor: Node, format: torch.memory_format) -> Node:
    given = format if tensor.meta["val"].dim() == _rank(format) else torch.contiguous_format
    op = torch.ops.aten.contiguous.default
    made = tensor.graph.call_function(op, (tensor,), {"memory_format": given})
    made.meta["val"] = tensor.meta["val"]
    return made


def _common_format(tensors: list[Node]) -> torch.memory_format:
    """Return the format of channels-last that all images among tensors are in; else the contiguous one."""
    for format in (torch.channels_last, torch.channels_last_3d):
        images = [item.meta["val"] for item in tensors if item.meta["val"].dim() == _rank(format)]
        if images and all(image.is_contiguous(memory_format=format) for image in images):
            return format
    return torch.contiguous_format


def _rank(format: torch.memory_format) -> int | None:
    return {torch.channels_last: 4, torch.channels_last_3d: 5}.get(format)
