"""Sample graphs for contracts: PyTorch's operators, random graphs, and what is missing."""

import sys

import pytest

from npu_ir import Interpreter
from npu_ir._torch import op_samples
from npu_ir.errors import UsageError
from npu_ir.testing import COMMON_OPERATORS, operator_samples, operators, random_graph, random_samples
from npu_ir.testing.op_calls import calls_of, find_operator


@pytest.mark.smoke
def test_a_random_graph_is_the_same_for_a_seed() -> None:
    first, again, other = random_graph(1), random_graph(1), random_graph(2)

    assert str(first) == str(again) != str(other)
    first.check()


def test_samples_can_be_run() -> None:
    samples = [*random_samples(5), *operator_samples(("add", "nn.functional.linear"), count=2, dtypes=2)]

    for sample in samples:
        Interpreter(sample.graph, sample.weights).run_flat(sample.args)
    assert len(samples) >= 6
    assert samples[-1].name.startswith("nn.functional.linear (int64, sample #")
    assert " on i64[" in samples[-1].name


def test_a_sample_that_cannot_be_captured_or_is_undetermined_is_left_out() -> None:
    assert list(operator_samples(("equal", "empty_like"))) == []


def test_the_common_operators_exist_and_have_samples_that_differ() -> None:
    assert set(COMMON_OPERATORS) <= set(operators())
    shapes = {call.tensors[0].shape for call in calls_of(find_operator("add"), 3, 1)}
    assert len(shapes) > 1


def test_an_unknown_operator_is_told() -> None:
    with pytest.raises(UsageError, match="no operator 'ad' .did you mean 'add'.*\n  fix: npu_ir.testing.ope"):
        list(operator_samples(["ad"]))


def test_a_missing_package_is_told_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    op_samples.operators.cache_clear()
    monkeypatch.setitem(sys.modules, "torch.testing._internal.common_methods_invocations", None)

    with pytest.raises(UsageError, match="cannot be loaded: .*\n  at: PyTorch .*\n  fix: python -m pip inst"):
        operators()
