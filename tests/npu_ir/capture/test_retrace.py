"""Programs that are traced a second time, by PyTorch's functionalization."""

from concurrent.futures import ThreadPoolExecutor

import torch
from torch import nn
from torch.nn import functional as F

from npu_ir import extract_ir
from npu_ir._torch.export import composites_of


class WritesThroughView(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        rows = x.clone()
        rows[0].mul_(2)
        with torch.no_grad():
            sines = torch.special.expm1(rows)
        return F.layer_norm(rows, (4,)), sines


def test_composite_ops_beside_a_write_through_a_view_stay_whole():
    graph = extract_ir(WritesThroughView(), (torch.ones(2, 4),))

    assert [node.op_type for node in graph.nodes][-2:] == [
        "aten.special_expm1.default",
        "aten.layer_norm.default",
    ]


def test_only_retraces_of_this_thread_preserve_less():
    program = torch.export.export(nn.Linear(2, 2), (torch.ones(1, 2),))

    def composites() -> set[str]:
        nodes = program.run_decompositions({}).graph.nodes
        return {str(node.target) for node in nodes if node.op == "call_function"}

    with composites_of(nn.Module()), ThreadPoolExecutor() as pool:
        here, elsewhere = composites(), pool.submit(composites).result()

    assert "aten.linear.default" not in here
    assert elsewhere == composites() == {"aten.linear.default"}


class Mapped(nn.Module):
    def forward(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        rows = x.clone()
        rows[0].mul_(2)
        return torch.vmap(lambda row: F.linear(row, weight))(rows)


def test_ops_that_a_transform_makes_of_others_stay_whole():
    graph = extract_ir(Mapped(), (torch.ones(2, 4), torch.ones(3, 4)))

    assert "aten.matmul.default" in [node.op_type for node in graph.nodes]
