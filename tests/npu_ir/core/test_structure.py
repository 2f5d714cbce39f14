"""Structures: every pytree taken apart and put together again, as plain data."""

import collections
import dataclasses
import enum
import functools
import sys
import types
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from torch.utils import _pytree

from npu_ir import ExecutionError, Graph, GraphError, TensorType, parse_ir
from npu_ir.core.structure import (
    LEAF,
    LEAF_STRUCTURE,
    MAX_DEPTH,
    Structure,
    flatten,
    flatten_like,
    from_torch_spec,
    make_unflatten,
    unflatten,
)
from npu_ir.graph.rules.structures import call_problem, context_problem, structure_problem
from tests.support.corpus.containers import DataPair, PairList
from tests.support.rows import each_row


class Point(NamedTuple):
    x: Any
    y: Any


class Outer:
    class Inner(NamedTuple):
        x: Any


def same_tree(left: Any, right: Any) -> bool:
    return type(left) is type(right) and repr(left) == repr(right)


@each_row("tree", [
    pytest.param(1, id="leaf"),
    pytest.param((), id="empty"),
    pytest.param((1, [2, {}], None), id="nested"),
    pytest.param({"b": 1, "a": 2}, id="dict"),
    pytest.param({1: 1, 2.5: 2, "1": 3, None: 4}, id="keys"),
    pytest.param({(1, ("a", 2)): 1, (): 2}, id="tuple_keys"),
    pytest.param(collections.OrderedDict(b=1, a=2), id="ordered_dict"),
    pytest.param(collections.defaultdict(list, a=1, b=2), id="defaultdict"),
    pytest.param(collections.defaultdict(None, {(1, 2): 1}), id="defaultdict_none"),
    pytest.param(Point(1, (2,)), id="namedtuple"),
    pytest.param(Outer.Inner(3), id="nested_class"),
    pytest.param(DataPair(1, [2]), id="dataclass"),
    pytest.param(torch.return_types.max((torch.ones(1), torch.ones(1))), id="return_type"),
])  # fmt: skip
def test_a_tree_comes_back_in_the_same_containers(tree: Any) -> None:
    graph = Graph()

    leaves, structure = flatten(tree)

    values = [graph.add_input(f"x{index}", TensorType((), torch.float32)) for index in range(len(leaves))]
    graph.set_results(structure, values)
    assert parse_ir(str(graph)).results[0] == structure == from_torch_spec(_pytree.tree_flatten(tree)[1])
    assert structure.num_leaves == len(leaves) == len(list(structure.leaf_paths()))
    assert same_tree(unflatten(structure, leaves), tree)
    assert same_tree(make_unflatten(structure)(leaves), tree)
    assert flatten_like(tree, structure, "tree") == leaves


def test_a_registered_type_with_a_context_that_is_no_literal_uses_its_dumped_context() -> None:
    leaves, structure = flatten(PairList(1, 2))

    assert structure.context == "2"
    assert unflatten(structure, leaves).items == (1, 2)


def test_a_size_is_taken_for_a_tuple_and_the_other_way_round() -> None:
    size = Structure("torch.Size", None, (LEAF_STRUCTURE,) * 2)

    assert flatten(torch.Size([2, 3])) == flatten((2, 3))
    assert unflatten(size, [2, 3]) == torch.Size([2, 3])
    assert isinstance(unflatten(size, [2, 3]), torch.Size)
    assert flatten_like((2, 3), size, "x") == flatten_like(torch.Size([2, 3]), size, "x") == [2, 3]


def test_paths_of_leaves_are_written_like_python() -> None:
    tree = (
        1,
        {"a": [2], (1, 2): 3},
        Point(4, None),
        collections.defaultdict(int, p=5, q=6),
        collections.OrderedDict(k=7),
    )

    paths = list(flatten(tree)[1].leaf_paths("args"))

    assert paths == [
        "args[0]",
        "args[1]['a'][0]",
        "args[1][(1, 2)]",
        "args[2].x",
        "args[2].y",
        "args[3]['p']",
        "args[3]['q']",
        "args[4]['k']",
    ]


@each_row("left, right", {
    "kind": ((1,), [1]),
    "count": ((1,), (1, 2)),
    "key": ({"a": 1}, {"b": 1}),
    "key_type": ({1: 1}, {True: 1}),
    "order": ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
    "namedtuple": (Point(1, 2), (1, 2)),
    "nesting": (((1,), ()), ((), (1,))),
})  # fmt: skip
def test_structures_of_different_trees_differ(left: Any, right: Any) -> None:
    assert flatten(left)[1] != flatten(right)[1]
    assert flatten(left)[1] == flatten(left)[1]
    assert hash(flatten(left)[1]) == hash(flatten(left)[1])


class Plain:
    pass


class WithObjectContext:
    pass


_pytree.register_pytree_node(WithObjectContext, lambda _: ([], object()), lambda _, __: WithObjectContext())


