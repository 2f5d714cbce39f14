"""Buffers that ``forward`` assigns: ``self.buffer = new``.

Assigning a tensor of the same shape and dtype is a write into the buffer. Assigning another one is a
replacement: the graph takes the buffer as it is at capture, and its content after the call is an update
of another type.

Assignments that torch.export misses or misinterprets are recorded in the exported program as calls of a
marker op (`_mark_op`), which never runs. The marks become copies (`resolve_assignments`) or updates of
another type (`find_replaced_buffers`).
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import TensorArgument
from torch.fx import Node

from npu_ir._torch.tensors import is_wrapper
from npu_ir.capture.fx_nodes import location_of, nodes
from npu_ir.capture.writes import root_of, same_shape_and_dtype, tensor_of
from npu_ir.core.storage import storage_id
from npu_ir.core.types import dtype_name
from npu_ir.core.user_code import calling_line
from npu_ir.errors import ConversionError

# The name that torch.export 2.13 gives the copy that it appends for ``self.buffer = new`` in the root module.
_ASSIGNMENT = "copy__default"


_MARK = "npu_capture.replace.default"


@functools.cache
def _mark_op() -> Any:
    """Return the op that marks the assignment of a buffer in an exported program; it never runs.

    It is defined on first use, as that takes time that importing the package does not need.
    """

    @torch.library.custom_op("npu_capture::replace", mutates_args=("buffer",))
    def replace(buffer: torch.Tensor, new: torch.Tensor) -> None: ...

    return replace


class AssignmentHook:
    """A hook for the registration of buffers that makes ``self.buffer = new`` visible to torch.export.

    torch.export sees such an assignment only in the root module and loses it in others. In the root
    module it treats a tensor of another type as one of the buffer's type (torch 2.13).
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
        is_plain = same_shape_and_dtype(old, new) and key not in self._marked
        # torch.export appends the copy for the first assignment in the root module by itself.
        if is_plain and module is self._root and is_first:
            return None
        if is_plain and module is not self._root and self._must_write(module, name, old):
            old.copy_(new)
            return old  # a registration hook may return the tensor to register: the buffer stays itself
        if not same_shape_and_dtype(original, new):
            self._require_untied(module, name, old)
        self._marked.add(key)
        with torch.set_grad_enabled(self._records_gradients):  # else the mark would end up in a region
            _mark_op()(original, new)
        return None

    def _must_write(self, module: torch.nn.Module, name: str, old: torch.Tensor) -> bool:
        """Return whether to write at once: in autocast, for a tied buffer, and for a wrapper subclass."""
        return (
            torch.is_autocast_enabled("cpu") or is_wrapper(old) or bool(self._other_names(module, name, old))
        )

    def _other_names(self, module: torch.nn.Module, name: str, old: torch.Tensor) -> list[str]:
        """Return the other names of a buffer."""
        return [
            f"{path}.{key}".lstrip(".")
            for path, other in self._root.named_modules()
            for key, tensor in (*other._buffers.items(), *other._parameters.items())
            if tensor is old and (other is not module or key != name)
        ]

    def _require_untied(self, module: torch.nn.Module, name: str, old: torch.Tensor) -> None:
        for tie in self._other_names(module, name, old):
            raise ConversionError(
                f"forward replaces the buffer {name!r}, which is {tie!r}, too",
                where=calling_line(),
                fix="make each a tensor of its own (clone)",
            )


def find_replaced_buffers(program: ExportedProgram) -> dict[Node, tuple[Node, Node]]:
    """Return the marked assignments of a program: for each mark, the buffer and the assigned tensor.

    Raises:
        ConversionError: A mark is in a region, or its target cannot be traced back to a buffer.
    """
    marks = {}
    for node in nodes(program.graph_module):
        if str(node.target) == _MARK:
            old, new = _mark_arguments(node)
            buffer = root_of(old)
            if node.graph is not program.graph or buffer.op != "placeholder":
                raise _assignment_error(
                    program, node, "in autocast, or where it has been written to, that cannot be captured"
                )
            marks[node] = buffer, new
    return marks


def _mark_arguments(node: Node) -> tuple[Node, Node]:
    old, new = node.args[:2]
    assert isinstance(old, Node)
    assert isinstance(new, Node)
    return old, new


