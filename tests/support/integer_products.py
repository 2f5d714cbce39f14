"""Products of rounded rows whose results are known to the bit, whatever the order of sums is.

Run as a module, it computes them with the vectors that the environment allows, and fails where one differs.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import torch
from torch import Tensor

import npu_cuda
from npu_passes.ops.dynamic_quantized import dequantize_activations, round_activations
from npu_passes.ops.quantized import pack_nibbles

# Rows and columns of A, columns of D, and elements of a group and of a block.
FORMS = (
    (1, 256, 21, 256, 32), (4, 256, 9, 32, 32), (9, 192, 9, 64, 32), (2, 288, 9, 288, 32),
    (3, 288, 13, 32, 16), (5, 130, 8, 130, 32), (1, 144, 7, 48, 32), (6, 96, 5, 16, 8), (2, 66, 5, 22, 6),
    (11, 96, 35, 48, 32), (70, 256, 9, 32, 32), (66, 1040, 5, 1040, 16), (65, 1024, 5, 1024, 1024),
)  # fmt: skip


def multiply(x: Tensor, integers: Tensor, scales: Tensor, block: int, bits: int) -> Tensor:
    """Return what the kernel of the host computes of integers of a weight, which are int8."""
    found = torch.full((len(x), len(integers)), float("nan"))
    stored = integers if bits == 8 else pack_nibbles(integers)
    kind = npu_cuda.kinds()["DynamicQuantizedGemm"]
    npu_cuda.op_call(kind, [x, stored, scales], [found], *npu_cuda.attrs("DQGM", block=block))
    return found


def products() -> Iterator[tuple[str, Tensor, Tensor]]:
    """Yield what each product is called, what the kernel computes, and what it is."""
    for bits, least, largest in ((8, -128, 127), (4, -8, 7)):
        for form in FORMS:
            name = f"{bits} bits, {form}"
            yield f"{name}, random", *_random(form, bits, least, largest)
            yield f"{name}, largest", *_constant(form, bits, least, 127)
            yield f"{name}, largest of the other sign", *_constant(form, bits, largest, -127)
            yield f"{name}, rounding", *_rounding(form, bits)


def _random(form: tuple[int, ...], bits: int, least: int, largest: int) -> tuple[Tensor, Tensor]:
    # Scales are powers of 2, so that sums have few bits.
    m, k, n, group, block = form
    blocks = -(-group // block)
    numbers = torch.randint(-127, 128, (m, k // group, group))
    numbers[..., ::block] = 127  # the scale of a block is its largest number over 127
    powers = 2.0 ** torch.randint(-1, 2, (m, k // group, blocks)).repeat_interleave(block, -1)[..., :group]
    x = (numbers * powers).flatten(1)
    integers = torch.randint(least, largest + 1, (n, k)).to(torch.int8)
    scales = 2.0 ** torch.randint(-1, 2, (n, k // group))
    weight = integers * scales.repeat_interleave(group, 1).double()
    return multiply(x, integers, scales, block, bits), x.double() @ weight.T


def _constant(form: tuple[int, ...], bits: int, integer: int, number: float) -> tuple[Tensor, Tensor]:
    m, k, n, group, block = form
    integers = torch.full((n, k), integer, dtype=torch.int8)
    found = multiply(torch.full((m, k), float(number)), integers, torch.ones(n, k // group), block, bits)
    return found, torch.full((m, n), float(number * integer * k), dtype=torch.float64)


def _rounding(form: tuple[int, ...], bits: int) -> tuple[Tensor, Tensor]:
    # A weight of ones in its diagonal gives the numbers as they are rounded.
    m, k, _, group, block = form
    x = torch.randn(m, k) * torch.logspace(-3, 3, k)
    found = multiply(x, torch.eye(k, dtype=torch.int8), torch.ones(k, k // group), block, bits)
    return found, dequantize_activations(*round_activations(x, group, block), block).double()


def main() -> None:
    torch.manual_seed(0)
    wrong = [name for name, found, expected in products() if not torch.equal(found.double(), expected)]
    sys.exit("\n".join(wrong) or 0)


if __name__ == "__main__":
    main()
