"""Comparison of the results of a graph with PyTorch, to the bit."""

from collections.abc import Iterator
from typing import Any

import torch
from torch.utils._pytree import tree_flatten


def first_difference(expected: Any, actual: Any, *, values: bool = True) -> str:
    """Return where and how two results differ; "" where they do not.

    Args:
        expected: What PyTorch returned.
        actual: What the graph returned.
        values: Compare content too, not only structure, shapes and dtypes.
    """
    return next(_differences(expected, actual, values), "")


def _differences(expected: Any, actual: Any, values: bool) -> Iterator[str]:
    expected_leaves, expected_spec = tree_flatten(expected)
    actual_leaves, actual_spec = tree_flatten(actual)
    if expected_spec != actual_spec:
        yield f"structure: expected {expected_spec}, got {actual_spec}"
        return
    for position, (left, right) in enumerate(zip(expected_leaves, actual_leaves, strict=True)):
        difference = _leaf_difference(left, right, values)
        if difference:
            yield f"result {position}: {difference}"


def _leaf_difference(expected: Any, actual: Any, values: bool) -> str:
    if not isinstance(expected, torch.Tensor) or not isinstance(actual, torch.Tensor):
        same = type(expected) is type(actual) and (expected == actual or expected != expected != actual)
        return "" if same else f"expected {expected!r}, got {actual!r}"
    for what in ("dtype", "shape", "layout", "device"):
        left, right = getattr(expected, what), getattr(actual, what)
        if left != right:
            return f"{what}: expected {left}, got {right}"
    if not values or same_bits(expected, actual):
        return ""
    differing = int((element_bytes(expected) != element_bytes(actual)).sum())
    return f"values: {differing} bytes of {expected.numel()} {expected.dtype} elements differ"


def same_bits(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Return whether two tensors of one dtype and shape hold the same bits: NaN equals NaN, 0.0 not -0.0."""
    return torch.equal(element_bytes(left), element_bytes(right))


def element_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """Return the elements of a tensor in row-major order, as bytes."""
    dense = tensor.to_dense() if tensor.layout is not torch.strided else tensor
    packed = dense.detach().resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format)
    return packed.as_strided((packed.numel(),), (1,)).view(torch.uint8)


def same_strides(expected: Any, actual: Any) -> bool:
    """Return whether all tensors of two equal results are laid out in the same way."""
    pairs = zip(tree_flatten(expected)[0], tree_flatten(actual)[0], strict=True)
    return all(
        left.stride() == right.stride()
        for left, right in pairs
        if isinstance(left, torch.Tensor) and left.layout is torch.strided
    )
