"""What is measured of a graph, as overlays of its page."""

import json

import torch

from npu_ir import extract_ir, to_html
from npu_runtime import IRExecutor, compare, explain, profile


def test_what_is_measured_of_a_graph_fits_its_page() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()).eval()
    x = torch.randn(2, 4)
    graph = extract_ir(model, (x,), name="Net")
    executor = IRExecutor(graph, model.state_dict(), passes=())
    measured = [
        profile(executor, (x,), repeat=1).to_dict(),
        explain(executor, (x,)).to_dict(),
        compare(graph, executor, (x,), weights=model.state_dict()).to_dict(),
        executor.memory_plan().to_dict(),
    ]

    page = to_html(graph, overlays=[json.loads(json.dumps(data)) for data in measured])

    names = ["time", "memory traffic", "backend", "time by backend", "difference", "memory in use"]
    assert all(f'{{"name":"{name}","rule":' in page for name in names)
    assert '"missing":1' not in page
