"""Capturing a model with torch.export, whether or not its weights exist.

The model is exported as it is. Where its tensors are on ``meta``, FakeTensors on the CPU stand in
for them while it is captured: on plain ``meta``, tensors made in ``forward`` would lose their content
and devices would mix. The model itself is left as it was.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.export import ExportedProgram, ShapesCollection
from torch.overrides import TorchFunctionMode

from npu_ir import _torch
from npu_ir.capture.content_guard import contents_restored
from npu_ir.capture.convert import convert_exported_program
from npu_ir.capture.model_guard import unchanged
from npu_ir.capture.overlapping_inputs import Overlap, overlaps, state_overlaps, through_views
from npu_ir.capture.program_signature import lost_data_error
from npu_ir.capture.provenance import calling_line, failing_line
from npu_ir.capture.replaced_buffers import erase_assignments
from npu_ir.capture.tensor_kinds import require_plain_tensors
from npu_ir.errors import ConversionError, ExportError, NpuError
from npu_ir.graph import Graph


def extract_ir(
    model: torch.nn.Module,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    name: str | None = None,
    dynamic_shapes: Any = None,
) -> Graph:
    """Return what ``model(*args, **kwargs)`` computes, as a graph without weights.

    Args:
        model: Any module, in the mode (train or eval) to capture; real, built under
            ``torch.device("meta")``, or made of FakeTensors.
        args: Example arguments; only their structure, shapes and dtypes count, so they may be on
            ``meta`` or fake. Python scalars become part of the graph, unless ``dynamic_shapes`` says
            otherwise.
        kwargs: Example keyword arguments.
        name: Name of the graph; the class of the model if not given.
        dynamic_shapes: Which sizes the graph leaves open, as `torch.export.export` takes it: ``Dim``,
            ``Dim.AUTO`` or ``Dim.DYNAMIC`` by dimension, nested as the arguments are. The graph's symbols
            have the names of the ``Dim``.

    Raises:
        ExportError: torch.export cannot capture the model.
        ConversionError: The program holds something that has no place in a graph.
    """
    if not isinstance(model, torch.nn.Module):
        raise ExportError(
            f"expected a torch.nn.Module, got {type(model).__name__}",
            fix="wrap the function in a module: its forward calls the function",
        )
    name = name or type(model).__name__
    args, kwargs = tuple(args), dict(kwargs or {})
    if isinstance(dynamic_shapes, ShapesCollection):
        dynamic_shapes = dynamic_shapes.dynamic_shapes(model, args, kwargs)  # type: ignore[no-untyped-call]
    program = export_program(model, args, kwargs, dynamic_shapes)
    graph = convert_exported_program(program, name=name)
    if not any(target in graph.inputs for target in graph.updates):
        return graph
    # An input is changed in place: the change shows in inputs that share memory with it.
    found = overlaps(args, kwargs)
    if found:
        return _with_overlaps(model, args, kwargs, dynamic_shapes, found, name)
    if _has_repeats(args, kwargs):
        program = export_program(model, args, kwargs, dynamic_shapes, shared_inputs=True)
        return convert_exported_program(program, name=name)
    return graph


def _with_overlaps(
    model: torch.nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    dynamic_shapes: Any,
    found: Sequence[Overlap],
    name: str,
) -> Graph:
    if dynamic_shapes is not None:
        raise ConversionError(
            "inputs overlap in memory, and the model changes one of them: how they overlap is known for fixed sizes only",
            where=type(model).__name__,
            fix="pass a copy (clone), or leave dynamic_shapes out",
        )
    with through_views(model, found):
        program = export_program(model, args, kwargs)
    graph = convert_exported_program(program, name=name)
    state_overlaps(graph, args, kwargs, found)
    return graph


def export_program(
    model: torch.nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    dynamic_shapes: Any = None,
    *,
    shared_inputs: bool = False,
) -> ExportedProgram:
    """Return ``model`` as torch.export captures it, ``meta`` tensors dressed as FakeTensors.

    Args:
        model: As for `extract_ir`.
        args: As for `extract_ir`.
        kwargs: As for `extract_ir`.
        dynamic_shapes: As for `extract_ir`.
        shared_inputs: Let a tensor that is passed twice be one input.

    Raises:
        ExportError: torch.export cannot capture the model.
        ConversionError: It cannot, because the content of a tensor does not exist, or ``forward``
            changes what the model consists of.
    """
    tensors = [*model.parameters(), *model.buffers(), *_tensors((args, kwargs))]
    require_plain_tensors(model, args, kwargs)
    mode = _torch.fake_mode_of(tensors)
    dressed: dict[int, torch.Tensor] = {}
    with _dressed_model(model, mode, dressed), _cpu_default_device():
        args, kwargs = _example_inputs((args, kwargs), mode, dressed, shared_inputs)
        try:
            with unchanged(model), contents_restored(), _ForwardCalls():
                program = _exported(model, args, kwargs, dynamic_shapes)
                erase_assignments(program)
                return program
        except NpuError:
            raise
        except Exception as error:
            raise _export_error(model, error) from error


def _exported(
    model: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], dynamic_shapes: Any
) -> ExportedProgram:
    """Return what torch.export makes, whose open sizes may be 1 where it can be sure of that; 0 they never are.

    By itself it takes sizes for at least 2 while it traces, and says that they may be less: a branch for a
    batch of one would be lost without a word (torch 2.13). Where it cannot do without, it runs again as it
    is, and the ranges of the graph begin at 2.
    """
    settings = {"dynamic_shapes": dynamic_shapes, "strict": False}
    if dynamic_shapes is None:
        return torch.export.export(model, args, kwargs, **settings)
    try:
        with _torch.without_assumptions_of_size():
            return torch.export.export(model, args, kwargs, **settings)
    except Exception:  # noqa: BLE001 - whatever it is, torch.export says it again, or does without
        return torch.export.export(model, args, kwargs, **settings)


_READ_DATA = torch.Tensor.data.__get__  # type: ignore[attr-defined]


class _ForwardCalls(TorchFunctionMode):
    """Mends or refuses calls of ``forward`` that torch.export takes for something else (torch 2.13).

    It loses track of ``tensor.data``, which is read as ``tensor.detach()``. A generator it takes for an input, and its
    numbers for those that a generator in any state gives.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func == _READ_DATA:
            return args[0].detach()
        is_branch = (
            torch.compiler.is_dynamo_compiling()
        )  # of control flow, which Dynamo traces with this mode
        if not is_branch and any(
            isinstance(argument, torch.Generator) for argument in (*args, *kwargs.values())
        ):
            raise ConversionError(
                f"{getattr(func, '__name__', func)} draws from a torch.Generator, whose state is not part of a graph",
                where=calling_line(),
                fix="leave generator= out: graphs draw from the default generator, seeded by torch.manual_seed "
                "before they run; or pass the random tensor as an input",
            )
        return func(*args, **kwargs)


