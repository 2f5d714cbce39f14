"""Copies on cuda that the table of probes has no memory for, or no way to lay out."""

import struct

import npu_cuda
from npu_cuda import OpKind, TensorSpec
from tests.support.emulator.module import needs_emulator


@needs_emulator
def test_a_strided_copy_counts_less_than_two_to_the_31_elements() -> None:
    strided, dense = TensorSpec("uint8", [1 << 31], [2]), TensorSpec("uint8", [1 << 31])

    chosen = npu_cuda.select(OpKind.Copy, [strided], [dense], device="cuda")

    assert chosen.kernel_id is None
    reasons = dict(chosen.refusals)
    assert reasons["copy.any.cuda"] == "y has 2147483648 elements; it takes less than 2^31"


@needs_emulator
def test_items_of_16_bytes_need_no_alignment_to_16() -> None:
    numbers = [float(i) for i in range(24)]
    memory = npu_cuda.empty([25], "float64", "cuda")
    for start in (0, 1):  # the first is aligned to 16 bytes, the second to 8
        x = memory.view([24], offset=start)
        x.copy_from(struct.pack("<24d", *numbers))
        for strides in ([3, 1], [1, 4]):
            y = npu_cuda.empty([4, 3], "complex128", "cuda")
            npu_cuda.op_call(OpKind.Copy, [x.view([4, 3], strides, dtype="complex128")], [y])
            pairs = [
                at for i in range(4) for j in range(3) for at in (2 * (i * strides[0] + j * strides[1]),)
            ]
            expected = [number for at in pairs for number in numbers[at : at + 2]]
            assert list(struct.unpack("<24d", y.to_bytes())) == expected
