"""Arguments of models: containers, keywords, scalars, None, one tensor twice, views."""

import collections
from typing import Any

import torch
from torch import nn, randn

from tests.support.corpus.case import Call, Table, call, floats
from tests.support.corpus.containers import DataPair, Pair, PairList

CASES = Table()
function = CASES.function

function("nested_containers", lambda tree: tree["a"] - tree["b"][0] * tree["b"][1]["c"],
    lambda: call({"a": randn(2), "b": [randn(2), {"c": randn(2)}]}))  # fmt: skip
function("lists_tuples_and_empty_containers",
    lambda items, none, empty, last: items[0] - items[1][0] + len(none) + len(empty) + len(last),
    lambda: call([randn(2), (randn(2),)], (), {}, []))  # fmt: skip
function("namedtuple", lambda pair: pair.left - pair.right.left * pair.right.right,
    lambda: call(Pair(randn(2), Pair(randn(2), 3))))  # fmt: skip
function("registered_dataclass", lambda pair: pair.left - pair.right[0],
    lambda: call(DataPair(randn(2), [randn(2)])))  # fmt: skip
function("registered_class_with_context", lambda pairs: pairs.items[0] - pairs.items[1],
    lambda: call(PairList(randn(2), randn(2))))  # fmt: skip
function("ordereddict", lambda tree: tree["a"] - 2 * tree["b"],
    lambda: call(collections.OrderedDict(b=randn(2), a=randn(2))))  # fmt: skip
function("defaultdict_of_lists", lambda tree: tree["a"][0] - 2 * tree["b"][0],
    lambda: call(collections.defaultdict(list, b=[randn(2)], a=[randn(2), randn(2)])))  # fmt: skip


@CASES.add(lambda: call(collections.deque([randn(2), randn(2)], maxlen=3)))
def deque(items: Any) -> Any:
    return items[0] - items[1]


function(
    "dict_with_odd_keys",
    lambda tree: tree[3] - tree["x y"] * tree[""] + tree[None] / tree[1, "a"],
    lambda: call({3: randn(2), "x y": randn(2), "": randn(2), None: randn(2), (1, "a"): randn(2)}),
)
function("torch_size", lambda x, shape: x.view(shape), lambda: call(randn(6), randn(2, 3).shape))
function("keywords_only", lambda *, x, y: x - y, lambda: call(x=randn(2), y=randn(2)))
function(
    "keywords_in_another_order", lambda a, b, c: a - b * c, lambda: call(randn(2), c=randn(2), b=randn(2))
)
function("variadic", lambda *args, **kwargs: args[0] - args[1] * kwargs["third"],
    lambda: call(randn(2), randn(2), third=randn(2)))  # fmt: skip


class VariadicKeywords(nn.Module):
    def forward(self, x: Any, *others: Any, scale: float = 2.0, **rest: Any) -> Any:
        return x * scale + sum(others) - sum(rest.values())


CASES.module("variadic_keywords", VariadicKeywords,
    lambda: call(randn(2), randn(2), randn(2), scale=0.5, b=randn(2), a=randn(2)))  # fmt: skip


class Defaults(nn.Module):
    def forward(
        self, x: Any, mask: Any = None, scale: float = 2.0, *, bias: Any = None, causal: bool = False
    ) -> Any:
        y = x * scale if mask is None else x * mask
        return (y if bias is None else y + bias) * (1 if causal else -1)


CASES.module("defaults_left_out", Defaults, floats((3,)))
CASES.module("defaults_partly_given", Defaults, lambda: call(randn(3), bias=randn(3)))
CASES.module("none_given", Defaults, lambda: call(randn(3), None, 1.5, bias=None, causal=True))
CASES.module("none_skipped_by_keyword", Defaults, lambda: call(randn(3), causal=True, mask=randn(3)))
function(
    "python_scalars",
    lambda x, n, f, flag, mode, nothing, sizes: (
        x * n + f if flag and mode == "mean" and nothing is None and sizes == [1, 2] else x
    ),
    lambda: call(randn(2), 3, 0.5, True, "mean", None, [1, 2]),
)
function("scalars_within_containers", lambda x, options: x * options["p"] + options["extra"][1],
    lambda: call(randn(2), {"training": False, "p": 0.1, "extra": (None, 2)}))  # fmt: skip
function("special_floats",
    lambda x, infinite, undefined, negative_zero: torch.clamp(x, max=infinite) * 2 + negative_zero,
    lambda: call(randn(3), float("inf"), float("nan"), -0.0))  # fmt: skip
function("no_tensors_at_all", lambda n, mode: torch.full((n,), 2.5), lambda: call(2, "x"))
function("no_inputs", lambda: torch.arange(4) * 2, call)


def twice() -> Call:
    x = randn(3)
    return call(x, x)


function("same_tensor_twice", lambda x, y: x * 2 - y, twice)
function("same_tensor_twice_and_changed", lambda x, y: (x.add_(1), x * 2 - y)[1], twice)
function("same_tensor_twice_in_a_container", lambda tree: tree[0] - tree[1] * 2,
    lambda: (lambda x: call([x, x]))(randn(2)))  # fmt: skip
function(
    "same_tensor_by_keyword", lambda x, y, z: x - y + 3 * z, lambda: (lambda x: call(x, z=x, y=x))(randn(2))
)
function("unused_input", lambda x, y, z=None: x + 1, floats((2,), (3,), (4,)))
function("all_inputs_unused", lambda x, tree: torch.ones(2), lambda: call(randn(2), {"a": [randn(1)]}))
function("input_requires_grad", lambda x: x * x, lambda: call(randn(3, requires_grad=True)))
function("parameter_as_input", lambda x: x * 2, lambda: call(nn.Parameter(randn(3))))
function("input_is_transposed", lambda x: x.reshape(-1) * 2, lambda: call(randn(3, 4).T))
function("input_is_a_slice", lambda x: x.reshape(-1) * 2, lambda: call(randn(6, 8)[1:5:2, ::3]))
function("input_is_expanded", lambda x: x + 1, lambda: call(randn(3, 1).expand(3, 4)))
function("input_is_overlapping", lambda x: x.sum(1), lambda: call(randn(8).as_strided((3, 4), (1, 1))))
function(
    "input_is_0d_and_empty", lambda x, y: (x + y.sum(), y * x), lambda: call(torch.tensor(2.0), randn(0, 3))
)
function("many_inputs", lambda *xs: sum((i * x for i, x in enumerate(xs)), xs[0]),
    lambda: call(*(randn(2) for _ in range(40))))  # fmt: skip
function("names_of_python_builtins", lambda input, len, id: input - len * id,
    lambda: call(randn(2), len=randn(2), id=randn(2)))  # fmt: skip
