"""When two results are the same: containers, dtypes, shapes, and values to the bit."""

from typing import Any

import torch
from torch.utils import _pytree

from tests.support.comparison import same_bits


def assert_same(
    actual: Any, expected: Any, what: str, tolerance: float = 0.0, *, any_nan: bool = False
) -> None:
    """Fail unless both nest alike, in containers of the same types, and agree at every leaf.

    With ``any_nan``, one kind of NaN is as good as another: which one a sum of two of them is, is up to the
    order of the operands of an instruction.
    """
    actual_leaves, actual_spec = _pytree.tree_flatten(actual)
    expected_leaves, expected_spec = _pytree.tree_flatten(expected)
    assert actual_spec == expected_spec, f"{what} nests as {actual_spec}, not as {expected_spec}"
    assert _containers(actual) == _containers(expected), f"{what} consists of other types"
    if any_nan:
        actual_leaves, expected_leaves = (
            list(map(_with_one_nan, leaves)) for leaves in (actual_leaves, expected_leaves)
        )
    for index, (left, right) in enumerate(zip(actual_leaves, expected_leaves, strict=True)):
        _assert_same_leaf(left, right, f"leaf {index} of {what}", tolerance)


def _with_one_nan(leaf: Any) -> Any:
    is_float = isinstance(leaf, torch.Tensor) and leaf.dtype.is_floating_point and leaf.dtype.itemsize > 1
    return torch.where(leaf.isnan(), torch.nan, leaf) if is_float and leaf.layout is torch.strided else leaf


def _containers(tree: Any) -> list[type]:
    """Return the type of every container in ``tree``, outermost first."""
    if _pytree.tree_is_leaf(tree):
        return []
    children, _ = _pytree.SUPPORTED_NODES[_pytree._get_node_type(tree)].flatten_fn(tree)
    return [type(tree), *(kind for child in children for kind in _containers(child))]


def _assert_same_leaf(actual: Any, expected: Any, what: str, tolerance: float) -> None:
    if not isinstance(expected, torch.Tensor):
        same = type(actual) is type(expected) and repr(actual) == repr(expected)
        assert same, f"{what} is {actual!r}, not {expected!r}"
        return
    assert isinstance(actual, torch.Tensor), f"{what} is {actual!r}, not a tensor"
    assert actual.dtype == expected.dtype, f"{what} has another dtype"
    assert actual.shape == expected.shape, f"{what} has another shape"
    assert actual.layout is expected.layout, f"{what} has another layout"
    if expected.layout is not torch.strided:
        assert_same(_sparse_parts(actual), _sparse_parts(expected), what, tolerance)
        return
    if tolerance and expected.dtype.itemsize > 1:
        torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance, equal_nan=True)
    elif not same_bits(actual, expected):
        torch.testing.assert_close(actual, expected, rtol=0, atol=0, equal_nan=True)
        raise AssertionError(f"{what} differs in its bits (0.0 and -0.0, or kinds of nan)")


def _sparse_parts(tensor: torch.Tensor) -> list[torch.Tensor]:
    """Return the dense tensors that a sparse one consists of."""
    if tensor.layout is torch.sparse_coo:
        return [tensor._indices(), tensor._values()]
    by_row = tensor.layout in (torch.sparse_csr, torch.sparse_bsr)
    compressed = (
        [tensor.crow_indices(), tensor.col_indices()]
        if by_row
        else [tensor.ccol_indices(), tensor.row_indices()]
    )
    return [*compressed, tensor.values()]
