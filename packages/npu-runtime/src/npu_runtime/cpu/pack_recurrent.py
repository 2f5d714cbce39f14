"""Recurrent networks as a product of all steps and a loop over them, for the backend ``host``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from npu_ir import Graph, OpNode, TensorType, Value
from npu_passes import Pass, within
from npu_passes.core.edit import Edit
from npu_passes.ops.recurrent import GATES, LSTM_LAYER, PACK_GATES, RNN_LAYER
from npu_passes.rewriting.arguments import arguments_of
from npu_passes.rewriting.value_replacement import match_strides
from npu_passes.rewriting.weight_dependence import weight_problem

_CELLS: Mapping[str, str] = {
    "aten.lstm.input": "lstm",
    "aten.gru.input": "gru",
    "aten.rnn_tanh.input": "tanh",
    "aten.rnn_relu.input": "relu",
}
_DTYPES = (torch.float32, torch.bfloat16, torch.float16)


class PackRecurrent(Pass):
    """Split recurrent networks into projections and loops over the steps, for the backend ``host``.

    1. In each layer and direction of ``aten.lstm``, ``aten.gru``, ``aten.rnn_tanh`` and ``aten.rnn_relu``,
       the product of the input becomes one ``aten.linear`` of all steps, which ``pack-matrix`` packs; the
       steps become ``npu::lstm_layer`` or ``npu::rnn_layer``, by weights that ``npu::pack_gates`` packs in
       the prologue.

    Without the backend ``host`` the layers compute the same, slower. Networks stay that it does not run: of
    float64, of open sizes, with projected states (``proj_size``), or with dropout between layers in training.
    """

    name = "pack-recurrent"
    numerics = within(1e-5)
    after = ("constant-folding",)
    before = ("pack-matrix",)

    def run(self, graph: Graph) -> bool:
        changed = False
        for node in graph.nodes_of(*_CELLS):
            if node.in_prologue:
                continue
            network = _Network.of(node)
            problem = network.problem(graph, node)
            if problem is not None:
                self.refuse(node, problem, "split")
                continue
            self._split(graph, node, network)
            changed = True
        return changed

    def _split(self, graph: Graph, node: OpNode, network: _Network) -> None:
        with self.rewrite(graph, "split", node) as edit:
            for old, new in zip(node.outputs, network.results(edit), strict=True):
                if old.uses:
                    edit.replace(old, match_strides(edit, new, old))


@dataclass(frozen=True, slots=True)
class _Network:
    """The arguments of a node.

    Attributes:
        states: [layers * directions, batch, hidden]; an LSTM has two.
        params: Per layer and direction: the weights of input and states, and the bias of each, if any.
    """

    cell: str
    input: Value
    states: Sequence[Value]
    params: Sequence[Value]
    has_biases: bool
    layers: int
    directions: int
    batch_first: bool
    draws: bool

    @classmethod
    def of(cls, node: OpNode) -> _Network:
        args: Mapping[str, Any] = arguments_of(node)
        states = args["hx"] if isinstance(args["hx"], (list, tuple)) else [args["hx"]]
        return cls(
            _CELLS[node.op_type],
            args["input"],
            states,
            args["params"],
            args["has_biases"],
            args["num_layers"],
            2 if args["bidirectional"] else 1,
            args["batch_first"],
            args["train"] and args["dropout"] > 0 and args["num_layers"] > 1,
        )

    def problem(self, graph: Graph, node: OpNode) -> str | None:
        """Return the reason why the network stays; None if it can be split."""
        if self.draws:
            return "it drops elements between its layers, at random"
        if len(self.params) != self.layers * self.directions * self._count:
            return "its states are projected: there are further weights"
        for value in (self.input, *self.states, *self.params):
            if not isinstance(value.type, TensorType) or value.type.dtype not in _DTYPES:
                return f"%{value.name} is {value.type}, not a tensor of floats of 32 or 16 bits"
            if value.type.dtype is not self.input.tensor_type.dtype:
                return f"%{value.name} is {value.type}, %{self.input.name} {self.input.type}"
            if value.type.symbols:
                return f"%{value.name} is {value.type}: the backend host takes fixed sizes"
        if node.outputs[0].tensor_type.rank != 3:
            return f"its result is {node.outputs[0].type}, not of 3 axes"
        return next((reason for item in self.params if (reason := weight_problem(graph, item))), None)

    @property
    def _count(self) -> int:
        """The number of parameters of a layer in one direction."""
        return 4 if self.has_biases else 2

    def results(self, edit: Edit) -> list[Value]:
        """Return what each step returns, then the last states, of all layers."""
        x, last = self.input, []
        for layer in range(self.layers):
            outputs = []
            for direction in range(self.directions):
                y, *states = self._layer(edit, x, layer, direction)
                outputs.append(y)
                last.append(states)
            x = outputs[0] if len(outputs) == 1 else edit.call("aten.cat.default", outputs, -1)
        if self.batch_first:
            x = edit.call("aten.permute.default", x, [1, 0, 2])
        return [x, *(edit.call("aten.stack.default", list(states)) for states in zip(*last, strict=True))]

    def _layer(self, edit: Edit, x: Value, layer: int, direction: int) -> Sequence[Value]:
        place = layer * self.directions + direction
        of_input, of_state, *biases = self.params[place * self._count :][: self._count]
        bias, of_state_bias = self._biases(edit, biases)
        projected = edit.call("aten.linear.default", x, of_input, bias)
        if self.batch_first and layer == 0:
            projected = edit.call("aten.permute.default", projected, [1, 0, 2])
        panels = self._packed(edit, of_state)
        states = [edit.call("aten.select.int", state, 0, place) for state in self.states]
        rest = (
            (states[0], states[1], of_state_bias)
            if self.cell == "lstm"
            else (states[0], of_state_bias, self.cell)
        )
        op_type = LSTM_LAYER if self.cell == "lstm" else RNN_LAYER
        return edit.calls(op_type, projected, panels, *rest, direction == 1)

    def _biases(self, edit: Edit, biases: Sequence[Value]) -> tuple[Value | None, Value | None]:
        """Return the bias of the input, and that of the states where the sum of both is not enough."""
        if not biases:
            return None, None
        if self.cell == "gru":  # which scales a gate of the states before it adds that of the input
            column = edit.to_prologue(edit.call("aten.unsqueeze.default", biases[1], 1))
            return biases[0], self._packed(edit, column)
        return edit.to_prologue(edit.call("aten.add.Tensor", *biases)), None

    def _packed(self, edit: Edit, weight: Value) -> Value:
        return edit.to_prologue(edit.call(PACK_GATES, weight, GATES[self.cell], name="packed"))
