"""Types found on the device meta: those of real results, and of FakeTensors where both know them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from npu_ir import Graph, TensorType
from npu_ir._torch.ops import OpOverload
from npu_ir.core.types import Type
from npu_ir.ops.calls import bind_arguments
from npu_ir.ops.inference import infer_types
from npu_ir.ops.meta_types import is_alike_on_devices, types_on_meta
from npu_ir.ops.schema import ArgKind, find_op, schema_of
from npu_ir.ops.torch_sizes import traced_type
from tests.support.processes import run_python
from tests.support.rows import each_row

F32 = torch.float32


def ops_alike() -> Iterator[OpOverload]:
    """Yield every op of ATen whose types are found on meta, and that takes tensors alone."""
    for name in sorted(torch._C._dispatch_get_all_op_names()):
        namespace, _, rest = name.partition("::")
        base, _, overload = rest.partition(".")
        op = find_op(f"{namespace}.{base}.{overload or 'default'}") if namespace == "aten" else None
        if isinstance(op, OpOverload) and is_alike_on_devices(op):
            kinds = [arg.kind for arg in schema_of(op).args if arg.required]
            if kinds and all(kind is ArgKind.TENSOR for kind in kinds):
                yield op


def samples() -> dict[str, torch.Tensor]:
    image = torch.rand(2, 3, 4, 5)
    return {
        "contiguous": image,
        "permuted": image.permute(2, 0, 3, 1),
        "channels-last": image.to(memory_format=torch.channels_last),
        "gaps": torch.rand(4, 3, 4, 10)[::2, :, :, ::2],
        "expanded": torch.rand(2, 1, 4, 1).expand(2, 3, 4, 5),
        "empty": torch.rand(2, 0, 4, 5),
        "integers": (image * 8).to(torch.int64),
        "half": image.half(),
    }


def real_types(op: OpOverload, tensors: list[torch.Tensor]) -> list[Type] | None:
    try:
        result = op(*tensors)
    except (RuntimeError, IndexError, NotImplementedError, TypeError, ValueError):
        return None
    results = list(result) if isinstance(result, (tuple, list)) else [result]
    return [traced_type(item, int) for item in results]


@pytest.mark.filterwarnings("ignore")
def test_types_on_meta_are_those_of_real_results_for_every_op_and_layout() -> None:
    wrong, compared = [], 0

    for op in ops_alike():
        count = sum(arg.required for arg in schema_of(op).args)
        names = [arg.name for arg in schema_of(op).args if arg.required]
        binding = bind_arguments(schema_of(op), count, names, {})
        for layout, tensor in samples().items():
            others = [tensor.flip(0) if tensor.dim() else tensor] * (count - 1)
            tensors = [tensor, *others]
            real = real_types(op, tensors)
            found = types_on_meta(op, binding, [TensorType.of(item) for item in tensors])
            if real is None or found is None:
                continue
            compared += 1
            if list(found) != real:
                wrong.append((str(op), layout, str(found), str(real)))

    assert wrong == []
    assert compared > 1000


@each_row(
    "op_type, shape, strides, attrs, expected",
    {
        "view": ("aten.view.default", (2, 6), None, {"size": [3, 4]}, "f32[3, 4]"),
        "reshape-view": ("aten.reshape.default", (2, 6), None, {"shape": [-1]}, "f32[12]"),
        "reshape-copy": ("aten.reshape.default", (2, 6), (1, 2), {"shape": [-1]}, "f32[12]"),
        "permute": ("aten.permute.default", (2, 3, 4), None, {"dims": [2, 0, 1]}, "f32[4, 2, 3]@[1, 12, 4]"),
        "expand": ("aten.expand.default", (2, 1), None, {"size": [2, 5]}, "f32[2, 5]@[1, 0]"),
        "select": ("aten.select.int", (2, 3), None, {"dim": 1, "index": 0}, "f32[2]@[3]"),
        "to": ("aten.to.dtype", (2, 3), (1, 2), {"dtype": torch.float64}, "f64[2, 3]@[1, 2]"),
        "clone": (
            *("aten.clone.default", (2, 3), (1, 2), {"memory_format": torch.contiguous_format}),
            "f32[2, 3]",
        ),
    },
)
def test_views_and_copies_have_the_strides_that_the_op_gives(
    op_type: str, shape: Any, strides: Any, attrs: dict[str, Any], expected: str
) -> None:
    op = find_op(op_type)
    assert op is not None
    binding = bind_arguments(schema_of(op), 1, ("self",), attrs)

    found = types_on_meta(op, binding, [TensorType(shape, F32, strides)])

    assert found is not None
    assert [str(type) for type in found] == [expected]


@each_row(
    "op_type",
    {
        "convolution": "aten.conv2d.default",
        "factory": "aten.full.default",
        "product": "aten.linear.default",
        "writes": "aten.relu_.default",
        "random": "aten.rrelu.default",
    },
)
def test_ops_that_may_depend_on_the_device_are_left_to_fake_tensors(op_type: str) -> None:
    op = find_op(op_type)

    assert isinstance(op, OpOverload)
    assert not is_alike_on_devices(op)


def test_a_call_that_fails_on_meta_and_a_sparse_input_are_left_to_fake_tensors() -> None:
    op = find_op("aten.view.default")
    assert op is not None
    binding = bind_arguments(schema_of(op), 1, ("self",), {"size": [7]})
    relu = find_op("aten.relu.default")
    assert relu is not None
    plain = bind_arguments(schema_of(relu), 1, ("self",), {})

    assert types_on_meta(op, binding, [TensorType((2, 3), F32)]) is None
    assert types_on_meta(relu, plain, [TensorType((2, 3), F32, layout=torch.sparse_coo)]) is None


def test_dispatch_modes_around_an_inference_do_not_see_it() -> None:
    from torch.utils._python_dispatch import TorchDispatchMode

    class Refusing(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            raise AssertionError(f"{func} is seen")

    x = Graph().add_input("x", TensorType((3, 5, 7), F32))

    with Refusing():
        found = infer_types("aten.permute.default", [x], {"dims": [2, 0, 1]}, operands=["self"], symbols={})

    assert found == [TensorType((7, 3, 5), F32, (1, 35, 7))]


def test_types_of_views_do_not_import_the_compiler_of_pytorch() -> None:
    script = """
import sys
import torch
from npu_ir import Graph, TensorType
from npu_ir.ops.inference import infer_types

x = Graph().add_input("x", TensorType((2, 3), torch.float32))
print(infer_types("aten.permute.default", [x], {"dims": [1, 0]}, operands=["self"], symbols={}))
print(infer_types("aten.reshape.default", [x], {"shape": [-1]}, operands=["self"], symbols={}))
print("torch._dynamo" in sys.modules)
"""

    done = run_python(script)

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "False"
