"""Time of convolutions by packed weights and of attention on the host, relative to PyTorch's; one thread."""

from __future__ import annotations

import statistics
import time
import timeit
from collections.abc import Callable, Mapping
from typing import Any

import torch
from bars import Bar
from torch import Tensor
from torch.nn import functional as F

from npu_cuda import _C, attrs

# Inputs, height and width, outputs, kernel, stride, groups; images of one, padded by half the kernel.
CONVOLUTIONS = {
    "ResNet, stem": (3, 224, 64, 7, 2, 1),
    "ResNet, 64 of 56": (64, 56, 64, 3, 1, 1),
    "ResNet, 128 of 28": (128, 28, 128, 3, 1, 1),
    "ResNet, 256 of 14": (256, 14, 256, 3, 1, 1),
    "ResNet, 512 of 7": (512, 7, 512, 3, 1, 1),
    "ResNet, 64 to 128, stride 2": (64, 56, 128, 3, 2, 1),
    "ResNet-50, 64 to 256, 1 x 1": (64, 56, 256, 1, 1, 1),
    "ResNet-50, 256 to 64, 1 x 1": (256, 56, 64, 1, 1, 1),
    "ResNet-50, 1024 to 256, 1 x 1": (1024, 14, 256, 1, 1, 1),
    "MobileNet, 16 to 64, 1 x 1": (16, 112, 64, 1, 1, 1),
    "MobileNet, 480 to 112, 1 x 1": (480, 14, 112, 1, 1, 1),
    "MobileNet, depthwise 64 of 112, stride 2": (64, 112, 64, 3, 2, 64),
    "MobileNet, depthwise 72 of 56": (72, 56, 72, 3, 1, 72),
    "MobileNet, depthwise 120 of 28, 5 x 5": (120, 28, 120, 5, 1, 120),
    "MobileNet, depthwise 480 of 14": (480, 14, 480, 3, 1, 480),
    "MobileNet, depthwise 960 of 7, 5 x 5": (960, 7, 960, 5, 1, 960),
}
# Heads, queries, keys, size of a head, whether it is causal; heads are side by side in memory.
ATTENTIONS = {
    "16 causal, 8 heads of 32": (8, 16, 16, 32, True),
    "128 causal, 8 heads of 32": (8, 128, 128, 32, True),
    "128, 12 heads of 64": (12, 128, 128, 64, False),
    "197, 6 heads of 64": (6, 197, 197, 64, False),
    "1024 causal, 8 heads of 64": (8, 1024, 1024, 64, True),
    "1 of 1024, 8 heads of 64": (8, 1, 1024, 64, False),
}

Run = Callable[[], Any]


def program(kind: str, inputs: list[Tensor], output: Tensor, schema: str, **numbers: float) -> Run:
    """Return a program of one op, bound to its tensors, which returns its output."""
    made = _C.Program("host")
    tensors = [*inputs, output]
    slots = [
        made.slot(_C.TensorSpec(str(x.dtype).removeprefix("torch."), x.shape, x.stride(), 16))
        for x in tensors
    ]
    made.add(_C.kinds()[kind], slots[:-1], slots[-1:], *attrs(schema, **numbers))
    made.finalize()
    for slot, tensor in zip(slots, tensors, strict=True):
        made.bind(slot, tensor)

    def run() -> Tensor:
        made.run()
        return output

    return run


def panels_of(weight: Tensor) -> Tensor:
    """Return the panels of the weights of a convolution without groups."""
    outputs = weight.shape[0]
    matrix = weight.permute(2, 3, 1, 0).reshape(-1, outputs)
    width = next((width for width in (16, 32) if outputs <= width), 64)
    padded = F.pad(matrix, (0, -outputs % width))
    return padded.reshape(len(matrix), -1, width).transpose(0, 1).contiguous()[None]


