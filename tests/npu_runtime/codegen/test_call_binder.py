"""Generated binding of arguments: it takes what `bind_inputs` takes, or leaves it to `bind_inputs`."""

import collections
import dataclasses
import enum
import math
import random
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn, ones, randn
from torch.utils._pytree import register_pytree_node, tree_flatten, tree_map, tree_unflatten

from npu_ir import ExecutionError, Graph, ScalarType, TensorType, Value
from npu_ir.core.symbol_values import SymbolValues
from npu_ir.graph.binding import bind_inputs
from npu_ir.symbolic.constraints import Constraint, Range
from npu_ir.symbolic.expressions import call
from npu_runtime.codegen.call_binder import make_binder
from npu_runtime.probing.storage import with_stated_strides

CPU = torch.device("cpu")
F32 = torch.float32
Call = tuple[tuple[Any, ...], dict[str, Any]]
Point = collections.namedtuple("Point", ["x", "y"])
OtherPoint = collections.namedtuple("OtherPoint", ["x", "y"])


@dataclasses.dataclass
class Batch:
    ids: Any
    mask: Any = None


class Tagged:
    """A registered container with a context that is a number."""

    def __init__(self, items: list[Any], tag: Any) -> None:
        self.items, self.tag = items, tag


class Key(str, enum.Enum):
    A = "a"


torch.export.register_dataclass(Batch, serialized_type_name=f"{__name__}.Batch")
register_pytree_node(
    Tagged,
    lambda item: (item.items, item.tag),
    lambda items, tag: Tagged(list(items), tag),
    serialized_type_name=f"{__name__}.Tagged",
    to_dumpable_context=lambda tag: tag,
    from_dumpable_context=lambda tag: tag,
)


def graph_of(args: tuple[Any, ...], kwargs: Mapping[str, Any] | None = None, *, declare: Any = None) -> Graph:
    """Return a graph with an input for each type in the arguments, and the rest as constants."""
    graph = Graph()
    if declare is not None:
        declare(graph)
    types = tree_map(
        lambda leaf: graph.add_input("x", leaf) if isinstance(leaf, (TensorType, ScalarType)) else leaf,
        (args, dict(kwargs or {})),
    )
    graph.set_call(*types)
    return graph


def bind_generally(graph: Graph, given: Call) -> tuple[list[Any], SymbolValues]:
    symbols = SymbolValues(graph.symbols)
    bound = bind_inputs(graph, *given, symbols)
    for item in bound.values():
        if isinstance(item, Tensor) and item.device != CPU:
            raise ExecutionError("another device")
    return [with_stated_strides(bound[value], value.type) for value in graph.inputs], symbols


def assert_agree(graph: Graph, bind: Callable[..., Any], given: Call) -> bool:
    """Check that what is bound is what `bind_inputs` binds; return whether anything was."""
    bound = bind(*given)
    if bound is None:
        return False
    inputs, symbols = bind_generally(graph, given)
    assert len(bound[0]) == len(inputs)
    for actual, expected in zip(bound[0], inputs, strict=True):
        assert actual is expected
    assert (bound[1] is None) == (not graph.symbols)
    if bound[1] is not None:
        assert bound[1].values == symbols.values
        assert bound[1].describe(graph.symbols) == symbols.describe(graph.symbols)
    return True


A, B = TensorType((2, 3), F32), TensorType((4,), torch.int64)


@pytest.mark.smoke
def test_usual_arguments_are_bound_without_the_general_path() -> None:
    a, b = randn(2, 3), ones(4, dtype=torch.int64)
    hidden = collections.OrderedDict(k=A, v=(B, None))
    args = (Batch(A, B), {"a": [A, B], 2: Point(A, "text")}, True, 3, math.nan, -0.0)
    kwargs = {"scale": 2.5, "hidden": hidden, "default": collections.defaultdict(list, q=B), "kind": F32}
    graph = graph_of((*args, Tagged([A], 1)), kwargs)
    bind = make_binder(graph, CPU)

    def tensor_of(leaf: Any) -> Any:
        return {A: a, B: b}[leaf].clone() if isinstance(leaf, TensorType) else leaf

    for _ in range(3):
        assert assert_agree(graph, bind, tree_map(tensor_of, ((*args, Tagged([A], 1)), kwargs)))


