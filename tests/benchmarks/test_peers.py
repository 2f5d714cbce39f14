"""ONNX Runtime and OpenVINO themselves: graphs that they run as the interpreter does, and refusals."""

import sys
from typing import Any

import pytest
import torch
from torch import nn
from torch.export import Dim

from npu_ir import ExecutionError, Interpreter, extract_ir
from npu_runtime.interop.peers import PEERS, Peer, PeerGraph
from tests.support.rows import each_row


class Everything(nn.Module):
    """A model with nested arguments, integers, several results, literals, a weight and a counter."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.table, self.norm = nn.Linear(4, 3), nn.Embedding(10, 4), nn.BatchNorm1d(4)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, ids: torch.Tensor, pair: Any, *, scale: torch.Tensor) -> dict[str, Any]:
        self.calls += 1
        x = self.norm(self.table(ids) + pair[0] + pair[1]["k"])
        y = self.layer(x) * scale
        results = {"y": y, "again": (y, ids), "best": ids.argmax(), "positive": x > 0, "sum": x.sum()}
        return {**results, "n": 3, "none": None, "weight": self.layer.weight}


class Sizes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(3, 4, 3)

    def forward(self, x: torch.Tensor, unused: torch.Tensor, n: int) -> tuple[Any, ...]:
        return self.layer(x) * n, x.shape[0], x.shape[2] * 2


class Fourier(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.inv(torch.fft.rfft(x).abs())


@pytest.fixture(params=PEERS)
def peer(request: pytest.FixtureRequest) -> Peer:
    peer: Peer = PEERS[request.param]
    if missing := peer.missing():
        pytest.skip(f"{missing[0]} is not installed")
    return peer


EVERYTHING = (torch.tensor([3, 1, 4, 1, 5]), (torch.ones(5, 4), {"k": torch.ones(4)}))
BATCH_AND_HEIGHT = {"x": {0: Dim("n"), 2: Dim("h", min=4)}, "unused": None, "n": None}


@each_row("model, args, kwargs, dynamic_shapes", {
    "everything": (Everything().eval(), EVERYTHING, {"scale": torch.tensor(2.0)}, None),
    "open sizes": (Sizes(), (torch.ones(2, 3, 8, 9), torch.ones(2), 2), {}, BATCH_AND_HEIGHT),
    "float16": (nn.Linear(8, 4).half(), (torch.ones(2, 8).half(),), {}, None),
    "strides": (nn.Softmax(-1), (torch.randn(4, 3).T,), {}, None),
})  # fmt: skip
def test_a_peer_gives_what_the_interpreter_gives(
    model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], dynamic_shapes: Any, peer: Peer
) -> None:
    graph, weights = extract_ir(model, args, kwargs, dynamic_shapes=dynamic_shapes), model.state_dict()
    wanted = Interpreter(graph, weights).run_flat(args, kwargs)

    made = PeerGraph(peer, graph, weights, args, kwargs)
    call = made.compile(1)

    for _ in range(2):
        torch.testing.assert_close(made.run_flat(call), wanted)


def test_what_a_peer_cannot_run_is_refused_in_one_line_and_nothing_else_is_said(
    peer: Peer, capfd: pytest.CaptureFixture[str]
) -> None:
    graph = extract_ir(Fourier(), (torch.randn(3, 4),))
    capfd.readouterr()

    with pytest.raises(ExecutionError, match="cannot run this graph: .*aten[.]") as caught:
        PeerGraph(peer, graph, {}, (torch.randn(3, 4),), {})

    assert caught.value.message.startswith(f"{peer.title} cannot run this graph: ")
    assert "\n" not in caught.value.message
    assert capfd.readouterr() == ("", "")
    assert "openvino_telemetry" not in sys.modules
