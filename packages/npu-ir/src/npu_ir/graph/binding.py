"""Binding of weights and call arguments to a graph, checked before the first op runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from npu_ir._torch.tensors import is_wrapper, wrapped_parts
from npu_ir.core.literals import same_literal
from npu_ir.core.node import Argument, InputKind, Value, external_names
from npu_ir.core.storage import may_self_overlap, ranges_overlap, shares_storage_address, storage_range
from npu_ir.core.structure import flatten_like
from npu_ir.core.symbol_values import SymbolValues
from npu_ir.core.tensor_bytes import BITS_OF_SIZE, same_data
from npu_ir.core.types import TensorType
from npu_ir.errors import ExecutionError, WeightError
from npu_ir.graph.graph import Graph
from npu_ir.graph.requirement import keyword_dict, positional_tuple, require_weights
from npu_ir.ops.execution import describe, is_of_type
from npu_ir.text.printer import format_call

_MAX_LISTED = 20


def bind_weights(
    graph: Graph,
    weights: Mapping[str, torch.Tensor] | None,
    constants: Mapping[str, torch.Tensor] | None = None,
) -> dict[Value, Any]:
    """Return the tensor of every parameter, buffer, optimizer state and constant of ``graph``.

    Raises:
        WeightError: Lists every tensor that is missing, unexpected, or of another shape or dtype.
    """
    require_weights(weights)
    weights, constants = flatten_wrappers(weights or {}), dict(constants or {})
    bound: dict[Value, Any] = {}
    problems: list[str] = []
    expected: set[str] = set()
    for value in graph.arguments:
        argument = value.argument
        assert argument is not None
        if argument.kind is InputKind.INPUT:
            continue
        keys = external_names(value)
        expected.update(keys)
        candidates = {key: source[key] for source in (weights, constants) for key in keys if key in source}
        problems += _weight_problems(value, argument, candidates)
        bound[value] = next(iter(candidates.values()), argument.data)
    problems += [
        f"unexpected: {key}"
        for key in (*weights, *constants)
        # A module's extra state (``get_extra_state``) is not a tensor of the graph.
        if key not in expected and key.rpartition(".")[2] != "_extra_state"
    ]
    if problems:
        more = [f"... and {len(problems) - _MAX_LISTED} more"] if len(problems) > _MAX_LISTED else []
        raise WeightError(
            f"the weights do not fit graph {graph.name!r}:\n  " + "\n  ".join(problems[:_MAX_LISTED] + more),
            fix="pass model.state_dict() or load_weights(path, graph); tensors outside the state_dict go "
            "into constants= (--constants FILE)",
        )
    return {value: with_strides(tensor, value.type) for value, tensor in bound.items()}


def flatten_wrappers(weights: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return weights with wrapper subclasses flattened: ``w`` becomes its tensors ``w.q`` and ``w.scale``.

    Raises:
        WeightError: A tensor is given both on its own and as a component of another.
    """
    flat: dict[str, torch.Tensor] = {}
    for key, tensor in weights.items():
        tensors = {key: tensor}
        if isinstance(tensor, torch.Tensor) and is_wrapper(tensor):
            parts = wrapped_parts(tensor).items()
            tensors = flatten_wrappers({f"{key}.{name}": part for name, part in parts})
        twice = sorted(tensors.keys() & flat.keys())
        if twice:
            raise WeightError(f"the weight {twice[0]!r} is given twice: on its own, and as a part of another")
        flat.update(tensors)
    return flat


def _weight_problems(value: Value, argument: Argument, given: dict[str, Any]) -> list[str]:
    if not given and argument.data is None:
        return [f"missing: {argument.target}, {value.type}{_note(argument)}"]
    wrong = [
        f"misfit: {key} is {_type_name(tensor)}, the graph needs {value.type}"
        for key, tensor in given.items()
        if not is_of_type(tensor, value.type)
    ]
    if wrong or len(given) < 2:
        return wrong
    (first, tensor), *others = given.items()
    return [
        f"misfit: {key} and {first} are tied in the model but differ"
        for key, other in others
        if other is not tensor and not _is_same_memory(other, tensor) and not same_data(other, tensor)
    ]


