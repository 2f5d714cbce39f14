"""Profiles have the times of the ops inside of native programs, where the backend tells them."""

import contextlib
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch
from torch import nn

from npu_ir import extract_ir
from npu_ir.errors import UsageError
from npu_passes.manager.statistics import FlopCounter
from npu_runtime import IRExecutor
from npu_runtime.diagnostics.explain import explain
from npu_runtime.diagnostics.profile import MachineLimits, Profile, measure_limits, profile, to_roofline
from npu_runtime.diagnostics.profile.op_times import OpTimes
from npu_runtime.diagnostics.profile.traffic import read_bytes
from tests.support.backends.tiny_backend import TinyBackend, two_layers

X = torch.randn(2, 3)
WEIGHTS = {"w1": torch.randn(3, 5), "w2": torch.randn(5, 4)}
LIMITS = MachineLimits(gflops=100.0, gbytes=10.0, threads=1)


class TellingBackend(TinyBackend):
    """Says that each of its ops takes a millisecond more than the one before, and packing none."""

    def __init__(self, *, is_disturbed: bool = False) -> None:
        super().__init__()
        self.is_disturbed = is_disturbed
        self.ops: dict[int, list[float]] = {}

    def prepare(self, graph: Any, ops: Sequence[Any], device: torch.device) -> Any:
        program = super().prepare(graph, ops, device)
        self.ops[id(program)] = [0.0 if op.kind == "Pack" else 1e-3 * place for place, op in enumerate(ops)]
        return program

    @contextlib.contextmanager
    def timed_ops(self, program: Any) -> Iterator[list[float]]:
        seconds: list[float] = []
        yield seconds
        seconds += [] if self.is_disturbed else self.ops[id(program)]


def profile_of(backend: TinyBackend) -> Profile:
    return profile(IRExecutor(two_layers(), WEIGHTS, backend=backend, passes=None), (X,), repeat=3)


def test_ops_take_the_place_of_the_program_that_runs_them() -> None:
    steps = profile_of(TellingBackend()).steps

    assert [(step.name, step.backend, step.kernel) for step in steps] == [
        ("h", "tiny", "gemm_tiny"),
        ("a", "tiny", "Relu"),
        ("s", "aten", steps[2].kernel),
        ("y", "tiny", "gemm_tiny"),
    ]
    assert steps[1].seconds == pytest.approx(2 * steps[0].seconds)
    assert sum(step.share for step in steps) == pytest.approx(1)


def test_times_of_ops_are_no_more_than_that_of_their_program() -> None:
    backend = TellingBackend()
    quiet = profile_of(TellingBackend(is_disturbed=True))
    timed = profile_of(backend)

    # The backend claims milliseconds for what takes microseconds.
    assert sum(step.seconds for step in timed.steps if step.backend == "tiny") < 1e-3
    assert timed.steps_seconds < 100 * quiet.steps_seconds


def test_ops_have_the_bytes_of_their_operands_and_a_product_has_its_operations_once() -> None:
    product, relu, *_ = profile_of(TellingBackend()).steps

    assert (product.flops, relu.flops) == (2 * 2 * 3 * 5, 0)
    assert product.bytes_read == 4 * (2 * 3 + 3 * 5)
    assert product.bytes_written == relu.bytes_read == relu.bytes_written == 4 * 2 * 5
    assert product.gbytes == pytest.approx((product.bytes_read + 40) / product.seconds / 1e9)


def test_a_program_whose_ops_were_disturbed_or_are_not_told_is_one_step() -> None:
    for backend in (TellingBackend(is_disturbed=True), TinyBackend()):
        steps = profile_of(backend).steps

        assert [step.nodes for step in steps] == [("h", "a"), ("s",), ("y",)]


def test_operations_of_a_node_are_those_of_its_longest_op() -> None:
    executor = IRExecutor(two_layers(), WEIGHTS, backend=TinyBackend(), passes=None)
    pack, product, *_ = executor.lowered.partitions[0].ops

    for seconds, flops in (((1.0, 2.0), [0, 60]), ((2.0, 1.0), [60, 0])):
        steps = OpTimes("tiny", (pack, product), [seconds]).steps(10.0, FlopCounter())
        assert [step.flops for step in steps] == flops


def test_the_trace_has_ops_within_the_span_of_their_program() -> None:
    measured = profile_of(TellingBackend())

    readings = measured.readings

    assert len(readings) == 2 * len(measured.steps)
    assert list(readings) == sorted(readings)
    names = [
        event["name"] for event in measured.to_chrome_trace()["traceEvents"] if event.get("cat") == "step"
    ]
    assert names == ["h", "a", "s", "y"]


def test_explanations_have_the_time_of_every_node_of_a_program() -> None:
    executor = IRExecutor(two_layers(), WEIGHTS, backend=TellingBackend(), passes=None)

    explained = {node.name: node.seconds for node in explain(executor, (X,), repeat=2).nodes}

    assert all(explained[name] for name in ("h", "a", "s", "y"))


def test_a_roofline_has_a_dot_for_each_step_and_the_limits() -> None:
    measured = profile_of(TellingBackend())

    drawing = ElementTree.fromstring(to_roofline(measured, LIMITS))

    texts = [item.text or "" for item in drawing.iter() if item.tag.endswith(("text", "title"))]
    assert any(text.startswith("h: aten.mm.default, ") and "GFLOP/s" in text for text in texts)
    assert any(text.startswith("a: aten.relu.default, ") and text.endswith("GB/s") for text in texts)
    assert "this machine: 100 GFLOP/s of a product, 10 GB/s of a copy" in texts
    assert {"tiny", "aten"} <= set(texts)


def test_steps_below_the_roof_are_drawn_below_it() -> None:
    drawing = ElementTree.fromstring(to_roofline(profile_of(TellingBackend()), LIMITS))
    (roof, *_), dots = (
        [item.attrib for item in drawing.iter() if item.tag.endswith(tag)] for tag in ("polyline", "circle")
    )

    heights = [float(point.split(",")[1]) for point in roof["points"].split()]

    # Products of a few numbers are far from the peak of any machine.
    assert all(float(dot["cy"]) > min(heights) for dot in dots if float(dot["cy"]) != 42)


def test_of_a_table_only_the_rows_that_are_looked_up_are_read() -> None:
    table, places = torch.randn(1000, 8), torch.tensor([3, 5])
    graph = extract_ir(nn.Embedding(1000, 8), (places,))
    executor = IRExecutor(graph, {"weight": table}, passes=None)

    (step,) = profile(executor, (places,), repeat=1).steps

    assert (step.bytes_read, step.bytes_written) == (2 * 8 * 4 + 2 * 8, 2 * 8 * 4)
    assert read_bytes("aten.embedding.default", [16, 8], 64) == 16 + 8
    assert read_bytes("aten.add.Tensor", [16, 8], 4) == 24


def test_limits_of_a_device_without_data_are_refused() -> None:
    with pytest.raises(UsageError, match="nothing is computed on the device meta"):
        measure_limits("meta")


def test_limits_of_a_machine_are_measured() -> None:
    limits = measure_limits()

    assert limits.threads == torch.get_num_threads()
    assert limits.gflops > 0.1
    assert limits.gbytes > 0.1
