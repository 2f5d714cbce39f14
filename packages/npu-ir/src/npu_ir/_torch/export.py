"""Sizes of an exported program: ranges, guards and the names of its dimensions."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import torch

from npu_ir._torch.fake import is_fake
from npu_ir._torch.ops import is_functorch_call
from npu_ir._torch.sizes import RELATIONS

_COMPOSITES = threading.RLock()


def size_ranges(program: Any) -> dict[str, tuple[int | None, int | None]]:
    """Return the ranges that a program was traced for, by symbol; None for an open end.

    While it traces, torch.export assumes that sizes of tensors are at least 2, even if the program states a
    lower bound; under `relaxed_size_assumptions`, at least 1 (torch 2.13). For a loaded program it is
    unknown how it was traced.
    """
    shape_env = _shape_env_of(program)
    traced = shape_env.var_to_range if shape_env is not None and shape_env.var_to_sources else {}
    sizes = {
        size.node.expr
        for node in program.graph.nodes
        if node.op == "placeholder" and isinstance(node.meta.get("val"), torch.Tensor)
        for size in node.meta["val"].shape
        if isinstance(size, torch.SymInt)
    }
    ranges = {}
    # Beyond the traced range no guards were recorded, so the stated one is cut to it.
    for symbol, stated in program.range_constraints.items():
        low, high = (int(end) if end.is_Integer else None for end in (stated.lower, stated.upper))
        if symbol in traced and traced[symbol].lower.is_Integer:
            low = max(low or 0, int(traced[symbol].lower)) if low is not None else int(traced[symbol].lower)
        elif symbol in sizes and not traced:
            low = max(low or 0, 2)
        if any(_vanishes_with(symbol, size) for size in sizes):  # size 0 is never traced
            low = max(low or 0, 1)
        ranges[str(symbol)] = (low, None if high is not None and high >= 2**62 else high)
    return ranges


def _vanishes_with(symbol: Any, size: Any) -> bool:
    """Return whether a size is 0 where the symbol is, or undefined, as a quotient by it is."""
    try:
        return bool(size.xreplace({symbol: 0}) == 0)
    except ZeroDivisionError:
        return True


def traced_ranges(graph: torch.fx.Graph) -> dict[Any, Any]:
    """Return the ranges that an FX graph was traced for, by SymPy symbol."""
    for node in graph.nodes:
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor) and is_fake(value) and value.fake_mode.shape_env is not None:  # type: ignore[attr-defined]
            return dict(value.fake_mode.shape_env.var_to_range)  # type: ignore[attr-defined]
    return {}


def shape_specs(
    model: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], dynamic_shapes: Any
) -> list[tuple[str, torch.Tensor, Any]]:
    """Return what ``dynamic_shapes`` says of each tensor of a call: the place, the tensor, what is said.

    The list ends where both are nested differently, of which torch.export has errors of its own.
    """
    from torch.export.dynamic_shapes import _combine_args, _tree_map_with_path
    from torch.utils._pytree import keystr

    found: list[tuple[str, torch.Tensor, Any]] = []

    def collect(path: Any, value: Any, spec: Any) -> None:
        if isinstance(value, torch.Tensor):
            found.append((f"dynamic_shapes{keystr(path)}", value, spec))

    with contextlib.suppress(Exception):
        named = _combine_args(model, args, kwargs)
        arguments = named if isinstance(dynamic_shapes, dict) else type(dynamic_shapes)(named.values())
        _tree_map_with_path(collect, arguments, dynamic_shapes, tree_name="inputs")
    return found


def guard_code(program: Any) -> list[str]:
    """Return the guards of a program loaded from a file, as Python code; for others see `size_guards`."""
    shape_env = _shape_env_of(program)
    is_loaded = shape_env is not None and not shape_env.var_to_sources
    return list(getattr(program, "_guards_code", None) or []) if is_loaded else []


def size_guards(program: Any, symbols: set[Any]) -> list[tuple[str, Any, Any]]:
    """Return the guards of torch.export on these symbols: relation, left and right side.

    Guards that follow from the ranges of the symbols are left out. Of a disjunction, the part that held for
    the example is returned, which implies it.

    Raises:
        ValueError: A guard is not a relation between numbers; states which.
    """
    from sympy.logic.boolalg import to_nnf  # type: ignore[import-untyped]
    from torch.utils._sympy.value_ranges import bound_sympy

    shape_env = _shape_env_of(program)
    if shape_env is None:
        return []
    has_backed = hasattr(shape_env, "backed_var_to_val")  # where it exists, the other name warns
    examples = shape_env.backed_var_to_val if has_backed else shape_env.var_to_val
    guards = []
    for guard in shape_env.guards:
        for expression in _relations(to_nnf(shape_env.replace(guard.expr), simplify=False), examples):
            if not expression.free_symbols <= symbols:
                continue
            truth = bound_sympy(expression, program.range_constraints)
            if not (truth.is_singleton() and bool(truth.lower)):
                guards.append((RELATIONS[type(expression).__name__], *expression.args))
    return guards


def _relations(expression: Any, examples: Mapping[Any, Any]) -> Iterator[Any]:
    """Yield relations whose conjunction equals ``expression``, or implies it and holds for the examples."""
    kind = type(expression).__name__
    if kind in RELATIONS:
        yield expression
    elif kind == "And":
        for part in expression.args:
            yield from _relations(part, examples)
    elif kind == "Or":
        held = [part for part in expression.args if part.xreplace(dict(examples)) == True]  # noqa: E712 - SymPy's
        if not held:
            raise ValueError(expression)
        yield from _relations(held[0], examples)
    elif kind != "BooleanTrue":
        raise ValueError(expression)


def dim_names(program: Any) -> dict[str, str]:
    """Return the names of the ``torch.export.Dim`` that symbols of a program were declared with."""
    shape_env = _shape_env_of(program)
    if shape_env is None:
        return {}
    names = shape_env.source_name_to_debug_name
    return {
        str(symbol): str(names[_name_of(source)])
        for symbol, sources in shape_env.var_to_sources.items()
        for source in sources
        if names.get(_name_of(source))
    }


def _name_of(source: Any) -> str:
    name = source.name
    return name if isinstance(name, str) else str(name())  # a method until torch 2.9


def _shape_env_of(program: Any) -> Any:
    for node in program.graph.nodes:
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor) and is_fake(value):
            return value.fake_mode.shape_env  # type: ignore[attr-defined]
        if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            return value.node.shape_env
    return None


@contextlib.contextmanager
def composites_of(module: torch.nn.Module) -> Iterator[None]:
    """Return a context in which retraces by this thread preserve the composite ops in ``module`` alone.

    Each retrace prepares every composite op to be preserved, some 400, which takes longer than to retrace a
    small program. In a program with transforms of torch.func all are, because ops become others there. One
    thread is in such a context at a time.
    """
    from torch._export.utils import _collect_all_valid_cia_ops as collect
    from torch._export.utils import _is_preservable_cia_op
    from torch.export import decomp_utils, exported_program

    parts = (part for part in module.modules() if isinstance(part, torch.fx.GraphModule))
    targets = {node.target for part in parts for node in part.graph.nodes}
    if any(map(is_functorch_call, targets)):
        yield
        return
    found = {op for op in targets if isinstance(op, torch._ops.OpOverload) and _is_preservable_cia_op(op)}
    thread = threading.get_ident()

    def collect_here() -> Collection[Any]:
        return found if threading.get_ident() == thread else collect()

    # Which of the two asks for them depends on the release.
    callers = [
        vars(caller) for caller in (exported_program, decomp_utils) if collect.__name__ in vars(caller)
    ]
    with _COMPOSITES:
        before = [names[collect.__name__] for names in callers]
        try:
            for names in callers:
                names[collect.__name__] = collect_here
            yield
        finally:
            for names, function in zip(callers, before, strict=True):
                names[collect.__name__] = function