def test_a_graph_without_arguments_is_bound() -> None:
    graph = graph_of(((), [], {}))

    assert make_binder(graph, CPU)(((), [], {}), {}) == ((), None)
    assert make_binder(graph, CPU)(((), [], {1: 2}), {}) is None


@pytest.mark.parametrize("given", [nn.Parameter, Tensor.requires_grad_, lambda x: torch.stack([x, x])[1]])
def test_ordinary_tensors_of_every_kind_are_bound(given: Callable[[Tensor], Tensor]) -> None:
    graph = graph_of((A, A))
    bind = make_binder(graph, CPU)

    assert assert_agree(graph, bind, ((given(randn(2, 3)), randn(2, 3)), {}))
    with torch.inference_mode():
        assert assert_agree(graph, bind, ((randn(2, 3), given(randn(2, 3))), {}))


def test_an_input_in_two_places_takes_one_tensor() -> None:
    graph = Graph()
    value = graph.add_input("x", A)
    graph.set_call(([value, value],))
    bind, x = make_binder(graph, CPU), randn(2, 3)

    assert assert_agree(graph, bind, (([x, x],), {}))
    assert bind(([x, x.clone()],), {}) is None


def open_graph(size: Callable[..., Any], constraint: Callable[..., Constraint] | None = None) -> Graph:
    """Return a graph of inputs whose shapes are functions of two symbols, s in [2, 64] and t."""

    def declare(graph: Graph) -> None:
        sizes.extend([graph.add_symbol("s", Range(2, 64)), graph.add_symbol("t", Range(0, None))])

    sizes: list[Any] = []
    graph = Graph()
    declare(graph)
    types = size(*sizes)
    values = [graph.add_input("x", item) for item in types]
    graph.set_call(tuple(values))
    if constraint is not None:
        graph.add_constraint(constraint(*sizes))
    return graph


def tensors_of(*shapes: tuple[int, ...]) -> Call:
    return tuple(randn(*shape) for shape in shapes), {}


@pytest.mark.parametrize(("types", "constraint", "fitting", "wrong"), [
    pytest.param(lambda s, t: (TensorType((s, 3), F32), TensorType((s, t), F32)),
        lambda s, t: Constraint(s, "<=", t), [((2, 3), (2, 2)), ((5, 3), (5, 9))],
        [((1, 3), (1, 5)), ((65, 3), (65, 70)), ((3, 3), (4, 4)), ((3, 3), (3, 2)), ((3, 4), (3, 9))],
        id="bare"),
    pytest.param(lambda s, t: (TensorType((2 * s + 1, t), F32), TensorType((s * t, s + t), F32)),
        lambda s, t: Constraint(call("mod", s, 2), "==", 0), [((5, 3), (6, 5)), ((9, 1), (4, 5))],
        [((7, 3), (9, 6)), ((6, 3), (6, 5)), ((5, 3), (7, 5)), ((5, 3), (6, 6)), ((1, 3), (0, 3))],
        id="solved"),
    pytest.param(
        lambda s, t: (
            TensorType((t, s), F32),
            TensorType((call("floordiv", s, t), call("max", s, t)), F32),
        ),
        None,
        [((3, 7), (2, 7)), ((9, 2), (0, 9))],
        [((3, 7), (3, 7)), ((0, 7), (2, 7)), ((3, 7), (2, 3))],
        id="functions",
    ),
    pytest.param(lambda s, t: (TensorType((s, 2, t), F32, (2, 1, 2 * s)), TensorType((t,), F32)), None, [],
        [((4, 2, 3), (3,))], id="strides"),
])  # fmt: skip
def test_open_sizes_are_solved_and_checked(
    types: Any, constraint: Any, fitting: list[Any], wrong: list[Any]
) -> None:
    graph = open_graph(types, constraint)
    bind = make_binder(graph, CPU)

    for _ in range(3):
        for shapes in fitting:
            assert assert_agree(graph, bind, tensors_of(*shapes))
        for shapes in wrong:
            assert bind(*tensors_of(*shapes)) is None
    for shapes in fitting:
        for _ in range(4):  # sizes that repeat have a guard of their own
            assert assert_agree(graph, bind, tensors_of(*shapes))
        for others in wrong:
            assert bind(*tensors_of(*others)) is None


