"""Functionalization of an exported program: no op of the result mutates a tensor.

torch.export leaves ``relu_`` and ``add_`` in its program. They are removed in one of two ways:

- *directly* (`direct_replacement`), if no other tensor that is read later can observe the write: the
  conversion uses the functional op instead. Activations and residual additions are of this kind, and
  updates of whole buffers: running statistics, static caches.
- *by retracing* (`retrace`) with PyTorch's functionalization, for everything else: writes through
  views, tied buffers, autocast regions. It costs about as much as the export itself.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.fx import Node

from npu_ir._torch.ops import is_functorch_call
from npu_ir.capture.aliases import AliasSets
from npu_ir.capture.direct_replacement import Replacement, find_direct_replacements
from npu_ir.capture.fx_nodes import (
    AUTOCAST_REGION,
    ENTER_AUTOCAST,
    FUNCTIONAL_CALL_ON_VIEWS,
    is_call_of,
    nodes,
)
from npu_ir.capture.replaced_buffers import find_replaced_buffers, require_no_replacements, require_same_types
from npu_ir.capture.retrace import retrace_program
from npu_ir.capture.write_refusals import require_same_shapes


@dataclass(frozen=True, slots=True)
class FunctionalProgram:
    """An exported program with the substitutions that make its conversion functional."""

    program: ExportedProgram
    # The functional call to convert in place of each node that writes.
    replacements: dict[Node, Replacement] = field(default_factory=dict)
    # For each placeholder that is the same tensor as an earlier one: the name of the earlier one.
    ties: dict[str, str] = field(default_factory=dict)
    # For each node that replaces a buffer by a tensor of another type: the buffer and the tensor.
    replaced: dict[Node, tuple[Node, Node]] = field(default_factory=dict)


def functionalize(program: ExportedProgram) -> FunctionalProgram:
    """Return ``program`` prepared for a functional conversion.

    Raises:
        ConversionError: Partly overlapping parameters, buffers or inputs are mutated, the shape of one
            is changed in place, or PyTorch's functionalization fails.
    """
    require_same_types(program)
    require_same_shapes(program)
    aliases = AliasSets(program.graph_module)
    replaced = find_replaced_buffers(program)
    # All or nothing: a single write without a direct replacement sends the whole program to the retrace.
    direct = None if _needs_retrace(program) else find_direct_replacements(program, aliases, replaced)
    if direct is not None:
        return FunctionalProgram(program, direct, aliases.ties, replaced)
    require_no_replacements(program)
    again = retrace_program(program, aliases)
    before, after = _placeholder_names(program), _placeholder_names(again)
    names = {name: after[argument] for argument, name in before.items()}
    return FunctionalProgram(again, ties={names[name]: names[first] for name, first in aliases.ties.items()})


def _placeholder_names(program: ExportedProgram) -> dict[tuple[InputKind, str | int], str]:
    """Return the names of the placeholders by kind and target.

    A retraced program has other names, in another order, and may have more placeholders. User inputs have
    no target, and are numbered instead.
    """
    specs = program.graph_signature.input_specs
    inputs = itertools.count()
    return {
        (spec.kind, next(inputs) if spec.target is None else spec.target): spec.arg.name for spec in specs
    }


def _needs_retrace(program: ExportedProgram) -> bool:
    """Return whether only a retrace decomposes the program: autocast, ``torch.func``, calls on views."""
    return torch.is_autocast_enabled("cpu") or any(
        is_functorch_call(node.target)
        or is_call_of(node, FUNCTIONAL_CALL_ON_VIEWS, AUTOCAST_REGION, ENTER_AUTOCAST)
        for node in nodes(program.graph_module)
    )
