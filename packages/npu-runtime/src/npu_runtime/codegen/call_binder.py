"""Binding of call arguments as generated Python: what fits exactly takes 3 us instead of 50 to 600.

`npu_ir.graph.binding.bind_inputs` defines which arguments fit, solves the symbolic sizes, copies tensors of
other strides and explains what is wrong. The code that is generated here accepts a subset, the usual
arguments, and returns None for all others, which `bind_inputs` then takes or refuses.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

from npu_ir import Graph, NpuError, TensorType, Value
from npu_ir.core.literals import same_literal
from npu_ir.core.structure import LEAF, Structure, dict_keys, make_opener, type_of_container
from npu_ir.core.symbol_values import SizePosition, SymbolValues
from npu_ir.core.types import ScalarType
from npu_ir.symbolic.constraints import Range
from npu_ir.symbolic.expressions import Call, Expr, is_integral
from npu_ir.symbolic.functions import FUNCTIONS
from npu_runtime.codegen.compiled_function import load_function
from npu_runtime.codegen.tensor_guards import TensorGuards, TensorLayout
from npu_runtime.probing.storage import find_overlapping

# Takes positional and keyword arguments. Returns the inputs of the graph in order, and the values of the
# symbols (None for a graph without any); or None for arguments that `bind_inputs` has to see.
Binder: TypeAlias = (
    "Callable[[tuple[Any, ...], Mapping[str, Any]], tuple[tuple[Any, ...], SymbolValues | None] | None]"
)

_ELEMENTARY = ("tuple", "list", "torch.Size", "namedtuple")
_SCALAR_TYPES = {"int": "int", "float": "float", "bool": "bool", "none": "NoneType"}
_MAX_DEGREE = 32  # the interpreter refuses numbers of more than 4096 bits
_UNBOUNDED_FUNCTIONS = ("pow", "lshift")


@dataclass(frozen=True, slots=True)
class WrittenBinding:
    """Statements that bind ``args`` and ``kwargs``; one of ``misfits`` may be raised instead of a return.

    Attributes:
        lines: The statements.
        inputs: The inputs of the graph in order: the names of local variables, each with a comma.
        constants: The global variables.
    """

    lines: list[str]
    inputs: str
    constants: dict[str, Any]


def make_binder(graph: Graph, device: torch.device, trusted: Collection[Value] = ()) -> Binder:
    """Return the function that binds usual arguments to the inputs of a graph.

    Args:
        graph: The program.
        device: The device of its tensors.
        trusted: Inputs whose tensors the caller has compared with their types.
    """
    written = write_binding(graph, device, "None", trusted)
    if written is None:
        return lambda args, kwargs: None  # noqa: ARG005 - the interface of binders
    body = [f"        {line}" for line in written.lines]
    text = "\n".join(
        [
            "def bind(args, kwargs):",
            "    try:",
            *body,
            f"        return ({written.inputs}), {'symbols' if graph.symbols else None}",
            "    except misfits:",
            "        return None",
            "",
        ]
    )
    binder: Binder = load_function("bind", f"{graph.name}-call", text, written.constants)
    return binder


def write_binding(
    graph: Graph, device: torch.device, refusal: str, trusted: Collection[Value] = ()
) -> WrittenBinding | None:
    """Return the body of the function that `make_binder` returns; None if its arguments need `bind_inputs`.

    Args:
        graph: As for `make_binder`, like ``device`` and ``trusted``.
        device: Likewise.
        refusal: The expression that is returned for unusual arguments.
        trusted: Likewise.
    """
    writer = _Writer(graph, device, refusal, trusted)
    try:
        return writer.write()
    except _UnsupportedError:
        return None


class _UnsupportedError(Exception):
    """The arguments of this graph have no generated binding."""


class _Writer:
    """Writer of the binding of one graph."""

    def __init__(self, graph: Graph, device: torch.device, refusal: str, trusted: Collection[Value]) -> None:
        self._graph = graph
        self._device = device
        self._refusal = refusal
        self._trusted = trusted
        self._lines: list[str] = []
        self._count = 0
        # The local variable of each input, and of each symbol that is solved.
        self._inputs: dict[Value, str] = {}
        self._symbols: dict[str, str] = {}
        self._spots: dict[str, SizePosition] = {}
        self.constants: dict[str, Any] = {
            "NoneType": type(None),
            "SymbolValues": SymbolValues,
            "misfits": (AttributeError, KeyError, ValueError, TypeError, ArithmeticError, NpuError),
        }

    def write(self) -> WrittenBinding:
        """Return the binding.

        Raises:
            _UnsupportedError: Its arguments need `bind_inputs`.
        """
        structure, leaves = self._graph.call
        args, kwargs = structure.children
        remaining = iter(leaves)
        self._write_container(args, "args", remaining)
        self._write_container(kwargs, "kwargs", remaining)
        self._write_tensors()
        inputs = "".join(f"{self._inputs[value]}, " for value in self._graph.inputs)
        return WrittenBinding(self._lines, inputs, self.constants)

    def _refuse(self, condition: str) -> None:
        self._lines.append(f"if {condition}: return {self._refusal}")

    def _local(self) -> str:
        self._count += 1
        return f"v{self._count}"

    def _constant(self, item: Any) -> str:
        if item is None or type(item) in (bool, int, str):
            return repr(item)
        name = f"c{len(self.constants)}"
        self.constants[name] = item
        return name

    def _tuple(self, items: Iterable[str]) -> str:
        return f"({''.join(f'{item}, ' for item in items)})"

    def _write_container(self, structure: Structure, name: str, leaves: Iterator[Any]) -> None:
        """Take one container apart, then its elements in order."""
        if structure.kind == LEAF:
            self._write_leaf(next(leaves), name)
            return
        container = type_of_container(structure)
        if container is None:
            raise _UnsupportedError  # it may be loaded later
        parts = [self._local() for _ in structure.children]
        self._refuse(f"type({name}) is not {self._constant(container)}")
        if structure.kind == "dict":
            self._refuse(f"len({name}) != {len(parts)}")
            for part, key in zip(parts, dict_keys(structure.context), strict=True):
                self._lines.append(f"{part} = {name}[{self._constant(key)}]")
        else:
            if structure.kind not in _ELEMENTARY:
                opener, given = make_opener(structure), name
                name, context = self._local(), self._local()
                self._lines.append(f"{name}, {context} = {self._constant(opener.flatten)}({given})")
                self._refuse(f"not {self._constant(opener.has_context)}({context})")
            self._lines.append(f"{self._tuple(parts)} = {name}")
        for part, child in zip(parts, structure.children, strict=True):
            self._write_container(child, part, leaves)

    def _write_leaf(self, leaf: Any, name: str) -> None:
        if not isinstance(leaf, Value):
            self._write_literal(leaf, name)
        elif leaf in self._inputs:
            self._refuse(f"{name} is not {self._inputs[leaf]}")
        else:
            self._inputs[leaf] = name
            type = leaf.type
            if isinstance(type, ScalarType):
                self._refuse(f"type({name}) is not {_SCALAR_TYPES[type.kind]}")
                if isinstance(type.value, int):
                    self._refuse(f"{name} != {type.value}")
            elif type.layout is not torch.strided or leaf.argument is None or leaf.argument.overlaps:
                raise _UnsupportedError

    def _write_literal(self, literal: Any, name: str) -> None:
        if literal is None or literal is True or literal is False:
            self._refuse(f"{name} is not {literal}")
        elif type(literal) in (int, str) or (type(literal) is float and literal and math.isfinite(literal)):
            self._refuse(f"type({name}) is not {type(literal).__name__} or {name} != {literal!r}")
        else:
            self._refuse(f"not {self._constant(same_literal)}({self._constant(literal)}, {name})")

    def _write_tensors(self) -> None:
        """Check the tensors, and solve the symbols by their sizes."""
        checked = {
            value: name
            for value, name in self._inputs.items()
            if isinstance(value.type, TensorType) and value not in self._trusted
        }
        layouts = [TensorLayout.of(value.type) for value in checked if isinstance(value.type, TensorType)]
        guards = TensorGuards(layouts, self._device)
        tensors = ", ".join(checked.values())
        if checked:
            fit = self._constant(guards.fit)
            # The guards of PyTorch end the process where a tensor is nested (torch 2.13).
            self._refuse(" or ".join(f"{name}.is_nested" for name in checked.values()))
            self._lines += [
                f"for holds, symbols in {self._constant(guards.known)}:",
                f"    if holds({tensors}): break",
                "else:",
                f"    if not {fit}({tensors}): return {self._refusal}",
                "    symbols = None",
            ]
        self._write_separation(checked)
        if self._graph.symbols:
            self._write_sizes(checked, guards, tensors)

    def _write_separation(self, tensors: Mapping[Value, str]) -> None:
        """Refuse tensors that overlap where the model writes to one of them."""
        changed = {name for value, name in tensors.items() if value in self._graph.updates}
        if changed and len(tensors) > 1:
            items = ", ".join(f"{name!r}: {name}" for name in tensors.values())
            self._refuse(f"{self._constant(find_overlapping)}({{{items}}}, {self._constant(changed)})")

    def _write_sizes(self, checked: Mapping[Value, str], guards: TensorGuards, tensors: str) -> None:
        """Solve the symbols and check all sizes, unless the guard that holds is one on all sizes."""
        start = len(self._lines)
        self._solve_sizes()
        if any(value.type.symbols - self._symbols.keys() for value in self._inputs):
            raise _UnsupportedError  # strides determine them
        for value, name in checked.items():
            self._write_extents(value.tensor_type, name)
        for constraint in self._graph.constraints:
            left, right = self._expression(constraint.left), self._expression(constraint.right)
            self._refuse(f"not ({left} {constraint.relation} {right})")
        values = ", ".join(f"{symbol!r}: {name}" for symbol, name in self._symbols.items())
        ranges, spots = self._constant(self._graph.symbols), self._constant(self._spots)
        self._lines.append(f"symbols = SymbolValues.solved({ranges}, {{{values}}}, {spots})")
        numbers = [value for value in self._inputs if isinstance(value.type, ScalarType)]
        if checked and not any(value.type.symbols for value in numbers):
            self._lines.append(f"{self._constant(guards.pin)}(symbols, {tensors})")
            self._lines[start:] = ["if symbols is None:", *(f"    {line}" for line in self._lines[start:])]
        if self._symbols.keys() < self._graph.symbols.keys():
            self._lines.append(f"symbols = SymbolValues({ranges}, symbols)")  # the nodes of a run add to it

    def _solve_sizes(self) -> None:
        """Solve the symbols in the order of `SymbolValues.solve`."""
        sizes = [item for value in self._inputs for item in _open_sizes(value)]
        shapes: dict[Value, list[str]] = {}
        for spot, wanted, value in sorted(sizes, key=lambda item: item[1].symbol is None):
            unknown = wanted.symbols - self._symbols.keys()
            if len(unknown) > 1:
                raise _UnsupportedError  # strides may determine some of them first
            name = self._inputs[value]
            if not unknown and spot.axis is None:
                self._refuse(f"{name} != {self._expression(wanted)}")
            for symbol in unknown:
                if spot.axis is not None and value not in shapes:
                    shapes[value] = [self._local() for _ in value.tensor_type.shape]
                    self._lines.append(f"{self._tuple(shapes[value])} = {name}.shape")
                self._solve_symbol(symbol, wanted, name if spot.axis is None else shapes[value][spot.axis])
                self._spots[symbol] = spot

    def _solve_symbol(self, symbol: str, wanted: Expr, actual: str) -> None:
        """Solve ``factor * symbol + rest == actual``, and check the range of the symbol."""
        if not wanted.is_linear_in(symbol) or not is_integral(wanted):
            raise _UnsupportedError
        rest = Expr(tuple(term for term in wanted.terms if term[0] != ((symbol, 1),)))
        factor = next(factor for monomial, factor in wanted.terms if monomial == ((symbol, 1),))
        name = actual
        if wanted.symbol is None:
            name, remainder = self._local(), self._local()
            difference = f"{actual} - ({self._expression(rest)})"
            self._lines.append(f"{name}, {remainder} = divmod({difference}, {factor})")
            self._refuse(remainder)
        self._symbols[symbol] = name
        range: Range = self._graph.symbols[symbol]
        if range.low is not None:
            self._refuse(f"{name} < {range.low}")
        if range.high is not None:
            self._refuse(f"{name} > {range.high}")

    def _write_extents(self, type: TensorType, name: str) -> None:
        """Check the sizes and strides that depend on the call; a guard has compared the others."""
        layout = TensorLayout.of(type)
        known = [size for size in layout.sizes if size is not None]
        if len(layout.sizes) - len(known) == 1 and 0 not in known:
            self._refuse(f"{name}.numel() != {self._expression(type.numel)}")  # half the time of its shape
        elif len(known) < len(layout.sizes):
            self._refuse(f"{name}.shape != {self._tuple(map(self._expression, type.shape))}")
        if None in layout.strides:
            if type.strides is None:
                self._refuse(f"not {name}.is_contiguous()")
            else:
                self._refuse(f"{name}.stride() != {self._tuple(map(self._expression, type.strides))}")

    def _expression(self, number: Any) -> str:
        """Return the source of an expression of solved symbols."""
        if not isinstance(number, Expr):
            return repr(number)
        return " + ".join(self._term(*term) for term in number.terms) or "0"

    def _term(self, monomial: Any, coefficient: float) -> str:
        factors = [repr(coefficient)] if coefficient != 1 or not monomial else []
        for factor, power in monomial:
            if power > _MAX_DEGREE // len(monomial):
                raise _UnsupportedError
            factors += [self._factor(factor)] * power
        return "*".join(factors)

    def _factor(self, factor: str | Call) -> str:
        if isinstance(factor, str):
            if factor not in self._symbols:
                raise _UnsupportedError
            return self._symbols[factor]
        if factor.function in _UNBOUNDED_FUNCTIONS:
            raise _UnsupportedError
        arguments = ", ".join(map(self._expression, factor.arguments))
        return f"{self._constant(FUNCTIONS[factor.function].evaluate)}({arguments})"


def _open_sizes(value: Value) -> Iterator[tuple[SizePosition, Expr, Value]]:
    """Yield the symbolic sizes of an input, or its symbolic value if it is a number."""
    if isinstance(value.type, ScalarType):
        sizes = {SizePosition(value.name): value.type.value}
    else:
        sizes = {SizePosition(value.name, axis): size for axis, size in enumerate(value.type.shape)}
    for spot, size in sizes.items():
        if isinstance(size, Expr):
            yield spot, size, value