def test_open_strides_are_compared() -> None:
    graph = open_graph(lambda s, t: (TensorType((s, t), F32, (1, s)), TensorType((s, t), F32)))
    bind = make_binder(graph, CPU)
    rows, columns = randn(4, 6), randn(6, 4).t()

    for _ in range(3):
        assert assert_agree(graph, bind, ((columns, rows), {}))
        assert bind((rows, rows.clone()), {}) is None
        assert bind((columns, columns.clone(memory_format=torch.preserve_format)), {}) is None


def test_open_numbers_are_solved() -> None:
    graph = open_graph(lambda s, t: (ScalarType("int", s), TensorType((s, t), F32), ScalarType("int", s + t)))
    bind = make_binder(graph, CPU)

    for _ in range(3):
        assert assert_agree(graph, bind, ((4, randn(4, 3), 7), {}))
        for wrong in ((4, randn(5, 3), 7), (4, randn(4, 3), 8), (4.0, randn(4, 3), 7), (1, randn(1, 3), 4)):
            assert bind(wrong, {}) is None


def test_sizes_of_nodes_do_not_leak_into_later_calls() -> None:
    graph = open_graph(lambda s, t: (TensorType((s,), F32),))  # a node determines t
    bind, x = make_binder(graph, CPU), randn(3)

    found = [bind((x,), {})[1] for _ in range(4)]
    for symbols in found:
        symbols.values["t"] = 5

    assert bind((x,), {})[1].values == {"s": 3}


def test_inputs_that_overlap_are_left_to_the_general_path_where_one_is_mutated() -> None:
    graph = graph_of((A, A))
    graph.set_update(graph.inputs[0], graph.inputs[1])
    bind, base = make_binder(graph, CPU), randn(12)
    left, right, between = base[:6].view(2, 3), base[6:].view(2, 3), base[3:9].view(2, 3)

    for _ in range(3):
        assert assert_agree(graph, bind, ((left, right), {}))
        assert bind((left, between), {}) is None


def test_what_torch_functions_see_is_left_to_the_general_path() -> None:
    class Subclass(Tensor):
        pass

    graph = graph_of((A,))
    bind = make_binder(graph, CPU)
    x = randn(2, 3)

    for other in (x.as_subclass(Subclass), x.to("meta"), x.to_sparse(), x.double(), x.t().contiguous().t()):
        assert bind((x,), {}) is not None
        assert bind((other,), {}) is None


def test_a_graph_of_other_layouts_has_no_generated_binding() -> None:
    sparse = TensorType((2, 3), F32, layout=torch.sparse_coo)

    assert make_binder(graph_of((sparse,)), CPU)((randn(2, 3).to_sparse(),), {}) is None


# The property: on random nestings and random changes of a call that fits, both paths agree.

LEAVES: list[Any] = [
    *(A, B, TensorType((2, 3), F32, (1, 2)), TensorType((), torch.bool), TensorType((0, 3), F32)),
    *(TensorType((1, 3), torch.complex64), TensorType((2, 3), torch.float64)),
    *(ScalarType("int"), ScalarType("float"), ScalarType("bool"), ScalarType("none"), ScalarType("int", 3)),
    *(None, True, False, 0, 1, 2**70, 0.0, -0.0, 1.0, 2.5, math.nan, math.inf, "", "a", 1j, F32, CPU),
]


