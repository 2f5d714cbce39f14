"""Arguments: every kind of a schema's argument, taken apart into inputs and attrs, and bound again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from npu_ir import GraphError
from npu_ir.ops.arguments import LIST_SIZES, NONE_MASKS, flatten_arguments, record_problem
from npu_ir.ops.calls import Binding, bind_arguments
from npu_ir.ops.schema import ArgKind, OpSchema, op_type_of, resolve, schema_of
from tests.support.rows import each_row

CPU = torch.device("cpu")


class Input:
    """Stands for a value of a graph; compared by identity."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


A, B, C, D, E = (Input(name) for name in "ABCDE")


@pytest.fixture(scope="module", autouse=True)
def library() -> Iterator[None]:
    """Ops with the kinds of arguments that no ATen op has, or has in this order."""
    lib = torch.library.Library("test_arguments", "DEF")
    lib.define(
        "defaults(Tensor a, int n=3, Tensor? b=None, float f=0.5, *, bool flag=False, "
        "Tensor? c=None) -> Tensor"
    )
    lib.define("lists(Tensor[] a, Tensor?[] b, Tensor c, Tensor[]? d=None, *, Tensor[] e) -> Tensor")
    lib.define("optional_between(Tensor? a, Tensor b, Tensor? c) -> Tensor")
    lib.define("scalars(Scalar s, Tensor a, int[] sizes, str text, Device? device=None) -> Tensor")
    lib.define("nothing() -> ()")
    yield
    lib._destroy()


def schema(op_type: str) -> OpSchema:
    op = resolve(op_type)
    assert op is not None, op_type
    return schema_of(op)


def is_input(argument: Any) -> bool:
    return isinstance(argument, Input)


def bound(
    op_type: str, inputs: Sequence[Any], attrs: Mapping[str, Any], operands: Sequence[str] | None = None
) -> tuple[list[Any], dict[str, Any]]:
    binding = bind_arguments(schema(op_type), len(inputs), operands, attrs)
    return binding.arguments(inputs, CPU)


