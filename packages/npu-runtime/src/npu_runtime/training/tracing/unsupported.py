"""Checks that reject unsupported steps; errors name the user's line where it is known."""

from __future__ import annotations

import contextlib
import functools
import operator
from collections.abc import Callable
from typing import Any, NoReturn

import torch
from torch.fx import GraphModule, Node

from npu_ir._torch.fake import is_fake
from npu_ir._torch.patches import set_attributes
from npu_ir._torch.tracing import is_tracing
from npu_ir.capture.export_messages import strip_advice
from npu_ir.capture.fx_nodes import location_of
from npu_ir.core.user_code import calling_line, user_line
from npu_runtime._torch.ops import OpOverload
from npu_runtime._torch.tracing_context import written_arguments
from npu_runtime.errors import TracingError
from npu_runtime.training.tracing.components import TrainingComponents

_NUMBERS = (bool, int, float, complex, torch.SymBool, torch.SymInt, torch.SymFloat)
_SYNCHRONIZING = ("aten._local_scalar_dense.default", "aten.nonzero.default", "aten.is_nonzero.default")


def reject_fake_tensors(components: TrainingComponents) -> None:
    """Refuse models of FakeTensors, which a trace would mix with its own."""
    for name, tensor in (components.parameters() | components.buffers()).items():
        if is_fake(tensor):
            raise TracingError(
                f"{name!r} is a FakeTensor: it has no data",
                fix='make the model outside of FakeTensorMode; compile_ir takes one on the device "meta"',
            )


def reject_sparse_tensors(components: TrainingComponents) -> None:
    """Refuse models with sparse parameters or buffers: a step reads weights where they are in memory."""
    for name, tensor in (components.parameters() | components.buffers()).items():
        if tensor.layout is not torch.strided:
            raise TracingError(
                f"{name!r} is a tensor of layout {str(tensor.layout).removeprefix('torch.')}, "
                "and a step reads its weights where they are in memory",
                fix="keep its indices and values as buffers, and make the sparse tensor of them in forward: "
                "torch.sparse_coo_tensor(indices, values, size)",
            )


def reject_hooks(components: TrainingComponents) -> None:
    """Raise if parameters have hooks: a trace substitutes the parameters, and the hooks would not run."""
    for key, parameter in components.parameters().items():
        if parameter._backward_hooks or getattr(parameter, "_post_accumulate_grad_hooks", None):
            raise TracingError(
                f"the parameter {key!r} has hooks, which would not run in a graph",
                fix="change gradients between backward() and step() of a step function, "
                "or in a module's own hook",
            )


_SCALER_FIX = (
    "autocast=torch.bfloat16 needs no scaling; or keep steps in float16 in eager PyTorch; "
    "GradScaler(enabled=False) may stay"
)


def scaler_error(what: str, where: str | None = None) -> TracingError:
    """Return the error for a step with a GradScaler, which reads gradients in Python to find overflows."""
    return TracingError(
        f"{what}, which decides in Python, by the content of the gradients, whether to take a step",
        where=where,
        fix=_SCALER_FIX,
    )


def reject_scalers() -> contextlib.AbstractContextManager[None]:
    """Raise when a traced step calls an enabled GradScaler, before its state becomes fake tensors."""
    kind = torch.amp.GradScaler
    plain = {name: getattr(kind, name) for name in ("scale", "unscale_", "step", "update")}

    def refusing(name: str) -> Callable[..., Any]:
        @functools.wraps(plain[name])
        def method(scaler: torch.amp.GradScaler, *args: Any, **kwargs: Any) -> Any:
            if scaler.is_enabled() and is_tracing():
                where = calling_line()
                raise scaler_error(f"the step calls {name}() of a GradScaler", where)
            return plain[name](scaler, *args, **kwargs)

        return method

    return set_attributes(*((kind, name, refusing(name)) for name in plain))


def require_tensor(result: Any) -> torch.Tensor:
    """Return a result of a step, which must be a tensor.

    Raises:
        TracingError: It is not a tensor.
    """
    if isinstance(result, torch.Tensor):
        return result
    if result is None or isinstance(result, _NUMBERS):
        raise TracingError(
            f"the step returns {'nothing' if result is None else 'a number'} where its results are tensors",
            fix="return the loss itself, not loss.item(): "
            "call item() on what the step returns, when you need it",
        )
    kind = type(result).__name__
    raise TracingError(
        f"the step returns {kind}, which is not a tensor",
        fix=f"leave the {kind} out of what the model, or the loss function, returns; a model of transformers "
        "returns no cache when it is called with use_cache=False",
    )


