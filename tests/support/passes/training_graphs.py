"""Training steps as graphs, and running them step by step."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn, optim

from npu_ir import Graph, Interpreter, ScalarType, Value
from npu_ir.core.structure import unflatten
from npu_passes import Checked, PassManager, parse_passes
from npu_runtime.training import compile_ir

MINIMAL = "canonicalize,elim-identity,cse,dead-code"
MakeOptimizer = Callable[[Sequence[nn.Parameter]], optim.Optimizer]

_ADAM: Mapping[str, tuple[type[optim.Optimizer], dict[str, Any]]] = {
    "adam": (optim.Adam, {}),
    "adam, weight decay": (optim.Adam, {"weight_decay": 0.1}),
    "adam, amsgrad": (optim.Adam, {"amsgrad": True}),
    "adam, all": (optim.Adam, {"amsgrad": True, "weight_decay": 0.1, "maximize": True}),
    "adamw": (optim.AdamW, {}),
    "adamw, all": (optim.AdamW, {"amsgrad": True, "weight_decay": 0.1, "maximize": True}),
    "adamw, other betas": (optim.AdamW, {"betas": (0.8, 0.95), "eps": 1e-4}),
}
_SGD: Mapping[str, tuple[type[optim.Optimizer], dict[str, Any]]] = {
    "sgd": (optim.SGD, {}),
    "sgd, weight decay": (optim.SGD, {"weight_decay": 0.1, "maximize": True}),
    "sgd, momentum": (optim.SGD, {"momentum": 0.9}),
    "sgd, dampening": (optim.SGD, {"momentum": 0.9, "dampening": 0.3, "weight_decay": 0.1}),
    "sgd, nesterov": (optim.SGD, {"momentum": 0.9, "nesterov": True}),
    "sgd, all": (optim.SGD, {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1, "maximize": True}),
}
KINDS = {**_ADAM, **_SGD}
_NUMBERS = {"0": 0.9, "1": 0.99, "eps": 1e-6, "weight_decay": 0.1, "momentum": 0.8, "dampening": 0.2}
BATCH = (torch.linspace(-1, 1, 42).reshape(6, 7), torch.linspace(1, -1, 18).reshape(6, 3).sin())


def maker(kind: str, **options: Any) -> MakeOptimizer:
    made, own = KINDS[kind]
    return lambda parameters: made(parameters, lr=0.01, **{**own, **options})


def model(dtype: torch.dtype = torch.float32) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(7, 5), nn.Tanh(), nn.Linear(5, 3)).to(dtype)


def traced(make: MakeOptimizer, net: nn.Module, dtype: torch.dtype = torch.float32) -> Graph:
    """Return the graph of the second step: the first tells what state there is."""
    batch = tuple(item.to(dtype) for item in BATCH)
    optimizer = make([item for item in net.parameters() if item.requires_grad])
    nn.functional.mse_loss(net(batch[0]), batch[1]).backward()
    optimizer.step()
    return compile_ir(net, optimizer, nn.functional.mse_loss, batch)


@functools.cache
def _traced_kind(kind: str, dtype: torch.dtype) -> Graph:
    return traced(maker(kind), model(dtype), dtype)


def step_graph(kind: str, passes: str = MINIMAL, dtype: torch.dtype = torch.float32) -> Graph:
    graph = _traced_kind(kind, dtype)
    return PassManager(parse_passes(passes)).run(graph).graph if passes else graph.clone()


def call_of(graph: Graph, lr: float = 0.01) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return a call with hyperparameters that make every part of an optimizer act."""
    structure, leaves = graph.call
    args, kwargs = unflatten(structure, [_argument(leaf, lr) for leaf in leaves])
    return args, kwargs


def _argument(leaf: Any, lr: float) -> Any:
    if not isinstance(leaf, Value):
        return leaf
    if leaf.name.startswith("batch"):
        return BATCH[int(leaf.name[-1])].to(leaf.tensor_type.dtype)
    number = lr if leaf.name.endswith(".lr") else _NUMBERS[leaf.name.rpartition(".")[2]]
    return number if isinstance(leaf.type, ScalarType) else torch.tensor(number, dtype=leaf.tensor_type.dtype)


def weights_of(graph: Graph) -> dict[str, torch.Tensor]:
    """Return parameters and optimizer state in the middle of training."""
    generator = torch.Generator().manual_seed(1)
    made = {}
    for name, value in {**graph.parameters, **graph.buffers, **graph.optimizer_state}.items():
        type = value.tensor_type
        filled = torch.rand(type.static_shape, generator=generator).to(type.dtype)
        made[name] = torch.full_like(filled, 3) if name.endswith(".step") else filled
    return made


def data_of(graph: Graph) -> Checked:
    return Checked(weights=weights_of(graph), calls=[call_of(graph)])


def trained(graph: Graph, steps: int = 10) -> dict[str, torch.Tensor]:
    """Return parameters and state after some steps, each with another learning rate."""
    weights = weights_of(graph)
    for index in range(steps):
        args, kwargs = call_of(graph, lr=0.01 / (index + 1))
        _, updates = Interpreter(graph, weights).run_flat(args, kwargs)
        weights = {**weights, **{name: value.clone() for name, value in updates.items()}}
    return weights


def ops(graph: Graph) -> list[str]:
    return [node.op_type for node in graph.body]
