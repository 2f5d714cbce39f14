"""Registering executors and conversions: exact match, no duplicates, nothing lost."""

import ast
import functools
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import entry_points
from typing import Any

import pytest
import torch

from npu_ir import ConversionError, RegistryError, execute_ir, extract_ir, list_registered_ops, parse_ir
from npu_ir.ops import register_conversion, register_executor, unregister_conversion, unregister_executor
from npu_ir.plugins.op_registry import Entry, OpRegistry
from tests.support.corpus.case import Function
from tests.support.rows import each_row

GETITEM = "<built-in function getitem>"


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    before = list_registered_ops()
    yield
    after = list_registered_ops()
    for op_type in set(after["execution"]) - set(before["execution"]):
        unregister_executor(op_type)
    for op_type in set(after["conversion"]) - set(before["conversion"]):
        unregister_conversion(op_type)


def test_a_fresh_install_has_no_conversion_and_one_executor() -> None:
    others = [point.name for point in entry_points(group="npu") if point.name != "npu-ir"]
    code = "import npu_ir; print(npu_ir.list_registered_ops())"

    printed = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "NPU_DISABLE_PLUGINS": ",".join(others)},
    ).stdout

    assert ast.literal_eval(printed) == {"conversion": [], "execution": [GETITEM]}


def test_the_registered_ops_are_listed_in_order() -> None:
    for name in ("b", "a", "c"):
        register_executor(name)(lambda inputs, attrs: [])
        register_conversion(name)(lambda converter, node: [])

    assert [name for name in list_registered_ops()["execution"] if len(name) == 1] == ["a", "b", "c"]
    assert list_registered_ops()["conversion"] == ["a", "b", "c"]
    list_registered_ops()["execution"].clear()
    assert GETITEM in list_registered_ops()["execution"]


def test_an_executor_runs_exactly_the_op_it_names() -> None:
    register_executor("my.op.default")(lambda inputs, attrs: [inputs[0] + 1])
    text = "graph g {{\n input %x: f32[1]\n %y: f32[1] = {}(%x)\n return %y\n}}"

    assert execute_ir(parse_ir(text.format("my.op.default")), (torch.zeros(1),)).item() == 1
    for other in ("my.op", "my.op.other", "my.op.default2"):
        with pytest.raises(Exception, match="there is no operator"):
            execute_ir(parse_ir(text.format(other)), (torch.zeros(1),))


@each_row("register, table", [(register_executor, "execution"), (register_conversion, "conversion")])
def test_a_second_registration_is_refused_with_both_origins(
    register: Callable[[str], Any], table: str
) -> None:
    def function(*arguments: Any) -> list[Any]:
        return []

    register("my_op")(function)
    by = f"my_op already has a registered {table}: by {__name__}, and now by builtins"

    with pytest.raises(RegistryError, match=rf"{by}[\s\S]*NPU_DISABLE_PLUGINS"):
        register("my_op")(len)
    assert "my_op" in list_registered_ops()[table]


def test_the_builtin_executor_cannot_be_taken() -> None:
    with pytest.raises(
        RegistryError,
        match=r"getitem> already has a registered execution: by npu-ir \(npu-ir .*\), and now by",
    ):
        register_executor(GETITEM)(lambda inputs, attrs: [])


def test_an_op_may_have_both_an_executor_and_a_conversion() -> None:
    def function(*arguments: Any) -> list[Any]:
        return []

    assert register_executor("my_op")(function) is function
    assert register_conversion("my_op")(function) is function
    unregister_executor("my_op")

    assert "my_op" in list_registered_ops()["conversion"]
    assert "my_op" not in list_registered_ops()["execution"]
    with pytest.raises(RegistryError, match="my_op has no registered execution"):
        unregister_executor("my_op")


@each_row("register", [register_executor, register_conversion])
def test_a_decorator_without_the_op_type_is_refused(register: Any) -> None:
    with pytest.raises(
        RegistryError,
        match=r'an op type is a string, not <function[\s\S]*fix: name the op: @register_executor\("my_op"\)',
    ):

        @register
        def function(inputs: Any, attrs: Any) -> list[Any]:
            return []


@each_row("thing", [None, 5, "function", [len]])
def test_only_a_function_can_be_registered(thing: Any) -> None:
    with pytest.raises(RegistryError, match="what is registered for my_op is not a function: "):
        register_executor("my_op")(thing)
    assert "my_op" not in list_registered_ops()["execution"]


def test_registries_are_merged_as_a_whole_or_not_at_all() -> None:
    first, second = OpRegistry("first"), OpRegistry("second")
    first.register_executor("shared")(len)
    second.register_executor("own")(len)
    second.register_conversion("own")(len)

    first.merge(second)
    assert sorted(first.table("execution")) == ["own", "shared"]
    assert first.table("execution")["own"] == Entry(len, "second")

    third = OpRegistry("third")
    third.register_conversion("new")(len)
    third.register_executor("shared")(len)
    with pytest.raises(
        RegistryError, match="shared already has a registered execution: by first, and now by third"
    ):
        first.merge(third)
    assert list(first.table("conversion")) == ["own"]


def test_a_table_cannot_be_changed_from_outside() -> None:
    with pytest.raises(TypeError, match="does not support item assignment"):
        OpRegistry().table("execution")["x"] = Entry(len, "")  # type: ignore[index]


def test_a_conversion_replaces_what_the_op_becomes() -> None:
    @register_conversion("aten.relu.default")
    def as_clamp(converter: Any, node: Any) -> Any:
        (x,) = converter.value(node.args)
        return converter.insert(node, "aten.clamp_min.default", [x], {"min": 0}).outputs[0]

    graph = extract_ir(Function(lambda x: torch.relu(x) + torch.relu(-x)), (torch.ones(2),))

    assert [node.op_type for node in graph.nodes] == [
        "aten.clamp_min.default",
        "aten.neg.default",
        "aten.clamp_min.default",
        "aten.add.Tensor",
    ]
    assert torch.equal(execute_ir(graph, (torch.tensor([-2.0, 3.0]),)), torch.tensor([2.0, 3.0]))


@each_row("convert, message", [
    (lambda insert: [],
        r"conversion of aten.relu.default by .* returned \[\]\n  at: node 'relu'.*\n  fix: return 1 value"),
    (lambda insert: [1], r"returned \[1\]"),
    (lambda insert: None, "the conversion of aten.relu.default by .* returned None"),
    (lambda insert: 1 / 0, r"by .* failed: ZeroDivisionError: division by zero\n  at: node 'relu'"),
    (lambda insert: insert("x", [1], {}), "failed: .* expected a value of graph .Function., got int"),
    (lambda insert: insert("x", [], {"a": object()}), "is not plain data"),
])  # fmt: skip
def test_a_conversion_that_does_not_keep_to_its_contract_is_named(convert: Any, message: str) -> None:
    @register_conversion("aten.relu.default")
    def conversion(converter: Any, node: Any) -> Any:
        return convert(functools.partial(converter.insert, node))

    try:
        with pytest.raises(ConversionError, match=message):
            extract_ir(Function(torch.relu), (torch.ones(2),))
    finally:
        unregister_conversion("aten.relu.default")
