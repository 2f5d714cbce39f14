"""Operators are found by name, those of libraries that come and go included."""

import torch

from npu_ir.ops.schema import find_op, resolve


def test_an_operator_of_pytorch_is_found() -> None:
    assert resolve("aten.relu.default") is torch.ops.aten.relu.default


def test_an_operator_is_found_once_it_is_registered() -> None:
    assert find_op("aten.npu_test_late.default") is None

    with torch.library._scoped_library("aten", "FRAGMENT") as library:
        library.define("npu_test_late(Tensor x) -> Tensor")

        assert find_op("aten.npu_test_late.default") is not None


def test_an_operator_of_another_library_is_looked_up_each_time() -> None:
    with torch.library._scoped_library("npu_test_schema", "DEF") as library:
        library.define("twice(Tensor x) -> Tensor")
        assert find_op("npu_test_schema.twice.default") is not None

    assert find_op("npu_test_schema.twice.default") is None


def test_what_is_not_the_name_of_an_operator_is_not_found() -> None:
    assert resolve("relu") is None
    assert resolve("aten.relu.nonsense") is None
