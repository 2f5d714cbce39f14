"""Nodes of a traced step say which module they belong to, which line, and which phase of the step."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from npu_ir import Graph, OpNode
from npu_runtime._torch import call_recorder
from npu_runtime.training.tracing.components import find_components
from npu_runtime.training.tracing.tracer import trace_function

THIS_FILE = "test_provenance.py"


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(4, 6), nn.Linear(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(torch.tanh(self.up(x)))


class Recomputed(nn.Module):
    def __init__(self, *, is_reentrant: bool) -> None:
        super().__init__()
        self.block, self.is_reentrant = Block(), is_reentrant

    def forward(self, x: Tensor) -> Tensor:
        given = x.clone().requires_grad_()
        recomputed: Tensor = checkpoint(self.block, given, use_reentrant=self.is_reentrant)
        return recomputed


class Writing(nn.Module):
    """A write into a view: the trace is functionalized by PyTorch."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layer(x) * 1
        y[:, 0].mul_(2)
        return y


def step_of(model: nn.Module, *, clip: bool = False) -> Callable[[Tensor, Tensor], Tensor]:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)

    def step(x: Tensor, target: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), target)
        loss.backward()
        if clip:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss

    return step


def trace(step: Callable[[Tensor, Tensor], Tensor]) -> Graph:
    return trace_function(step, find_components(step), (torch.randn(3, 4), torch.randn(3, 4))).graph


def nodes_of(graph: Graph, op: str) -> list[OpNode]:
    return [node for node in graph.nodes if node.op_type.split(".")[1] == op]


def places_of(graph: Graph, op: str) -> list[tuple[str, str]]:
    return [(node.provenance.phase, node.provenance.module) for node in nodes_of(graph, op)]


@pytest.mark.parametrize("is_known", [True, False], ids=["recorded", "by make_fx"])
def test_nodes_of_the_backward_are_of_the_module_and_the_line_of_their_forward(
    is_known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_known:
        monkeypatch.setattr(call_recorder, "is_known_tracer", lambda: False)

    graph = trace(step_of(nn.Sequential(Block(), Block())))

    (line,) = {node.provenance.source for node in nodes_of(graph, "tanh")}
    assert THIS_FILE in line
    assert places_of(graph, "tanh") == [("forward", "0"), ("forward", "1")]
    assert places_of(graph, "tanh_backward") == [("backward", "1"), ("backward", "0")]
    assert {node.provenance.source for node in nodes_of(graph, "tanh_backward")} == {line}
    assert list(dict.fromkeys(places_of(graph, "mm"))) == [
        ("backward", name) for name in ("1.down", "1.up", "0.down", "0.up")
    ]


def test_the_loss_is_of_the_forward_and_the_update_of_the_optimizer() -> None:
    graph = trace(step_of(Block()))

    phases = list(dict.fromkeys(node.provenance.phase for node in graph.nodes))
    updates = [value.producer for value in graph.updates.values()]
    assert phases == ["forward", "backward", "optimizer"]
    assert places_of(graph, "mse_loss") == [("forward", "")]
    assert places_of(graph, "mse_loss_backward") == [("backward", "")]
    assert {node and node.provenance.phase for node in updates} == {"optimizer"}


def test_what_runs_between_backward_and_optimizer_has_no_phase() -> None:
    graph = trace(step_of(Block(), clip=True))

    assert set(places_of(graph, "linalg_vector_norm")) == {("", "")}
    assert places_of(graph, "clamp") == [("", "")]


def test_modules_are_named_like_their_parameters() -> None:
    first, second = Block(), Block()
    optimizer = torch.optim.SGD([*first.parameters(), *second.parameters()], lr=0.1)

    def step(x: Tensor, target: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = F.mse_loss(second(first(x)), target)
        loss.backward()
        optimizer.step()
        return loss

    graph = trace(step)

    assert {value.target for value in graph.parameters.values()} >= {"first.up.weight", "second.up.weight"}
    assert places_of(graph, "tanh") == [("forward", "first"), ("forward", "second")]


@pytest.mark.parametrize("is_reentrant", [False, True])
def test_what_a_checkpoint_runs_again_is_of_the_backward(is_reentrant: bool) -> None:
    graph = trace(step_of(Recomputed(is_reentrant=is_reentrant)))

    assert ("backward", "block.up") in places_of(graph, "addmm")
    assert places_of(graph, "tanh") == [("forward", "block"), ("backward", "block")]
    assert set(places_of(graph, "mm")) == {("backward", "block.up"), ("backward", "block.down")}


def test_a_backward_within_a_module_is_of_the_modules_that_it_differentiates() -> None:
    class Loss(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = Block()

        def forward(self, x: Tensor, target: Tensor) -> Tensor:
            loss = F.mse_loss(self.net(x), target)
            loss.backward()
            return loss

    model = Loss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(x: Tensor, target: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss: Tensor = model(x, target)
        optimizer.step()
        return loss

    graph = trace(step)

    assert set(places_of(graph, "mm")) == {("backward", "net.up"), ("backward", "net.down")}


def test_a_second_derivative_is_of_the_modules_that_it_differentiates() -> None:
    class Noise(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x * 3

    net, noise = Block(), Noise()
    both = nn.ModuleDict({"net": net, "noise": noise})
    optimizer = torch.optim.SGD(both.parameters(), lr=0.1)

    def step(x: Tensor, target: Tensor) -> Tensor:
        optimizer.zero_grad()
        x = x.clone().requires_grad_()
        (slope,) = torch.autograd.grad(both["net"](x).sum(), x, create_graph=True)
        with torch.no_grad():
            aim = both["noise"](target)
        loss = F.mse_loss(slope, aim)
        loss.backward()
        optimizer.step()
        return loss

    modules = {module for _, module in places_of(trace(step), "mm")}

    assert modules <= {"net.up", "net.down", "net"}


def test_functionalized_steps_keep_modules_and_phases() -> None:
    graph = trace(step_of(Writing()))

    assert places_of(graph, "addmm") == [("forward", "layer")]
    assert set(places_of(graph, "mm")) == {("backward", "layer")}


def test_gradients_of_several_losses_are_added_in_the_module_of_the_parameter() -> None:
    model = Block()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(x: Tensor, target: Tensor) -> Tensor:
        optimizer.zero_grad()
        for part in x.split(1):
            loss = F.mse_loss(model(part), target[:1])
            loss.backward()
        optimizer.step()
        return loss

    graph = trace(step)

    added = {
        node.provenance.module
        for node in nodes_of(graph, "add")
        if node.provenance.phase == "backward" and node.outputs[0].type == graph.parameters["up.weight"].type
    }
    assert added == {"up"}


def test_modules_and_graphs_of_fx_are_as_before_after_a_trace() -> None:
    before = nn.Module._call_impl, torch.fx.Graph.create_node

    trace(step_of(Block()))

    assert (nn.Module._call_impl, torch.fx.Graph.create_node) == before
