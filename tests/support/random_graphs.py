"""Random graphs for hypothesis: every type, kind of attribute, nesting and tensor that a graph may hold."""

import collections
import math
from collections.abc import Sequence
from typing import Any

import torch
from hypothesis import strategies as st

from npu_ir import Graph, Provenance, ScalarType, TensorType, Value
from npu_ir.core.literals import LAYOUTS, MEMORY_FORMATS
from npu_ir.core.types import SCALAR_KINDS

DTYPES = sorted(
    {
        item
        for item in vars(torch).values()
        if isinstance(item, torch.dtype) and not str(item).startswith("torch.q")
    },
    key=str,
)
Point = collections.namedtuple("Point", ["x", "y"])

any_text = st.text(st.characters(exclude_categories=()), max_size=8)
dtypes = st.sampled_from(DTYPES)
shapes = st.lists(st.integers(0, 4), max_size=3).map(tuple)
floats = st.floats() | st.sampled_from([math.nan, math.inf, -math.inf, -0.0, 5e-324])
devices = st.sampled_from(["cpu", "meta", "cuda", "cuda:1"]).map(torch.device)
plain = st.none() | st.booleans() | st.integers() | floats | st.complex_numbers() | any_text
named = dtypes | devices | st.sampled_from([*LAYOUTS.values()]) | st.sampled_from([*MEMORY_FORMATS.values()])
literals = st.recursive(plain | named, lambda items: st.lists(items, max_size=3), max_leaves=6)
dict_keys = st.integers() | any_text | st.booleans() | floats.filter(lambda value: value == value)


@st.composite
def tensors(draw: st.DrawFn, dtype: torch.dtype | None = None) -> torch.Tensor:
    """Tensors of every dtype and bit pattern: contiguous, permuted, with gaps, expanded, overlapping."""
    dtype = draw(dtypes) if dtype is None else dtype
    return laid_out(
        random_bits(dtype, draw(st.randoms(use_true_random=False)).getrandbits(31)),
        draw(st.sampled_from(LAYOUTS_OF_24)),
    )


