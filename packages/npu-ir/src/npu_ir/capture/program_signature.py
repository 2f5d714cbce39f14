"""The signature of an exported program as the arguments, results and updates of a graph."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, CustomObjArgument, OutputKind, TokenArgument
from torch.export.graph_signature import InputKind as ExportInputKind
from torch.fx import Node

from npu_ir._torch.tensors import is_functorch_wrapper, is_wrapper
from npu_ir.capture.meta_tensors import has_content
from npu_ir.capture.provenance import location_of
from npu_ir.capture.wrapped_tensors import WrappedTensor, add_parts, require_unwrapped
from npu_ir.core.literals import Literal
from npu_ir.core.node import Value
from npu_ir.core.structure import Structure, from_torch_spec
from npu_ir.core.types import TensorType
from npu_ir.errors import ConversionError, GraphError

if TYPE_CHECKING:
    from npu_ir.capture.convert import Converter


class ProgramSignature:
    """Translator of the signature of one exported program to that of a graph.

    Args:
        converter: The conversion in progress.
        program: The program being converted.
        ties: For each placeholder that is the same tensor as an earlier one: the name of the earlier one.
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
        placeholders = {node.name: node for node in self._program.graph.nodes if node.op == "placeholder"}
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
        type = self._converter.type(node, node.meta["val"])
        if spec.kind is ExportInputKind.USER_INPUT:
            return self._graph.add_input(node.name, type)
        tensor_type = type
        assert isinstance(tensor_type, TensorType), f"{spec.target} is a {spec.kind}"
        if spec.kind is ExportInputKind.PARAMETER:
            return self._graph.add_parameter(spec.target, tensor_type, aliases=aliases)
        if spec.kind is ExportInputKind.BUFFER:
            data = None if spec.persistent else copy_data(self._program.constants.get(spec.target))
            return self._graph.add_buffer(
                spec.target, tensor_type, aliases=aliases, persistent=spec.persistent, data=data
            )
        if spec.kind is ExportInputKind.CONSTANT_TENSOR:
            data = copy_data(self._program.constants.get(spec.target))
            assert data is not None, f"{spec.target} was checked before"
            return self._graph.add_constant(spec.target, data)
        raise ConversionError(
            f"input {node.name!r} is of kind {spec.kind.name}",
            where=location_of(node),
            fix="pass tensors or Python scalars",
        )

    def _add_part(self, spec: Any, node: Node, keys: list[str], tensor: torch.Tensor) -> Value:
        """Add one of the tensors that a parameter or buffer of a subclass wraps."""
        type = self._converter.type(node, tensor)
        target, *aliases = keys
        assert isinstance(type, TensorType), f"{target} is a part of {node}"
        if spec.kind is ExportInputKind.PARAMETER:
            return self._graph.add_parameter(target, type, aliases=aliases)
        if spec.kind is ExportInputKind.BUFFER and spec.persistent:
            return self._graph.add_buffer(target, type, aliases=aliases)
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
