"""Files of graphs, changed behind the back of what writes and reads them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from npu_ir import Graph, load_ir, save_ir


def load_changed(graph: Graph, change: Callable[[Any], object], folder: Path) -> Graph:
    """Save a graph as ``graph.json``, change its document, and load it."""
    path = folder / "graph.json"
    save_ir(graph, path)
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))
    return load_ir(path)