@each_row("tree, message", {
    "key": ({Plain(): 1}, "is not plain data"),
    "default": (collections.defaultdict(Plain),
        r"a defaultdict whose default is .*Plain.* cannot be written down[\s\S]*use a dict, or"),
    "context": (WithObjectContext(),
        r"the pytree context of .*WithObjectContext is not plain data[\s\S]*to_dumpable_context"),
})  # fmt: skip
def test_a_container_that_cannot_be_written_down_is_refused(tree: Any, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        flatten(tree)


def nested(depth: int, wrap: Callable[[Any], Any]) -> Any:
    tree: Any = 1
    for _ in range(depth):
        tree = wrap(tree)
    return tree


@each_row("wrap", [
    lambda tree: [tree],
    lambda tree: (tree,),
    lambda tree: {"a": tree},
    lambda tree: Point(tree, tree and None),
])  # fmt: skip
def test_containers_may_nest_100_deep(wrap: Callable[[Any], Any]) -> None:
    tree = nested(MAX_DEPTH, wrap)
    graph = Graph()

    leaves, structure = flatten(tree)
    graph.set_outputs(tree)

    assert same_tree(unflatten(structure, leaves), tree)
    assert parse_ir(str(graph)) == graph


def test_deeper_containers_are_refused() -> None:
    tree = nested(MAX_DEPTH + 1, lambda tree: [tree])
    structure = nested(
        MAX_DEPTH + 1, lambda tree: Structure("list", None, (tree if tree != 1 else LEAF_STRUCTURE,))
    )

    around_itself: list[Any] = []
    around_itself.append(around_itself)

    for too_deep in (tree, around_itself):
        with pytest.raises(GraphError, match="a structure nested deeper than 100 is not supported"):
            flatten(too_deep)
    with pytest.raises(GraphError, match="containers nested deeper than 100"):
        Graph().set_results(structure, [1])


@each_row("structure, problem", {
    "leaf_with_parts": (Structure(LEAF, None, (LEAF_STRUCTURE,)), "a leaf is not a container"),
    "leaf_with_context": (Structure(LEAF, 1), "a leaf is not a container"),
    "tuple": (Structure("tuple", 1), "a tuple has no context"),
    "size": (Structure("torch.Size", []), "a torch.Size has no context"),
    "keys": (Structure("dict", ["a"]), "expected a list of 0 keys"),
    "no_keys": (Structure("dict", None), "expected a list of 0 keys"),
    "equal_keys": (Structure("dict", ["a", "a"], (LEAF_STRUCTURE,) * 2), "two keys of a dict are equal"),
    "equal_numbers": (Structure("dict", [1, 1.0], (LEAF_STRUCTURE,) * 2), "two keys of a dict are equal"),
    "ordered_dict": (Structure("collections.OrderedDict", 3), "expected a list of 0 keys"),
    "default": (Structure("defaultdict", ["bytes", []]), "expected the name of the default and the keys"),
    "default_list": (Structure("defaultdict", [["list"], []]),
        "expected the name of the default and the keys"),
    "default_keys": (Structure("defaultdict", ["list", ["a"]]), "expected a list of 0 keys"),
    "namedtuple": (Structure("namedtuple", None), "expected the name of the type and its fields"),
    "fields": (Structure("namedtuple", ["T", [1]], (LEAF_STRUCTURE,)),
        "the fields of a named tuple are identifiers"),
    "equal_fields": (Structure("namedtuple", ["T", ["a", "a"]], (LEAF_STRUCTURE,) * 2),
        "two keys of a dict are equal"),
    "inner": (Structure("list", None, (Structure("dict", 1),)), "expected a list of 0 keys"),
})  # fmt: skip
def test_a_structure_that_no_tree_has_is_refused(structure: Structure, problem: str) -> None:
    assert structure_problem(structure) == problem
    with pytest.raises(GraphError, match=problem):
        Graph().set_results(structure, [1] * structure.num_leaves)


def test_registered_types_may_have_any_context() -> None:
    assert context_problem("some.Type", {"anything": 1}, 3) is None
    assert context_problem(LEAF, None, 0) == "a leaf is not a container"


@each_row(
    "tree", [1, (), ((),), ([], {}), ((), ()), ((), {1: 2}), ((), collections.OrderedDict()), ((), {}, {})]
)
def test_a_call_is_a_tuple_of_arguments_and_a_dict_of_keyword_arguments(tree: Any) -> None:
    assert (
        call_problem(flatten(tree)[1])
        == "a call is a tuple of two: the arguments in a tuple, the keyword arguments, by name, in a dict"
    )
    assert call_problem(flatten(((1, [2]), {"a": 3}))[1]) is None


def test_a_type_that_is_not_registered_cannot_be_made() -> None:
    with pytest.raises(
        ExecutionError,
        match=(
            r"the type nowhere.Thing is not registered as a pytree[\s\S]*import nowhere "
            "first, or use flat results"
        ),
    ):
        unflatten(Structure("nowhere.Thing", None, ()), [])


@each_row("structure", {
    "keyword_field": Structure("namedtuple", ["m.T", ["class"]], (LEAF_STRUCTURE,)),
    "private_field": Structure("namedtuple", ["m.T", ["_x"]], (LEAF_STRUCTURE,)),
    "size_of_text": Structure("torch.Size", None, (LEAF_STRUCTURE,)),
    "context": Structure("collections.deque", "many", (LEAF_STRUCTURE,)),
})  # fmt: skip
def test_a_container_that_cannot_be_made_of_its_parts_is_named(structure: Structure) -> None:
    kind = structure.kind if structure.kind != "namedtuple" else "m.T"
    with pytest.raises(ExecutionError, match=rf"a {kind}.* cannot be built from \['x'\]"):
        unflatten(structure, ["x"])


def test_a_module_is_never_asked_to_import_a_namedtuple(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str) -> Any:
        raise AssertionError(f"the module was asked for {name}")

    module = types.ModuleType("lazy_module")
    module.__getattr__ = refuse  # type: ignore[method-assign]
    monkeypatch.setitem(sys.modules, "lazy_module", module)

    made = unflatten(Structure("namedtuple", ["lazy_module.Point", ["x"]], (LEAF_STRUCTURE,)), [1])

    assert (type(made).__name__, made) == ("Point", (1,))


def test_a_namedtuple_with_other_fields_than_the_loaded_one_is_made_anew() -> None:
    made = unflatten(
        Structure("namedtuple", [f"{__name__}.Point", ["a", "b"]], (LEAF_STRUCTURE,) * 2), [1, 2]
    )

    assert type(made) is not Point
    assert (made.a, made.b) == (1, 2)


@each_row("expected, given, message, where", {
    "count": ((1, 2), (1,), "expected a tuple of 2, got a tuple of 1", "x"),
    "kind": ((1, [2]), (1, (2,)), "expected a list of 1, got a tuple of 1", r"x\[1\]"),
    "leaf": ({"a": 1}, 5, r"expected a dict with keys \['a'\], got one value", "x"),
    "inner": ({"a": [1]}, {"a": 1}, "expected a list of 1, got one value", r"x\['a'\]"),
    "keys": ({"a": 1, "b": 2}, {"a": 1, "c": 2}, r"expected keys \['a', 'b'\], got \['a', 'c'\]", "x"),
    "strange_key": ({"a": 1}, {Plain(): 1}, "is not plain data", "x"),
    "namedtuple": (Point(1, 2), (1, 2), r"a .*\.Point with fields \['x', 'y'\], got a tuple of 2", "x"),
    "ordered_dict": (collections.OrderedDict(a=1, b=2), collections.OrderedDict(b=1, a=2),
        r"with keys \['a', 'b'\], got .* with keys \['b', 'a'\]", "x"),
    "defaultdict": (collections.defaultdict(int, a=1), collections.defaultdict(list, a=1),
        r"a defaultdict of int with keys \['a'\], got a defaultdict of list", "x"),
    "registered": (PairList(1, 2), PairList(1), "a .*PairList of 2, got a .*PairList of 1", "x"),
})  # fmt: skip
def test_a_tree_that_nests_otherwise_is_refused_with_the_place(
    expected: Any, given: Any, message: str, where: str
) -> None:
    _, structure = flatten(expected)

    with pytest.raises(
        ExecutionError, match=rf"{message}[\s\S]*at: {where}\n  fix: pass what the model was captured with"
    ):
        flatten_like(given, structure, "x")


class Key(str, enum.Enum):
    A = "a"
    B = "b"


@pytest.mark.parametrize(
    "kind", [dict, collections.OrderedDict, functools.partial(collections.defaultdict, int)]
)
def test_keys_of_dicts_may_be_others_that_are_equal(kind: Any) -> None:
    spec = _pytree.tree_flatten(kind({"a": 1, "b": 2}))[1]
    _, structure = flatten(kind({"a": 1, "b": 2}))
    given = kind({Key.A: "first", Key.B: "second"})

    assert flatten_like(given, structure, "x") == ["first", "second"] == spec.flatten_up_to(given)


def test_the_order_of_the_keys_of_a_dict_is_free() -> None:
    _, structure = flatten({"a": 1, (2, 3): 2})

    assert flatten_like({(2, 3): "second", "a": "first"}, structure, "x") == ["first", "second"]


@each_row("fields", [("x",), ("x", "y"), ("x", "y", "z")])
def test_paths_into_a_dataclass_are_its_fields(fields: tuple[str, ...]) -> None:
    type_name = f"Batch{len(fields)}"
    kind = dataclasses.make_dataclass(type_name, [*fields, ("left_out", Any, None)])
    torch.export.register_dataclass(kind, serialized_type_name=f"{__name__}.{type_name}")

    paths = list(flatten(kind(*fields))[1].leaf_paths("result"))

    assert paths == [f"result.{field}" for field in fields]