def reject_host_sync(module: GraphModule) -> None:
    """Raise if a step reads the contents of a tensor in Python, or needs them for a size.

    Raises:
        TracingError: Names the user's line.
    """
    for node in module.graph.nodes:
        if str(node.target) in _SYNCHRONIZING:
            raise TracingError(
                f"{node.target} reads the content of a tensor in Python, "
                "for which the device would have to wait",
                where=location_of(node),
                fix="keep it a tensor: no .item(), float(), nonzero() or masks as indices in a step",
            )


def reject_unregistered_parameters(module: GraphModule) -> None:
    """Raise if a step reads a trainable tensor that its modules do not register: it would be a constant.

    Raises:
        TracingError: Names the user's line.
    """
    for node in module.graph.nodes:
        constant = getattr(module, str(node.target), None) if node.op == "get_attr" else None
        if isinstance(constant, torch.Tensor) and constant.requires_grad:
            reader = next(iter(node.users), node)
            raise TracingError(
                f"the step reads a tensor of shape {tuple(constant.shape)} that requires gradients, "
                "and that is not a parameter of its modules",
                where=location_of(reader),
                fix="name the module it belongs to: modules=[...]; "
                "or use it through the module, not through a copy",
            )


def reject_write(tensor: torch.Tensor) -> NoReturn:
    """Raise before an op writes into a tensor that is a constant to the graph: the trace would change it.

    Raises:
        TracingError: Names the user's line.
    """
    raise _external_write_error(tensor, calling_line())


def reject_external_writes(module: GraphModule) -> None:
    """Raise if a step writes into a view of a constant of its graph: the next step would not see the write.

    Raises:
        TracingError: Names the user's line.
    """
    for node in module.graph.nodes:
        for item in written_arguments(node.target, node.args, node.kwargs):
            root = _storage_node(item) if isinstance(item, Node) else None
            if root is not None and root.op == "get_attr":
                raise _external_write_error(getattr(module, str(root.target)), location_of(node))


def _storage_node(node: Node) -> Node:
    """Return the node whose memory a view shares; ``lift_fresh`` is a tensor that the step created."""
    while _is_view(node) and isinstance(first := next(iter(node.args), None), Node):
        node = first
    return node


def _is_view(node: Node) -> bool:
    if node.target is operator.getitem:
        return True
    if not isinstance(node.target, OpOverload) or node.target is torch.ops.aten.lift_fresh.default:
        return False
    results = node.target._schema.returns
    return bool(results) and results[0].alias_info is not None


def _external_write_error(tensor: torch.Tensor, where: str | None) -> TracingError:
    return TracingError(
        f"the step writes into a tensor of shape {tuple(tensor.shape)} "
        "that is neither a parameter nor a buffer of its modules",
        where=where,
        fix="make it a buffer: register_buffer; or return what is to be kept",
    )


def tracing_error(error: Exception) -> TracingError:
    """Return the error to raise for one that tracing raised: with the user's line, and a fix."""
    text = strip_advice(str(error).strip()).splitlines()
    kind = type(error).__name__
    where = user_line(error)
    if "DataDependent" in kind or "data-dependent" in str(error):
        return TracingError(
            f"the step decides by the content of a tensor: {text[0] if text else kind}",
            where=where,
            fix="compute both sides and choose with torch.where; keep numbers in tensors, without .item()",
        )
    if "DynamicOutputShape" in kind or "not tracked with proxy" in str(error):
        op = f" (of {text[0]})" if "DynamicOutputShape" in kind else ""
        return TracingError(
            f"the step has sizes that depend on the content of a tensor{op}",
            where=where,
            fix="compute them outside of the step, or keep sizes fixed: pad sequences and mask their losses "
            "rather than pack them",
        )
    if isinstance(error, AttributeError) and "'FakeTensor' object" in text[0]:
        return TracingError(
            f"the step reads an attribute of a tensor that is not one of PyTorch: {text[0]}",
            where=where,
            fix="keep it as an attribute of the module: tensors are replaced while a step is traced",
        )
    return TracingError(
        f"the step cannot be traced: {kind}: {text[0] if text else ''}",
        where=where,
        fix="run the step in eager PyTorch: where that fails, too, it is wrong; while it is traced, "
        "tensors have shapes but no content, so let it do without .numpy(), "
        ".tolist() and what is not an op of PyTorch",
    )
