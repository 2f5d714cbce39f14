"""The parts of a graph: values, the nodes that produce them, and where a node came from.

Both have identity: two of them are equal only when they are the same object. Their fields are
read-only; ``Graph`` is the one class that edits them.
"""

from __future__ import annotations

import enum
import operator
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

import torch

from npu_ir.core.literals import Literal
from npu_ir.core.types import TensorType, Type
from npu_ir.errors import GraphError

if TYPE_CHECKING:
    from npu_ir.graph.graph import Graph

# Where a value is read: (node, operand index); (None, leaf index) for a result of the graph;
# (None, input) for the new content of that input.
Use: TypeAlias = "tuple[OpNode | None, int | Value]"


class InputKind(str, enum.Enum):
    """What a value that no node produces stands for."""

    INPUT = "input"
    PARAMETER = "param"
    BUFFER = "buffer"
    STATE = "state"
    CONSTANT = "const"


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where a node came from.

    Attributes:
        module: Path of the module that ran it, as in ``named_modules()``; "" for the root.
        source: ``file:line`` of the user's code; "" when unknown.
        fused_from: Names of the nodes a rewrite merged into this one.
    """

    module: str = ""
    source: str = ""
    fused_from: tuple[str, ...] = ()

    def __str__(self) -> str:
        return ", ".join(filter(None, (self.module, self.source)))


NO_PROVENANCE = Provenance()


@dataclass(frozen=True, slots=True)
class Origin:
    """A value of the graph that was captured.

    Attributes:
        name: Its name.
        module: Path of the module that computed it, as of `Provenance`.
        source: ``file:line`` of the user's code; "" when unknown.
    """

    name: str
    module: str = ""
    source: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Argument:
    """What a graph needs from outside under one value.

    Attributes:
        kind: User input, parameter, buffer, optimizer state or constant.
        target: Its name outside: the ``state_dict`` key of a parameter or buffer; of optimizer state that
            of the parameter and its key there (``fc.weight.exp_avg``).
        aliases: Further ``state_dict`` keys of the same tensor (tied weights).
        persistent: False for a buffer that is not in the ``state_dict``.
        data: The content: always of a constant, of a non-persistent buffer where it is known,
            never of anything else.
        overlaps: Of an input, another input that it must overlap, and how many elements behind its first one it begins.
    """

    kind: InputKind
    target: str
    aliases: tuple[str, ...] = ()
    persistent: bool = True
    data: torch.Tensor | None = None
    overlaps: tuple[str, int] | None = None


def outside_names(value: Value) -> tuple[str, ...]:
    """Return every name that a value from outside goes by there: its target, then its aliases."""
    assert value.argument is not None
    return (value.argument.target, *value.argument.aliases)


class Value:
    """One SSA value: produced once, by a node or from outside, and read any number of times."""

    __slots__ = ("_graph", "_name", "_origins", "_type", "_uses", "argument", "id", "index", "producer")

    def __init__(
        self,
        id: int,
        name: str,
        type: Type,
        *,
        producer: OpNode | None = None,
        index: int = 0,
        argument: Argument | None = None,
        graph: Graph | None = None,
    ) -> None:
        self.id = id
        self.producer = producer
        self.index = index
        self.argument = argument
        self._graph = graph
        self._name = name
        self._type = type
        self._uses: dict[Use, None] = {}
        self._origins: tuple[Origin, ...] | None = None  # None: itself

    @property
    def name(self) -> str:
        """Unique in its graph."""
        return self._name

    @property
    def type(self) -> Type:
        return self._type

    @property
    def tensor_type(self) -> TensorType:
        """The type of a value that is a tensor.

        Raises:
            GraphError: It is a number or None.
        """
        if not isinstance(self._type, TensorType):
            raise GraphError(f"%{self.name} is {self._type}, no tensor")
        return self._type

    @property
    def is_original(self) -> bool:
        """Whether it is as it was captured: no pass made it, renamed it or put it in the place of another."""
        return self._origins is None

    @property
    def origins(self) -> tuple[Origin, ...]:
        """The values of the captured graph that it stands for, up to strides: itself, if it is one.

        Empty for what a pass made and put in no value's place.
        """
        if self._origins is not None:
            return self._origins
        place = NO_PROVENANCE if self.producer is None else self.producer.provenance
        return (Origin(self._name, place.module, place.source),)

    @property
    def uses(self) -> tuple[Use, ...]:
        """Every place that reads this value, results of the graph included."""
        return tuple(self._uses)

    @property
    def use_count(self) -> int:
        """How many places read this value, results of the graph included."""
        return len(self._uses)

    @property
    def users(self) -> tuple[OpNode, ...]:
        """The nodes that read this value; a node that reads it twice is there twice."""
        return tuple(node for node, _ in self._uses if node is not None)

    @property
    def is_output(self) -> bool:
        """Whether the graph returns this value or stores it into an input."""
        return any(node is None for node, _ in self._uses)

    def __reduce__(self) -> tuple[Any, ...]:
        if self._graph is None or self._graph._values.get(self.name) is not self:
            raise GraphError(f"%{self.name} is in no graph: a value is copied and pickled with its graph")
        return operator.methodcaller("value", self.name), (self._graph,)

    def __repr__(self) -> str:
        return f"%{self.name}: {self.type}"


class OpNode:
    """One call of an op.

    Attributes:
        outputs: What it produces.
        provenance: Where it came from.
    """

    __slots__ = (
        "_attrs",
        "_binding",
        "_graph",
        "_in_prologue",
        "_inputs",
        "_name",
        "_next",
        "_op_type",
        "_operands",
        "_pending_inputs",
        "_previous",
        "_regions",
        "outputs",
        "provenance",
    )

    def __init__(
        self,
        name: str,
        op_type: str,
        inputs: tuple[Value, ...],
        operands: tuple[str, ...] | None,
        attrs: dict[str, Literal],
        provenance: Provenance,
        regions: dict[str, Graph] | None = None,
    ) -> None:
        self._op_type = op_type
        self._operands = operands
        self.outputs: tuple[Value, ...] = ()
        self.provenance = provenance
        self._name = name
        self._inputs = inputs
        self._pending_inputs: list[Value] | None = None  # those being edited, one at a time
        self._attrs = attrs
        self._regions = regions or {}
        self._graph: Graph | None = None
        self._previous: OpNode = self
        self._next: OpNode = self
        self._binding: Any = None
        self._in_prologue = False

    @property
    def name(self) -> str:
        """Unique among the nodes of its graph."""
        return self._name

    @property
    def op_type(self) -> str:
        """The op's full name, such as ``aten.conv2d.default``; any ``torch.ops`` namespace."""
        return self._op_type

    @property
    def operands(self) -> tuple[str, ...] | None:
        """For each input the argument it fills (``self``), or the place in it (``size[0]``).

        None when that is not recorded: the inputs then fill the tensor arguments of the schema in order.
        """
        return self._operands

    @property
    def inputs(self) -> tuple[Value, ...]:
        """The values it reads, flat, in the order of the schema's arguments."""
        if self._pending_inputs is not None:
            self._inputs, self._pending_inputs = tuple(self._pending_inputs), None
        return self._inputs

    def _put_input(self, index: int, value: Value) -> None:
        """Change one input, in constant time: many may change before they are looked at."""
        if self._pending_inputs is None:
            self._pending_inputs = list(self._inputs)
        self._pending_inputs[index] = value
        self._binding = None

    @property
    def attrs(self) -> Mapping[str, Literal]:
        """The arguments that are no values, by schema argument name."""
        return MappingProxyType(self._attrs)

    @property
    def regions(self) -> Mapping[str, Graph]:
        """The sub-graphs it owns, by the argument each fills: ``true_fn`` and ``false_fn`` of a cond.

        A region reads nothing but its own inputs: what it needs from around it, the node passes in.
        """
        return MappingProxyType(self._regions)

    @property
    def graph(self) -> Graph | None:
        """The graph it is in; None once it is erased."""
        return self._graph

    @property
    def in_prologue(self) -> bool:
        """Whether it is evaluated once, when weights are bound, and not at each call."""
        return self._in_prologue

    @property
    def is_erased(self) -> bool:
        return self._graph is None

    def __reduce__(self) -> tuple[Any, ...]:
        if self._graph is None:
            raise GraphError(
                f"node {self.name!r} is in no graph: a node is copied and pickled with its graph"
            )
        return operator.methodcaller("node", self.name), (self._graph,)

    def __repr__(self) -> str:
        outputs = ", ".join(map(repr, self.outputs))
        return f"{outputs} = {self.op_type}({', '.join('%' + value.name for value in self.inputs)})"
