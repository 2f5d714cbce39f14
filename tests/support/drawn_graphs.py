"""Graphs to draw, and what is in their drawings."""

from collections.abc import Callable

import torch

from npu_ir import Graph, Provenance, TensorType
from npu_ir.viz import to_dot, to_mermaid, to_svg
from npu_ir.viz.build import build_diagram
from npu_ir.viz.diagram import BoxKind, Diagram

F32 = TensorType((2, 3), torch.float32)
FORMS = [to_mermaid, to_dot, to_svg]


def chain(paths: list[str], *, op_type: Callable[[int], str] = "op{}".format) -> Graph:
    """Return nodes in a row, each of its own op type, run by the given modules."""
    graph = Graph("chain")
    value = graph.add_input("x", F32)
    for index, path in enumerate(paths):
        node = graph.insert(op_type(index), [value], types=F32, provenance=Provenance(path))
        value = node.outputs[0]
    graph.set_outputs(value)
    return graph


def blocks(count: int, attrs: Callable[[int], dict[str, int]] = lambda _: {}) -> Graph:
    """Return residual blocks: norm, linear with a weight, add of a skip connection and of a mask."""
    graph = Graph("blocks")
    value, mask = graph.add_input("x", F32), graph.add_input("mask", F32)
    value = graph.insert("stem", [value], types=F32).outputs[0]
    for index in range(count):
        module = f"layers.{index}"
        weight = graph.add_parameter(f"{module}.up.weight", F32)
        norm = graph.insert("norm", [value], attrs(index), types=F32, provenance=Provenance(f"{module}.norm"))
        up = graph.insert(
            "linear", [norm.outputs[0], weight], types=F32, provenance=Provenance(f"{module}.up")
        )
        added = graph.insert("add", [value, up.outputs[0], mask], types=F32, provenance=Provenance(module))
        value = added.outputs[0]
    graph.set_outputs(graph.insert("head", [value], types=F32).outputs[0])
    return graph


def diagram(graph: Graph, max_nodes: int = 60, depth: int | None = None, weights: bool = False) -> Diagram:
    return build_diagram(graph, max_nodes, depth, weights)


def titles(drawn: Diagram, *kinds: BoxKind) -> list[str]:
    return [box.title for box in drawn.boxes if not kinds or box.kind in kinds]


def edges(drawn: Diagram) -> set[tuple[str, str, str]]:
    title = {box.id: box.title for box in drawn.boxes}
    return {(title[edge.source], title[edge.target], edge.label) for edge in drawn.edges}


def node_boxes(drawn: Diagram) -> list[str]:
    return titles(drawn, BoxKind.OP, BoxKind.WEIGHTED, BoxKind.MODULE, BoxKind.MORE)
