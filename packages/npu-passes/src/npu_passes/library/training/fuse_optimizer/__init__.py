"""Fuse what an optimizer computes, tensor list by tensor list, into one op per group of parameters."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence

from npu_ir import Graph, OpNode, Value
from npu_passes.core.base import Pass
from npu_passes.core.numerics import within
from npu_passes.library.training.fuse_optimizer.adam import adam_chain
from npu_passes.library.training.fuse_optimizer.chain import Chain
from npu_passes.library.training.fuse_optimizer.groups import Group
from npu_passes.library.training.fuse_optimizer.matcher import Reader, behind, is_on_lists, packet_of
from npu_passes.library.training.fuse_optimizer.sgd import sgd_chain

# By the op that computes new parameters: what recognises the step.
_OPTIMIZERS: Mapping[str, Callable[[Reader, OpNode, Value], Chain | None]] = {
    "addcdiv": adam_chain,
    "_foreach_addcdiv": adam_chain,
    "add": sgd_chain,
    "_foreach_add": sgd_chain,
}


class FuseOptimizer(Pass):
    """Fuse the steps of Adam, AdamW and SGD into ``npu::adam_step`` and ``npu::sgd_step``: one op per list of parameters.

    1. What ``torch.optim.Adam`` and ``AdamW`` compute with ``foreach=True, capturable=True``, with amsgrad, weight decay
       of both kinds, and maximize. It is found from the new parameters backwards, by what reads what.
    2. What ``torch.optim.SGD`` computes with ``foreach=True``, with momentum, dampening, Nesterov's form, weight decay
       and maximize.

    The new parameters, moments and counters are results of the new op. A step stays as it is where something else reads
    what lies between, or reads a result before the last one is there, and where types differ. What one op on
    lists computes becomes one new op; calls of one op per tensor are gathered by their hyperparameters.
    """

    name = "fuse-optimizer"
    numerics = within(1e-5)
    is_idempotent = True
    before = ("lower-foreach", "scalars-to-tensors")
    after = ("canonicalize", "elim-identity", "dead-code")

    def run(self, graph: Graph) -> bool:
        before = graph.edits
        places: dict[OpNode, int] = {node: index for index, node in enumerate(graph.nodes)}
        for chains in _alike(graph):
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
        """Fuse steps of one tensor each that cannot be made one op."""
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
            # The types are stated: PyTorch tells none for floats that it does not know.
            made = edit.calls(group.op_type, types=[value.type for value in group.results], **group.arguments)
            for old, new in zip(group.results, made, strict=True):
                edit.replace(old, new)
            for chain in group.chains:
                _name_gradient(graph, chain)
        if made[0].producer is not None:
            places[made[0].producer] = last


def _alike(graph: Graph) -> Iterator[list[Chain]]:
    """Yield the chains of a graph that may become one op: those of one node on lists, or with the same numbers."""
    reader = Reader()
    alone: dict[Hashable, list[Chain]] = {}
    for node in graph.body:
        chains = _chains(graph, reader, node)
        if chains and is_on_lists(node):
            yield chains
        else:
            for chain in chains:
                alone.setdefault(chain.key, []).append(chain)
    yield from alone.values()


def _chains(graph: Graph, reader: Reader, node: OpNode) -> list[Chain]:
    """Return the chains that end in the outputs of ``node``."""
    find = _OPTIMIZERS.get(packet_of(node))
    if find is None or node.is_erased:
        return []
    found = [find(reader, node, value) for value in node.outputs if value.uses]
    return [chain for chain in found if chain is not None and _is_step(graph, chain)]


def _is_step(graph: Graph, chain: Chain) -> bool:
    """Whether a chain is a step, and not a part of one: ``x - lr * y`` alone may be anything.

    It is where it has state, or moves a parameter that no optimizer keeps state of: by a rate that the call gives, or so
    that the result is stored.
    """
    parameter = chain.tensors["params"]
    if len(chain.results) > 1 or parameter is None:
        return True
    target = None if parameter.argument is None else parameter.argument.target
    if target is not None and any(key.startswith(f"{target}.") for key in graph.optimizer_state):
        return False
    stored = graph.updates.get(parameter)
    is_stored = stored is not None and behind(stored)[0] is chain.results["params"]
    return isinstance(chain.numbers["lr"], Value) or is_stored


def _name_gradient(graph: Graph, chain: Chain) -> None:
    """Call the gradient of a parameter after it, as steps do that are traced: ``fc_weight_grad``."""
    parameter, gradient = chain.tensors["params"], chain.tensors["grads"]
    if parameter is None or gradient is None or parameter.argument is None or gradient.argument is not None:
        return
    name = f"{parameter.argument.target.replace('.', '_')}_grad"
    if gradient.name != name:
        graph.rename(gradient, name)
