"""Arguments: every kind of a schema's argument, taken apart into inputs and attrs, and bound again."""

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from npu_ir import GraphError
from npu_ir.ops.arguments import LIST_SIZES, NONE_MASKS, flatten_arguments, record_problem
from npu_ir.ops.calls import bind_arguments
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


@each_row("op_type, args, kwargs, inputs, operands, attrs", {
    "Tensor": ("aten.relu.default", (A,), {}, (A,), "self", {}),
    "same_twice": ("aten.add.Tensor", (A, A), {"alpha": 2}, (A, A), "self other", {"alpha": 2}),
    "keywords": ("aten.add.Tensor", (), {"other": A, "self": B}, (B, A), "self other", {}),
    "scalar_after": ("aten.mul.Tensor", (A, 0.5), {}, (A,), "self", {"other": 0.5}),
    "scalar_before": ("aten.mul.Tensor", (0.5, A), {}, (A,), "other", {"self": 0.5}),
    "value_as_Scalar": ("aten.pow.Scalar", (A, B), {}, (A, B), "self exponent", {}),
    "tuple": ("aten.cat.default", ((A, B), 1), {}, (A, B), "tensors[0] tensors[1]",
        {"dim": 1, LIST_SIZES: [2]}),
    "empty_list": ("aten.cat.default", ([],), {}, (), "", {LIST_SIZES: [0]}),
    "two_lists": ("aten._foreach_add.List", ([A], [B]), {}, (A, B), "self[0] other[0]", {LIST_SIZES: [1, 1]}),
    "Tensor?[]": ("aten.index.Tensor", (A, [None, B]), {}, (A, B), "self indices[1]",
        {NONE_MASKS: [[True, False]]}),
    "no_indices": ("aten.index.Tensor", (A, []), {}, (A,), "self", {NONE_MASKS: [[]]}),
    "after_a_list": ("aten.index_put.default", (A, [B, None, C], D, True), {}, (A, B, C, D),
        "self indices[0] indices[2] values", {"accumulate": True, NONE_MASKS: [[False, True, False]]}),
    "Tensor?_None": ("aten.linear.default", (A, B, None), {}, (A, B), "input weight", {}),
    "first_Tensor?_absent": ("aten.clamp.Tensor", (A, None, B), {}, (A, B), "self max", {}),
    "Tensor?_between": ("aten.layer_norm.default", (A, [4], None, B, 1e-3), {}, (A, B), "input bias",
        {"normalized_shape": [4], "eps": 1e-3}),
    "keyword_tensor": (f"{T}.defaults.default", (A, 3, B, 0.5), {"c": C}, (A, B, C), "a b c",
        {"n": 3, "f": 0.5}),
    "absent_list": (f"{T}.lists.default", ([A], [None, B], C, None), {"e": [D, E]}, (A, B, C, D, E),
        "a[0] b[1] c e[0] e[1]", {LIST_SIZES: [1, None, 2], NONE_MASKS: [[True, False]]}),
    "empty_optional_list": (f"{T}.lists.default", ([], [], C, []), {"e": []}, (C,), "c",
        {LIST_SIZES: [0, 0, 0], NONE_MASKS: [[]]}),
    "required_between": (f"{T}.optional_between.default", (None, A, None), {}, (A,), "b", {}),
    "plain": (f"{T}.scalars.default", (1 + 2j, A, (1, 2), "x"), {"device": CPU}, (A,), "a",
        {"s": 1 + 2j, "sizes": (1, 2), "text": "x", "device": CPU}),
    "no_arguments": (f"{T}.nothing.default", (), {}, (), "", {}),
})  # fmt: skip
def test_a_call_is_taken_apart_and_comes_back(
    op_type: str, args: Any, kwargs: dict[str, Any], inputs: Any, operands: str, attrs: dict[str, Any]
) -> None:
    found = schema(op_type)

    flat = flatten_arguments(found, args, kwargs, is_input)
    again, keywords = bound(op_type, flat.inputs, flat.attrs, flat.operands)

    assert (flat.inputs, flat.operands, flat.attrs) == (inputs, tuple(operands.split()), attrs)
    assert record_problem(flat.attrs) is None
    by_keyword = {arg.name for arg in found.args[len(again) :]}
    assert {arg.name for arg in found.args if arg.kwarg_only} >= keywords.keys() - by_keyword
    assert complete(found, again, keywords) == {
        name: list(value) if isinstance(value, tuple) and any(map(is_input, value)) else value
        for name, value in complete(found, args, kwargs).items()
    }


