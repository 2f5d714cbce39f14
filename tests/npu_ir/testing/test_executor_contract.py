"""The contract suite of executors finds each broken promise, and says which it was."""

import unittest
from collections.abc import Callable
from typing import Any

import pytest
import torch

from npu_ir import ExecutionError
from npu_ir.ops import register_conversion, unregister_conversion
from npu_ir.plugins.builtin import GETITEM
from npu_ir.testing import ExecutorContract, ExecutorSample
from tests.support.registration import registered

Executor = Callable[..., Any]
TESTS = [name for name in dir(ExecutorContract) if name.startswith("test_")]


class Contract(ExecutorContract):
    op_type = "acme.scale"

    def samples(self) -> list[ExecutorSample]:
        return [ExecutorSample(["f32[2, 3]"], {"factor": 2.0}, ["f32[2, 3]"])]

    def reference(self, inputs: list[Any], attrs: Any) -> list[Any]:
        return [torch.mul(inputs[0], attrs["factor"])]


def scale(inputs: list[Any], attrs: dict[str, Any]) -> list[Any]:
    return [inputs[0] * attrs["factor"]]


def failures(executor: Executor, contract: type[ExecutorContract] = Contract) -> dict[str, str]:
    """Return what each test that fails says."""
    found = {}
    with registered("acme.scale", executor):
        for name in TESTS:
            try:
                getattr(contract(), name)()
            except ExecutionError as error:
                found[name.removeprefix("test_")] = str(error)
            except unittest.SkipTest:
                continue
    return found


@pytest.mark.smoke
def test_a_sound_executor_keeps_the_contract() -> None:
    assert failures(scale) == {}


class TestGetitem(ExecutorContract):
    """Our own executor, which hands on one of its inputs."""

    op_type = GETITEM

    def samples(self) -> list[ExecutorSample]:
        return [ExecutorSample(["f32[2]", "i64[0, 3]"], {"index": index}, [type])
                for index, type in enumerate(["f32[2]", "i64[0, 3]"])]  # fmt: skip

    def reference(self, inputs: list[Any], attrs: Any) -> list[Any]:
        return [inputs[attrs["index"]]]


def counted() -> Executor:
    calls: list[None] = []

    def run(inputs: list[Any], attrs: Any) -> list[Any]:
        calls.append(None)
        return [inputs[0] * attrs["factor"] + len(calls) * 1e-3]

    return run


def with_one_result() -> Executor:
    memory = torch.empty(2, 3)
    return lambda inputs, attrs: [torch.mul(inputs[0], attrs["factor"], out=memory)]


def in_place(inputs: list[Any], attrs: Any) -> list[Any]:
    return [inputs[0].mul_(attrs["factor"]).clone()]


def from_the_start(inputs: list[Any], attrs: Any) -> list[Any]:
    x = inputs[0].as_strided((2, 3), (3, 1), 0)
    return [x * attrs["factor"]]


BROKEN: dict[str, tuple[Executor, str, str]] = {
    "results_are_of_the_types_that_the_graph_states": (
        lambda inputs, attrs: (inputs[0] * 2.0,),
        "acme.scale: it returns tuple, for 1 outputs\n  at: sample f32[2, 3] {'factor': 2.0}\n  fix:",
        "return a list",
    ),
    "results_are_those_of_the_reference": (
        lambda inputs, attrs: [inputs[0] * 3.0],
        "acme.scale: inputs that are ordinary numbers: output 0: 6 of 6 elements differ",
        "correct the executor, or state rtol and atol",
    ),
    "inputs_stay_as_they_are": (in_place, "acme.scale: it writes into its inputs", "compute on a copy"),
    "the_same_inputs_give_the_same_bits": (
        counted(), "the same inputs give other bits in another call", "keep no state between calls"
    ),
    "a_later_call_does_not_write_into_results": (
        with_one_result(), "a later call changed the results of the one before", "return new tensors"
    ),
    "tensors_may_start_anywhere_in_their_storage": (
        from_the_start, "inputs that start one element behind their storage: output 0:", "correct the"
    ),
    "every_runner_computes_the_same": (
        lambda inputs, attrs: [torch.full((2, 3), float(inputs[0].data_ptr() % 1000003))],
        "a call of the runner", "correct the executor"
    ),
}  # fmt: skip


@pytest.mark.parametrize("promise", BROKEN)
def test_a_broken_promise_fails_its_test_and_says_how_to_mend_it(promise: str) -> None:
    executor, text, fix = BROKEN[promise]

    found = failures(executor)

    assert text in found[promise]
    assert f"  fix: {fix}" in found[promise]


def test_a_wrong_type_and_an_error_are_told() -> None:
    wrong = failures(lambda inputs, attrs: [inputs[0].double()])
    failing = failures(lambda inputs, attrs: [inputs[1]])

    promise = "results_are_of_the_types_that_the_graph_states"
    assert "acme.scale: output 0 is f64[2, 3], the sample states f32[2, 3]" in wrong[promise]
    assert "acme.scale: it failed: IndexError: list index out of range" in failing[promise]
    assert "it is called as function(inputs, attrs)" in failing[promise]


def test_an_executor_that_is_not_registered_is_told() -> None:
    with pytest.raises(ExecutionError, match="no executor is registered for it\n  at: Contract\n  fix: reg"):
        Contract().test_it_is_registered()


def test_samples_are_asked_for_and_a_reference_is_not() -> None:
    class Bare(ExecutorContract):
        op_type = "acme.scale"

    class WithoutReference(Contract):
        reference = ExecutorContract.reference

    with pytest.raises(ExecutionError, match=r"acme.scale: samples\(\) is not overridden\n  at: Bare\n  fix"):
        Bare().test_inputs_stay_as_they_are()
    with registered("acme.scale", scale), pytest.raises(unittest.SkipTest, match="override reference"):
        WithoutReference().test_results_are_those_of_the_reference()


class Doubled(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.silu(x)


class WithModels(Contract):
    def models(self) -> list[tuple[torch.nn.Module, tuple[Any, ...]]]:
        return [(Doubled(), (torch.randn(2, 3),))]


def test_models_that_are_not_converted_to_it_are_told() -> None:
    with pytest.raises(ExecutionError, match="Doubled has no node of acme.scale: it has aten.silu.default\n"):
        WithModels().test_models_are_converted_to_it()


def test_a_conversion_that_computes_something_else_is_told() -> None:
    def convert(converter: Any, node: Any) -> Any:
        (x,) = converter.value(node.args)
        return converter.insert(node, "acme.scale", [x], {"factor": 2.0}).outputs[0]

    register_conversion("aten.silu.default")(convert)
    try:
        with registered("acme.scale", scale), pytest.raises(ExecutionError, match="acme.scale: .*differ"):
            WithModels().test_models_are_converted_to_it()
    finally:
        unregister_conversion("aten.silu.default")
