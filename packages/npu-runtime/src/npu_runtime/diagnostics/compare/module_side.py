"""A module as a side of a comparison."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from npu_ir import InputKind, Value, VerificationError, extract_ir
from npu_ir.core.node import external_names
from npu_ir.core.structure import flatten_like
from npu_ir.interpreter.run_nodes import Observer
from npu_ir.verify import compare as compare_values
from npu_ir.verify.reference import clone_tensors, model_tensors, node_values, run_eagerly
from npu_runtime.diagnostics.compare.metrics import to_dense
from npu_runtime.diagnostics.compare.sides import GraphSide, Outcome, Weights, select_weights


class ModuleSide(GraphSide):
    """A module run eagerly, as a side; PyTorch computes its inner values for the nodes of its captured graph.

    All of these are in memory at once. Executors registered for ops are not used.
    """

    shows_strides = False  # inner values are copies, and torch.export may declare other strides of results

    def __init__(
        self, model: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any], weights: Weights
    ) -> None:
        graph = extract_ir(model, tuple(args), dict(kwargs))
        self._model = model
        own = model_tensors(model)
        self._unknown = [name for name in weights if name not in own]
        self._tensors = {**own, **weights}
        super().__init__(graph, select_weights(graph, self._tensors))
        self.label = f"eager {type(model).__name__}"

    def run(self, args: Sequence[Any], kwargs: Mapping[str, Any], observe: Observer | None) -> Outcome:
        random_state, call = torch.get_rng_state(), clone_tensors((tuple(args), dict(kwargs)))
        try:
            with torch.no_grad():  # PyTorch runs other kernels for some ops when it records gradients
                tree, tensors = run_eagerly(self._model, self._tensors, *call)
        except Exception as error:
            raise VerificationError(
                f"the model fails on these inputs: {type(error).__name__}: {error}",
                where=self.label,
                fix=f"the model has no {self._unknown[0]}: give a model of these weights"
                if self._unknown
                else None,
            ) from error
        results = flatten_like(tree, self.graph.results[0], "result")
        updates = self._read_updates(tensors, call)
        if observe is None:
            return Outcome(results, updates)
        torch.set_rng_state(random_state)
        values = node_values(self._model, self._tensors, args, kwargs)
        notes = tuple(self._capture_differences(results, updates, values))
        for node in self.graph.nodes:
            observe(node, [values.pop(value.name, None) for value in node.outputs])
        return Outcome(results, updates, notes)

    def _read_updates(self, tensors: Weights, call: Any) -> dict[str, torch.Tensor]:
        """Return the contents of updated parameters, buffers and inputs after the call, by name.

        Raises:
            VerificationError: The model has no tensor of such a name.
        """
        structure, leaves = self.graph.call
        items = flatten_like(call, structure, "call")
        inputs = {leaf: item for leaf, item in zip(leaves, items, strict=True) if isinstance(leaf, Value)}
        contents = {}
        for target in self.graph.updates:
            is_input = target.argument is not None and target.argument.kind is InputKind.INPUT
            for name in external_names(target):
                if not is_input and name not in tensors:
                    raise VerificationError(
                        f"the graph updates {name!r}, and the model has no parameter or buffer of this name",
                        where=self.label,
                        fix="in forward, read the tensor from the module that registers it, "
                        "not from another object",
                    )
                contents[name] = inputs[target] if is_input else tensors[name]
        return contents

    def _capture_differences(
        self, results: Sequence[Any], updates: Weights, values: Mapping[str, Any]
    ) -> Iterator[str]:
        """Yield notes on results that the captured graph computes otherwise than the module."""
        structure, leaves = self.graph.results
        pairs = list(zip(structure.leaf_paths("result"), leaves, results, strict=True))
        pairs += [
            (f"update of {target.name}", value, updates[external_names(target)[0]])
            for target, value in self.graph.updates.items()
        ]
        for name, leaf, item in pairs:
            if isinstance(leaf, Value) and leaf.name in values:
                found = compare_values(name, to_dense(values[leaf.name]), to_dense(item))
                if not found.ok:
                    yield f"{self.label} is not what its captured graph computes: {found}"