@each_row("op_type, inputs, attrs, args, kwargs", {
    "keyword_only": ("aten.add.Tensor", [A, B], {"alpha": 2}, [A, B], {"alpha": 2}),
    "scalar_before": ("aten.mul.Tensor", [A], {"self": 0.5}, [0.5, A], {}),
    "Scalar": ("aten.rsub.Scalar", [A], {"other": 1, "alpha": 2}, [A, 1, 2], {}),
    "Tensor?_absent": ("aten.linear.default", [A, B], {}, [A, B], {}),
    "stated_None": ("aten.clamp.Tensor", [A, B], {"min": None}, [A, None, B], {}),
    "Tensor[]_without_size": ("aten.cat.default", [A, B], {"dim": 1}, [[A, B], 1], {}),
    "two_lists": ("aten._foreach_add.List", [A, B, C], {LIST_SIZES: [1, 2]}, [[A], [B, C]], {}),
    "Tensor?[]_without_mask": ("aten.index.Tensor", [A, B, C], {}, [A, [B, C]], {}),
    "after_a_list": ("aten.index_put.default", [A, B, C], {NONE_MASKS: [[False]]}, [A, [B], C], {}),
    "between": ("aten.layer_norm.default", [A, B, C], {"normalized_shape": [4], "eps": 0.1},
        [A, [4], B, C, 0.1], {}),
    "defaults_in_the_middle": ("aten.layer_norm.default", [A], {"normalized_shape": [4], "eps": 0.1},
        [A, [4]], {"eps": 0.1}),
    "first_None": (f"{T}.optional_between.default", [B, C], {"a": None}, [None, B, C], {}),
})  # fmt: skip
def test_without_a_record_inputs_fill_the_tensor_arguments_in_order(
    op_type: str, inputs: list[Any], attrs: dict[str, Any], args: list[Any], kwargs: dict[str, Any]
) -> None:
    assert bound(op_type, inputs, attrs) == (args, kwargs)


@pytest.mark.smoke
def test_a_record_wins_over_the_order() -> None:
    assert bound("aten.add.Tensor", [A, B], {}, ["other", "self"]) == ([B, A], {})


@each_row("device, wanted", [("meta", "cuda:1"), ("cpu", "cpu")])
def test_meta_becomes_the_device_of_execution(device: str, wanted: str) -> None:
    attrs = {"size": [2], "fill_value": 1, "device": torch.device(device)}
    binding = bind_arguments(schema("aten.full.default"), 0, (), attrs)

    assert binding.arguments([], torch.device("cuda:1")) == ([[2], 1], {"device": torch.device(wanted)})


def test_a_bound_list_is_a_new_one_at_every_call() -> None:
    attrs = {"size": [2], "fill_value": 1}
    binding = bind_arguments(schema("aten.full.default"), 0, (), attrs)

    binding.arguments([], CPU)[0][0].append(3)

    assert binding.arguments([], CPU)[0] == [[2], 1]
    assert attrs["size"] == [2]


@each_row("op_type, args, kwargs, message", {
    "too_many": ("aten.relu.default", (A, B), {}, "OP takes 1 arguments, got 2"),
    "unknown": ("aten.relu.default", (A,), {"other": B}, "OP got an unknown argument 'other'"),
    "twice": ("aten.relu.default", (A,), {"self": B}, "OP got a second argument 'self'"),
    "mixed": ("aten.cat.default", ([A, 1.0],), {},
        r"argument 'tensors' of OP mixes tensors and plain data: \[A, 1.0\]"),
    "none": ("aten.cat.default", ([A, None],), {},
        r"argument 'tensors' of OP is a list of tensors without None: \[A, None\]"),
    "plain": ("aten.index.Tensor", (A, [True]), {}, "argument 'indices' of OP mixes tensors and plain data"),
})  # fmt: skip
def test_a_call_that_the_schema_does_not_allow_is_refused(
    op_type: str, args: tuple[Any, ...], kwargs: dict[str, Any], message: str
) -> None:
    with pytest.raises(GraphError, match=message.replace("OP", op_type)):
        flatten_arguments(schema(op_type), args, kwargs, is_input)


