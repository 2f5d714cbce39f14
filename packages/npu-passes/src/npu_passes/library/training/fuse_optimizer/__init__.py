"""Fusion of optimizer steps into one op per group of parameters.

Each step of one parameter is matched backwards from the new parameter to a `Chain` (`optimizers.py` has the
patterns); chains with the same hyperparameters form a `Group`, which becomes one call.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence

from npu_ir import Graph, OpNode, Value
from npu_passes.core.base import Pass, within
from npu_passes.library.training.fuse_optimizer.groups import Chain, Group
from npu_passes.library.training.fuse_optimizer.optimizers import find_chains
from npu_passes.library.training.fuse_optimizer.step_patterns import Reader, is_on_lists, strip_aliases


class FuseOptimizer(Pass):
    """Fuse the steps of Adam, AdamW and SGD into ``npu::adam_step`` and ``npu::sgd_step``.

    1. The step of ``torch.optim.Adam`` and ``AdamW`` with ``foreach=True, capturable=True``, with amsgrad,
       weight decay of both kinds, and maximize. It is matched backwards from the new parameters, along the
       data flow.
    2. The step of ``torch.optim.SGD`` with ``foreach=True``, with momentum, dampening, Nesterov momentum,
       weight decay and maximize.

    The new parameters, moments and counters are results of the new op. A step stays where other nodes read
    its intermediate values, or read a result before the whole step is done, and where types differ. An op
    on a list of parameters becomes one new op; ops per parameter are grouped by their hyperparameters.
    """

    name = "fuse-optimizer"
    numerics = within(1e-5)
    is_idempotent = True
    before = ("lower-foreach", "scalars-to-tensors")
    after = ("canonicalize", "elim-identity", "dead-code")

    def run(self, graph: Graph) -> bool:
        before = graph.edits
        # Positions in the graph: a fused op takes the place, and so the position, of its last node.
        places: dict[OpNode, int] = {node: index for index, node in enumerate(graph.nodes)}
        for chains in _candidate_groups(graph):
            whole = Group(chains, places)
            problem = whole.problem
            if problem is None:
                self._fuse(graph, whole, places)
            elif is_on_lists(whole.root) or len(chains) == 1:
                self.refuse(whole.root, problem, whole.rule)
            else:
                self._fuse_each(graph, chains, places)
        return graph.edits != before

    def _fuse_each(self, graph: Graph, chains: Sequence[Chain], places: dict[OpNode, int]) -> None:
        """Fuse each step into an op of its own, where one op cannot compute all of them."""
        for chain in chains:
            group = Group([chain], places)
            problem = group.problem
            if problem is None:
                self._fuse(graph, group, places)
            else:
                self.refuse(group.root, problem, group.rule)

    def _fuse(self, graph: Graph, group: Group, places: dict[OpNode, int]) -> None:
        last = places[group.nodes[-1]]
        with self.rewrite(graph, group.rule, *group.nodes) as edit:
            # The types are stated: PyTorch infers none for hyperparameters that are floats of the graph.
            results = edit.calls(
                group.op_type, types=[value.type for value in group.results], **group.arguments
            )
            for old, new in zip(group.results, results, strict=True):
                edit.replace(old, new)
            for chain in group.chains:
                _name_gradient(graph, chain)
        if results[0].producer is not None:
            places[results[0].producer] = last


def _candidate_groups(graph: Graph) -> Iterator[list[Chain]]:
    """Yield chains that may become one op: those of one op on lists, or with the same hyperparameters."""
    reader = Reader()
    alone: dict[Hashable, list[Chain]] = {}
    for node in graph.body:
        found = [] if node.is_erased else find_chains(reader, node)
        chains = [chain for chain in found if _is_step(graph, chain)]
        if chains and is_on_lists(node):
            yield chains
        else:
            for chain in chains:
                alone.setdefault(chain.key, []).append(chain)
    yield from alone.values()


def _is_step(graph: Graph, chain: Chain) -> bool:
    """Return whether a chain is a whole step: ``x - lr * y`` alone may be anything.

    It is one if it has state, or if no optimizer keeps state of its parameter and either the learning rate
    is an input of the call or the result is stored in the parameter.
    """
    parameter = chain.tensors["params"]
    if len(chain.results) > 1 or parameter is None:
        return True
    if parameter.kind and any(key.startswith(f"{parameter.target}.") for key in graph.optimizer_state):
        return False
    stored = graph.updates.get(parameter)
    is_stored = stored is not None and strip_aliases(stored)[0] is chain.results["params"]
    return isinstance(chain.numbers["lr"], Value) or is_stored


def _name_gradient(graph: Graph, chain: Chain) -> None:
    """Name the gradient after its parameter, as in traced steps: ``fc_weight_grad``."""
    parameter, gradient = chain.tensors["params"], chain.tensors["grads"]
    if parameter is None or gradient is None or parameter.kind is None or gradient.kind is not None:
        return
    name = f"{parameter.target.replace('.', '_')}_grad"
    if gradient.name != name:
        graph.rename(gradient, name)