def convolutions(
    inputs: int, size: int, outputs: int, kernel: int, stride: int, groups: int
) -> dict[str, Run]:
    padding = kernel // 2
    x = torch.randn(1, inputs, size, size).to(memory_format=torch.channels_last)
    weight = torch.randn(outputs, inputs // groups, kernel, kernel).to(memory_format=torch.channels_last)
    bias = torch.randn(outputs)
    result = torch.empty_like(F.conv2d(x, weight, bias, stride, padding, 1, groups))
    numbers = {"stride_h": stride, "stride_w": stride, "padding_h": padding, "padding_w": padding}
    if groups > 1:
        ours = program("Conv", [x, weight, bias], result, "CONV", **numbers, groups=groups)
    else:
        packed = {"kernel_h": kernel, "kernel_w": kernel, **numbers, "has_bias": 1}
        ours = program("PackedConv", [x, panels_of(weight), bias], result, "CNVP", **packed)
    layout: tuple[Any, ...] = ([padding] * 2, [stride] * 2, [1, 1], groups)
    mkldnn = torch.ops.mkldnn
    reordered = mkldnn._reorder_convolution_weight(weight.contiguous(), *layout, list(x.shape))
    return {
        "ours": ours,
        "torch": lambda: F.conv2d(x, weight, bias, stride, padding, 1, groups),
        "oneDNN, packed": lambda: mkldnn._convolution_pointwise(x, reordered, bias, *layout, "none", [], ""),
    }


def attentions(heads: int, queries: int, keys: int, size: int, is_causal: bool) -> dict[str, Run]:
    q, k, v = (torch.randn(1, rows, heads, size).transpose(1, 2) for rows in (queries, keys, keys))
    result = torch.empty_like(q)
    return {
        "ours": program("Attention", [q, k, v], result, "ATTN", is_causal=int(is_causal)),
        "torch": lambda: F.scaled_dot_product_attention(q, k, v, is_causal=is_causal),
    }


def measure(quick: bool) -> list[dict[str, Any]]:
    """Return a row per layer: its title, our time in us, and its ratio to each peer's."""
    torch.manual_seed(0)
    rounds, seconds = (5, 0.003) if quick else (15, 0.02)
    kinds: tuple[tuple[Mapping[str, Any], Callable[..., dict[str, Run]]], ...] = (
        (CONVOLUTIONS, convolutions),
        (ATTENTIONS, attentions),
    )
    return [
        {"title": title, "kind": make.__name__, **measure_one(make(*numbers), rounds, seconds)}
        for layers, make in kinds
        for title, numbers in layers.items()
    ]


def measure_one(runs: Mapping[str, Run], rounds: int, seconds: float) -> dict[str, Any]:
    with torch.inference_mode():
        numbers = {
            name: max(1, int(seconds / min(timeit.repeat(run, number=1, repeat=3))))
            for name, run in runs.items()
        }
        times: dict[str, list[float]] = {name: [] for name in runs}
        for _ in range(rounds):
            for name, run in runs.items():
                # The time of this thread: other work on the machine matters less.
                spent = timeit.timeit(run, number=numbers[name], timer=time.thread_time)
                times[name].append(spent / numbers[name])
    ours = times.pop("ours")
    ratios = {
        name: statistics.median(mine / other for mine, other in zip(ours, others, strict=True))
        for name, others in times.items()
    }
    return {"us": 1e6 * min(ours), "ratios": ratios}


def bars(rows: list[dict[str, Any]]) -> list[Bar]:
    """Return the limits on the ratios to the best of the peers."""
    values = {
        kind: {row["title"]: max(row["ratios"].values()) for row in rows if row["kind"] == kind}
        for kind in ("convolutions", "attentions")
    }
    return [
        Bar("time of a convolution over the best of PyTorch's and oneDNN's", 1.0, values["convolutions"]),
        Bar("the same, in the mean", 0.8, values["convolutions"], is_mean=True),
        Bar("time of attention over PyTorch's", 0.7, values["attentions"]),
    ]


if __name__ == "__main__":
    torch.set_num_threads(1)
    _C.set_thread_count(1)
    for row in measure(quick=False):
        ratios = "  ".join(f"/ {name} {ratio:.2f}" for name, ratio in row["ratios"].items())
        print(f"{row['title']:42s} {row['us']:10.1f} us  {ratios}", flush=True)
