"""When two graphs are the same program but for the names of values, nodes and regions."""

from typing import Any

from npu_ir import Graph, Value


def described(graph: Graph) -> dict[str, Any]:
    """Return everything that a graph says, with values numbered in place of their names."""
    return {
        **_described(graph, {}),
        "symbols": {name: str(range) for name, range in graph.symbols.items()},
        "constraints": sorted(map(str, graph.constraints)),
    }


def _described(graph: Graph, numbers: dict[Value, int]) -> dict[str, Any]:
    for value in graph.values:
        numbers[value] = len(numbers)

    def leaf(item: Any) -> Any:
        return ("value", numbers[item]) if isinstance(item, Value) else repr(item)

    return {
        "arguments": [(str(value.type), *_argument(value)) for value in graph.arguments],
        "nodes": [
            (
                node.op_type,
                node.operands,
                [numbers[value] for value in node.inputs],
                {name: repr(literal) for name, literal in sorted(node.attrs.items())},
                [(numbers[value], str(value.type)) for value in node.outputs],
                {name: _described(region, numbers) for name, region in node.regions.items()},
            )
            for node in graph.nodes
        ],
        "call": (graph.call[0], list(map(leaf, graph.call[1]))),
        "results": (graph.results[0], list(map(leaf, graph.results[1]))),
        "updates": sorted((numbers[target], numbers[content]) for target, content in graph.updates.items()),
    }


def _argument(value: Value) -> tuple[Any, ...]:
    argument = value.argument
    assert argument is not None
    is_named = argument.kind.value in ("param", "buffer")
    data = None if argument.data is None else argument.data.tolist()
    return (
        argument.kind,
        argument.target if is_named else "",
        argument.aliases,
        argument.persistent,
        repr(data),
    )