def open_leaves(graph: Graph) -> list[Any]:
    s, t = graph.add_symbol("s", Range(2, 9)), graph.add_symbol("t", Range(0, None))
    if random_bit(graph):
        graph.add_constraint(Constraint(call("mod", s + t, 2), "==", 0))
    sizes = (s, t), (s, 3), (2, 2 * s), (s + t, 1), (t + 1,), (call("floordiv", t, 2), s)
    types = [TensorType(shape, F32) for shape in sizes]
    return [*types, TensorType((s, t), F32, (1, s)), ScalarType("int", s), ScalarType("int", s + t), A, 1]


def random_bit(graph: Graph) -> bool:
    return len(graph.name) % 2 == 1


def random_tree(chance: random.Random, leaves: list[Any], depth: int = 0) -> Any:
    if depth == 3 or chance.random() < 0.4:
        return chance.choice(leaves)
    parts = [random_tree(chance, leaves, depth + 1) for _ in range(chance.randrange(4))]
    keys = chance.sample(["a", "b", 1, 2.0, (1, 2), None], len(parts))
    pair = [random_tree(chance, leaves, depth + 1) for _ in range(2)]
    return chance.choice(
        [
            parts,
            tuple(parts),
            dict(zip(keys, parts, strict=True)),
            collections.OrderedDict(zip(keys, parts, strict=True)),
            collections.defaultdict(int, zip(keys, parts, strict=True)),
            Point(*pair),
            Batch(*pair),
            Tagged(parts, chance.choice([1, True, 1.0, "a"])),
        ]
    )


def fill(leaf: Any, sizes: Mapping[str, int]) -> Any:
    """Return an argument that fits a leaf."""
    if isinstance(leaf, ScalarType):
        fitting = {"int": 7, "float": 0.5, "bool": True, "none": None}[leaf.kind]
        return fitting if leaf.value is None else leaf.substitute(sizes).value
    if not isinstance(leaf, TensorType):
        return leaf
    type = leaf.substitute(sizes)
    item = torch.empty_strided(type.static_shape, type.static_strides, dtype=type.dtype)
    return item.zero_()


def spoil_leaf(chance: random.Random, item: Any, others: list[Any]) -> Any:
    """Return an argument like ``item`` that fits in fewer places, or in other ones."""
    if not isinstance(item, Tensor):
        return chance.choice([*others, None, True, 1, 1.0, 0, False, -0.0, math.nan, "a", Key.A, ones(())])
    changes: list[Callable[[], Any]] = [
        lambda: nn.Parameter(item, requires_grad=False),
        lambda: item.clone().requires_grad_(item.is_floating_point()),
        lambda: item.to(torch.float16),
        lambda: item.to("meta"),
        lambda: item[..., None].expand(*item.shape, 2)[..., 0],
        lambda: item.new_zeros(tuple(reversed(item.shape))).permute([*reversed(range(item.dim()))]),
        lambda: item[:1] if item.dim() else item[None],
        lambda: item.new_zeros((*item.shape[:-1], chance.randrange(4))) if item.dim() else 0,
        lambda: torch.complex(item, item).conj().imag if item.dtype is F32 else item.conj(),
        lambda: item.to_sparse() if item.dim() else item,
        lambda: item.as_strided(item.shape, (0,) * item.dim()),
        lambda: chance.choice(others),
        lambda: [item],
        lambda: item.tolist(),
    ]
    return chance.choice(changes)()


