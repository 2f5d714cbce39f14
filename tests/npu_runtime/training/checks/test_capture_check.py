"""The capture check finds all that a replay would get wrong, each with the user's line and what to do."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from npu_ir import parse_ir
from npu_runtime import CaptureError, check_capture
from npu_runtime.planned import plan
from npu_runtime.training.checks.violations import CaptureReport
from npu_runtime.training.trace import trace_step
from tests.support.corpus.case import Holding
from tests.support.training.full_state import Mlp


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


NONZERO = """
graph g {
  symbol n in [0, 12]
  input %x: f32[4, 3]
  %y: i64[n, 2] = aten.nonzero.default(%x)
  return %y
}
"""
OPEN = """
graph g {
  symbol n in [1, 12]
  input %x: f32[n, 3]
  %y: f32[n, 3] = aten.relu.default(%x)
  return %y
}
"""
ACCUMULATING = """
graph g {
  input %x: f32[3]
  state %w.grad: f32[3]
  %y: f32[3] = aten.add.Tensor(%w.grad, %x)
  update %w.grad = %y
  return %y
}
"""
READING = """
graph g {
  input %x: f32[4, 3]
  input %s: f32[]
  %n: float = aten._local_scalar_dense.default(%s)
  %y: f32[4, 3] = aten.mul.Scalar(self=%x, other=%n)
  return %y
}
"""


ATTENTION = """
graph g {
  input %x: f16[1, 2, 8, 16]
  %o: f16[1, 2, 8, 16], %l: f32[1, 2, 8], %c: none, %d: none, %q: int, %k: int, %s: i64[2], %u: i64[],
  %m: f16[0] = aten._scaled_dot_product_flash_attention.default(query=%x, key=%x, value=%x)
  return %o
}
"""


def test_sizes_that_an_op_returns_are_not_read_from_a_tensor() -> None:
    assert check_capture(parse_ir(ATTENTION)).ok


@pytest.mark.smoke
@pytest.mark.parametrize(("text", "kind", "message"), [
    pytest.param(READING, "host-sync", "reads the content of a tensor in Python", id="item"),
    pytest.param("graph g {\n  input %x: f32[3]\n  %y: bool = aten.equal.default(%x, %x)\n  return %y\n}\n",
        "host-sync", "aten.equal.default reads the content of a tensor in Python", id="comparison"),
    pytest.param(NONZERO, "data-dependent-size", "a number of elements that depends on data", id="nonzero"),
    pytest.param(
        "graph g {\n  input %x: f32[3]\n"
        '  %y: f32[3] = aten._to_copy.default(%x) {device=device("cuda:0")}\n  return %y\n}\n',
        "other-device",
        r"works on cuda:0 \(device=\), the step on cpu",
        id="another device",
    ),
    pytest.param(OPEN, "symbolic-size", "(?s:.*)specialize", id="open size"),
    pytest.param(ACCUMULATING, "accumulated-gradient", "(?s:.*)zero_grad", id="gradient of before"),
])  # fmt: skip
def test_graphs_that_cannot_be_captured_are_told_what_is_in_the_way(
    text: str, kind: str, message: str
) -> None:
    report = check_capture(parse_ir(text))

    assert kinds(report) == [kind]
    assert not report.ok
    data = report.to_dict()
    assert (data["graph"], data["ok"], data["violations"][0]["kind"]) == ("g", False, kind)
    assert str(report).startswith(f"g: 1 errors, 0 notes\nerror {kind}: ")
    with pytest.raises(CaptureError, match=f"'g' cannot be captured:\n *{kind}: .*{message}"):
        report.require()


def test_integer_indices_are_no_data_dependent_size() -> None:
    assert a_step(around(lambda self, x: self.model(x)[[2, 0, 2]])).ok


@pytest.mark.parametrize(("function", "fix"), [
    pytest.param(lambda self, x: self.model(x) + torch.rand(5, generator=OWN), "", id="generator"),
    pytest.param(lambda self, x: self.model(x) * x.sum().item(), ".item()", id="item"),
])  # fmt: skip
def test_a_model_that_cannot_be_traced_is_reported_with_its_line(
    function: Callable[..., Any], fix: str
) -> None:
    (violation,) = a_step(around(function)).errors

    assert violation.kind == "untraceable"
    assert "test_capture_check.py:" in violation.where
    assert fix in violation.fix


def test_a_weight_on_another_device_is_named() -> None:
    graph = parse_ir(
        'graph "g" {\n  input %x: f32[4, 3]\n  param %w: f32[3]\n'
        "  %y: f32[4, 3] = aten.mul.Tensor(%x, %w)\n  return %y\n}\n"
    )

    (violation,) = check_capture(graph, weights={"w": torch.empty(3, device="meta")}, device="cpu").errors

    assert (violation.kind, violation.message) == ("other-device", "'w' is on meta, the step on cpu")


SCALE, OWN = torch.tensor(3.0), torch.Generator()


def around(function: Callable[..., Any], **modules: nn.Module) -> nn.Module:
    """Return a model that is a function of another one, ``self.model``, and the input."""
    return Holding(function, model=Mlp(), **modules)


def test_a_number_in_a_tensor_from_outside_is_noted_with_the_line_that_reads_it() -> None:
    report = a_step(around(lambda self, x: self.model(x) * SCALE))

    assert report.ok
    (note,) = report.notes
    assert (note.kind, "3.0" in note.message) == ("baked-number", True)
    assert "test_capture_check.py:" in note.where


def test_a_copy_of_a_parameter_is_an_error() -> None:
    model = around(lambda self, x: self.model(x) + copied.sum())
    copied = model.model.first.weight.detach().clone()

    (violation,) = a_step(model).errors

    assert violation.kind == "baked-tensor"
    assert "is a copy of the parameter 'model.first.weight'" in violation.message


def test_hooks_on_parameters_are_all_named_with_their_lines() -> None:
    model = Mlp()
    model.first.weight.register_hook(lambda gradient: gradient * 2)
    model.second.bias.register_post_accumulate_grad_hook(lambda parameter: None)

    first, second = a_step(model).violations

    assert first.kind == second.kind == "parameter-hook"
    assert "'first.weight'" in first.message
    assert "'second.bias'" in second.message
    assert "test_capture_check.py:" in first.where
    assert "test_capture_check.py:" in second.where


def test_hooks_on_the_step_of_an_optimizer_are_named() -> None:
    model = Mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batch = torch.randn(3, 7), torch.randn(3, 5)
    step = trace_step(model, optimizer, nn.functional.mse_loss, batch)
    optimizer.register_step_post_hook(lambda *args: None)

    report = check_capture(step)

    assert kinds(report) == ["optimizer-hook"]
    assert "test_capture_check.py:" in report.violations[0].where


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


def test_what_each_run_allocates_is_noted() -> None:
    graph = parse_ir(
        "graph g {\n  input %x: f32[4, 3]\n  %y: i64[4] = aten.argmax.default(self=%x) {dim=1}\n"
        "  %z: f32[4, 3] = aten.bernoulli.p(%x) {p=0.5}\n  return %y\n}\n"
    )
    planned = plan(graph)
    made = [item.value for item in planned.buffers if item.kind == "made"]

    report = check_capture(graph, plan=planned)

    assert report.ok
    assert [item.kind for item in report.notes] == ["allocation"] * len(made)


def test_what_is_no_step_is_refused() -> None:
    with pytest.raises(CaptureError, match="a int is not a step"):
        check_capture(3)  # type: ignore[arg-type]
