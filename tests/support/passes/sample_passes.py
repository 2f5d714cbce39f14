"""Small passes, right and wrong ones, that tests of the machinery run."""

from __future__ import annotations

from npu_ir import Graph
from npu_passes import Pass, within

RELU, GELU, ALIAS = "aten.relu.default", "aten.gelu.default", "aten.alias.default"


class DropAlias(Pass):
    """Replace ``alias(x)`` by ``x``."""

    name = "drop-alias"
    is_idempotent = True

    def run(self, graph: Graph) -> bool:
        found = list(graph.nodes_of(ALIAS))
        for node in found:
            with self.rewrite(graph, "alias", node) as edit:
                edit.replace(node.outputs[0], node.inputs[0])
        return bool(found)


class UnmarkedDropAlias(Pass):
    """The same by the methods of the graph, which tells the manager less."""

    name = "unmarked-drop-alias"

    def run(self, graph: Graph) -> bool:
        found = list(graph.nodes_of(ALIAS))
        for node in found:
            graph.replace_all_uses(node.outputs[0], node.inputs[0])
            graph.erase(node)
        return bool(found)


class ReluToGelu(Pass):
    """Change what a graph computes at the nodes whose names start with a word.

    Attributes:
        only: The word; none for all.
    """

    name = "relu-to-gelu"
    is_idempotent = True
    only: str = ""

    def run(self, graph: Graph) -> bool:
        found = [node for node in graph.nodes_of(RELU) if node.name.startswith(self.only)]
        for node in found:
            with self.rewrite(graph, "to-gelu", node) as edit:
                edit.replace(node.outputs[0], edit.call(GELU, node.inputs[0]))
        return bool(found)


class ReluToClamp(Pass):
    """Write ``relu(x)`` as ``clamp(x, min=0)``; wrong at the nodes whose names start with a word.

    Attributes:
        wrong: The word.
    """

    name = "relu-to-clamp"
    is_idempotent = True
    wrong: str = "never"

    def run(self, graph: Graph) -> bool:
        found = list(graph.nodes_of(RELU))
        for node in found:
            low = -1 if node.name.startswith(self.wrong) else 0
            with self.rewrite(graph, "to-clamp", node) as edit:
                edit.replace(node.outputs[0], edit.call("aten.clamp.default", node.inputs[0], min=low))
        return bool(found)


class Nudge(Pass):
    """Multiply what relu returns by a number close to 1, once.

    Attributes:
        factor: The number.
    """

    name = "nudge"
    numerics = within(1e-3)
    factor: float = 1.0001

    def run(self, graph: Graph) -> bool:
        users = {node: node.outputs[0].users for node in graph.nodes_of(RELU)}
        found = [node for node, by in users.items() if all(item.op_type != "aten.mul.Tensor" for item in by)]
        for node in found:
            value = node.outputs[0]
            scaled = graph.insert(
                "aten.mul.Tensor",
                [value],
                {"other": self.factor},
                types=value.type,
                operands=["self"],
                after=node,
            )
            graph.replace_all_uses(value, scaled.outputs[0])
            graph.set_input(scaled, 0, value)
        return bool(found)


class BreakShapes(Pass):
    """Make relu nodes say that they take an argument that relu lacks, from the second one on."""

    name = "break-shapes"

    def run(self, graph: Graph) -> bool:
        found = list(graph.nodes_of(RELU))
        for index, node in enumerate(found):
            with self.rewrite(graph, "mark", node):
                graph.set_attrs(node, {} if index == 0 else {"nonsense": 1})
        return bool(found)


class Liar(Pass):
    """Say something else than what happened.

    Attributes:
        edits: Whether it edits the graph.
        says: What it says.
    """

    name = "liar"
    edits: bool = True
    says: bool = False

    def run(self, graph: Graph) -> bool:
        if self.edits:
            node = graph.insert(RELU, [graph.inputs[0]], types=graph.inputs[0].type)
            graph.erase(node)
        return self.says


class Restless(Pass):
    """Rename a value in every run."""

    name = "restless"
    is_idempotent = False

    def run(self, graph: Graph) -> bool:
        value = graph.nodes[0].outputs[0]
        graph.rename(value, "b" if value.name == "a" else "a")
        return True


class Failing(Pass):
    """Fail inside of a rewrite, or outside.

    Attributes:
        inside: Which of them.
    """

    name = "failing"
    inside: bool = True

    def run(self, graph: Graph) -> bool:
        if not self.inside:
            raise ValueError("no luck")
        with self.rewrite(graph, "attempt", graph.nodes[0]) as edit:
            edit.replace(graph.nodes[0].outputs[0], edit.call("aten.sum.default", graph.inputs[0]))
        return True


class Picky(Pass):
    """Require and ensure what does not hold.

    Attributes:
        wants: What it requires.
        promises: What it ensures.
    """

    name = "picky"
    is_idempotent = True
    wants: str = ""
    promises: str = ""

    def run(self, graph: Graph) -> bool:
        return False

    def requires(self, graph: Graph) -> str | None:
        return f"no {self.wants} in {graph.name}" if self.wants else None

    def ensures(self, graph: Graph) -> str | None:
        return f"a {self.promises} is left" if self.promises else None


class Refusing(Pass):
    """Refuse every relu."""

    name = "refusing"
    is_idempotent = True

    def run(self, graph: Graph) -> bool:
        for node in graph.nodes_of(RELU):
            self.refuse(node, "it is too nice", rule="drop")
        return False


class Optional(Pass):
    """A pass with an option of every type.

    Attributes:
        flag: A switch
            that is explained on two lines.
        count: A number.
        rate: Another one.
        label: A word.
        items: Words.
    """

    name = "optional"
    flag: bool = True
    count: int = 3
    rate: float = 0.5
    label: str = "plain"
    items: tuple[str, ...] = ("a", "b")

    def run(self, graph: Graph) -> bool:
        return False


SAMPLES = (
    DropAlias,
    UnmarkedDropAlias,
    ReluToGelu,
    ReluToClamp,
    Nudge,
    BreakShapes,
    Liar,
    Restless,
    Failing,
    Picky,
    Refusing,
    Optional,
)
