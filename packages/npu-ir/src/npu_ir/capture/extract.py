"""Capture of a model with torch.export, with or without real weights.

During capture, FakeTensors on the CPU replace the model's tensors that are on ``meta``: on plain
``meta``, tensors created in ``forward`` would lose their content and devices would mix. The model
itself is left unchanged.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.export import ExportedProgram, ShapesCollection

from npu_ir._torch.fake import fake_mode_of, is_fake
from npu_ir._torch.pytree import map_tensors, tensor_leaves
from npu_ir._torch.tensors import is_wrapper
from npu_ir.capture.convert import convert_exported_program
from npu_ir.capture.export_call import CaptureSubject, ExportCall
from npu_ir.capture.held_tensors import find_written_constants
from npu_ir.capture.overlapping_inputs import Overlap, declare_overlaps, find_overlaps, run_on_views
from npu_ir.capture.tensor_kinds import FakeSubstitutes, is_on_meta, require_plain_tensors
from npu_ir.core.storage import storage_id
from npu_ir.errors import ConversionError, ExportError
from npu_ir.graph.graph import Graph
from npu_ir.graph.requirement import keyword_dict, positional_tuple


def extract_ir(
    model: torch.nn.Module,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    name: str | None = None,
    dynamic_shapes: Any = None,
) -> Graph:
    """Return the computation of ``model(*args, **kwargs)`` as a graph without weights.

    Logs and warnings of torch.export are held back: they become notes of its exception, and go to the
    logger ``npu_ir.capture`` at level DEBUG. If ``TORCH_LOGS`` is set, PyTorch logs as usual.

    Args:
        model: Any module, in the mode (train or eval) to capture; real, built under
            ``torch.device("meta")`` or `empty_weights`, or consisting of FakeTensors. A tensor that it
            holds unregistered and without data becomes a buffer named by its path, and is passed as a
            constant.
        args: Example arguments; only their structure, shapes and dtypes matter, so they may be on
            ``meta`` or fake. Python scalars become part of the graph, unless ``dynamic_shapes`` says
            otherwise.
        kwargs: Example keyword arguments.
        name: Name of the graph; by default the class name of the model.
        dynamic_shapes: The dynamic sizes, in the format of `torch.export.export`: ``Dim``,
            ``Dim.AUTO`` or ``Dim.DYNAMIC`` by dimension, nested as the arguments are. The graph's symbols
            have the names of the ``Dim``.

    Raises:
        ExportError: torch.export cannot capture the model; the cause is its own exception.
        ConversionError: The exported program contains something that a graph cannot represent.

    Warns:
        CaptureWarning: ``forward`` stores a tensor that the graph does not keep, changes a Python number
            or draws one (`random`, `numpy.random`), or a size that was to be dynamic is fixed.
    """
    _require_model(model)
    name = _require_name(type(model).__name__ if name is None or name == "" else name)
    args, kwargs = positional_tuple(args, ExportError), keyword_dict(kwargs, ExportError)
    if isinstance(dynamic_shapes, ShapesCollection):
        dynamic_shapes = dynamic_shapes.dynamic_shapes(model, args, kwargs)  # type: ignore[no-untyped-call]
    program = export_program(model, args, kwargs, dynamic_shapes)
    graph = convert_exported_program(program, name=name)
    if not any(target in graph.inputs for target in graph.updates):
        return graph
    # An input is mutated, and inputs that share memory with it see that. The first export gave each input
    # memory of its own, so the model is exported once more, with the aliasing in the program.
    groups = find_overlaps(args, kwargs)
    if groups:
        return _extract_overlapping(model, args, kwargs, dynamic_shapes, groups, name)
    tensors = tensor_leaves((args, kwargs))
    if len(set(map(id, tensors))) < len(tensors):
        program = export_program(model, args, kwargs, dynamic_shapes, shared_inputs=True)
        return convert_exported_program(program, name=name)
    return graph


def _extract_overlapping(
    model: torch.nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    dynamic_shapes: Any,
    groups: Sequence[Overlap],
    name: str,
) -> Graph:
    if dynamic_shapes is not None:
        raise ConversionError(
            "inputs overlap in memory, and the model changes one of them: "
            "how they overlap is known for fixed sizes only",
            where=type(model).__name__,
            fix="pass a copy (clone), or leave dynamic_shapes out",
        )
    with run_on_views(model, groups):
        program = export_program(model, args, kwargs)
    graph = convert_exported_program(program, name=name)
    declare_overlaps(graph, args, kwargs, groups)
    return graph


def export_program(
    model: torch.nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    dynamic_shapes: Any = None,
    *,
    shared_inputs: bool = False,
) -> ExportedProgram:
    """Return the exported program of ``model``, with FakeTensors in place of ``meta`` tensors.

    Arguments are as for `extract_ir`; with ``shared_inputs``, a tensor that is passed twice is one input.

    Raises:
        ExportError: torch.export cannot capture the model.
        ConversionError: The content of a tensor does not exist, or ``forward`` registers, replaces or
            removes a parameter, buffer or module.
    """
    require_plain_tensors(model, args, kwargs)
    subject = CaptureSubject(model)
    tensors = [*subject.tensors, *tensor_leaves((args, kwargs))]
    substitutes = FakeSubstitutes(fake_mode_of([*subject.registered, *tensor_leaves((args, kwargs))]))
    with substitutes.install(model), _cpu_default_device():
        args, kwargs = _prepare_inputs((args, kwargs), substitutes, subject, shared_inputs)
        call = ExportCall(subject, args, kwargs, dynamic_shapes, meta_is_cpu=any(map(is_on_meta, tensors)))
        without_data = {
            path: substitutes.of(item)
            for path, item in subject.held.items()
            if is_on_meta(item) or (is_fake(item) and item.fake_mode is substitutes.mode)  # type: ignore[attr-defined]
        }
        program = call.export(without_data)
        changed = find_written_constants(program)
        if changed & subject.held.keys():  # as constants, their content would be frozen into the program
            written = {path: item for path, item in subject.held.items() if path in changed}
            program = call.export(without_data | written)
        return program


def _require_model(model: object) -> None:
    """Refuse what is not a module that can be captured, and say how to get one of it."""
    if isinstance(model, torch.nn.Module) and not isinstance(model, torch.jit.ScriptModule):
        return
    if isinstance(model, torch.jit.ScriptModule):
        fix = "TorchScript cannot be captured: give the module that it was made of"
    elif isinstance(model, type) and issubclass(model, torch.nn.Module):
        fix = f"give an object of the class: {model.__name__}(...)"
    elif isinstance(model, ExportedProgram):
        fix = "convert_exported_program(program) makes a graph of it"
    elif callable(model):
        fix = "wrap the function in a module: its forward calls the function"
    else:
        fix = "make the model first"
    raise ExportError(f"expected a torch.nn.Module, got {type(model).__name__}", fix=fix)


def _require_name(name: object) -> str:
    if not isinstance(name, str):
        raise ExportError(f"the name of a graph is text, not {name!r}", fix="give a string, or leave it out")
    return name


def _prepare_inputs(
    tree: tuple[Any, Any], substitutes: FakeSubstitutes, subject: CaptureSubject, shared_inputs: bool
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments off ``meta``, with copies of those that alias an earlier one or the model.

    torch.export treats a tensor that is passed twice as one input, and the graph would then be wrong
    for two different tensors. With ``shared_inputs`` that is wanted.
    """
    own_tensors = {id(tensor) for tensor in subject.tensors}
    seen: set[int] = set()
    storages: set[int] = set()

    def prepare(leaf: torch.Tensor) -> torch.Tensor:
        is_strided = leaf.layout is torch.strided
        shares = id(leaf) in seen or (is_strided and storage_id(leaf) in storages)
        is_copied = id(leaf) in own_tensors or (shares and not shared_inputs)
        seen.add(id(leaf))
        if is_strided:
            storages.add(storage_id(leaf))
        leaf = substitutes.of(leaf)
        return _new_like(leaf) if is_copied else leaf

    return map_tensors(prepare, tree)  # type: ignore[no-any-return]


def _new_like(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor of the same type with its own memory and undefined content."""
    is_plain = tensor.layout is torch.strided and not is_wrapper(tensor)
    copy = (
        tensor.detach().new_empty_strided(tensor.shape, tensor.stride())
        if is_plain
        else tensor.detach().clone()
    )
    return copy.requires_grad_(tensor.requires_grad)


@contextlib.contextmanager
def _cpu_default_device() -> Iterator[None]:
    """Create the tensors of ``forward`` on the CPU where the default device is ``meta``."""
    with torch.device("cpu") if torch.get_default_device().type == "meta" else contextlib.nullcontext():
        yield
