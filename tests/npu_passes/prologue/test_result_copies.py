"""Results of a baked graph share memory as those of the graph do, out of reach of the next call."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from npu_ir import Interpreter
from npu_passes import bake
from tests.support.corpus.case import Holding
from tests.support.passes.folding_cases import folded
from tests.support.rows import each_row


def squared(function: Callable[[Tensor], Any]) -> nn.Module:
    """Return a model that returns what a prologue computes in several forms."""

    def forward(self: Any, x: Tensor) -> Any:
        square = self.weight * self.weight
        return *function(square), torch.mm(x, square)

    return Holding(forward, weight=nn.Parameter(torch.tensor([[1.0, -2.0, 3.0], [4.0, 5.0, -6.0]])))


@each_row("function, ops", {
    "one tensor twice": (lambda s: (s, s), ["clone"]),
    "a view": (lambda s: (s, s.view(3, 2)), ["clone", "as_strided"]),
    "a transposed one": (lambda s: (s.t(), s), ["clone", "as_strided"]),
    "two parts": (lambda s: (s[0], s[1]), ["clone", "as_strided", "as_strided"]),
    "an expanded part": (lambda s: (s[0].expand(4, 3), s), ["clone", "as_strided"]),
    "nothing but a part": (lambda s: (s[:, 1].expand(4, 2),), ["clone", "as_strided"]),
    "two tensors": (lambda s: (s, s + 1), ["clone", "clone"]),
    "sparse, and empty": (lambda s: (s.to_sparse(), s[:0]), ["clone", "clone"]),
    "conjugated": (lambda s: (torch.complex(s, s).conj(),), ["clone"]),
})  # fmt: skip
def test_results_of_a_baked_graph_share_memory_as_those_of_the_graph(function: Any, ops: Any) -> None:
    model, x = squared(function).eval(), torch.ones(1, 2)
    graph = folded(model, x)
    baked, weights = bake(graph, model.state_dict())

    interpreters = Interpreter(graph, model.state_dict()), Interpreter(baked, weights)

    expected, actual = (interpreter.run(x) for interpreter in interpreters)
    assert [node.op_type.split(".")[1] for node in baked.nodes] == [*ops, "mm"]
    assert _shared(actual) == _shared(expected)
    for got, wanted in zip(actual, expected, strict=True):
        assert torch.equal(got.to_dense(), wanted.to_dense())
        assert got.layout is torch.sparse_coo or got.stride() == wanted.stride()
    for result in actual:
        if result.layout is torch.strided and result.numel() == len({*_places(result)}):
            result.mul_(7)
    for got, wanted in zip(interpreters[1].run(x), model(x), strict=True):
        assert torch.equal(got.to_dense(), wanted.to_dense())


def _places(tensor: Tensor) -> list[int]:
    return torch.arange(100).as_strided(tensor.shape, tensor.stride()).flatten().tolist()


def _shared(tensors: Sequence[Tensor]) -> list[list[bool]]:
    memory = [
        tensor.untyped_storage().data_ptr() if tensor.layout is torch.strided else -index - 1
        for index, tensor in enumerate(tensors)
    ]
    return [[left == right for left in memory] for right in memory]


def test_what_is_not_returned_reads_the_weight_itself() -> None:
    model, x = squared(lambda square: (square,)).eval(), torch.ones(1, 2)

    baked, _ = bake(folded(model, x), model.state_dict())

    (product,) = baked.nodes_of("aten.mm.default")
    assert product.inputs[1].producer is None


def test_a_view_of_a_weight_is_returned_as_it_is() -> None:
    model = Holding(lambda self, x: (x + 1, self.weight.t()), weight=nn.Parameter(torch.ones(2, 3)))
    given, x = {"weight": torch.ones(2, 3)}, torch.ones(1)
    graph = folded(model, x)

    for program, bound in ((graph, given), bake(graph, given)):
        assert Interpreter(program, bound).run(x)[1].data_ptr() == given["weight"].data_ptr()
