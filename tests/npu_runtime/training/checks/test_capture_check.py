"""The capture check finds all that a replay would get wrong, each with the user's line and what to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from npu_ir import Graph, parse_ir
from npu_runtime import CaptureError, check_capture
from npu_runtime.planned import plan
from npu_runtime.training.checks.violations import CaptureReport
from npu_runtime.training.trace import trace_step
from tests.support.training.full_state import Mlp

CPU = torch.device("cpu")


def graph_of(body: str, inputs: str = "") -> Graph:
    return parse_ir(f'graph "g" {{\n  input %x: f32[4, 3]\n{inputs}{body}\n  return %y\n}}\n')


def kinds(report: CaptureReport) -> list[str]:
    return [item.kind for item in report.violations]


def a_step(model: nn.Module | None = None, **options: Any) -> CaptureReport:
    model = model or Mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batch = torch.randn(3, 7), torch.randn(3, 5)
    return check_capture(model, optimizer, nn.functional.mse_loss, batch, **options)


def test_nothing_stands_against_a_step_that_can_be_captured() -> None:
    report = a_step()

    assert report.ok
    assert report.violations == ()
    assert str(report).endswith("nothing prevents a capture")
    report.require()


@pytest.mark.parametrize(
    ("graph", "kind", "message"),
    [
        pytest.param(
            lambda: graph_of(
                "  %n: float = aten._local_scalar_dense.default(%s)\n"
                "  %y: f32[4, 3] = aten.mul.Scalar(self=%x, other=%n)",
                "  input %s: f32[]\n",
            ),
            "host-sync",
            "reads the content of a tensor in Python",
            id="item",
        ),
        pytest.param(
            lambda: graph_of("  %y: bool = aten.equal.default(%x, %x)"),
            "host-sync",
            "aten.equal.default reads the content of a tensor in Python",
            id="comparison",
        ),
        pytest.param(
            lambda: nonzero_graph(),
            "data-dependent-size",
            "a number of elements that depends on data",
            id="nonzero",
        ),
        pytest.param(
            lambda: graph_of('  %y: f32[4, 3] = aten._to_copy.default(%x) {device=device("cuda:0")}'),
            "other-device",
            r"works on cuda:0 \(device=\), the step on cpu",
            id="another device",
        ),
    ],
)
def test_nodes_that_cannot_be_captured_are_named(graph: Callable[[], Graph], kind: str, message: str) -> None:
    report = check_capture(graph())

    assert kinds(report) == [kind]
    assert not report.ok
    with pytest.raises(CaptureError, match=f"'g' cannot be captured:\n *{kind}: .*{message}"):
        report.require()


def nonzero_graph() -> Graph:
    return parse_ir(
        'graph "g" {\n  symbol n in [0, 12]\n  input %x: f32[4, 3]\n'
        "  %y: i64[n, 2] = aten.nonzero.default(%x)\n  return %y\n}\n"
    )


def test_integer_indices_are_no_data_dependent_size() -> None:
    class Picking(Mlp):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x)[[2, 0, 2]]

    assert a_step(Picking()).ok


@pytest.mark.smoke
def test_sizes_that_are_open_are_named() -> None:
    graph = parse_ir(
        'graph "g" {\n  symbol n in [1, 12]\n  input %x: f32[n, 3]\n'
        "  %y: f32[n, 3] = aten.relu.default(%x)\n  return %y\n}\n"
    )

    (violation,) = check_capture(graph).errors

    assert violation.kind == "symbolic-size"
    assert "specialize" in violation.fix


def test_a_generator_of_ones_own_is_named() -> None:
    class Drawing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(7, 5)
            self.generator = torch.Generator()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            noise = torch.rand(5, generator=self.generator)
            result: torch.Tensor = self.linear(x) + noise
            return result

    report = a_step(Drawing())

    assert not report.ok
    assert report.errors[0].kind in ("unregistered-random", "untraceable")
    assert "test_capture_check.py" in report.errors[0].where


def test_a_weight_on_another_device_is_named() -> None:
    graph = parse_ir(
        'graph "g" {\n  input %x: f32[4, 3]\n  param %w: f32[3]\n'
        "  %y: f32[4, 3] = aten.mul.Tensor(%x, %w)\n  return %y\n}\n"
    )

    (violation,) = check_capture(graph, weights={"w": torch.empty(3, device="meta")}, device="cpu").errors

    assert (violation.kind, violation.message) == ("other-device", "'w' is on meta, the step on cpu")


SCALE = torch.tensor(3.0)


class Scaled(Mlp):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) * SCALE


def test_a_number_in_a_tensor_from_outside_is_noted_with_the_line_that_reads_it() -> None:
    report = a_step(Scaled())

    assert report.ok
    (note,) = report.notes
    assert (note.kind, "3.0" in note.message) == ("baked-number", True)
    assert "test_capture_check.py:" in note.where


def test_a_copy_of_a_parameter_is_an_error() -> None:
    model = Mlp()
    copied = model.first.weight.detach().clone()

    class Copying(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = model

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = self.inner(x) + copied.sum()
            return result

    report = a_step(Copying())

    assert [item.kind for item in report.errors] == ["baked-tensor"]
    assert "is a copy of the parameter 'inner.first.weight'" in report.errors[0].message


def test_hooks_on_parameters_are_all_named_with_their_lines() -> None:
    model = Mlp()
    model.first.weight.register_hook(lambda gradient: gradient * 2)
    model.second.bias.register_post_accumulate_grad_hook(lambda parameter: None)

    report = a_step(model)

    assert kinds(report) == ["parameter-hook", "parameter-hook"]
    assert [
        "'first.weight'" in report.violations[0].message,
        "'second.bias'" in report.violations[1].message,
    ] == [
        True,
        True,
    ]
    assert all("test_capture_check.py:" in item.where for item in report.violations)


def test_hooks_on_the_step_of_an_optimizer_are_named() -> None:
    model = Mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batch = torch.randn(3, 7), torch.randn(3, 5)
    step = trace_step(model, optimizer, nn.functional.mse_loss, batch)
    optimizer.register_step_post_hook(lambda *args: None)

    report = check_capture(step)

    assert kinds(report) == ["optimizer-hook"]
    assert "test_capture_check.py:" in report.violations[0].where


def test_gradients_of_the_step_before_are_an_error() -> None:
    graph = parse_ir(
        'graph "g" {\n  input %x: f32[3]\n  state %w.grad: f32[3]\n'
        "  %y: f32[3] = aten.add.Tensor(%w.grad, %x)\n  update %w.grad = %y\n  return %y\n}\n"
    )

    (violation,) = check_capture(graph).errors

    assert violation.kind == "accumulated-gradient"
    assert "zero_grad" in violation.fix


def test_a_step_without_zero_grad_is_refused_with_the_reason() -> None:
    model = Mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(x: torch.Tensor) -> torch.Tensor:
        loss: torch.Tensor = model(x).sum()
        loss.backward()
        optimizer.step()
        return loss

    (violation,) = check_capture(step, example_batch=(torch.randn(3, 7),)).errors

    assert violation.kind == "untraceable"
    assert "gradients" in violation.message
    assert "zero_grad" in violation.fix


class Reading(Mlp):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = super().forward(x)
        return hidden * hidden.sum().item()


def test_a_step_that_cannot_be_traced_is_reported_with_its_line() -> None:
    (violation,) = a_step(Reading()).errors

    assert violation.kind == "untraceable"
    assert "test_capture_check.py:" in violation.where
    assert ".item()" in violation.fix


def test_what_each_run_allocates_is_noted() -> None:
    graph = graph_of(
        "  %y: i64[4] = aten.argmax.default(self=%x) {dim=1}\n  %z: f32[4, 3] = aten.bernoulli.p(%x) {p=0.5}"
    )
    planned = plan(graph)
    made = [item.value for item in planned.buffers if item.kind == "made"]

    report = check_capture(graph, plan=planned)

    assert report.ok
    assert [item.kind for item in report.notes] == ["allocation"] * len(made)


def test_a_report_is_plain_data() -> None:
    report = check_capture(nonzero_graph())

    data = report.to_dict()

    assert (data["graph"], data["ok"], data["violations"][0]["kind"]) == ("g", False, "data-dependent-size")
    assert str(report).startswith("g: 1 errors, 0 notes\nerror data-dependent-size: aten.nonzero.default")


def test_what_is_no_step_is_refused() -> None:
    with pytest.raises(CaptureError, match="a int is not a step"):
        check_capture(3)  # type: ignore[arg-type]