def resolve_assignments(program: ExportedProgram) -> None:
    """Turn assignments of the buffer's own type into final copies, and erase wrong copies for the others.

    Until then the buffer keeps its content for whoever holds it. The copy that torch.export appends for a
    marked assignment of another type would broadcast and cast the new tensor.
    """
    # Later marks of a buffer override earlier ones: only its last assignment is visible after the call.
    marks = find_replaced_buffers(program)
    marked = {buffer for buffer, _ in marks.values()}
    for node in _mismatched_copies(program):
        if node.args[0] in marked:
            program.graph.erase_node(node)
    replaced = {
        buffer
        for buffer, new in marks.values()
        if not same_shape_and_dtype(buffer.meta["val"], new.meta["val"])
    }
    last = {buffer: new for buffer, new in marks.values() if buffer not in replaced}
    for node, (buffer, _) in marks.items():
        if buffer in last:
            program.graph.erase_node(node)
    _append_copies(program, last)
    program.graph_module.recompile()


def _append_copies(program: ExportedProgram, last: dict[Node, Node]) -> None:
    graph = program.graph
    output = graph.output_node()
    appended = {node for node in graph.nodes if _is_appended(node)}
    first = next((node for node in graph.nodes if node in appended), output)
    _clone_results(program, {*last, *(node.args[0] for node in appended)}, first)
    with graph.inserting_before(output):
        for buffer, new in last.items():
            node = graph.call_function(torch.ops.aten.copy_.default, (buffer, new))
            node.meta["val"] = buffer.meta["val"]


def _clone_results(program: ExportedProgram, buffers: set[Any], before: Node) -> None:
    """Return clones of results that alias assigned buffers: in eager mode they keep the old content."""
    storages = {storage_id(buffer.meta["val"]) for buffer in buffers}
    output = program.graph.output_node()
    for node in dict.fromkeys(output.all_input_nodes):
        tensor = tensor_of(node)
        if tensor is not None and storage_id(tensor) in storages:
            with program.graph.inserting_before(before):
                clone = program.graph.call_function(torch.ops.aten.clone.default, (node,))
            clone.meta = {**node.meta, "val": tensor.detach().clone()}
            output.replace_input_with(node, clone)
            for spec in program.graph_signature.output_specs:
                if spec.arg.name == node.name:
                    spec.arg = TensorArgument(clone.name)


def _mismatched_copies(program: ExportedProgram) -> list[Node]:
    """Return the copies that torch.export appends for assignments of another type."""
    return [
        node
        for node in program.graph.nodes
        if _is_appended(node)
        and not same_shape_and_dtype(*(item.meta["val"] for item in node.all_input_nodes))
    ]


def _is_appended(node: Node) -> bool:
    return node.name.startswith(_ASSIGNMENT) and node.target is torch.ops.aten.copy_.default


def require_same_types(program: ExportedProgram) -> None:
    """Refuse an unmarked assignment of a tensor of another type: torch.export would broadcast and cast it."""
    for node in _mismatched_copies(program):
        raise _assignment_error(program, node, "an exported program cannot express that")


def require_no_replacements(program: ExportedProgram) -> None:
    """Refuse a program to retrace that replaces buffers by tensors of another type.

    PyTorch's functionalization would broadcast and cast the new tensor to the type of the buffer.
    """
    for node in find_replaced_buffers(program):
        raise _assignment_error(program, node, "together with writes through views, that cannot be captured")


def _assignment_error(program: ExportedProgram, node: Node, reason: str) -> ConversionError:
    targets = {spec.arg.name: spec.target for spec in program.graph_signature.input_specs}
    old, new = _mark_arguments(node)
    old = root_of(old)
    return ConversionError(
        f"{targets.get(old.name) or old} is {_type_text(old.meta['val'])}, "
        f"and forward replaces it by a tensor that is {_type_text(new.meta['val'])}; {reason}",
        where=location_of(node),
        fix="give the buffer its final size and dtype from the start, and write into parts of it",
    )


def _type_text(tensor: torch.Tensor) -> str:
    return f"{dtype_name(tensor.dtype)}[{', '.join(map(str, tensor.shape))}]"
