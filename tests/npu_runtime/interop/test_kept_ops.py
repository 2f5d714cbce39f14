"""The ops that are traced whole for PyTorch's compiler."""

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from npu_runtime._torch.dynamo import undecomposed_composite_ops


def test_an_op_that_is_registered_anew_is_traced_as_it_is_now(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[set[str]] = []

    @contextlib.contextmanager
    def override(ops: Any) -> Iterator[None]:
        kept.append({str(op) for op in ops})
        yield

    monkeypatch.setattr("torch.export.exported_program._override_composite_implicit_decomp", override)

    for schema in ("anew(Tensor x) -> Tensor", "anew(Tensor(a!) x) -> ()"):
        library = torch.library.Library("kept_whole", "FRAGMENT")
        library.define(schema)
        library.impl("anew", lambda x: x + 1, "CompositeImplicitAutograd")
        with undecomposed_composite_ops():
            pass
        library._destroy()

    assert ["kept_whole.anew.default" in ops for ops in kept] == [True, False]
    assert "aten.linear.default" in kept[1]
