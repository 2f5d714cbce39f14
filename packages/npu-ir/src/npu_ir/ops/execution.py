"""Execution of one node, by its registered executor or else by its operator."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

import torch

from npu_ir._torch.ops import HigherOrderOperator
from npu_ir._torch.tracing import below_autograd
from npu_ir.core.node import OpNode, Value
from npu_ir.core.symbol_values import SymbolValues
from npu_ir.core.types import ScalarType, TensorType, Type, type_of
from npu_ir.errors import ExecutionError, NpuError
from npu_ir.ops.calls import Binding, bind_node
from npu_ir.ops.schema import Op, OpSchema, find_op, schema_of
from npu_ir.ops.trusted_layouts import accept_any_layout
from npu_ir.plugins import plugin_manager
from npu_ir.symbolic.expressions import Dim, Expr

if TYPE_CHECKING:
    from npu_ir.graph.graph import Graph


# A region as the operator calls it, with positional arguments.
Region: TypeAlias = "Callable[..., Any]"

_POSITION = TensorType((), torch.int32)


def adapt_regions(node: OpNode, regions: Mapping[str, Region]) -> list[Region]:
    """Return the regions of ``node`` in order, adapted to its operator.

    Some operators call regions with other arguments than torch.export has traced them for (torch 2.13).
    """
    adapted = _ADAPTED.get(node.op_type)
    if adapted is None:
        return list(regions.values())
    return [adapted(node.regions[argument], region) for argument, region in regions.items()]


def _adapt_flex_attention(graph: Graph, region: Region) -> Region:
    """Adapt a region to ``flex_attention``: traced for 32-bit positions, it gets 64-bit ones on the CPU."""

    def fit(value: Value, item: Any) -> Any:
        is_position = value.type == _POSITION and isinstance(item, torch.Tensor) and item.dtype is torch.int64
        return item.to(torch.int32) if is_position else item

    return lambda *args: region(*map(fit, graph.inputs, args))


def _adapt_associative_scan(graph: Graph, region: Region) -> Region:
    """Adapt a region to ``associative_scan``: traced for two slices, it gets stacks of slices."""
    count = 2 * len(graph.results[1])

    def run(*args: Any) -> Any:
        slices, additional = args[:count], args[count:]
        if slices[0].dim() == graph.inputs[0].tensor_type.rank:
            return region(*args)
        rows = [region(*row, *additional) for row in zip(*(item.unbind(0) for item in slices), strict=True)]
        if not rows:
            return [item[:0] for item in slices[: count // 2]]
        return [torch.stack(parts) for parts in zip(*rows, strict=True)]

    return run


_ADAPTED: Mapping[str, Callable[[Graph, Region], Region]] = {
    "higher_order.flex_attention": _adapt_flex_attention,
    "higher_order.associative_scan": _adapt_associative_scan,
}


FUNCTIONAL_FIX = (
    "use the op that returns a new tensor, and state updates of inputs and buffers with set_update"
)
_NO_REGIONS: Mapping[str, Region] = MappingProxyType({})


def is_executable(op_type: str) -> bool:
    """Return whether PyTorch or a plugin can run nodes of ``op_type``."""
    return op_type in plugin_manager.registry().table("execution") or find_op(op_type) is not None


def execute_node(
    node: OpNode,
    inputs: Sequence[Any],
    device: torch.device,
    symbols: SymbolValues | None = None,
    regions: Mapping[str, Region] = _NO_REGIONS,
) -> list[Any]:
    """Return the outputs of ``node`` on ``inputs``, flat, each of the type that the graph states.

    Args:
        node: Any node.
        inputs: One per ``node.inputs``.
        device: The device for tensors that the graph creates on ``meta``.
        symbols: The symbol values known so far, to which the outputs add theirs; None if no size is symbolic.
        regions: A function for each of ``node.regions`` that runs it.

    Raises:
        ExecutionError: There is no such operator, it fails, or its results are not of the types that the
            graph states; names node, module and source line.
    """
    entry = plugin_manager.registry().table("execution").get(node.op_type)
    try:
        if entry is not None:
            arguments = (inputs, node.attrs, regions) if regions else (inputs, node.attrs)
            results: list[Any] = entry.function(*arguments)
        else:
            results = _run_operator(node, [*inputs, *adapt_regions(node, regions)], device)
    except NpuError as error:
        where = (
            f"{error.where}, in a region of {location_of(node)}"
            if regions and error.where
            else location_of(node)
        )
        raise ExecutionError(error.message, where=where, fix=error.fix) from error
    except Exception as error:
        raise ExecutionError(
            f"{node.op_type} failed: {type(error).__name__}: {error}",
            where=location_of(node),
            fix=f"it was called on {', '.join(map(describe, inputs))}",
        ) from error
    if not node.outputs and results == [None]:
        return []  # an op without results returns None, which is not an output
    _require_types(node, results, symbols)
    return results


def _run_operator(node: OpNode, inputs: Sequence[Any], device: torch.device) -> list[Any]:
    """Call the operator of ``node``, from any ``torch.ops`` namespace, or its function of numbers."""
    op = find_op(node.op_type)
    if op is None:
        raise ExecutionError(
            f"there is no operator {node.op_type}",
            fix=_fix_of_absent(node.op_type),
        )
    return run_op(op, binding_of(node, op), inputs, device)


def _fix_of_absent(op_type: str) -> str:
    if op_type.startswith("aten."):
        return (
            f"npu check-compat FILE says what became of it, for a graph of another PyTorch; or "
            f"register_executor({op_type!r})"
        )
    return f"import the library that registers it, or register_executor({op_type!r})"


def run_op(op: Op, binding: Binding, inputs: Sequence[Any], device: torch.device) -> list[Any]:
    """Return the results of an op on inputs, flat, followed by the mutated tensors if it writes.

    The inputs, tensors, which may be fake, and numbers, are not mutated. Tensors that the graph creates on
    ``meta`` are on ``device``.
    """
    if binding.written:
        return _run_on_copies(op, binding, inputs, device)
    args, kwargs = binding.arguments(inputs, device)
    if isinstance(op, HigherOrderOperator):  # above autograd it would trace its regions, not run them
        with below_autograd():
            return flatten_results(op(*args, **kwargs))
    return flatten_results(accept_any_layout(op)(*args, **kwargs))


def _run_on_copies(op: Any, binding: Binding, inputs: Sequence[Any], device: torch.device) -> list[Any]:
    """Return the results of an op that writes into copies, then these copies."""
    copies = [item.clone() if index in binding.written else item for index, item in enumerate(inputs)]
    args, kwargs = binding.arguments(copies, device)
    result = op(*args, **kwargs)
    return [
        *(flatten_results(result) if op._schema.returns else []),
        *(copies[index] for index in binding.written),
    ]


def binding_of(node: OpNode, op: Op) -> Binding:
    """Return the prepared call of ``op`` by ``node``, cached until the node is edited."""
    if node._binding is None:
        schema = schema_of(op)
        problem = write_problem(node.op_type, schema)
        if problem is not None:
            raise ExecutionError(problem, fix=FUNCTIONAL_FIX)
        node._binding = bind_node(schema, node)
    binding: Binding = node._binding
    return binding


def write_problem(op_type: str, schema: OpSchema) -> str | None:
    """Return the problem of an op that writes and returns what it wrote; None for other ops."""
    if schema.writes and not schema.runs_on_copies:
        return f"{op_type} changes a tensor in place: a graph is functional"
    return None


def location_of(node: OpNode) -> str:
    """Return a node's name, module and source line, for error messages."""
    return ", ".join(filter(None, (f"node {node.name!r}", str(node.provenance))))


