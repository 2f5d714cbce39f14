"""Calls that are recorded directly: their nodes are those of make_fx, down to the user's lines."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn, optim
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F

from npu_runtime._torch import call_recorder
from npu_runtime._torch.tracing_context import TracingContext
from npu_runtime.training import compile_ir


class Several(nn.Module):
    """Calls with lists, several results, constants, views, numbers and no tensor at all."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 8)
        self.norm = nn.LayerNorm(4)

    def forward(self, x: Tensor) -> Tensor:
        left, right = self.layer(x).chunk(2, dim=1)
        mean, _ = torch.cat([left, right]).split(6)[0].max(1, keepdim=True)
        return self.norm(left * torch.arange(4) + torch.tensor([1.0, 2.0, 3.0, 4.0])) - mean


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        heads = self.layer(x).view(1, 2, 3, 4)
        return F.dropout(F.scaled_dot_product_attention(heads, heads, heads, is_causal=True)).view(6, 4)


MODELS: dict[str, Callable[[], nn.Module]] = {
    "several": Several,
    "attention": Attention,
    "of PyTorch alone": lambda: nn.Sequential(nn.Conv1d(4, 4, 1), nn.BatchNorm1d(4), nn.Dropout()),
}
OPTIMIZERS: dict[str, Callable[..., optim.Optimizer]] = {
    "Adam": lambda parameters: optim.Adam(parameters, lr=0.1, amsgrad=True),
    "NAdam": lambda parameters: optim.NAdam(parameters, foreach=False),
}


def trace(model: str, optimizer: str, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return what the nodes of the trace are, before writes are replaced."""
    nodes: list[Any] = []
    known = TracingContext.trace

    def kept(*arguments: Any) -> GraphModule:
        module = known(*arguments)
        nodes.extend(map(describe, module.graph.nodes))
        return module

    torch.manual_seed(0)
    made = MODELS[model]()
    shape = (6, 4, 1) if model == "of PyTorch alone" else (6, 4)
    batch = torch.randn(shape), torch.randn(shape)
    with monkeypatch.context() as patch:
        patch.setattr(TracingContext, "trace", kept)
        compile_ir(made, OPTIMIZERS[optimizer](made.parameters()), F.mse_loss, batch)
    return nodes


def describe(node: torch.fx.Node) -> Any:
    metadata = node.meta.get("stack_trace"), str(node.meta.get("nn_module_stack"))
    return node.op, node.name, str(node.target), str(node.args), str(node.kwargs), metadata, _type(node)


def _type(node: torch.fx.Node) -> Any:
    value = node.meta.get("val")
    tensors = value if isinstance(value, (list, tuple)) else [value]
    return type(value), [
        (item.dtype, item.device, tuple(item.shape), item.stride(), item.requires_grad, item.grad_fn)
        for item in tensors
        if isinstance(item, Tensor)
    ]


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("model", MODELS)
def test_calls_are_recorded_as_make_fx_records_them(
    model: str, optimizer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = trace(model, optimizer, monkeypatch)
    monkeypatch.setattr(call_recorder, "is_ordinary", lambda _op: False)

    assert nodes == trace(model, optimizer, monkeypatch)


def test_a_tracer_of_another_pytorch_records_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    assert call_recorder.is_known_tracer() or not torch.__version__.startswith("2.13")
    nodes = trace("several", "Adam", monkeypatch)
    monkeypatch.setattr(call_recorder, "is_known_tracer", lambda: False)
    monkeypatch.setattr(call_recorder.CallRecorder, "patch", lambda _self: pytest.fail("it is unknown"))

    assert nodes == trace("several", "Adam", monkeypatch)


def test_a_node_has_the_lines_of_the_users_code(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = trace("several", "Adam", monkeypatch)

    (stack,) = [node[5][0] for node in nodes if node[2] == "aten.arange.default"]
    assert "torch.arange(4) + torch.tensor" in stack
    assert "return self.layer" not in stack


def test_ops_with_a_meaning_to_make_fx_are_left_to_it() -> None:
    aten = torch.ops.aten

    ordinary = [op for op in (aten.add.Tensor, aten.relu_.default) if call_recorder.is_ordinary(op)]
    special = [aten.nonzero.default, aten.lift_fresh.default, aten.t_.default, aten.item.default]
    assert len(ordinary) == 2
    assert not any(map(call_recorder.is_ordinary, [*special, aten.reshape.default, torch.add]))


def test_other_threads_trace_as_they_do_without_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    modules: list[GraphModule] = []

    def trace_elsewhere() -> None:
        modules.append(make_fx(lambda item: item.sin() + 1, tracing_mode="fake")(torch.randn(3)))

    class Elsewhere(Several):
        def forward(self, x: Tensor) -> Tensor:
            thread = threading.Thread(target=trace_elsewhere)
            thread.start()
            thread.join()
            return super().forward(x)

    monkeypatch.setitem(MODELS, "elsewhere", Elsewhere)
    trace("elsewhere", "Adam", monkeypatch)

    values = [node.meta["val"] for node in modules[0].graph.nodes if node.op != "output"]
    assert len({id(value.fake_mode) for value in values}) == 1