def random_bits(dtype: torch.dtype, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    high = 2 if dtype == torch.bool else 256
    raw = torch.randint(0, high, (24 * dtype.itemsize,), dtype=torch.uint8, generator=generator)
    return raw.view(torch.float64).view(dtype) if dtype == torch.complex128 else raw.view(dtype)


LAYOUTS_OF_24 = (
    "scalar",
    "empty",
    "empty_3d",
    "row_major",
    "transposed",
    "gaps",
    "expanded",
    "overlapping",
    "channels_last",
)


def laid_out(flat: torch.Tensor, layout: str) -> torch.Tensor:
    """Return 24 elements as a tensor of the layout called ``layout``."""
    return {
        "scalar": lambda: flat[5],
        "empty": lambda: flat[:0].view(0, 4),
        "empty_3d": lambda: flat[:0].view(2, 0, 4),
        "row_major": lambda: flat.view(2, 3, 4),
        "transposed": lambda: flat.view(4, 6).t(),
        "gaps": lambda: flat.view(4, 6)[1:, ::2],
        "expanded": lambda: flat[3:5].view(2, 1).expand(2, 3),
        "overlapping": lambda: flat.as_strided((4, 3), (1, 1), 2),
        "channels_last": lambda: flat.view(1, 2, 3, 4).permute(0, 3, 1, 2),
    }[layout]()


@st.composite
def tensor_types(draw: st.DrawFn) -> TensorType:
    shape = draw(shapes)
    strides = draw(
        st.none() | st.lists(st.integers(0, 9), min_size=len(shape), max_size=len(shape)).map(tuple)
    )
    return TensorType(shape, draw(dtypes), strides if shape else None)


types = tensor_types() | st.sampled_from(SCALAR_KINDS).map(ScalarType)


def trees(leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    def containers(items: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        keyed = st.dictionaries(dict_keys, items, max_size=3)
        return st.one_of(
            st.lists(items, max_size=3),
            st.lists(items, max_size=3).map(tuple),
            keyed,
            keyed.map(lambda found: collections.OrderedDict(found)),
            keyed.map(lambda found: collections.defaultdict(list, found)),
            st.tuples(items, items).map(lambda pair: Point(*pair)),
        )

    return st.recursive(leaves, containers, max_leaves=5)


provenances = st.builds(
    Provenance, any_text, any_text, st.lists(any_text, max_size=2).map(tuple), st.just("") | any_text
)
op_types = st.sampled_from(["test_ops.thing.default", "<built-in function getitem>"]) | any_text.filter(
    lambda text: "." not in text
)


def any_of(values: Sequence[Value]) -> st.SearchStrategy[Value]:
    """One of some values; their names, which may be no text, do not get into the reports of Hypothesis."""
    return st.integers(0, len(values) - 1).map(lambda index: values[index])


@st.composite
def graphs(draw: st.DrawFn, *, max_nodes: int = 5) -> Graph:
    graph = Graph(draw(any_text))
    _add_arguments(draw, graph)
    _add_prologue(draw, graph)
    for _ in range(draw(st.integers(0, max_nodes))):
        _add_node(draw, graph)
    if graph.inputs and draw(st.booleans()):
        keywords = {draw(any_text): value for value in graph.inputs[1:]}
        missing = [value for value in graph.inputs[1:] if value not in keywords.values()]
        graph.set_call([[graph.inputs[0], draw(literals)], *missing], {"const": draw(literals), **keywords})
    leaves = literals if not graph.values else any_of(graph.values) | literals
    graph.set_outputs(draw(trees(leaves)))
    _add_update(draw, graph)
    return graph


def _add_arguments(draw: st.DrawFn, graph: Graph) -> None:
    for index in range(draw(st.integers(0, 2))):
        graph.add_input(f"{draw(any_text)}{index}", draw(types))
    if draw(st.booleans()):
        graph.add_parameter(
            "fc.weight", draw(tensor_types()), aliases=draw(st.just(()) | st.just(("tied.weight",)))
        )
    if draw(st.booleans()):
        graph.add_buffer("count", draw(tensor_types()))
    if draw(st.booleans()):
        graph.add_state(f"{draw(any_text)} state", draw(tensor_types()))
    if draw(st.booleans()):
        data = draw(tensors())
        graph.add_buffer("table", TensorType.of(data), persistent=False, data=draw(st.none() | st.just(data)))
    for index in range(draw(st.integers(0, 2))):
        graph.add_constant(f"{draw(any_text)}{index}", draw(tensors()), name=draw(any_text))


def _add_prologue(draw: st.DrawFn, graph: Graph) -> None:
    known = [value for value in graph.arguments if value not in graph.inputs]
    for _ in range(draw(st.integers(0, 2))):
        inputs = [draw(any_of(known))] if known else []
        output_types = draw(st.lists(types, min_size=1, max_size=2))
        node = graph.insert(
            "<built-in function getitem>",
            inputs,
            draw(st.dictionaries(any_text, literals, max_size=2)),
            types=output_types,
            name=draw(any_text),
        )
        graph.move_to_prologue(node)
        known += node.outputs


def _add_node(draw: st.DrawFn, graph: Graph) -> None:
    inputs = draw(st.lists(any_of(graph.values), max_size=3)) if graph.values else []
    operands = draw(st.none() | st.lists(any_text, min_size=len(inputs), max_size=len(inputs)))
    output_types = draw(st.lists(types, max_size=2))
    graph.insert(
        draw(op_types),
        inputs,
        draw(st.dictionaries(any_text, literals, max_size=3)),
        types=output_types,
        operands=operands,
        name=draw(any_text),
        output_names=draw(
            st.none() | st.lists(any_text, min_size=len(output_types), max_size=len(output_types))
        ),
        provenance=draw(provenances),
    )


def _add_update(draw: st.DrawFn, graph: Graph) -> None:
    targets = [
        value
        for value in graph.arguments
        if isinstance(value.type, TensorType)
        and value not in graph.constants.values()
        and not any(node.in_prologue for node in value.users)
    ]
    if targets and draw(st.booleans()):
        target: Value = draw(any_of(targets))
        node = graph.insert("test_ops.new_content.default", [target], types=target.type)
        graph.set_update(target, node.outputs[0])
