"""Other runtimes: the program that they get, their results, their refusals, and what they are asked for."""

import logging
import re
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.export import Dim

from npu_ir import ExecutionError, Interpreter, extract_ir
from npu_ir.errors import UsageError
from npu_runtime.interop.peers import PEERS, Peer, PeerGraph
from tests.support.peers import fake_peer, refusing_peer
from tests.support.rows import each_row


class Nested(nn.Module):
    """A model with nested arguments, results of all kinds, a result that is a weight, and a counter."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.table = nn.Linear(4, 3), nn.Embedding(10, 4)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, ids: torch.Tensor, pair: Any, *, scale: torch.Tensor) -> dict[str, Any]:
        self.calls += 1
        y = self.layer(self.table(ids) + pair[0] + pair[1]["k"]) * scale
        return {"y": y, "again": [y, ids], "best": ids.argmax(), "n": 3, "none": None, "w": self.layer.weight}


class Sizes(nn.Module):
    def forward(self, x: torch.Tensor, n: int, f: float) -> tuple[Any, ...]:
        return x.new_ones(x.shape[0] * 2) * n + f, x.shape[0], x > 0


class Growing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x.mul_(2)
        self.seen = torch.cat([self.seen, x])
        return self.seen.sum()


def nested_call() -> tuple[tuple[Any, ...], dict[str, Any]]:
    pair = (torch.randn(5, 4), {"k": torch.randn(4)})
    return (torch.tensor([3, 1, 4, 1, 5]), pair), {"scale": torch.tensor(2.0)}


def peer_graph(peer: Peer, model: nn.Module | None = None, *args: Any) -> PeerGraph:
    model, args = (nn.Linear(4, 3), (torch.ones(2, 4),)) if model is None else (model, args)
    return PeerGraph(peer, extract_ir(model, args), model.state_dict(), args, {})


@each_row("model, args, kwargs, dynamic_shapes", {
    "nested, with a counter": (Nested(), *nested_call(), None),
    "open sizes": (Sizes(), (torch.randn(3), 2, 0.5), {}, {"x": {0: Dim("n")}, "n": None, "f": None}),
    "a buffer that grows, an input in place": (Growing(), (torch.randn(3),), {}, None),
})  # fmt: skip
def test_results_and_new_state_are_those_of_the_interpreter(
    model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], dynamic_shapes: Any
) -> None:
    graph, weights = extract_ir(model, args, kwargs, dynamic_shapes=dynamic_shapes), model.state_dict()
    wanted, updates = Interpreter(graph, weights).run_flat(args, kwargs)

    made = PeerGraph(fake_peer(), graph, weights, args, kwargs)
    found, found_updates = made.run_flat(made.compile(1))

    torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(found_updates, updates)


def test_the_graph_is_left_as_it_was() -> None:
    model, (args, kwargs) = Nested(), nested_call()
    graph = extract_ir(model, args, kwargs)
    before = graph.clone()

    PeerGraph(fake_peer(), graph, model.state_dict(), args, kwargs)

    assert graph == before


def test_the_number_of_threads_is_passed_on() -> None:
    asked = []
    peer = Peer("Fake", (), lambda program: None, lambda form, threads: asked.append(threads))

    peer_graph(peer).compile(3)

    assert asked == [3]


def chained(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


def test_a_refusal_names_the_peer_and_the_cause_in_one_line() -> None:
    for error, reason in (
        (ValueError("no kernel\nfor you"), "ValueError: no kernel"),
        (chained(RuntimeError("Failed to convert"), TypeError("\x1b[96mop\x1b[0m?")), "TypeError: op?"),
        (RuntimeError("Check 'x' failed at y:1:\nSummary:\n-- No rule\n"), "RuntimeError: No rule"),
        (RuntimeError(), "RuntimeError"),
        (chained(UsageError("ours", fix="it"), ValueError("theirs")), "ours"),
    ):
        message = f"Fake cannot run this graph: {reason}"
        with pytest.raises(ExecutionError, match=rf"^{re.escape(message)}\n") as caught:
            peer_graph(refusing_peer("Fake", error))

        assert caught.value.fix == "time the graph without it (--peers)"
        assert caught.value.__cause__ is error


def test_a_peer_may_fail_later() -> None:
    def fail(*_: Any) -> Any:
        raise RuntimeError("no kernel")

    at_compilation = Peer("Fake", (), lambda program: program, fail)
    at_the_call = Peer("Fake", (), lambda program: program, lambda form, threads: fail)

    with pytest.raises(ExecutionError, match="Fake cannot run this graph: RuntimeError: no kernel"):
        peer_graph(at_compilation).compile(1)
    made = peer_graph(at_the_call)
    call = made.compile(1)
    with pytest.raises(ExecutionError, match="Fake cannot run this graph: RuntimeError: no kernel"):
        made.run_flat(call)


def test_a_dtype_that_numpy_lacks_is_refused() -> None:
    with pytest.raises(ExecutionError, match="Fake cannot run this graph: TypeError: .*BFloat16"):
        peer_graph(fake_peer(), nn.ReLU(), torch.ones(2, dtype=torch.bfloat16))


def test_a_peer_lacks_those_of_its_packages_that_are_not_installed() -> None:
    assert Peer("Fake", ("torch", "no_such_package"), print, print).missing() == ["no_such_package"]
    assert Peer("Fake", ("torch",), print, print).missing() == []


class Recorder:
    """A stand-in for any object: it notes each call of its methods, and returns itself."""

    def __init__(self, calls: dict[str, Any], **fields: Any) -> None:
        self.__dict__.update(fields, calls=calls)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def method(*args: Any, **kwargs: Any) -> Any:
            self.calls[name] = args, kwargs
            return self

        return method


def talk(*_: Any, **__: Any) -> Any:
    sys.stdout.write("converting")
    sys.stderr.write("converting")
    warnings.warn("converting", stacklevel=1)
    logging.warning("converting")
    return SimpleNamespace(model_proto=SimpleNamespace(SerializeToString=lambda: b"content"))


def test_onnx_runtime_is_asked_for_threads_and_says_nothing(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    options, calls = SimpleNamespace(), {}
    session = Recorder(calls, get_inputs=lambda: [SimpleNamespace(name="x")])
    module = SimpleNamespace(
        SessionOptions=lambda: options,
        InferenceSession=lambda content, options, providers: (
            calls.update(made=(content, providers)) or session
        ),
    )
    monkeypatch.setitem(sys.modules, "onnxruntime", module)
    monkeypatch.setattr(torch.onnx, "export", talk)
    monkeypatch.setattr(logging.root, "handlers", [])
    disabled = logging.root.manager.disable
    peer = PEERS["onnxruntime"]

    peer.compile(peer.convert(None), 3)(["array"])

    assert vars(options) == {"intra_op_num_threads": 3, "log_severity_level": 4}
    assert calls == {"made": (b"content", ["CPUExecutionProvider"]), "run": ((None, {"x": "array"}), {})}
    assert (logging.root.handlers, logging.root.manager.disable) == ([], disabled)
    assert capfd.readouterr() == ("", "")


def test_openvino_is_asked_for_threads_float32_and_latency(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: dict[str, Any] = {}
    recorder = Recorder(calls)
    for name, fields in {
        "openvino": {"compile_model": recorder.compile_model},
        "openvino.frontend": {"FrontEndManager": lambda: recorder},
        "openvino.frontend.pytorch.fx_decoder": {"TorchFXPythonDecoder": recorder},
    }.items():
        monkeypatch.setitem(sys.modules, name, SimpleNamespace(**fields))
    peer = PEERS["openvino"]

    peer.compile(peer.convert("program"), 3)(["array"])

    assert calls["from_exported_program"] == (("program",), {"dynamic_shapes": False})
    assert calls["compile_model"][0][1:] == (
        "CPU",
        {"INFERENCE_NUM_THREADS": 3, "INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY"},
    )
    assert calls["infer"] == ((["array"],), {"share_inputs": True, "share_outputs": True})


def test_openvino_reports_to_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "openvino.py").write_text(
        "try:\n    import openvino_telemetry\nexcept ImportError:\n    openvino_telemetry = None\n"
        "def compile_model(*_):\n    raise RuntimeError(f'reports by {openvino_telemetry}')\n"
    )
    (tmp_path / "openvino_telemetry.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("openvino", "openvino_telemetry"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
        monkeypatch.delitem(sys.modules, name)

    with pytest.raises(RuntimeError, match="reports by None"):
        PEERS["openvino"].compile(None, 1)

    assert "openvino_telemetry" not in sys.modules