def _note(argument: Argument) -> str:
    if argument.kind is InputKind.STATE:
        return " (optimizer state: not in model.state_dict(), pass it with the weights)"
    return "" if argument.persistent else " (not in the state_dict: pass it in constants=)"


def _type_name(tensor: Any) -> str:
    return describe(tensor) if isinstance(tensor, torch.Tensor) else type(tensor).__name__


def flatten_arguments(graph: Graph, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    """Return the leaves of the arguments of a call, in the order of ``graph.call``.

    Raises:
        ExecutionError: The arguments have another nesting than the graph was captured for; says how it is
            called.
    """
    expected_args, expected_kwargs = graph.call[0].children
    given = positional_tuple(args), keyword_dict(kwargs)
    try:
        return flatten_like(given[0], expected_args, "args") + flatten_like(
            given[1], expected_kwargs, "kwargs"
        )
    except ExecutionError as error:
        if error.fix is None:
            raise
        called = format_call(graph).removeprefix("call ")
        raise ExecutionError(error.message, where=error.where, fix=f"{error.fix}: {called}") from error


def bind_inputs(
    graph: Graph, args: Sequence[Any], kwargs: Mapping[str, Any], symbols: SymbolValues
) -> dict[Value, Any]:
    """Return the content of every input of ``graph``; ``symbols`` receives what their sizes determine.

    Raises:
        ExecutionError: The arguments have another nesting, type, size or constant than the graph was
            captured for; or tensors share memory where the graph assumes that they do not.
    """
    structure, leaves = graph.call
    expected_args, expected_kwargs = structure.children
    items = flatten_arguments(graph, args, kwargs)
    paths = [*expected_args.leaf_paths("args"), *expected_kwargs.leaf_paths("kwargs")]
    bound: dict[Value, Any] = {}
    first_paths: dict[str, str] = {}
    for path, leaf, item in zip(paths, leaves, items, strict=True):
        if isinstance(leaf, Value):
            first_paths.setdefault(leaf.name, path)
            _require_input(path, leaf, item, bound.get(leaf))
            bound[leaf] = item
        elif isinstance(item, torch.Tensor) or not same_literal(leaf, item):
            raise ExecutionError(
                f"the graph was made for {leaf!r} here, not {item!r}"[:200],
                where=path,
                fix="capture the model again with this value: Python scalars are part of the graph",
            )
    _require_sizes(graph, bound, first_paths, symbols)
    _require_stated_memory(graph, bound)
    return {
        value: with_strides(tensor, value.type.substitute(symbols.values)) for value, tensor in bound.items()
    }


def _require_sizes(
    graph: Graph, bound: Mapping[Value, Any], places: Mapping[str, str], symbols: SymbolValues
) -> None:
    """Solve for the values of symbols, and reject inputs with inconsistent sizes."""
    if not graph.symbols:
        return
    fix = "pass tensors of sizes that fit, or capture the model again with other dynamic_shapes"
    misfit = symbols.solve((value.name, value.type, item) for value, item in bound.items())
    if misfit is not None:
        raise ExecutionError(str(misfit), where=places[misfit.position.name], fix=fix)
    for constraint in graph.constraints:
        if not constraint.holds(symbols.values):
            raise ExecutionError(
                f"the graph was made for sizes with {constraint}, but {symbols.describe(constraint.symbols)}",
                where="the inputs",
                fix=fix,
            )


def _require_input(path: str, value: Value, item: Any, earlier: Any) -> None:
    if not is_of_type(item, value.type):
        raise ExecutionError(
            f"input %{value.name} is {_type_name(item)}, the graph needs {value.type}",
            where=path,
            fix="pass a tensor of this shape and dtype, or capture the model again",
        )
    if (
        earlier is not None
        and earlier is not item
        and not _is_same_memory(earlier, item)
        and (isinstance(earlier, torch.Tensor) or not same_literal(earlier, item))
    ):
        raise ExecutionError(
            f"input %{value.name} is passed in two places: both must be the same tensor or number",
            where=path,
            fix="pass one tensor twice, as when the model was captured",
        )


def _require_stated_memory(graph: Graph, bound: Mapping[Value, Any]) -> None:
    """Reject inputs that overlap differently from what the graph states, where one of them is mutated."""
    # Only mutated inputs matter: in the model, a write is visible through every tensor that overlaps its
    # target; in the functional graph, only through those that it states to overlap.
    groups = {value: _overlap_base(graph, value) for value in bound}
    for value, first in groups.items():
        if value is not first:
            _require_stated_offset(value, bound[value], first, bound[first])
    for target in graph.updates:
        if target not in bound:
            continue
        for value, tensor in bound.items():
            if (
                groups[value] is not groups[target]
                and shares_storage_address(tensor, bound[target])
                and ranges_overlap(storage_range(tensor), storage_range(bound[target]))
            ):
                raise ExecutionError(
                    f"inputs %{target.name} and %{value.name} share memory, and the model changes "
                    f"%{target.name} in place",
                    fix="pass a copy (clone), or capture the model with the shared tensor",
                )


def _overlap_base(graph: Graph, value: Value) -> Value:
    """Return the input that the graph states ``value`` to overlap with; ``value`` itself if none."""
    assert value.argument is not None
    if value.argument.overlaps is None:
        return value
    other = value.argument.overlaps[0]
    return next(item for item in graph.inputs if item.target == other)


def _require_stated_offset(value: Value, tensor: torch.Tensor, first: Value, other: torch.Tensor) -> None:
    assert value.argument is not None
    assert value.argument.overlaps is not None
    offset = value.argument.overlaps[1]
    are_laid_out = has_strides(tensor, value.tensor_type) and has_strides(other, first.tensor_type)
    actual = tensor.storage_offset() - other.storage_offset()
    if not are_laid_out or not shares_storage_address(tensor, other) or actual != offset:
        raise ExecutionError(
            f"the graph is for inputs that overlap in memory: %{first.name}, {first.type}, and "
            f"%{value.name}, {value.type}, which begins {offset} elements behind it",
            fix="pass views of one tensor that overlap so, or capture the model with inputs that do not",
        )


def _is_same_memory(left: Any, right: Any) -> bool:
    is_aligned = shares_storage_address(left, right) and left.storage_offset() == right.storage_offset()
    return is_aligned and left.stride() == right.stride()


def with_strides(tensor: Any, type: Any) -> Any:
    """Return ``tensor`` with the strides of ``type``: itself if it has them, otherwise a copy.

    A tensor is returned unchanged if the elements of ``type`` overlap: a caller need not reproduce that.
    """
    is_strided = isinstance(tensor, torch.Tensor) and tensor.layout is torch.strided
    if not is_strided or not isinstance(type, TensorType) or type.symbols:
        return tensor
    strides = type.static_strides
    if (
        tensor.stride() == strides
        or has_strides(tensor, type)
        or may_self_overlap(type.static_shape, strides)
    ):
        return tensor
    laid_out = torch.empty_strided(type.static_shape, strides, dtype=type.dtype, device=tensor.device)
    bits = BITS_OF_SIZE[type.dtype.itemsize]  # copied bitwise: PyTorch cannot copy tensors of every dtype
    laid_out.view(bits).copy_(tensor.resolve_conj().resolve_neg().view(bits))
    return laid_out


def has_strides(tensor: torch.Tensor, type: TensorType) -> bool:
    """Return whether ``tensor`` has the strides of ``type``, ignoring axes of size 1 and empty tensors."""
    pairs = zip(type.static_shape, tensor.stride(), type.static_strides, strict=True)
    return tensor.numel() == 0 or all(actual == wanted for size, actual, wanted in pairs if size > 1)
