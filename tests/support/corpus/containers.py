"""Container types that models of the corpus take and return, registered as pytrees."""

import collections
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch.utils import _pytree


class Pair(NamedTuple):
    left: Any
    right: Any


@dataclass
class DataPair:
    left: Any
    right: Any


torch.export.register_dataclass(DataPair, serialized_type_name="tests.DataPair")


class PairList:
    """A container whose number of parts is in its context."""

    def __init__(self, *items: Any) -> None:
        self.items = items


_pytree.register_pytree_node(
    PairList,
    lambda pairs: (list(pairs.items), len(pairs.items)),
    lambda items, _: PairList(*items),
    serialized_type_name="tests.PairList",
    to_dumpable_context=str,
    from_dumpable_context=int,
    flatten_with_keys_fn=lambda pairs: (
        [(_pytree.SequenceKey(i), item) for i, item in enumerate(pairs.items)],
        len(pairs.items),
    ),
)


class ModelOutput(collections.OrderedDict):  # type: ignore[type-arg]
    """A dict with attributes, like the outputs of Hugging Face; torch.export refuses it as an input."""

    def __getattr__(self, name: str) -> Any:
        if name not in self:
            raise AttributeError(name)
        return self[name]


_pytree.register_pytree_node(ModelOutput, lambda output: (list(output.values()), list(output)),
    lambda values, names: ModelOutput(zip(names, values, strict=True)),
    serialized_type_name="tests.ModelOutput")  # fmt: skip
