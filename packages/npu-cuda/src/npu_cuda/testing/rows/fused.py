"""The row of the op Fused."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

from npu_cuda import _C
from npu_cuda.testing.case import Array, Attrs, Case, OpRow, Refusal, TensorLayout

OP = "Fused"
FLOAT32, FLOAT16 = (2, 32), (2, 16)  # code and bits in DLPack
TOO_MANY = 40

# Op and its tensors: the inputs 0 and 1, the output 2, the temporary 3.
PRODUCT_PLUS_INPUT = (("Mul", (0, 1), (3,)), ("EltwiseAdd", (3, 0), (2,)))


def fused_attrs(
    steps: Sequence[tuple[str, Sequence[int], Sequence[int]]],
    temporaries: Sequence[tuple[int, int]] = (FLOAT32,),
) -> Attrs:
    """Return the attributes of steps of ops without attributes, as ``csrc/ops/fused/payload.h`` has them."""
    words = [word for dtype in temporaries for word in dtype]
    for op, inputs, outputs in steps:
        words += [int(_C.kinds()[op]), len(inputs), len(outputs), 0, 0, *inputs, *outputs]
    payload = struct.pack(f"<{len(words)}I", *words)
    return {"temporaries": len(temporaries), "steps": len(steps), "payload": payload}


def reference(inputs: Sequence[Array], attrs: Attrs) -> list[Array]:  # noqa: ARG001 - all cases compute it
    return [inputs[0] * inputs[1] + inputs[0]]


def cases() -> Iterator[Case]:
    attrs = fused_attrs(PRODUCT_PLUS_INPUT)
    shapes = ((), (1,), (0, 3), (5,), (33, 129), (3, 4, 5), (1025,), (300, 1000))
    for shape in shapes:
        layout = TensorLayout(shape)
        yield Case(f"{shape}", (layout, layout), (layout,), attrs)
    for dtype in ("float16", "bfloat16"):
        layout = TensorLayout((33, 129), dtype)
        yield Case(dtype, (layout, layout), (layout,), attrs)
    rows = TensorLayout((33, 129))
    yield Case("a broadcast row", (rows, TensorLayout((129,))), (rows,), attrs)
    yield Case("a broadcast column", (rows, TensorLayout((33, 1))), (rows,), attrs)
    yield Case("one element", (rows, TensorLayout(())), (rows,), attrs)
    yield Case("transposed", (rows, TensorLayout((33, 129), strides=(1, 33))), (rows,), attrs)
    yield Case("an output with gaps", (rows, rows), (TensorLayout((33, 129), strides=(140, 1)),), attrs)
    yield Case("misaligned", (TensorLayout((33, 129), shift=1), rows), (rows,), attrs)


def _wrong_steps() -> Iterator[tuple[str, Attrs, str]]:
    right = fused_attrs(PRODUCT_PLUS_INPUT)
    chain = [("Abs", (0,), (3,)), *(("Abs", (n,), (n + 1,)) for n in range(3, 2 + TOO_MANY))]
    many = (FLOAT32,) * (TOO_MANY * 2 + 3)
    yield "no output written", fused_attrs([("Abs", (0,), (3,))]), "no step writes output 0"
    yield "read too early", fused_attrs([("Abs", (3,), (2,))]), "tensor 3 is read before it is written"
    yield "written twice", fused_attrs([("Abs", (0,), (2,))] * 2), "step 1: tensor 2 is written already"
    yield "an input written", fused_attrs([("Abs", (0,), (1,))]), "tensor 1 is written already"
    yield "a number of no tensor", fused_attrs([("Abs", (0,), (9,))]), "a step uses tensor 9; there are 4"
    yield "no result", fused_attrs([("Abs", (0,), ())]), "op of kind 70 with 1 inputs and 0 outputs"
    yield "no pointwise op", fused_attrs([("Gemm", (0, 1), (2,))]), "there is no pointwise op of kind 2"
    yield "inputs of another op", fused_attrs([("Abs", (0, 1), (2,))]), "op of kind 70 with 2 inputs"
    yield "what the op refuses", fused_attrs([("BitwiseNot", (0,), (2,))]), "not defined for float32"
    yield "an unknown dtype", fused_attrs(PRODUCT_PLUS_INPUT, [(5, 64)]), "not a real number of 64 bits"
    yield "a chain that ends in a temporary", fused_attrs(chain, many), "no step writes output 0"
    yield "fewer words", {**right, "payload": right["payload"][:-4]}, "the list of steps ends too early"
    yield "half a word", {**right, "payload": right["payload"] + b"\0"}, "there is more than the steps"
    yield "fewer temporaries", {"temporaries": 9, "steps": 0, "payload": b"\0" * 8}, "ends too early"


def refusals() -> Iterator[Refusal]:
    rows = TensorLayout((4, 5))
    for name, attrs, match in _wrong_steps():
        yield Refusal(name, (rows, rows), (rows,), match, attrs=attrs)
    yield Refusal(
        "shapes that do not broadcast",
        (rows, TensorLayout((3, 5))),
        (rows,),
        "an input is [3, 5], the output is [4, 5]",
        attrs=fused_attrs(PRODUCT_PLUS_INPUT),
    )
    yield Refusal(
        "outputs of two shapes",
        (rows, rows),
        (rows, TensorLayout((5,))),
        "a result is [5]",
        attrs=fused_attrs([("Abs", (0,), (2,)), ("Abs", (1,), (3,))]),
    )
    yield Refusal(
        "in place", (rows, rows), (rows,), "this op does not work in place",
        attrs=fused_attrs(PRODUCT_PLUS_INPUT), overlaps={0: (0, 0)}, status="InvalidArgument"
    )  # fmt: skip
    yield Refusal("no attributes", (rows,), (rows,), "has no default attributes", status="InvalidArgument")


FUSED = OpRow("fused", OP, "FUSE", reference, cases, refusals)
