"""What is not a graph, a path, weights or arguments is refused by name, with a fix."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from npu_ir import (
    ExportError,
    GraphError,
    Interpreter,
    NpuError,
    ParseError,
    SerializationError,
    VerificationError,
    VisualizationError,
    WeightError,
    check_compatibility,
    diff_ir,
    draw,
    draw_diff,
    extract_ir,
    format_ir,
    load_ir,
    load_weights,
    migrate_ir,
    parse_ir,
    save_ir,
    verify_ir,
    write_html,
)

MODEL = torch.nn.Linear(4, 2)
ROWS = (torch.ones(3, 4),)
GRAPH = extract_ir(MODEL, ROWS)

PATHS: dict[str, tuple[type[NpuError], Callable[[Any], object]]] = {
    "load_ir": (SerializationError, load_ir),
    "save_ir": (SerializationError, lambda path: save_ir(GRAPH, path)),
    "check_compatibility": (SerializationError, check_compatibility),
    "migrate_ir": (SerializationError, migrate_ir),
    "load_weights": (WeightError, load_weights),
    "draw": (VisualizationError, lambda path: draw(GRAPH, path)),
    "draw_diff": (VisualizationError, lambda path: draw_diff(diff_ir(GRAPH, GRAPH), path)),
    "write_html": (VisualizationError, lambda path: write_html(GRAPH, path)),
}


class PathOfBytes:
    def __fspath__(self) -> bytes:
        return b"graph.json"


@pytest.mark.smoke
@pytest.mark.parametrize("name", PATHS)
def test_what_is_not_a_path_is_refused(name: str) -> None:
    error, function = PATHS[name]

    for given in (None, 3, b"graph.json", "", GRAPH, PathOfBytes()):
        with pytest.raises(
            error, match="a file is given by its path, a string or a pathlib.Path, not"
        ) as info:
            function(given)
        assert info.value.fix == "give its path"


def test_a_page_in_a_folder_that_does_not_exist_is_refused_with_a_fix(tmp_path: Path) -> None:
    with pytest.raises(VisualizationError, match="the page cannot be written: No such file") as info:
        write_html(GRAPH, tmp_path / "absent" / "page.html")

    assert info.value.fix == "check that the folder exists, may be written to and has space left"


@pytest.mark.parametrize("weights", [{1: torch.ones(2)}, {None: torch.ones(2), "weight": torch.ones(2)}])
def test_weights_without_names_are_refused(weights: dict[Any, torch.Tensor]) -> None:
    with pytest.raises(WeightError, match="weights have names, not (1|None)"):
        Interpreter(GRAPH, weights)


@pytest.mark.parametrize("args", [None, 3, torch.ones(3, 4), GRAPH, range(3)])
def test_arguments_of_an_extraction_are_in_a_tuple_or_list(args: Any) -> None:
    with pytest.raises(ExportError, match=f"arguments are a tuple, not {type(args).__name__}\n"):
        extract_ir(MODEL, args)


def test_keyword_arguments_of_an_extraction_have_names() -> None:
    with pytest.raises(ExportError, match="the keyword arguments are a dict by name, not by 1\n"):
        extract_ir(MODEL, ROWS, {1: 2})  # type: ignore[dict-item]


@pytest.mark.parametrize("name", [3, torch.ones(2), ["a"], 0])
def test_the_name_of_a_graph_is_text(name: Any) -> None:
    with pytest.raises(ExportError, match="the name of a graph is text, not"):
        extract_ir(MODEL, ROWS, name=name)


@pytest.mark.parametrize("model", [None, torch.nn.Linear, GRAPH, "model"])
def test_a_graph_is_verified_against_a_module(model: Any) -> None:
    with pytest.raises(VerificationError, match="expected the model of the graph, a torch.nn.Module, got"):
        verify_ir(GRAPH, model, ROWS)


@pytest.mark.parametrize("weights", [MODEL, [("weight", torch.ones(2, 4))], "net.safetensors"])
def test_a_graph_is_verified_with_weights_by_name(weights: Any) -> None:
    with pytest.raises(WeightError, match="weights are tensors by name, not"):
        verify_ir(GRAPH, MODEL, ROWS, weights=weights)


@pytest.mark.parametrize("text", [None, b"graph", GRAPH, ["graph"]])
def test_the_text_of_a_graph_is_a_string(text: Any) -> None:
    with pytest.raises(ParseError, match="the text of a graph is a string, not"):
        parse_ir(text)


@pytest.mark.parametrize("graph", [None, "net.json", MODEL])
def test_only_a_graph_has_a_text_form(graph: Any) -> None:
    with pytest.raises(GraphError, match=f"expected a graph, got {type(graph).__name__}\n  fix: load_ir"):
        format_ir(graph)