def spoil_container(chance: random.Random, tree: Any) -> Any:
    """Return a container like ``tree``."""
    if isinstance(tree, dict):
        pairs = list(tree.items())
        chance.shuffle(pairs)
        renamed = [(Key.A if key == "a" else True if key == 1 else key, item) for key, item in pairs]
        kinds = [dict, collections.OrderedDict, lambda items: collections.defaultdict(int, items)]
        return chance.choice(kinds)(chance.choice([pairs, pairs[1:], [*pairs, ("c", 1)], renamed]))
    if isinstance(tree, Tagged):
        return Tagged(tree.items, chance.choice([1, True, 1.0, "a"]))
    if isinstance(tree, Batch):
        return chance.choice([Batch(tree.ids), Batch(tree.mask, tree.ids), [tree.ids, tree.mask]])
    items = list(tree)
    changed = chance.choice([items, items[1:], [*items, None], items[::-1]])
    kinds = [list, tuple, *([Point._make, OtherPoint._make] if len(changed) == 2 else [])]
    return chance.choice(kinds)(changed)


def spoil(chance: random.Random, tree: Any, others: list[Any], rate: float) -> Any:
    """Return a tree in which some leaves and containers are exchanged."""
    is_container = isinstance(tree, (dict, list, tuple, Tagged, Batch))
    if is_container:
        _, spec = tree_flatten(tree, is_leaf=lambda item: item is not tree)
        parts, _ = tree_flatten(tree, is_leaf=lambda item: item is not tree)
        tree = tree_unflatten([spoil(chance, part, others, rate) for part in parts], spec)
    if chance.random() >= rate:
        return tree
    return spoil_container(chance, tree) if is_container else spoil_leaf(chance, tree, others)


@pytest.mark.parametrize("kind", [dict, collections.OrderedDict])
def test_keys_that_are_equal_to_those_of_the_graph_are_bound(kind: Any) -> None:
    graph = graph_of((kind({"a": A}),))
    x = torch.randn(2, 3)

    assert assert_agree(graph, make_binder(graph, CPU), ((kind({Key.A: x}),), {}))


@given(seed=st.integers(0, 2**32), is_open=st.booleans())
def test_the_generated_and_the_general_binding_agree(seed: int, is_open: bool) -> None:
    chance = random.Random(seed)
    graph = Graph("ab"[: chance.randrange(1, 3)])
    leaves = open_leaves(graph) if is_open else LEAVES
    tree: Any = tuple(random_tree(chance, leaves) for _ in range(chance.randrange(4)))
    named = {
        name: random_tree(chance, leaves) for name in chance.sample(["a", "b", "c"], chance.randrange(3))
    }
    found: list[Value] = []

    def declare(leaf: Any) -> Any:
        if not isinstance(leaf, (TensorType, ScalarType)):
            return leaf
        if found and chance.random() < 0.1:
            return chance.choice(found)
        found.append(graph.add_input("x", leaf))
        return found[-1]

    called = tree_map(declare, (tree, named))
    graph.set_call(*called)
    bind = make_binder(graph, CPU)
    for _ in range(8):
        sizes = chance.choice([{"s": 3, "t": 5}, {"s": 2, "t": 4}, {"s": 3, "t": 4}])
        given = {value: fill(value.type, sizes) for value in graph.inputs}
        fitting = tree_map(lambda leaf, given=given: given[leaf] if isinstance(leaf, Value) else leaf, called)
        others = [item for item in given.values() if isinstance(item, Tensor)] or [None]
        rate = chance.choice([0, 0.05, 0.2])
        args, kwargs = spoil(chance, list(fitting[0]), others, rate), fitting[1]
        kwargs = {name: spoil(chance, item, others, rate) for name, item in kwargs.items()}
        is_bound = isinstance(args, (list, tuple)) and assert_agree(graph, bind, (tuple(args), kwargs))
        if not is_bound and not rate and not is_open:
            with pytest.raises(ExecutionError, match="expected"):  # a field that is None is not a child
                bind_generally(graph, (tuple(args), kwargs))