@each_row("op_type, count, operands, attrs, message", [
    ("aten.relu.default", 0, None, {},
        r"OP needs its argument 'self'\n  fix: its schema is aten::relu\(Tensor self"),
    ("aten.relu.default", 2, None, {}, r"OP leaves 1 of 2 inputs unused\n  fix: its schema is"),
    ("aten.add.Tensor", 1, ["self"], {}, "OP needs its argument 'other'"),
    ("aten.add.Tensor", 2, ["self", "other"], {"other": 1}, "OP leaves 1 of 2 inputs unused"),
    ("aten.add.Tensor", 2, ["self", "another"], {}, "OP has no argument 'another'"),
    ("aten.add.Tensor", 2, None, {"beta": 1}, r"OP has no argument 'beta'\n  fix: its schema is"),
    ("aten.add.Tensor", 2, ["self[0]", "other"], {}, "OP needs its argument 'self'"),
    ("aten.full.default", 0, None, {"size": [2]}, "OP needs its argument 'fill_value'"),
    ("aten.cat.default", 1, None, {LIST_SIZES: [2]},
        r"'tensors\[1\]' of OP has no input to fill it\n  fix: its sch"),
    ("aten.cat.default", 1, ["tensors[0]"], {LIST_SIZES: [10**30]}, r"'tensors\[1\]' of OP has no input"),
    ("aten.cat.default", 2, None, {LIST_SIZES: [1]}, "OP leaves 1 of 2 inputs unused"),
    ("aten.cat.default", 1, ["tensors[1]"], {LIST_SIZES: [1]}, r"argument 'tensors\[0\]' of OP has no input"),
    ("aten.cat.default", 0, None, {LIST_SIZES: [None]}, "OP needs its argument 'tensors'"),
    ("aten.cat.default", 0, None, {"tensors": [1, 2]},
        "OP is a list of tensors: it takes inputs, not an attribute"),
    ("aten.cat.default", 1, None, {LIST_SIZES: [1, 0]},
        "_tensor_list_sizes or _tensor_list_none_masks records more lists than OP has"),
    ("aten.relu.default", 1, None, {NONE_MASKS: [[]]}, "records more lists than OP has"),
    ("aten.index.Tensor", 1, None, {NONE_MASKS: [[False]]}, r"argument 'indices\[0\]' of OP has no input"),
    ("aten.cat.default", 1, None, {LIST_SIZES: "1"},
        "_tensor_list_sizes is a list of sizes, None for an absent list"),
    ("aten.index.Tensor", 1, None, {NONE_MASKS: [0]}, r"lists of bools, True for None: not \[0\]"),
])  # fmt: skip
def test_inputs_and_attributes_that_do_not_fit_the_schema_are_refused(
    op_type: str, count: int, operands: list[str] | None, attrs: dict[str, Any], message: str
) -> None:
    with pytest.raises(GraphError, match=message.replace("OP", op_type)):
        bind_arguments(schema(op_type), count, operands, attrs)


@each_row("name, wrong, right", [
    (LIST_SIZES, [1, "12", [True], [-1], [1.0], ["1"], [[1]], None, {}], [0, None, 3]),
    (NONE_MASKS, [1, [True], [[1]], [None], [[None]], "x", None], [[], [True, False]]),
])  # fmt: skip
def test_a_record_is_a_list_of_sizes_or_of_lists_of_bools(name: str, wrong: list[Any], right: Any) -> None:
    assert all(f"{name} is a list of" in str(record_problem({name: record})) for record in wrong)
    assert record_problem({name: right}) is None


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
    tensor = Input(arg.name)
    full, empty = {
        ArgKind.TENSOR: (tensor, tensor),
        ArgKind.OPTIONAL_TENSOR: (tensor, None),
        ArgKind.TENSOR_LIST: ([tensor, Input(arg.name)], []),
        ArgKind.OPTIONAL_TENSOR_LIST: ([None, tensor, None], [None]),
    }.get(arg.kind, ([1, 2], 0.5))
    return full if is_given else empty


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
    "aten.relu", "aten.relu.default.x", "aten..default", "aten.relu.nope", "nope.nope.nope",
    "aten.re lu.default", "higher_order.cond.default", "aten.__name__.default",
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


@each_row(
    "op_type, count, operands, attrs",
    {
        "all given": (
            *("test_arguments.defaults.default", 3, ["a", "b", "c"]),
            {"n": 1, "f": 2.0, "flag": True},
        ),
        "defaults": ("test_arguments.defaults.default", 1, ["a"], {}),
        "gap": ("test_arguments.defaults.default", 2, ["a", "b"], {}),
        "optional": ("test_arguments.optional_between.default", 1, ["b"], {}),
        "other order": ("test_arguments.optional_between.default", 3, ["c", "a", "b"], {}),
        "value in a list": (
            *("test_arguments.scalars.default", 2, ["a", "sizes[0]"]),
            {"s": 1, "sizes": [None, 3], "text": "t"},
        ),
        "ATen": ("aten.add.Tensor", 2, ["self", "other"], {"alpha": 2}),
    },
)
def test_a_call_without_lists_of_tensors_is_bound_as_any_other(
    op_type: str, count: int, operands: list[str], attrs: dict[str, Any]
) -> None:
    flat = schema(op_type)
    assert flat.is_flat

    found = bind_arguments(flat, count, operands, attrs)

    assert found == bind_arguments(dataclasses.replace(flat, is_flat=False), count, operands, attrs)


@each_row(
    "count, operands, attrs, message",
    {
        "missing": (0, [], {}, "needs its argument 'a'"),
        "unknown attribute": (1, ["a"], {"z": 1}, "has no argument 'z'"),
        "unknown operand": (2, ["a", "z"], {}, "has no argument 'z'"),
        "both": (2, ["a", "b"], {"b": None}, "leaves 1 of 2 inputs unused"),
        "too many": (3, ["a", "b"], {}, "leaves 1 of 3 inputs unused"),
    },
)
def test_a_call_without_lists_that_does_not_fit_is_refused_as_any_other(
    count: int, operands: list[str], attrs: dict[str, Any], message: str
) -> None:
    with pytest.raises(GraphError, match=re.escape(message)):
        bind_arguments(schema("test_arguments.defaults.default"), count, operands, attrs)
