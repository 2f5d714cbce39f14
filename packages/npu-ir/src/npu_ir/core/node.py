"""The elements of a graph: values, the nodes that produce them, and the provenance of nodes.

Values and nodes are compared by identity. Their fields are read-only; only ``Graph`` edits them.
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

# A use of a value: (node, operand index); (None, leaf index) for a result of the graph;
# (None, target) for the new content of that argument.
Use: TypeAlias = "tuple[OpNode | None, int | Value]"


class InputKind(str, enum.Enum):
    """The kind of a graph argument."""

    INPUT = "input"
    PARAMETER = "param"
    BUFFER = "buffer"
    STATE = "state"
    CONSTANT = "const"


@dataclass(frozen=True, slots=True)
class Provenance:
    """The module and source line that a node was captured from.

    Attributes:
        module: Path of the module that ran it, as in ``named_modules()``; "" for the root.
        source: ``file:line`` of the user's code; "" if unknown.
        fused_from: Names of the nodes that a rewrite merged into this one.
        phase: The phase of a training step: ``"forward"``, ``"backward"`` or ``"optimizer"``; else "". Module
            and source of a node of the backward are those of the forward op that it is the gradient of.
    """

    module: str = ""
    source: str = ""
    fused_from: tuple[str, ...] = ()
    phase: str = ""

    def __str__(self) -> str:
        phase = "" if self.phase == "forward" else self.phase
        module = f"{phase} of module {self.module}" if phase and self.module else phase or self.module
        return ", ".join(filter(None, (module, self.source)))


NO_PROVENANCE = Provenance()


@dataclass(frozen=True, slots=True)
class Origin:
    """A value of the captured graph, before any rewrite: its name, and its provenance as in `Provenance`."""

    name: str
    module: str = ""
    source: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Argument:
    """An argument of a graph: its kind, its external names, and the data of a constant.

    Attributes:
        kind: User input, parameter, buffer, optimizer state or constant.
        target: Its external name: the ``state_dict`` key of a parameter or buffer; for optimizer state, the
            key of the parameter and the key in its state (``fc.weight.exp_avg``).
        aliases: Further ``state_dict`` keys of the same tensor (tied weights).
        persistent: False for a buffer that is not in the ``state_dict``.
        data: The content: set for every constant, for a non-persistent buffer if known, and otherwise None.
        overlaps: For an input, the target of another input that it must overlap, and the offset in elements
            from the first element of that input to its own.
    """

    kind: InputKind
    target: str
    aliases: tuple[str, ...] = ()
    persistent: bool = True
    data: torch.Tensor | None = None
    overlaps: tuple[str, int] | None = None


def external_names(value: Value) -> tuple[str, ...]:
    """Return every external name of an argument: its target, then its aliases."""
    assert value.argument is not None
    return (value.argument.target, *value.argument.aliases)


class Value:
    """One SSA value: defined once, by a node or as an argument, and used any number of times."""

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
        self._origins: tuple[Origin, ...] | None = None  # None: the value itself, as captured

    @property
    def name(self) -> str:
        """The name, unique among the values of its graph."""
        return self._name

    @property
    def type(self) -> Type:
        return self._type

    @property
    def kind(self) -> InputKind | None:
        """The kind of argument that it is; None for the output of a node."""
        return None if self.argument is None else self.argument.kind

    @property
    def target(self) -> str:
        """The external name of an argument (`Argument.target`); its own name for the output of a node."""
        return self._name if self.argument is None else self.argument.target

    @property
    def data(self) -> torch.Tensor | None:
        """The content that is part of the graph (`Argument.data`); None if there is none."""
        return None if self.argument is None else self.argument.data

    @property
    def tensor_type(self) -> TensorType:
        """The type, which must be that of a tensor.

        Raises:
            GraphError: The value is a number or None.
        """
        if not isinstance(self._type, TensorType):
            raise GraphError(f"%{self.name} is {self._type}, not a tensor")
        return self._type

    @property
    def is_original(self) -> bool:
        """True if it is unchanged since capture: no pass created it, renamed it or replaced a value by it."""
        return self._origins is None

    @property
    def origins(self) -> tuple[Origin, ...]:
        """The values of the captured graph that it equals, up to strides: itself, if it was captured.

        Empty for a value that a pass created and that replaced no other.
        """
        if self._origins is not None:
            return self._origins
        provenance = NO_PROVENANCE if self.producer is None else self.producer.provenance
        return (Origin(self._name, provenance.module, provenance.source),)

    @property
    def uses(self) -> tuple[Use, ...]:
        """Every use of this value, results and updates of the graph included."""
        return tuple(self._uses)

    @property
    def use_count(self) -> int:
        """The number of uses of this value, results and updates of the graph included."""
        return len(self._uses)

    @property
    def users(self) -> tuple[OpNode, ...]:
        """The nodes that read this value; a node that reads it twice is listed twice."""
        return tuple(node for node, _ in self._uses if node is not None)

    @property
    def is_output(self) -> bool:
        """True if the graph returns this value or updates an argument with it."""
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
        outputs: The values that it produces.
        provenance: The module and source line that it was captured from.
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
        self._pending_inputs: list[Value] | None = None  # edited inputs, until the next read of ``inputs``
        self._attrs = attrs
        self._regions = regions or {}
        self._graph: Graph | None = None
        self._previous: OpNode = self
        self._next: OpNode = self
        self._binding: Any = None
        self._in_prologue = False

    @property
    def name(self) -> str:
        """The name, unique among the nodes of its graph."""
        return self._name

    @property
    def op_type(self) -> str:
        """The op's full name, such as ``aten.conv2d.default``, in any ``torch.ops`` namespace."""
        return self._op_type

    @property
    def operands(self) -> tuple[str, ...] | None:
        """The argument that each input fills (``self``), or the list element (``size[0]``).

        None if not recorded: the inputs then fill the tensor arguments of the schema in order.
        """
        return self._operands

    @property
    def inputs(self) -> tuple[Value, ...]:
        """The values it reads, flat, in the order of the schema's arguments."""
        if self._pending_inputs is not None:
            self._inputs, self._pending_inputs = tuple(self._pending_inputs), None
        return self._inputs

    def _replace_input(self, index: int, value: Value) -> None:
        """Replace one input in constant time; the tuple of inputs is rebuilt lazily, on the next read."""
        if self._pending_inputs is None:
            self._pending_inputs = list(self._inputs)
        self._pending_inputs[index] = value
        self._binding = None

    @property
    def attrs(self) -> Mapping[str, Literal]:
        """The arguments that are not values, by schema argument name."""
        return MappingProxyType(self._attrs)

    @property
    def regions(self) -> Mapping[str, Graph]:
        """The sub-graphs that it owns, by the argument each fills: ``true_fn`` and ``false_fn`` of a cond.

        A region is closed: it reads only its own arguments, and the node passes in any outer value.
        """
        return MappingProxyType(self._regions)

    @property
    def graph(self) -> Graph | None:
        """The graph that contains it; None once it is erased."""
        return self._graph

    @property
    def in_prologue(self) -> bool:
        """True if it is evaluated once, when weights are bound, and not at each call."""
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