def flatten_results(result: Any) -> list[Any]:
    """Return the leaves of the results of an op, flat; None is a leaf."""
    if isinstance(result, (tuple, list)):
        return [leaf for part in result for leaf in flatten_results(part)]
    return [result]


def _require_types(node: OpNode, results: Sequence[Any], symbols: SymbolValues | None) -> None:
    if not isinstance(results, list) or len(results) != len(node.outputs):
        count = len(node.outputs)
        raise ExecutionError(
            f"{node.op_type} returned {len(results)} results, the graph has {count}"
            if isinstance(results, list)
            else f"{node.op_type} returned a {type(results).__name__}, not a list of {count}",
            where=location_of(node),
            fix="an executor returns a list with one entry per output",
        )
    for value, result in zip(node.outputs, results, strict=True):
        problem = _type_problem(value, result, symbols)
        # What nothing reads may differ: PyTorch's fake kernels are wrong there (embedding_bag, torch 2.13).
        if problem is not None and value.use_count:
            raise ExecutionError(
                f"{node.op_type} returned {describe(result)} for %{value.name}, "
                f"which is {value.type} in the graph" + problem,
                where=location_of(node),
                fix="capture the model again with inputs and weights like these",
            )


def _type_problem(value: Value, result: Any, symbols: SymbolValues | None) -> str | None:
    """Return the mismatch of a result with its type, or None; add its sizes to ``symbols``."""
    if not is_of_type(result, value.type):
        return ""
    if not value.type.symbols:
        return None
    misfit = (symbols or SymbolValues({})).solve([(value.name, value.type, result)], in_range=False)
    return None if misfit is None else f": {misfit}"


def is_of_type(result: Any, wanted: Type) -> bool:
    """Return whether a result has the dtype, layout and shape of a tensor type, or the kind of a scalar type.

    Symbolic sizes match any size.
    """
    if not isinstance(wanted, TensorType):
        is_number = result is None or isinstance(result, (bool, int, float))
        return (
            is_number
            and type_of(result) == ScalarType(wanted.kind)
            and (wanted.value is None or _may_equal(result, wanted.value))
        )
    return (
        isinstance(result, torch.Tensor)
        and not result.is_nested  # it has no sizes
        and (result.dtype, result.layout) == (wanted.dtype, wanted.layout)
        and len(result.shape) == len(wanted.shape)
        and all(map(_may_equal, result.shape, wanted.shape))
    )


def _may_equal(size: int, wanted: Dim) -> bool:
    return size == wanted or isinstance(wanted, Expr)


def describe(value: Any) -> str:
    """Return a short text for a value: the type of a tensor, else the value itself."""
    if not isinstance(value, torch.Tensor):
        return repr(value)[:80]
    return "a nested tensor" if value.is_nested else str(TensorType.of(value))
