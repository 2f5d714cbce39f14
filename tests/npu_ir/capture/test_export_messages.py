"""Messages of torch.export during capture: suppressed, passed on, or reworded."""

import dataclasses
import io
import logging
import re
import sys
import threading
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.export import Dim

from npu_ir import extract_ir
from npu_ir._torch.tracing import printing_module
from npu_ir.capture.export_messages import HeldMessages, export_error, suggested_sizes
from npu_ir.errors import CaptureWarning, ConversionError, ExportError
from tests.support.corpus.case import Function
from tests.support.rows import each_row


class Branching(nn.Module):
    def forward(self, x: Any) -> Any:
        if x.sum() > 0:
            return x + 1
        return x - 1


class Positions(nn.Module):
    """Takes at most 512 of dimension 1, and multiples of 4 of dimension 0."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(512, 8))

    def forward(self, x: Any) -> Any:
        return x + self.table[: x.shape[1]].expand(x.shape[0], x.shape[1], 8)


class AddPair(nn.Module):
    def forward(self, pair: list[torch.Tensor]) -> torch.Tensor:
        return pair[0] + pair[1]


class Talking(nn.Module):
    def forward(self, x: Any) -> Any:
        warnings.warn("of the model", UserWarning, stacklevel=1)
        logging.getLogger("model").warning("logged by the model")
        sys.stderr.write("printed by the model")
        return x + 1


def state_of_the_process() -> list[Any]:
    """Return what is replaced while a model is captured."""
    log = logging.getLogger("torch._subclasses.fake_tensor")
    export: Any = printing_module()
    return [
        warnings.showwarning,
        list(warnings.filters),
        "print" in vars(export),
        [list(handler.filters) for handler in log.handlers],
    ]


@pytest.fixture
def torch_log() -> Any:
    written = io.StringIO()
    handler = logging.StreamHandler(written)
    names = ("_subclasses.fake_tensor", "fx.experimental.symbolic_shapes", "export")
    logs = [logging.getLogger(f"torch.{name}") for name in names]
    for log in logs:
        log.addHandler(handler)
    yield written
    for log in logs:
        log.removeHandler(handler)


@pytest.mark.parametrize(("model", "size", "where"), [
    pytest.param(nn.Sequential(nn.ReLU(), nn.Linear(2, 1)), 3, r"1 \(Linear\)", id="shape"),
    pytest.param(Branching(), 3, r"test_export_messages.py:\d+", id="branch"),
])  # fmt: skip
def test_a_model_that_cannot_be_captured_is_told_by_the_error_alone(
    model: nn.Module, size: int, where: str, torch_log: io.StringIO, capfd: pytest.CaptureFixture[str]
) -> None:
    before = state_of_the_process()

    with pytest.raises(ExportError, match=rf"torch.export cannot capture \w+: .*\n  at: .*{where}") as caught:
        extract_ir(model, (torch.ones(4, size),))

    assert capfd.readouterr().err == ""
    assert torch_log.getvalue() == ""
    assert state_of_the_process() == before
    assert any("torch.export: " in note for note in caught.value.__cause__.__notes__)  # type: ignore[union-attr]


def test_the_message_of_a_branch_by_data_is_short_and_its_fix_is_a_choice() -> None:
    with pytest.raises(
        ExportError,
        match=(
            r"data-dependent expression Eq\(u0, 1\)\n  at: \S+\n"
            "  fix: .* choose by torch.where, or give both to torch.cond; leave out an assert$"
        ),
    ):
        extract_ir(Branching(), (torch.ones(3),))


def test_a_loop_as_long_as_a_tensor_says_gets_a_fix_of_its_own() -> None:
    class Looping(nn.Module):
        def forward(self, x: Any, times: Any) -> Any:
            for _ in range(int(times)):
                x = x * 2
            return x

    with pytest.raises(ExportError, match="fix: .* pass it as a Python number"):
        extract_ir(Looping(), (torch.ones(3), torch.tensor(2)))
    assert len(extract_ir(Looping(), (torch.ones(3), 2))) == 2


def test_checks_that_pytorch_suggests_are_part_of_the_fix() -> None:
    error = RuntimeError(
        "Could not guard on data-dependent expression u0 > 3 (unhinted: u0 > 3).  (Size-like symbols: "
        "none)\n\nTo fix the error, insert one of the following checks before this call:\n"
        "  1. torch._check(k > 3)\n  2. torch._check(k <= 3)\n\n(These suggested fixes were derived by ...)"
    )

    found = export_error(Branching(), (torch.ones(2),), {}, error)

    assert str(found).endswith(
        "or state before it what always holds: torch._check(k > 3) or torch._check(k <= 3)"
    )


def test_sizes_that_pytorch_suggests_are_the_fix() -> None:
    sizes = {0: Dim("b"), 1: Dim("s", max=1024)}

    with pytest.raises(ExportError) as caught:
        extract_ir(Positions(), (torch.ones(2, 5, 8),), dynamic_shapes={"x": sizes})

    assert "Constraints violated (s)!\n  - Not all values of s = x.shape[1] " in caught.value.message
    assert "TORCH_LOGS" not in str(caught.value)
    assert caught.value.fix == "give these sizes in dynamic_shapes: s = Dim('s', max=512)"


def test_a_long_list_of_violations_is_cut() -> None:
    folding = Function(
        lambda x, y, z: (
            x + y,
            x.view(-1, 4)[: x.shape[0] // 2].reshape(2, -1),
            z[: z.shape[0] // 3].view(2, -1),
        )
    )
    sizes = {"args": ({0: Dim("a")}, {0: Dim("b")}, {0: Dim("c")})}

    with pytest.raises(
        ExportError, match=r"(\n  - .*){5}\n  \.\.\. and \d+ more\n  fix: .*; b = 4\*_a"
    ) as caught:
        extract_ir(folding, (torch.ones(8), torch.ones(8), torch.ones(12)), dynamic_shapes=sizes)

    assert "a = 4*_a" in suggested_sizes(str(caught.value.__cause__))
    assert suggested_sizes("Constraints violated (s)!\n  - something") == []


def test_a_result_of_an_unknown_type_is_told_by_its_name_alone() -> None:
    @dataclasses.dataclass
    class Scores:
        best: Any

    with pytest.raises(ExportError) as caught:
        extract_ir(Function(Scores), (torch.ones(2),))

    assert caught.value.message.endswith("Scores'> in output, which is not a known type")
    assert "torch.export.register_dataclass" in caught.value.fix


def test_arguments_that_forward_does_not_take_are_named() -> None:
    with pytest.raises(
        ExportError,
        match=(
            r"forward of Branching cannot be called so: it takes \(x\), and gets 'y': 'x' "
            "is missing; there is no 'y'"
        ),
    ):
        extract_ir(Branching(), (), {"y": torch.ones(2)})


def test_what_the_model_says_comes_through(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.warns(UserWarning, match="of the model"):
        extract_ir(Talking(), (torch.ones(2),))

    assert "logged by the model" in caplog.text
    assert "printed by the model" in capfd.readouterr().err


def test_a_failure_to_trace_again_is_told_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> Any:
        raise RuntimeError("first\nsecond")

    monkeypatch.setattr(torch.export.ExportedProgram, "run_decompositions", fail)

    with pytest.raises(
        ConversionError, match=r"functional: RuntimeError: first\n(  at: .*\n)?  fix: write without"
    ):
        extract_ir(Function(lambda x: x[0].add_(1)), (torch.ones(2, 2),))


def write_through_views(x: Any) -> Any:
    y = x.clone()
    y.view(-1)[1:].add_(1)
    y.diagonal().mul_(2)
    return y


@each_row("model", [nn.Sequential(nn.LSTM(2, 3)), nn.GRU(2, 3), Function(write_through_views)])
def test_what_pytorch_does_by_itself_is_captured_without_a_word(model: nn.Module) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        extract_ir(model, (torch.ones(4, 2),))


def test_a_tensor_that_forward_keeps_is_warned_of_each_time() -> None:
    class Keeping(nn.Module):
        last: Any = None

        def forward(self, x: Any) -> Any:
            self.last = x * 2
            return x + 1

    model = Keeping()
    for _ in range(2):
        with pytest.warns(
            CaptureWarning, match="forward assigns tensors to self.last: the graph does not"
        ) as seen:
            graph = extract_ir(model, (torch.ones(2),))

        assert model.last is None
        assert not graph.updates
        assert [warning.filename for warning in seen] == [__file__]


def say(text: str) -> None:
    """Say something in the three ways in which torch.export does."""
    logging.getLogger("torch.export._trace").warning(text)
    module = vars(printing_module())
    exec(
        f"import warnings\nwarnings.warn({text!r}, UserWarning, stacklevel=1)",
        {"__name__": module["__name__"]},
    )
    module.get("print", print)(text)


def test_what_nobody_knows_is_passed_on_after_a_success(
    torch_log: io.StringIO, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.warns(UserWarning, match="something new"), HeldMessages():
        say("something new")

    assert torch_log.getvalue() == "something new\n"
    assert capsys.readouterr().out == "something new\n"


def test_a_log_that_the_user_has_asked_for_is_written_as_always(
    torch_log: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = torch._logging._internal.LogState({"torch": logging.WARNING})  # as of TORCH_LOGS
    monkeypatch.setattr(torch._logging._internal, "log_state", settings)

    with pytest.raises(ExportError):
        extract_ir(nn.Linear(2, 1), (torch.ones(4, 3),))

    assert "failed while attempting to run meta" in torch_log.getvalue()


def test_a_size_that_stays_fixed_is_told_in_our_words() -> None:
    with (
        pytest.warns(
            CaptureWarning, match=r"fixed to inputs\['x'\].shape\[0\] = 1: .* pass an example of at least 2"
        ),
        HeldMessages(),
    ):
        logging.getLogger("torch._export.non_strict_utils").warning(
            "dimension inputs['x'].shape[0] 0/1 specialized; Dim.AUTO was specified along with a "
            "sample input with hint = 1."
        )


def test_only_the_thread_that_captures_is_held_back(
    torch_log: io.StringIO, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    monkeypatch.setattr(warnings, "showwarning", lambda message, *_: seen.append(str(message)))
    before = state_of_the_process()

    def fail() -> None:
        with HeldMessages():
            say("of this thread")
            other = threading.Thread(target=say, args=("of another",))
            other.start()
            other.join()
            raise ValueError("wrong")

    with pytest.raises(ValueError, match="wrong") as caught:
        fail()

    assert seen == ["of another"]
    assert torch_log.getvalue() == "of another\n"
    assert capsys.readouterr().out == "of another\n"
    assert caught.value.__notes__ == ["torch.export: of this thread"]  # type: ignore[attr-defined]
    assert state_of_the_process() == before


def test_captures_that_overlap_leave_everything_as_it_was() -> None:
    before = state_of_the_process()
    first, second, third = HeldMessages(), HeldMessages(), HeldMessages()

    for captures in (first, second, third):
        captures.__enter__()
    for captures in (second, first, third):
        captures.__exit__(None, None, None)

    assert state_of_the_process() == before


def test_what_is_held_back_can_be_read_in_our_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, logger="npu_ir.capture"), pytest.raises(ExportError):
        extract_ir(nn.Linear(2, 1), (torch.ones(4, 3),))

    assert "failed while attempting to run meta for aten" in caplog.text


@each_row("dimension", {"past the end": 2, "from the end": -1, "text": "0"})
@pytest.mark.parametrize("size", [Dim("batch"), Dim.AUTO])
def test_a_dimension_that_a_tensor_does_not_have_is_refused(dimension: Any, size: Any) -> None:
    shapes = {"pair": [None, {dimension: size}]}
    named = f"dynamic_shapes['pair'][1] names the dimension {dimension!r} of a tensor of shape [3, 4]"

    with pytest.raises(ExportError, match=re.escape(named) + ".*\n  fix: dimensions are numbered from 0"):
        extract_ir(
            AddPair(),
            ([torch.ones(3, 4), torch.ones(3, 4)],),
            dynamic_shapes=shapes,
        )


def test_a_dimension_may_be_named_by_an_integer_of_numpy() -> None:
    graph = extract_ir(nn.ReLU(), (torch.ones(3, 4),), dynamic_shapes={"input": {np.int64(0): Dim("batch")}})

    assert str(graph.inputs[0].type) == "f32[batch, 4]"


@each_row("shapes", {
    "another name": {"x": {0: Dim("batch")}},
    "text": "batch",
    "text for a dimension": {"input": {0: "batch"}},
})  # fmt: skip
def test_the_fix_of_wrong_dynamic_shapes_says_how_they_are_written(shapes: Any) -> None:
    with pytest.raises(
        ExportError, match="fix: nest dynamic_shapes as the arguments are, by name or"
    ) as caught:
        extract_ir(nn.ReLU(), (torch.ones(3),), dynamic_shapes=shapes)

    assert "For more information" not in str(caught.value)