def complete(found: OpSchema, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return all arguments by name, with what PyTorch takes for those that are not given."""
    given = dict(zip((arg.name for arg in found.args), args, strict=False)) | dict(kwargs)
    defaults = {arg.name: arg.default_value for arg in found.op._schema.arguments}
    return {arg.name: given.get(arg.name, defaults[arg.name]) for arg in found.args}


T = "test_arguments"

CALLS = [
    pytest.param("aten.relu.default", (A,), {}, (A,), ("self",), {}, id="Tensor"),
    pytest.param("aten.add.Tensor", (A, B), {}, (A, B), ("self", "other"), {}, id="two"),
    pytest.param(
        "aten.add.Tensor", (A, A), {"alpha": 2}, (A, A), ("self", "other"), {"alpha": 2}, id="same_twice"
    ),
    pytest.param(
        "aten.add.Tensor", (), {"other": A, "self": B}, (B, A), ("self", "other"), {}, id="keywords"
    ),
    pytest.param("aten.mul.Tensor", (A, 0.5), {}, (A,), ("self",), {"other": 0.5}, id="scalar_after"),
    pytest.param("aten.mul.Tensor", (0.5, A), {}, (A,), ("other",), {"self": 0.5}, id="scalar_before"),
    pytest.param("aten.mul.Tensor", (2, 3), {}, (), (), {"self": 2, "other": 3}, id="only_scalars"),
    pytest.param("aten.pow.Scalar", (2, A), {}, (A,), ("exponent",), {"self": 2}, id="Scalar"),
    pytest.param("aten.pow.Scalar", (A, B), {}, (A, B), ("self", "exponent"), {}, id="value_as_Scalar"),
    pytest.param(
        "aten.cat.default", ([A, B, A],), {}, (A, B, A), ("tensors[0]", "tensors[1]", "tensors[2]"),
        {LIST_SIZES: [3]}, id="Tensor[]"
    ),
    pytest.param(
        "aten.cat.default", ((A,), 1), {}, (A,), ("tensors[0]",), {"dim": 1, LIST_SIZES: [1]}, id="tuple"
    ),
    pytest.param("aten.cat.default", ([],), {}, (), (), {LIST_SIZES: [0]}, id="empty_list"),
    pytest.param(
        "aten._foreach_add.List", ([A], [B]), {}, (A, B), ("self[0]", "other[0]"), {LIST_SIZES: [1, 1]},
        id="two_lists"
    ),
    pytest.param(
        "aten.index.Tensor", (A, [None, B]), {}, (A, B), ("self", "indices[1]"),
        {NONE_MASKS: [[True, False]]}, id="Tensor?[]"
    ),
    pytest.param(
        "aten.index.Tensor", (A, [None, None]), {}, (A,), ("self",), {NONE_MASKS: [[True, True]]},
        id="only_none"
    ),
    pytest.param("aten.index.Tensor", (A, []), {}, (A,), ("self",), {NONE_MASKS: [[]]}, id="no_indices"),
    pytest.param(
        "aten.index_put.default", (A, [B, None, C], D, True), {}, (A, B, C, D),
        ("self", "indices[0]", "indices[2]", "values"),
        {"accumulate": True, NONE_MASKS: [[False, True, False]]}, id="after_a_list"
    ),
    pytest.param("aten.linear.default", (A, B), {}, (A, B), ("input", "weight"), {}, id="Tensor?_absent"),
    pytest.param("aten.linear.default", (A, B, None), {}, (A, B), ("input", "weight"), {}, id="Tensor?_None"),
    pytest.param(
        "aten.linear.default", (A, B, C), {}, (A, B, C), ("input", "weight", "bias"), {}, id="Tensor?"
    ),
    pytest.param(
        "aten.clamp.Tensor", (A, None, B), {}, (A, B), ("self", "max"), {}, id="first_Tensor?_absent"
    ),
    pytest.param(
        "aten.layer_norm.default", (A, [4], None, B, 1e-3), {}, (A, B), ("input", "bias"),
        {"normalized_shape": [4], "eps": 1e-3}, id="Tensor?_between"
    ),
    pytest.param(
        "aten.full.default", ([2], 1.0), {"dtype": torch.int8, "device": None}, (), (),
        {"size": [2], "fill_value": 1.0, "dtype": torch.int8, "device": None}, id="no_tensor"
    ),
    pytest.param(f"{T}.defaults.default", (A,), {}, (A,), ("a",), {}, id="defaults"),
    pytest.param(
        f"{T}.defaults.default", (A,), {"f": 1.0}, (A,), ("a",), {"f": 1.0}, id="default_in_the_middle"
    ),
    pytest.param(
        f"{T}.defaults.default", (A, 3, B, 0.5), {"c": C}, (A, B, C), ("a", "b", "c"), {"n": 3, "f": 0.5},
        id="keyword_tensor"
    ),
    pytest.param(
        f"{T}.defaults.default", (A,), {"c": C, "flag": True}, (A, C), ("a", "c"), {"flag": True},
        id="keyword_only"
    ),
    pytest.param(
        f"{T}.lists.default", ([A], [None, B], C, None), {"e": [D, E]}, (A, B, C, D, E),
        ("a[0]", "b[1]", "c", "e[0]", "e[1]"), {LIST_SIZES: [1, None, 2], NONE_MASKS: [[True, False]]},
        id="absent_list"
    ),
    pytest.param(
        f"{T}.lists.default", ([], [], C, []), {"e": []}, (C,), ("c",),
        {LIST_SIZES: [0, 0, 0], NONE_MASKS: [[]]}, id="empty_optional_list"
    ),
    pytest.param(
        f"{T}.optional_between.default", (None, A, None), {}, (A,), ("b",), {}, id="required_between"
    ),
    pytest.param(
        f"{T}.scalars.default", (1 + 2j, A, (1, 2), "x"), {"device": CPU}, (A,), ("a",),
        {"s": 1 + 2j, "sizes": (1, 2), "text": "x", "device": CPU}, id="plain"
    ),
    pytest.param(f"{T}.nothing.default", (), {}, (), (), {}, id="no_arguments"),
]  # fmt: skip


@each_row(("op_type", "args", "kwargs", "inputs", "operands", "attrs"), CALLS)
def test_a_call_is_taken_apart_and_comes_back(
    op_type: str,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    inputs: tuple[Any, ...],
    operands: tuple[str, ...],
    attrs: dict[str, Any],
) -> None:
    found = schema(op_type)

    flat = flatten_arguments(found, args, kwargs, is_input)
    again, keywords = bound(op_type, flat.inputs, flat.attrs, flat.operands)

    assert (flat.inputs, flat.operands, flat.attrs) == (inputs, operands, attrs)
    assert record_problem(flat.attrs) is None
    assert {arg.name for arg in found.args if arg.kwarg_only} >= keywords.keys() - {
        arg.name for arg in found.args[len(again) :]
    }
    wanted = complete(found, args, kwargs)
    assert complete(found, again, keywords) == {
        name: list(value) if isinstance(value, tuple) and any(map(is_input, value)) else value
        for name, value in wanted.items()
    }


@each_row("op_type, inputs, attrs, args, kwargs", {
    "Tensor": ("aten.relu.default", [A], {}, [A], {}),
    "keyword_only": ("aten.add.Tensor", [A, B], {"alpha": 2}, [A, B], {"alpha": 2}),
    "scalar_after": ("aten.mul.Tensor", [A], {"other": 0.5}, [A, 0.5], {}),
    "scalar_before": ("aten.mul.Tensor", [A], {"self": 0.5}, [0.5, A], {}),
    "Scalar": ("aten.rsub.Scalar", [A], {"other": 1, "alpha": 2}, [A, 1, 2], {}),
    "Tensor?_absent": ("aten.linear.default", [A, B], {}, [A, B], {}),
    "Tensor?": ("aten.linear.default", [A, B, C], {}, [A, B, C], {}),
    "first_Tensor?": ("aten.clamp.Tensor", [A, B], {}, [A, B], {}),
    "stated_None": ("aten.clamp.Tensor", [A, B], {"min": None}, [A, None, B], {}),
    "Tensor[]": ("aten.cat.default", [A, B], {LIST_SIZES: [2], "dim": 1}, [[A, B], 1], {}),
    "Tensor[]_without_size": ("aten.cat.default", [A, B], {"dim": 1}, [[A, B], 1], {}),
    "two_lists": ("aten._foreach_add.List", [A, B, C], {LIST_SIZES: [1, 2]}, [[A], [B, C]], {}),
    "Tensor?[]": ("aten.index.Tensor", [A, B], {NONE_MASKS: [[True, False]]}, [A, [None, B]], {}),
    "Tensor?[]_without_mask": ("aten.index.Tensor", [A, B, C], {}, [A, [B, C]], {}),
    "after_a_list": ("aten.index_put.default", [A, B, C], {NONE_MASKS: [[False]]}, [A, [B], C], {}),
    "between": ("aten.layer_norm.default", [A, B, C], {"normalized_shape": [4], "eps": 0.1},
        [A, [4], B, C, 0.1], {}),
    "defaults_in_the_middle": ("aten.layer_norm.default", [A], {"normalized_shape": [4], "eps": 0.1},
        [A, [4]], {"eps": 0.1}),
    "no_tensor": ("aten.zeros.default", [], {"size": [2]}, [[2]], {}),
    "three": (f"{T}.optional_between.default", [A, B, C], {}, [A, B, C], {}),
    "first_None": (f"{T}.optional_between.default", [B, C], {"a": None}, [None, B, C], {}),
})  # fmt: skip
def test_without_a_record_inputs_fill_the_tensor_arguments_in_order(
    op_type: str, inputs: list[Any], attrs: dict[str, Any], args: list[Any], kwargs: dict[str, Any]
) -> None:
    assert bound(op_type, inputs, attrs) == (args, kwargs)


@pytest.mark.smoke
def test_a_record_wins_over_the_order() -> None:
    assert bound("aten.add.Tensor", [A, B], {}, ["other", "self"]) == ([B, A], {})


def test_meta_becomes_the_device_of_execution() -> None:
    binding = bind_arguments(
        schema("aten.full.default"), 0, (), {"size": [2], "fill_value": 1, "device": torch.device("meta")}
    )

    assert binding.arguments([], torch.device("cuda:1")) == ([[2], 1], {"device": torch.device("cuda:1")})
    kept = bind_arguments(schema("aten.full.default"), 0, (), {"size": [2], "fill_value": 1, "device": CPU})
    assert kept.arguments([], torch.device("cuda:1"))[1] == {"device": CPU}


def test_a_bound_list_is_a_new_one_at_every_call() -> None:
    attrs = {"size": [2], "fill_value": 1}
    binding = bind_arguments(schema("aten.full.default"), 0, (), attrs)

    binding.arguments([], CPU)[0][0].append(3)

    assert binding.arguments([], CPU)[0] == [[2], 1]
    assert attrs["size"] == [2]


@each_row("op_type, args, kwargs, message", {
    "too_many": ("aten.relu.default", (A, B), {}, "aten.relu.default takes 1 arguments, got 2"),
    "unknown": ("aten.relu.default", (A,), {"other": B}, "aten.relu.default got an unknown argument 'other'"),
    "twice": ("aten.relu.default", (A,), {"self": B}, "aten.relu.default got a second argument 'self'"),
    "mixed": ("aten.cat.default", ([A, 1.0],), {},
        r"argument 'tensors' of aten.cat.default mixes tensors and plain data: \[A, 1.0\]"),
    "none": ("aten.cat.default", ([A, None],), {},
        r"argument 'tensors' of aten.cat.default is a list of tensors without None: \[A, None\]"),
    "plain": ("aten.index.Tensor", (A, [True]), {},
        r"argument 'indices' of aten.index.Tensor mixes tensors and plain data: \[True\]"),
})  # fmt: skip
def test_a_call_that_the_schema_does_not_allow_is_refused(
    op_type: str, args: tuple[Any, ...], kwargs: dict[str, Any], message: str
) -> None:
    with pytest.raises(GraphError, match=message):
        flatten_arguments(schema(op_type), args, kwargs, is_input)


@each_row("op_type, count, operands, attrs, message", {
    "none": ("aten.relu.default", 0, None, {},
        r"aten.relu.default needs its argument 'self'\n  fix: its schema is aten::relu\(Tensor self\)"),
    "left": ("aten.relu.default", 2, None, {},
        r"aten.relu.default leaves 1 of 2 inputs unused\n  fix: its schema is"),
    "recorded_missing": ("aten.add.Tensor", 1, ["self"], {}, "aten.add.Tensor needs its argument 'other'"),
    "recorded_twice": ("aten.add.Tensor", 2, ["self", "self"], {"other": 1},
        "aten.add.Tensor leaves 1 of 2 inputs unused"),
    "input_and_attr": ("aten.add.Tensor", 2, ["self", "other"], {"other": 1},
        "aten.add.Tensor leaves 1 of 2 inputs unused"),
    "unknown_operand": ("aten.add.Tensor", 2, ["self", "another"], {},
        "aten.add.Tensor has no argument 'another'"),
    "unknown_attr": ("aten.add.Tensor", 2, None, {"beta": 1},
        r"aten.add.Tensor has no argument 'beta'\n  fix: its schema is"),
    "index_of_no_list": ("aten.add.Tensor", 2, ["self[0]", "other"], {},
        "aten.add.Tensor needs its argument 'self'"),
    "index_of_optional": ("aten.linear.default", 2, ["input", "weight[0]"], {},
        "aten.linear.default needs its argument 'weight'"),
    "plain_missing": ("aten.full.default", 0, None, {"size": [2]},
        "aten.full.default needs its argument 'fill_value'"),
    "list_short": ("aten.cat.default", 1, None, {LIST_SIZES: [2]},
        r"argument 'tensors\[1\]' of aten.cat.default has no input to fill it\n  fix: its schema is"),
    "list_huge": ("aten.cat.default", 1, ["tensors[0]"], {LIST_SIZES: [10**15]},
        r"argument 'tensors\[1\]' of aten.cat.default has no input"),
    "list_long": ("aten.cat.default", 2, None, {LIST_SIZES: [1]},
        "aten.cat.default leaves 1 of 2 inputs unused"),
    "list_index": ("aten.cat.default", 1, ["tensors[1]"], {LIST_SIZES: [1]},
        r"argument 'tensors\[0\]' of aten.cat.default has no input"),
    "list_without_index": ("aten.cat.default", 1, ["tensors"], {LIST_SIZES: [1]},
        r"argument 'tensors\[0\]' of aten.cat.default has no input"),
    "required_list_absent": ("aten.cat.default", 0, None, {LIST_SIZES: [None]},
        "aten.cat.default needs its argument 'tensors'"),
    "list_as_attr": ("aten.cat.default", 0, None, {"tensors": [1, 2]},
        "argument 'tensors' of aten.cat.default is a list of tensors: it takes inputs, not an attribute"),
    "spare_size": ("aten.cat.default", 1, None, {LIST_SIZES: [1, 0]},
        "_tensor_list_sizes or _tensor_list_none_masks records more lists than aten.cat.default has"),
    "spare_mask": ("aten.relu.default", 1, None, {NONE_MASKS: [[]]},
        "records more lists than aten.relu.default has"),
    "mask_short": ("aten.index.Tensor", 1, None, {NONE_MASKS: [[False]]},
        r"argument 'indices\[0\]' of aten.index.Tensor has no input"),
    "mask_long": ("aten.index.Tensor", 2, None, {NONE_MASKS: [[True]]},
        "aten.index.Tensor leaves 1 of 2 inputs unused"),
    "bad_sizes": ("aten.cat.default", 1, None, {LIST_SIZES: "1"},
        "_tensor_list_sizes is a list of sizes, None for an absent list: not '1'"),
    "bad_masks": ("aten.index.Tensor", 1, None, {NONE_MASKS: [0]},
        r"_tensor_list_none_masks is a list of lists of bools, True for None: not \[0\]"),
})  # fmt: skip
def test_inputs_and_attributes_that_do_not_fit_the_schema_are_refused(
    op_type: str, count: int, operands: list[str] | None, attrs: dict[str, Any], message: str
) -> None:
    with pytest.raises(GraphError, match=message):
        bind_arguments(schema(op_type), count, operands, attrs)


@each_row("sizes", [1, "12", [True], [-1], [1.0], ["1"], [[1]], None, {}])
def test_sizes_are_a_list_of_integers_or_none(sizes: Any) -> None:
    assert "_tensor_list_sizes is a list of sizes" in str(record_problem({LIST_SIZES: sizes}))
    assert record_problem({LIST_SIZES: [0, None, 3]}) is None


@each_row("masks", [1, [True], [[1]], [None], [[None]], "x", None])
def test_masks_are_lists_of_bools(masks: Any) -> None:
    assert "_tensor_list_none_masks is a list of lists of bools" in str(record_problem({NONE_MASKS: masks}))
    assert record_problem({NONE_MASKS: [[], [True, False]]}) is None


# Every schema


def aten_ops() -> list[OpSchema]:
    names = sorted(name for name in torch._C._dispatch_get_all_op_names() if name.startswith("aten::"))
    ops = []
    for name in names:
        base, _, overload = name.removeprefix("aten::").partition(".")
        op = resolve(f"aten.{base}.{overload or 'default'}")
        if op is not None:
            ops.append(schema_of(op))
    return ops


def sample_argument(arg: Any, is_given: bool) -> Any:
    """Return something for an argument: tensors where it takes them, plain data elsewhere."""
    if arg.kind is ArgKind.TENSOR:
        return Input(arg.name)
    if arg.kind is ArgKind.OPTIONAL_TENSOR:
        return Input(arg.name) if is_given else None
    if arg.kind is ArgKind.TENSOR_LIST:
        return [Input(arg.name), Input(arg.name)] if is_given else []
    if arg.kind is ArgKind.OPTIONAL_TENSOR_LIST:
        return [None, Input(arg.name), None] if is_given else [None]
    return [1, 2] if is_given else 0.5


@pytest.mark.parametrize("is_given", [True, False])
@pytest.mark.parametrize("is_short", [True, False])
def test_calls_of_every_aten_operator_come_back(is_given: bool, is_short: bool) -> None:
    ops = aten_ops()
    assert len(ops) > 3000

    for found in ops:
        given = {
            arg.name: sample_argument(arg, is_given)
            for arg in found.args
            if not (is_short and arg.has_default)
        }
        args = []
        for arg in found.args:
            if arg.kwarg_only or arg.name not in given:
                break
            args.append(given.pop(arg.name))
        flat = flatten_arguments(found, args, given, is_input)
        again, keywords = bind_arguments(found, len(flat.inputs), flat.operands, flat.attrs).arguments(
            flat.inputs, CPU
        )
        assert complete(found, again, keywords) == complete(found, args, given), op_type_of(found.op)


@given(
    st.text(max_size=12)
    | st.lists(
        st.sampled_from(["aten", "relu", "default", "__class__", "__doc__", "_dir", "x", "", "1"]), max_size=4
    ).map(".".join)
)
def test_any_name_is_an_operator_or_none(name: str) -> None:
    found = resolve(name)

    assert found is None or op_type_of(found) == name


@each_row("name", [
    "aten.relu",
    "aten.relu.default.x",
    "aten..default",
    "aten.relu.nope",
    "nope.nope.nope",
    "aten.re lu.default",
    "higher_order.cond.default",
    "aten.__name__.default",
])  # fmt: skip
def test_what_is_no_operator_is_not_found(name: str) -> None:
    assert resolve(name) is None


def test_an_operator_of_any_namespace_is_found() -> None:
    found = resolve(f"{T}.defaults.default")

    assert found is torch.ops.test_arguments.defaults.default
    assert [arg.kind for arg in schema_of(found).args] == [
        ArgKind.TENSOR, ArgKind.PLAIN, ArgKind.OPTIONAL_TENSOR, ArgKind.PLAIN, ArgKind.PLAIN,
        ArgKind.OPTIONAL_TENSOR,
    ]  # fmt: skip
    assert schema_of(found) is schema_of(found)
    assert not schema_of(found).writes
    assert schema("aten.add_.Tensor").writes
    assert schema("aten.max.dim").return_names == ("values", "indices")


def test_a_binding_is_plain_data() -> None:
    assert bind_arguments(schema("aten.zeros.default"), 0, None, {"size": [2]}) == Binding(([2],), {})
