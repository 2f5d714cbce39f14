"""Eager PyTorch as the reference: the whole model, and its exported program node by node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Interpreter as FxInterpreter
from torch.fx import Node
from torch.overrides import TorchFunctionMode

from npu_ir._torch.pytree import tree_leaves, tree_map
from npu_ir._torch.tensors import is_wrapper
from npu_ir.capture.convert import Converter
from npu_ir.capture.extract import export_program
from npu_ir.capture.functionalize import functionalize
from npu_ir.capture.held_tensors import unregistered_tensors
from npu_ir.capture.model_guard import HeldState
from npu_ir.capture.overlapping_inputs import find_overlaps, run_on_views
from npu_ir.capture.sizes import Sizes
from npu_ir.core.node import Value
from npu_ir.core.storage import storage_id
from npu_ir.graph.graph import Graph


def clone_tensors(tree: Any) -> Any:
    """Return a pytree with every tensor cloned; identical tensors stay identical, and views keep sharing."""
    clones: dict[int, torch.Tensor] = {}
    shared = Counter(map(_sharing_key, {id(leaf): leaf for leaf in tree_leaves(tree)}.values()))
    wholes: dict[Any, torch.Tensor] = {}

    def copy_of(leaf: torch.Tensor) -> torch.Tensor:
        memory = _sharing_key(leaf)
        if memory is None or shared[memory] == 1:
            return leaf.detach().clone()
        if memory not in wholes:
            numel = leaf.untyped_storage().nbytes() // leaf.itemsize
            wholes[memory] = leaf.detach().as_strided((numel,), (1,), 0).clone()
        return wholes[memory].as_strided(leaf.shape, leaf.stride(), leaf.storage_offset())

    def clone(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        if id(leaf) not in clones:
            clones[id(leaf)] = copy_of(leaf).requires_grad_(leaf.requires_grad)
        return clones[id(leaf)]

    return tree_map(clone, tree)


def _sharing_key(leaf: Any) -> Any:
    """Return a key that views of one storage share; None for tensors that are cloned individually."""
    is_plain = isinstance(leaf, torch.Tensor) and leaf.layout is torch.strided and not is_wrapper(leaf)
    if not is_plain or leaf.is_conj() or leaf.is_neg() or leaf.is_quantized:
        return None
    return storage_id(leaf), leaf.dtype


def model_tensors(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Return all parameters and buffers by all their names, and unregistered tensors by their paths."""
    return {
        **unregistered_tensors(model),
        **dict(model.named_parameters(remove_duplicate=False)),
        **dict(model.named_buffers(remove_duplicate=False)),
    }


def run_eagerly(
    model: torch.nn.Module,
    tensors: Mapping[str, torch.Tensor],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> tuple[Any, dict[str, torch.Tensor]]:
    """Return the result of ``model``, and the contents of its parameters and buffers afterwards.

    The model computes on copies of ``tensors``: they, the model and its unregistered tensors stay unchanged.
    """
    state, first = clone_tensors(dict(tensors)), _first_names(model)
    held, before = unregistered_tensors(model), HeldState(model)
    # A module with several paths is passed once: functional_call would leave copies in it (torch 2.13).
    passed = {
        name: tensor for name, tensor in state.items() if first.get(name, name) == name and name not in held
    }
    copies = {id(tensor): state[name] for name, tensor in model_tensors(model).items() if name in state}
    try:
        with _ReplaceTensors(copies) as mode:
            result = torch.func.functional_call(model, passed, tuple(args), dict(kwargs), tie_weights=False)
    finally:
        before.restore()
    return tree_map(mode.copy_of, result), {
        name: passed.get(first.get(name, name), state[name]) for name in state
    }


class _ReplaceTensors(TorchFunctionMode):
    """Replace tensors, by their id, by copies in every call, also those that no module has registered."""

    def __init__(self, copies: Mapping[int, torch.Tensor]) -> None:
        super().__init__()
        self._copies = copies

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if torch.compiler.is_dynamo_compiling():  # the bodies of control flow
            return func(*args, **(kwargs or {}))
        args, kwargs = tree_map(self.copy_of, (args, kwargs or {}))
        return func(*args, **kwargs)

    def copy_of(self, leaf: Any) -> Any:
        """Return the copy of a tensor of the model; anything else unchanged."""
        return self._copies.get(id(leaf), leaf)


def _first_names(model: torch.nn.Module) -> dict[str, str]:
    """Return the first of the names that the same module's parameter or buffer has, for each name."""
    names: dict[tuple[torch.nn.Module, str], str] = {}
    first = {}
    for path, module in model.named_modules(remove_duplicate=False):
        for leaf, _ in (*module.named_parameters("", False, False), *module.named_buffers("", False, False)):
            name = f"{path}.{leaf}" if path else leaf
            first[name] = names.setdefault((module, leaf), name)
    return first


class NodeValues(FxInterpreter):
    """Interpreter of an exported program that records the value of every node, by its name in the graph."""

    def __init__(self, program: ExportedProgram, names: Mapping[Node, Any]) -> None:
        super().__init__(program.graph_module)
        self.values: dict[str, Any] = {}
        self._names = names

    def run_node(self, n: Node) -> Any:
        result = super().run_node(n)
        if n.op == "call_function":
            for value, tensor in zip(tree_leaves(self._names.get(n)), tree_leaves(result), strict=False):
                if isinstance(value, Value):
                    # A copy: a later node may change the tensor in place.
                    self.values[value.name] = clone_tensors(tensor)
        return result


def node_values(
    model: torch.nn.Module,
    tensors: Mapping[str, torch.Tensor],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> dict[str, Any]:
    """Return PyTorch's results for the nodes of the model's graph, by value name."""
    converter, program = _convert(model, args, kwargs)
    if any(target in converter.graph.inputs for target in converter.graph.updates):
        overlapping = find_overlaps(args, kwargs)
        if overlapping:
            with run_on_views(model, overlapping):
                converter, program = _convert(model, args, kwargs)
    reference = NodeValues(program, converter.converted)
    constants = clone_tensors({**program.constants, **tensors})
    user_inputs = iter(clone_tensors(tree_leaves((tuple(args), dict(kwargs)))))
    flat = [
        constants[spec.target] if spec.target is not None else next(user_inputs)
        for spec in program.graph_signature.input_specs
    ]
    with torch.no_grad():
        reference.run(*flat)
    return reference.values


def _convert(
    model: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[Converter, ExportedProgram]:
    exported = export_program(model, tuple(args), dict(kwargs))
    functional = functionalize(exported)
    converter = Converter(Sizes(Graph(), exported), functional)
    converter.run()
    return converter, functional.program
