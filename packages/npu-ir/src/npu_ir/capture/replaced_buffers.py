"""Buffers that ``forward`` replaces: ``self.buffer = new``.

By a tensor of the same shape and dtype it is a write into the buffer. By another, it is a replacement: the graph is for
the buffer as it is at capture, and what it is afterwards is an update of another type.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from npu_ir import _torch
from npu_ir.blame import calling_line
from npu_ir.capture.bodies import nodes
from npu_ir.capture.provenance import place
from npu_ir.capture.writes import written
from npu_ir.errors import ConversionError
from npu_ir.types import dtype_name

# How torch.export 2.13 names the copy that it appends for ``self.buffer = new`` in the root module.
_ASSIGNMENT = "copy__default"


_MARK = "npu_capture.replace.default"


@functools.cache
def _mark() -> Any:
    """Return the op that marks in an exported program that a tensor takes the place of a buffer; nothing runs it.

    Defining it takes time, which importing the package does not need.
    """

    @torch.library.custom_op("npu_capture::replace", mutates_args=("buffer",))
    def replace(buffer: torch.Tensor, new: torch.Tensor) -> None: ...

    return replace


class Assignments:
    """Makes ``self.buffer = new`` part of what torch.export sees; to be called when a buffer is assigned.

    torch.export sees such an assignment only in the root module; in others it loses it, and in the root it takes a
    tensor of another type for one of the buffer's own (torch 2.13).
    """

    def __init__(self, model: torch.nn.Module) -> None:
        self._root = model
        self._modules = {id(module) for module in model.modules()}
        self._originals: dict[tuple[int, str], torch.Tensor] = {}
        self._marked: set[tuple[int, str]] = set()
        self._records_gradients = torch.is_grad_enabled()

    def __call__(self, module: torch.nn.Module, name: str, new: torch.Tensor | None) -> torch.Tensor | None:
        old = module._buffers.get(name)
        if id(module) not in self._modules or old is None or new is None or new is old:
            return None
        key = id(module), name
        is_first = key not in self._originals
        original = self._originals.setdefault(key, old)
        is_write = _same_type(old, new) and key not in self._marked and (is_first or module is not self._root)
        if not is_write:
            self._require_untied(module, name, old)
            self._marked.add(key)
            with torch.set_grad_enabled(self._records_gradients):  # else it would be in a region of its own
                _mark()(original, new)
            return None
        if module is self._root:
            return None
        old.copy_(new)
        return old

    def _require_untied(self, module: torch.nn.Module, name: str, old: torch.Tensor) -> None:
        for path, other in self._root.named_modules():
            for key, tensor in (*other._buffers.items(), *other._parameters.items()):
                if tensor is old and (other is not module or key != name):
                    raise ConversionError(
                        f"forward replaces the buffer {name!r}, which is {f'{path}.{key}'.lstrip('.')!r}, too",
                        where=calling_line(),
                        fix="make each a tensor of its own (clone)",
                    )


def replacements(program: ExportedProgram) -> dict[Node, tuple[Node, Node]]:
    """Return the marks in a program: for each node that is one, the buffer and what takes its place.

    Raises:
        ConversionError: A mark is in a region, or what it is about is not known to be a buffer.
    """
    found = {}
    for node in nodes(program.graph_module):
        if str(node.target) == _MARK:
            old, new = _arguments(node)
            buffer = _origin(old)
            if node.graph is not program.graph or buffer.op != "placeholder":
                raise _refusal(
                    program, node, "in autocast, or where it has been written to, that cannot be captured"
                )
            found[node] = buffer, new
    return found


def _arguments(node: Node) -> tuple[Node, Node]:
    old, new = node.args[:2]
    assert isinstance(old, Node)
    assert isinstance(new, Node)
    return old, new


def _origin(node: Node) -> Node:
    """Return what ``node`` is the content of, which it may have changed in place."""
    while node.op != "placeholder" and written(node):
        node = written(node)[0]
    return node


def erase_assignments(program: ExportedProgram) -> None:
    """Erase what torch.export appends for assignments that are marked: it would broadcast and cast the new tensor."""
    marked = {buffer for buffer, _ in replacements(program).values()}
    for node in _misfits(program):
        if node.args[0] in marked:
            program.graph.erase_node(node)
    program.graph_module.recompile()


def _misfits(program: ExportedProgram) -> list[Node]:
    """Return what torch.export appends for assignments, where the types differ."""
    return [
        node
        for node in program.graph.nodes
        if node.name.startswith(_ASSIGNMENT)
        and node.target is torch.ops.aten.copy_.default
        and not _same_type(*(item.meta["val"] for item in node.all_input_nodes))
    ]


def require_same_types(program: ExportedProgram) -> None:
    """Refuse an unmarked assignment of a tensor of another type: torch.export would broadcast and cast it."""
    for node in _misfits(program):
        raise _refusal(program, node, "a program of torch.export cannot say that")


def require_no_replacements(program: ExportedProgram) -> None:
    """Refuse a program that replaces buffers by tensors of another type, and has to be traced again.

    PyTorch's functionalization would broadcast and cast the new tensor to the old one's type.
    """
    for node in replacements(program):
        raise _refusal(program, node, "together with writes through views, that cannot be captured")


def _refusal(program: ExportedProgram, node: Node, reason: str) -> ConversionError:
    targets = {spec.arg.name: spec.target for spec in program.graph_signature.input_specs}
    old, new = _arguments(node)
    old = _origin(old)
    return ConversionError(
        f"{targets.get(old.name) or old} is {_text(old.meta['val'])}, and forward replaces it by a tensor that is "
        f"{_text(new.meta['val'])}; {reason}",
        where=place(node),
        fix="give the buffer its final size and dtype from the start, and write into parts of it",
    )


def _same_type(old: torch.Tensor, new: torch.Tensor) -> bool:
    return old.dtype == new.dtype and _torch.same_sizes(old.shape, new.shape)


def _text(tensor: torch.Tensor) -> str:
    return f"{dtype_name(tensor.dtype)}[{', '.join(map(str, tensor.shape))}]"
