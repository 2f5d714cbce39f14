"""Calls in an exported program that do not become nodes as they are: dropped, inlined, exchanged, refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch.fx import GraphModule, Node

from npu_ir._torch.ops import OpOverload
from npu_ir.capture.fx_nodes import location_of, make_substitute_node
from npu_ir.errors import ConversionError
from npu_ir.ops.schema import HIGHER_ORDER, find_op

# Calls that do not affect the computed values, with the reason for which they can be dropped.
DROPPED: Mapping[str, str] = {
    "aten._assert_tensor_metadata.default": "every value of a graph has its dtype, and executing checks it",
    "aten.sym_constrain_range.default": "the ranges of symbols say the same, and executing checks them",
    "aten.sym_constrain_range_for_size.default": (
        "the ranges of symbols say the same, and executing checks them"
    ),
    "profiler._record_function_enter.default": "a mark for the profiler",
    "profiler._record_function_enter_new.default": "a mark for the profiler",
    "profiler._record_function_exit._RecordFunction": "a mark for the profiler",
    "profiler._record_function_exit.default": "a mark for the profiler",
    "torch._C._set_grad_enabled": "a graph computes values, never gradients",
    "torch.autograd.grad_mode.set_grad_enabled": "a graph computes values, never gradients",
}

# Ops of tensors without memory, which kernels cannot read, and those that compute the same in memory.
WITH_MEMORY: Mapping[str, str] = {"aten._efficientzerotensor.default": "aten.zeros.default"}

# For the operators that only wrap a body: the positions of the body and of its operands.
_BODY_AND_OPERANDS: Mapping[str, tuple[int, slice]] = {
    "wrap_with_set_grad_enabled": (1, slice(2, None)),
    "tag_activation_checkpoint": (0, slice(1, None)),
    "wrap_activation_checkpoint": (0, slice(1, None)),
    "invoke_subgraph": (0, slice(2, None)),  # between them: the name of the body
    "wrap": (0, slice(1, None)),
    "strict_mode": (0, slice(1, 2)),
    "hints_wrapper": (0, slice(1, 2)),
    "run_const_graph": (0, slice(1, 2)),
}


def wrapped_body(name: str, args: Sequence[Any]) -> tuple[GraphModule, Sequence[Any]] | None:
    """Return body and operands of an operator that only runs its body once; None for other calls.

    Gradient modes, checkpointing and the like do not affect the computed values, so the body is inlined.
    """
    positions = _BODY_AND_OPERANDS.get(name.removeprefix(f"{HIGHER_ORDER}."))
    if positions is None:
        return None
    body, operands = args[positions[0]], args[positions[1]]
    assert isinstance(body, GraphModule), f"{name} calls a {type(body)}"
    return body, operands[0] if positions[1].stop else operands


def require_convertible(node: Node, name: str) -> None:
    """Refuse a call that a graph cannot represent, with the problem and a fix."""
    if name in _REFUSED:
        problem, fix = _REFUSED[name]
        raise ConversionError(problem, where=location_of(node), fix=fix)
    if name.startswith(_QUANTIZING):
        raise ConversionError(
            f"{name} makes a quantized tensor, but its FakeTensor is not quantized (torch 2.13)",
            where=location_of(node),
            fix="compute on integers and scales (torch.ao.quantization.pt2e, torchao), "
            "or register_conversion(...)",
        )
    misstated = _size_problem(name, node)
    if misstated is not None:
        raise ConversionError(misstated[0], where=location_of(node), fix=misstated[1])
    if find_op(name) is None and not isinstance(node.target, OpOverload):
        raise ConversionError(
            f"{name} is not an operator of torch.ops, nor a function of numbers",
            where=location_of(node),
            fix=f"register_conversion({name!r})",
        )


_QUANTIZING = (
    "aten.quantize_per_",
    "aten._empty_affine_quantized",
    "aten._empty_per_channel_affine_quantized",
)


def _size_problem(name: str, node: Node) -> tuple[str, str] | None:
    """Return problem and fix of a call whose sizes PyTorch states wrongly; None if they are right."""
    if name == "aten.unique_consecutive.default":
        dim = node.args[3] if len(node.args) > 3 else node.kwargs.get("dim")
        tensor = node.args[0].meta["val"]  # type: ignore[union-attr]
        if node.meta["val"][0].dim() != (1 if dim is None else tensor.dim()):
            return (
                "PyTorch states the shape of unique_consecutive wrongly here (torch 2.13)",
                "pass a 1-D tensor without dim, or a dim that is not negative",
            )
    if name == "aten.masked_select.default":
        tensor, mask = (item.meta["val"] for item in node.args)  # type: ignore[union-attr]
        if len(mask.shape) > len(tensor.shape) or any(
            isinstance(size, int) and size == 1 != wanted
            for size, wanted in zip(reversed(tensor.shape), reversed(mask.shape), strict=False)
        ):
            return (
                (
                    "PyTorch bounds the size of masked_select by its first tensor, "
                    "which is broadcast here (torch 2.13)"
                ),
                "broadcast first: torch.masked_select(x.expand(mask.shape), mask)",
            )
    return None


_OUTSIDE = "a graph holds only operators of PyTorch: {} runs code of another kind"
_REFUSED: dict[str, tuple[str, str]] = {
    **{
        f"higher_order.{name}": (
            _OUTSIDE.format(name),
            (
                "export the model before it is lowered or compiled, "
                f"or register_conversion('higher_order.{name}')"
            ),
        )
        for name in (
            "aoti_call_delegate",
            "call_torchbind",
            "executorch_call_delegate",
            "inductor_compiled_code",
            "inline_asm_elementwise",
            "triton_kernel_wrapper_functional",
            "triton_kernel_wrapper_mutation",
        )
    },
    **{
        f"higher_order.{name}": (
            f"{name} takes an operator as an argument, which is not plain data",
            f"call the operator itself, or register_conversion('higher_order.{name}')",
        )
        for name in ("out_dtype", "run_and_save_rng_state", "run_with_rng_state", "flat_apply", "foreach_map")
    },
    **{
        f"torch.amp.autocast_mode.{name}": (
            f"an autocast region begins or ends in the middle of the program ({name})",
            "open and close it in one function: with torch.autocast(...):",
        )
        for name in ("_enter_autocast", "_exit_autocast")
    },
}


def unwrap_token(name: str, node: Node) -> Node | None:
    """Return a substitute node for the plain call in a call with a side-effect token; else None."""
    if name != "higher_order.with_effects":
        return None
    _, op, *args = node.args
    results = node.meta["val"][1:]
    return make_substitute_node(node, op, tuple(args), results[0] if len(results) == 1 else tuple(results))
