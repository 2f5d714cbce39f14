"""A graph whose names have control characters, which a terminal would obey."""

import re
from pathlib import Path

import torch

from npu_ir import Graph, TensorType, save_ir

HOSTILE = "\x1b[31mred\x1b]0;title\x07\0\x9b\x7f\r"
CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")  # but line feeds and tabs


def save_hostile_graph(path: Path, alpha: int = 1) -> None:
    """Save a graph with weights, all of which have such names; it adds, transposes twice and multiplies."""
    matrix, turned = TensorType((2, 3), torch.float32), TensorType((3, 2), torch.float32)
    graph = Graph(HOSTILE)
    x = graph.add_input(f"x{HOSTILE}", matrix)
    weight, buffer = f"w{HOSTILE}", f"b{HOSTILE}"
    operands = [x, graph.add_parameter(weight, matrix)]
    attrs = {"alpha": alpha}
    (y,) = graph.insert(
        "aten.add.Tensor", operands, types=matrix, operands=["self", "other"], attrs=attrs
    ).outputs
    for type in (turned, matrix):
        (y,) = graph.insert(
            "aten.transpose.int", [y], types=type, operands=["self"], attrs={"dim0": 0, "dim1": 1}
        ).outputs
    (y,) = graph.insert(
        "aten.mul.Tensor",
        [y, graph.add_buffer(buffer, matrix)],
        types=matrix,
        operands=["self", "other"],
        name=f"n{HOSTILE}",
    ).outputs
    graph.set_outputs({HOSTILE: y})
    save_ir(graph, path, weights={weight: torch.ones(2, 3), buffer: torch.ones(2, 3)})
