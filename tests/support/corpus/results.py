"""Results of models: containers, None and scalars, inputs, views, constants, one value twice."""

import collections
from typing import Any

import torch
from torch import nn, randn

from tests.support.corpus.case import Table, call, floats
from tests.support.corpus.containers import DataPair, ModelOutput, Pair, PairList

CASES = Table(floats((2, 3)))
function = CASES.function


function("returns_dict", lambda x: {"b": x + 1, "a": {"c": [x, (x * 2,)]}})
function("returns_list", lambda x: [x + 1, x - 1])
function("returns_list_of_one", lambda x: [x + 1])
function("returns_tuple_of_one", lambda x: (x + 1,))
function("returns_nested_tuples", lambda x: ((x, (x + 1,)), ()))
function("returns_namedtuple", lambda x: Pair(x + 1, Pair(None, x)))
function("returns_torch_return_type", lambda x: torch.max(x, dim=1))
function(
    "returns_return_types_nested", lambda x: {"top": x.topk(2), "slogdet": torch.linalg.slogdet(x[:, :2])}
)
function("returns_dataclass", lambda x: DataPair(x + 1, {"y": x}))
function("returns_ordereddict", lambda x: collections.OrderedDict(b=x + 1, a=x))
function("returns_defaultdict", lambda x: collections.defaultdict(list, b=[x + 1], a=[]))
function("returns_deque", lambda x: collections.deque([x + 1, x], maxlen=5))
function("returns_model_output", lambda x: ModelOutput(logits=x + 1, past=((x, x * 2),)))
function("returns_registered_class", lambda x: PairList(x + 1, x))
function("returns_empty_containers", lambda x: ({}, [], (), x + 1))
function("returns_odd_keys", lambda x: {3: x + 1, "x y": x, "": x, None: x, True: x, (1, "a"): x})
function("returns_none", lambda x: None)
function("returns_nothing", lambda x: ())
function("returns_scalars", lambda x: (x + 1, 3, 0.5, True, None, "text", float("-inf"), -0.0))
function("returns_scalar_arguments", lambda x, n, s: {"n": n, "s": s, "m": n + 1, "x": x},
    lambda: call(randn(2), 3, "mode"))  # fmt: skip
function("returns_shape", lambda x: (x.shape, x.size(0), x.dim(), list(x.shape)))
function("returns_input", lambda x: x)
function("returns_inputs", lambda x, tree: (tree, x, x + 1), lambda: call(randn(2), {"a": [randn(2)]}))
function("returns_input_twice", lambda x: (x, x))
function("returns_value_twice", lambda x: (lambda y: [y, {"again": y}])(x + 1))
function("returns_views", lambda x: (x[0], x.T, x.view(-1), x.expand(4, 2, 3), x.detach()))
function("returns_views_of_a_view", lambda x: (lambda y: (y, y[0], y[0][1:]))((x + 1).T))
function("returns_constant", lambda x: torch.tensor([1.0, 2.0]))
function("returns_constant_twice", lambda x: (lambda t: (t, t, t + x.sum()))(torch.tensor([1.0, 2.0])))
function("returns_input_next_to_result", lambda x, y: (y, x + y, x), floats((2,), (2,)))
function("ignores_a_result", lambda x: (x.exp(), x + 1)[1])
function("part_of_multiple_outputs", lambda x: (x.sort(1).indices, x.split(1, dim=1)[2], x.max(0)[0]))
function("unused_multiple_outputs", lambda x: (x.unbind(0), torch.aminmax(x), x + 1)[2])


class ReturnsParameters(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(randn(3))
        self.register_buffer("scale", randn(3))
        self.register_buffer("hidden", randn(3), persistent=False)

    def forward(self, x: Any) -> Any:
        return self.weight, self.scale, self.hidden, self.weight[1:], self.scale + x


CASES.module("returns_parameters_and_buffers", ReturnsParameters, floats((3,)))


@CASES.add(call, holding=lambda: {"weight": nn.Parameter(randn(3))})
def only_parameters(self: Any) -> Any:
    return self.weight * 2
