"""The signature of an exported program as the arguments, results and updates of a graph."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, CustomObjArgument, OutputKind, TokenArgument
from torch.export.graph_signature import InputKind as ExportInputKind
from torch.fx import Node

from npu_ir._torch.tensors import is_functorch_wrapper, is_wrapper, wrapped_parts
from npu_ir.capture.fx_nodes import location_of
from npu_ir.capture.tensor_kinds import has_content
from npu_ir.core.literals import Literal
from npu_ir.core.node import Argument, InputKind, Value
from npu_ir.core.structure import Structure, from_torch_spec
from npu_ir.errors import ConversionError, GraphError

if TYPE_CHECKING:
    from npu_ir.capture.convert import Converter


# The op by which an exported program reads an inner tensor.
READS_PART = "export.access_subclass_inner_tensor.default"


@dataclass(frozen=True, slots=True, eq=False)
class WrappedTensor:
    """The value of a parameter or buffer of a wrapper subclass, such as a quantized weight.

    torch.export keeps such a parameter whole and reads its inner tensors by name. In a graph each of them is
    a separate parameter: ``l.weight`` with the tensors ``q`` and ``scale`` becomes ``l.weight.q`` and
    ``l.weight.scale``. Weights are flattened in the same way when they are bound.
    """

    target: str  # its ``state_dict`` key, followed by the names that lead to it if it is wrapped itself
    parts: dict[str, Value | WrappedTensor]  # the values of its inner tensors, by name


def add_parts(tensor: Any, keys: Sequence[str], add: Callable[[list[str], Any], Value]) -> WrappedTensor:
    """Return the value of ``tensor``, a wrapper; ``add`` adds each plain tensor in it, given its keys.

    ``keys`` are the ``state_dict`` keys of the wrapper, more than one if it is tied.
    """
    parts: dict[str, Value | WrappedTensor] = {}
    for name, part in wrapped_parts(tensor).items():
        inner = [f"{key}.{name}" for key in keys]
        parts[name] = add_parts(part, inner, add) if is_wrapper(part) else add(inner, part)
    return WrappedTensor(keys[0], parts)


def part_of_wrapped(node: Node, wrapped: Any) -> Value | WrappedTensor:
    """Return the value of an FX node that reads an inner tensor of a wrapper."""
    if not isinstance(wrapped, WrappedTensor):
        raise ConversionError(
            f"{node.name} reads a part of a tensor subclass that is not a parameter or buffer",
            where=location_of(node),
            fix="make it a parameter or a persistent buffer",
        )
    return wrapped.parts[str(node.args[1])]


def require_unwrapped(node: Node, arguments: Sequence[Any]) -> None:
    """Refuse an op on a whole wrapper, as opposed to its inner tensors."""
    for argument in arguments:
        if isinstance(argument, WrappedTensor):
            raise ConversionError(
                f"{node.target} works on {argument.target!r} as a whole, which is a tensor subclass",
                where=location_of(node),
                fix="use it where its __torch_function__ unwraps it: "
                "not inside of control flow, nor as a result",
            )


class ProgramSignature:
    """Translator of the signature of one exported program to that of a graph.

    ``ties`` has, for each placeholder that is the same tensor as an earlier one, the name of the earlier one.
    """

    def __init__(self, converter: Converter, program: ExportedProgram, ties: Mapping[str, str]) -> None:
        self._converter = converter
        self._graph = converter.graph
        self._program = program
        self._ties = ties
        self._values: dict[Node, Any] = {}
        self._sources: dict[tuple[ExportInputKind, str], Any] = {}

    def add_arguments(self) -> dict[Node, Any]:
        """Add the arguments and the call structure of the graph; return the value of each placeholder."""
        placeholders = {node.name: node for node in self._program.graph.find_nodes(op="placeholder")}
        leaves = self._add_arguments(placeholders)
        call = _convert_structure(self._program.call_spec.in_spec, "the arguments of the model")
        self._graph.set_call_structure(call, leaves)
        return self._values

    def _add_arguments(self, placeholders: dict[str, Node]) -> list[Any]:
        """Add the arguments of the graph; return the leaves of the call: inputs and literals."""
        specs = self._program.graph_signature.input_specs
        aliases: dict[str, list[str]] = {}
        for spec in specs:
            first = self._ties.get(spec.arg.name)
            if first is not None and spec.kind in (ExportInputKind.PARAMETER, ExportInputKind.BUFFER):
                aliases.setdefault(first, []).append(str(spec.target))
        for spec in specs:
            if spec.arg.name not in self._ties:
                node = placeholders[spec.arg.name]
                self._values[node] = self._add_argument(spec, node, aliases.get(spec.arg.name, []))
        leaves = []
        for spec in specs:
            node = placeholders[spec.arg.name]
            if spec.arg.name in self._ties:
                self._values[node] = self._values[placeholders[self._ties[spec.arg.name]]]
            self._sources[spec.kind, spec.target or spec.arg.name] = self._values[node]
            if spec.kind is ExportInputKind.USER_INPUT:
                leaves.append(self._values[node])
        return leaves

    def _add_argument(self, spec: Any, node: Node, aliases: list[str]) -> Value | WrappedTensor | Literal:
        if isinstance(spec.arg, ConstantArgument):
            return spec.arg.value
        if isinstance(spec.arg, TokenArgument):
            return None  # a token orders side effects, as the order of the nodes does
        if isinstance(spec.arg, CustomObjArgument):
            raise ConversionError(
                f"input {node.name!r} is an object of class {spec.arg.class_fqn}",
                where=location_of(next(iter(node.users), node)),
                fix="pass tensors and numbers; random numbers come from the default generator",
            )
        if is_wrapper(node.meta["val"]):
            keys = [str(spec.target), *aliases]
            return add_parts(node.meta["val"], keys, functools.partial(self._add_part, spec, node))
        if spec.kind not in _KINDS:
            raise ConversionError(
                f"input {node.name!r} is of kind {spec.kind.name}",
                where=location_of(node),
                fix="pass tensors or Python scalars",
            )
        kind, is_persistent = _KINDS[spec.kind], spec.persistent is not False
        is_of_program = kind is InputKind.CONSTANT or not is_persistent
        argument = Argument(
            kind,
            node.name if kind is InputKind.INPUT else spec.target,
            tuple(aliases),
            is_persistent,
            copy_data(self._program.constants.get(spec.target)) if is_of_program else None,
        )
        return self._converter.add_argument(argument, self._converter.type(node, node.meta["val"]))

    def _add_part(self, spec: Any, node: Node, keys: list[str], tensor: torch.Tensor) -> Value:
        """Add one of the tensors that a parameter or buffer of a subclass wraps."""
        is_buffer = spec.kind is ExportInputKind.BUFFER and spec.persistent
        if is_buffer or spec.kind is ExportInputKind.PARAMETER:
            target, *aliases = keys
            argument = Argument(_KINDS[spec.kind], target, tuple(aliases))
            return self._converter.add_argument(argument, self._converter.type(node, tensor))
        raise ConversionError(
            f"{spec.target or node.name!r} is a tensor subclass, "
            "and is not a parameter or buffer of the state_dict",
            where=location_of(node),
            fix="make it a parameter or a persistent buffer, or pass the plain tensors in it",
        )

    def add_results(self, results: Sequence[Any]) -> None:
        leaves = []
        output = next(node for node in self._program.graph.nodes if node.op == "output")
        require_unwrapped(output, results)
        for spec, result in zip(self._program.graph_signature.output_specs, results, strict=True):
            if spec.kind is OutputKind.USER_OUTPUT:
                leaves.append(result)
            elif spec.kind is OutputKind.TOKEN:
                continue
            elif spec.kind in _UPDATES:
                self._graph.set_update(self._sources[_UPDATES[spec.kind], str(spec.target)], result)
            else:
                raise ConversionError(f"the program has an output of kind {spec.kind.name}")
        out_spec = self._program.call_spec.out_spec
        self._graph.set_results(_convert_structure(out_spec, "the results of the model"), leaves)


_KINDS = {
    ExportInputKind.USER_INPUT: InputKind.INPUT,
    ExportInputKind.PARAMETER: InputKind.PARAMETER,
    ExportInputKind.BUFFER: InputKind.BUFFER,
    ExportInputKind.CONSTANT_TENSOR: InputKind.CONSTANT,
}
_UPDATES = {
    OutputKind.BUFFER_MUTATION: ExportInputKind.BUFFER,
    OutputKind.USER_INPUT_MUTATION: ExportInputKind.USER_INPUT,
    OutputKind.PARAMETER_MUTATION: ExportInputKind.PARAMETER,
}


def _convert_structure(spec: Any, where: str) -> Structure:
    try:
        return from_torch_spec(spec)
    except GraphError as error:
        raise ConversionError(error.message, where=where, fix=error.fix) from error


def copy_data(tensor: Any) -> torch.Tensor | None:
    """Return a copy of a tensor's data; None if it has none."""
    return tensor.detach().clone() if has_content(tensor) else None


def require_data(program: ExportedProgram) -> None:
    """Refuse constants without content, on which a retrace would crash PyTorch (torch 2.13)."""
    for spec in program.graph_signature.input_specs:
        if spec.kind is not ExportInputKind.CONSTANT_TENSOR:
            continue
        tensor = program.constants.get(str(spec.target))
        if isinstance(tensor, torch.Tensor) and is_functorch_wrapper(tensor):
            raise ConversionError(
                f"torch.export takes a tensor that torch.func differentiates for a constant: {spec.target}",
                fix="use torch.autograd.grad; of torch.func only vmap can be captured",
            )
        if not has_content(tensor):
            raise ConversionError(
                f"the content of the tensor {spec.target!r} is part of the program, "
                "but it is on 'meta' or fake: there is no data",
                fix="make it a parameter or a buffer of the model, "
                "or use extract_ir, which asks for attributes by name",
            )