def _tensors(tree: Any) -> list[torch.Tensor]:
    return [leaf for leaf in _torch.tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def _has_repeats(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    tensors = _tensors((args, kwargs))
    return len({id(tensor) for tensor in tensors}) < len(tensors)


@contextlib.contextmanager
def _dressed_model(model: torch.nn.Module, mode: Any, dressed: dict[int, torch.Tensor]) -> Iterator[None]:
    """Put FakeTensors on the CPU in place of the model's ``meta`` tensors; put them back at the end."""
    originals: list[tuple[dict[str, Any], str, torch.Tensor]] = []
    try:
        for module in model.modules():
            for owner in (module._parameters, module._buffers):
                for key, tensor in owner.items():
                    if tensor is not None and tensor.is_meta and not _torch.is_fake(tensor):
                        originals.append((owner, key, tensor))
                        owner[key] = _dress(tensor, mode, dressed)  # type: ignore[assignment]
        yield
    finally:
        for owner, key, tensor in originals:
            owner[key] = tensor  # type: ignore[assignment]


def _dress(tensor: torch.Tensor, mode: Any, dressed: dict[int, torch.Tensor]) -> torch.Tensor:
    """Return the FakeTensor for a meta tensor: one for one, so that tied tensors stay tied."""
    if id(tensor) not in dressed:
        if _torch.is_wrapper(tensor):
            parts = _torch.wrapped_parts(tensor).items()
            fake = _torch.with_parts(tensor, {name: _dress(part, mode, dressed) for name, part in parts})
        else:
            with mode:
                fake = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="cpu")
        if isinstance(tensor, torch.nn.Parameter):
            fake = torch.nn.Parameter(fake)
        dressed[id(tensor)] = fake.requires_grad_(tensor.requires_grad)
    return dressed[id(tensor)]


def _example_inputs(
    tree: tuple[Any, Any], mode: Any, dressed: dict[int, torch.Tensor], shared_inputs: bool
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments with ``meta`` tensors dressed; one that shares memory with an earlier one is copied.

    torch.export would take a tensor passed twice for one input, and the graph would then be wrong
    for two different ones. With ``shared_inputs`` it may.
    """
    seen: set[int] = set()
    storages: set[int] = set()

    def prepared(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        is_strided = leaf.layout is torch.strided
        shares = id(leaf) in seen or (is_strided and _torch.storage_id(leaf) in storages)
        is_repeat = shares and not shared_inputs
        seen.add(id(leaf))
        if is_strided:
            storages.add(_torch.storage_id(leaf))
        if leaf.is_meta and not _torch.is_fake(leaf):
            leaf = _dress(leaf, mode, dressed)
        return _apart(leaf) if is_repeat else leaf

    return _torch.tree_map(prepared, tree)  # type: ignore[no-any-return]


def _apart(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor of the same type, of any content, with memory of its own."""
    is_plain = tensor.layout is torch.strided and not _torch.is_wrapper(tensor)
    made = (
        tensor.detach().new_empty_strided(tensor.shape, tensor.stride())
        if is_plain
        else tensor.detach().clone()
    )
    return made.requires_grad_(tensor.requires_grad)


@contextlib.contextmanager
def _cpu_default_device() -> Iterator[None]:
    """Make tensors of ``forward`` real where the default device is ``meta``."""
    with torch.device("cpu") if torch.get_default_device().type == "meta" else contextlib.nullcontext():
        yield


_FIX = "the exception above is torch.export's own; torch.export.draft_export lists all obstacles at once"
# By a part of torch.export's message.
_FIXES = {
    "data-dependent": "the model decides by the content of a tensor: compute both ways and choose by torch.where",
    "in output, which is not a known type": "return tensors, numbers and containers of them, or register the type "
    "with torch.utils._pytree (models of transformers: use_cache=False)",
    "Unsupported input type": "pass tensors, numbers, strings, None and containers of them; "
    "torch.export.register_dataclass makes a dataclass one",
}


def _export_error(model: torch.nn.Module, error: Exception) -> Exception:
    lost = [
        f"{path}.{key}".lstrip(".")
        for path, module in model.named_modules()
        for key, value in vars(module).items()
        if isinstance(value, torch.Tensor) and value.is_meta
    ]
    if lost:
        return lost_data_error(lost[0])
    first = str(error).strip().split("\n")
    return ExportError(
        f"torch.export cannot capture {type(model).__name__}: {type(error).__name__}: {' '.join(first[:3])}",
        where=failing_line(error) or None,
        fix=next((fix for text, fix in _FIXES.items() if text in str(error)), _FIX),
    )
