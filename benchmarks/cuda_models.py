"""Time of whole models and training steps on a GPU: eager PyTorch, torch.compile, and this project.

``python benchmarks/cuda_models.py --compile`` measures on a machine with a GPU, with torchvision. Every
contender takes turns; times are medians of the device.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from machine import machine
from torch import Tensor, nn

from npu_cuda.backend.native import PricedCudaBackend
from npu_ir import extract_ir
from npu_ir.plugins.backend import Backend
from npu_runtime import IRExecutor, TrainStep

WIDTH, HEADS, LAYERS, STEPS, WORDS = 512, 8, 6, 256, 8192
ROUNDS = 30
BACKENDS: dict[str, str | Backend] = {"aten": "aten", "cuda": "cuda", "by cost": PricedCudaBackend()}
Run = Callable[[], object]


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        split = self.qkv(self.first(x)).chunk(3, -1)
        q, k, v = (part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in split)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.second(x))))


class Language(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(STEPS, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, words: Tensor) -> Tensor:
        x = self.words(words) + self.places(torch.arange(words.shape[1], device=words.device))
        return self.head(self.norm(self.blocks(x)))


def resnet() -> nn.Module:
    from torchvision.models import resnet50

    return resnet50()


Made = tuple[nn.Module, Tensor, Tensor]


def language(batch: int, dtype: torch.dtype, device: torch.device) -> Made:
    words = torch.randint(WORDS, (batch, STEPS), device=device)
    return Language().to(device, dtype), words, torch.randint(WORDS, (batch, STEPS), device=device)


def pictures(batch: int, dtype: torch.dtype, device: torch.device) -> Made:
    x = torch.randn(batch, 3, 224, 224, dtype=dtype, device=device)
    return resnet().to(device, dtype), x, torch.randint(1000, (batch,), device=device)


CASES: dict[str, Callable[[torch.device], Made]] = {
    "language model, 1 x 256, f32": lambda device: language(1, torch.float32, device),
    "language model, 8 x 256, f32": lambda device: language(8, torch.float32, device),
    "language model, 8 x 256, bf16": lambda device: language(8, torch.bfloat16, device),
    "ResNet-50, 1 image, f32": lambda device: pictures(1, torch.float32, device),
    "ResNet-50, 32 images, f32": lambda device: pictures(32, torch.float32, device),
}


def loss_of(logits: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(logits.flatten(0, -2).float(), target.flatten())


def captured(run: Run) -> Run:
    """Return the launches of a run as a graph of PyTorch, whose memory the run keeps."""
    for _ in range(3):
        run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()

    def replay(kept: Run = run) -> None:  # noqa: ARG001 - with all that the graph reads
        graph.replay()

    return replay


def inference(made: Made, compiled: bool) -> Iterator[tuple[str, Callable[[], Run]]]:
    model, x, _ = made
    model.eval().requires_grad_(False)
    yield "eager", lambda: lambda: model(x)
    yield "eager, as a graph", lambda: captured(lambda: model(x))
    if compiled:
        function = torch.compile(model, dynamic=False)
        yield "torch.compile", lambda: captured(lambda: function(x))
    graph = extract_ir(model, (x,))
    for name, backend in BACKENDS.items():

        def make(backend: str | Backend = backend) -> Run:
            executor = IRExecutor(graph, model.state_dict(), backend=backend)
            return captured(lambda: executor(x))

        yield name, make


def training(made: Made, compiled: bool) -> Iterator[tuple[str, Callable[[], Run]]]:
    model, x, target = made
    model.train()

    def optimizer() -> torch.optim.Optimizer:
        return torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)

    def eager(function: Callable[[Tensor], Tensor]) -> Run:
        own = optimizer()

        def step() -> None:
            own.zero_grad()
            loss_of(function(x), target).backward()
            own.step()

        return step

    yield "eager", lambda: eager(model)
    if compiled:
        yield "torch.compile", lambda: eager(torch.compile(model, dynamic=False))
    for name, backend in BACKENDS.items():

        def make(backend: str | Backend = backend) -> Run:
            own = torch.optim.AdamW(model.parameters(), lr=1e-5)
            step = TrainStep(model, own, loss_of, backend=backend, borrow=True)
            step(x, target)
            if step.artifact.capture_state != "cuda-graph":
                raise RuntimeError(step.explain())
            return lambda: step(x, target)

        yield name, make


def measured(contenders: Iterator[tuple[str, Callable[[], Run]]]) -> dict[str, Any]:
    """Return milliseconds by contender; a text where one fails."""
    runs: dict[str, Run] = {}
    found: dict[str, Any] = {}
    for name, make in contenders:
        try:
            runs[name] = make()
            for _ in range(3):
                runs[name]()
        except Exception as error:  # noqa: BLE001 - the others are measured
            runs.pop(name, None)
            found[name] = " ".join(f"{type(error).__name__}: {error}".split())[:300]
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(ROUNDS):
        for name, run in runs.items():
            times[name].append(milliseconds(run))
    return {**{name: statistics.median(each) for name, each in times.items()}, **found}


def milliseconds(run: Run) -> float:
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    begin.record()
    run()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end))


SECTION = """
## Models and training steps

On {gpu}, with PyTorch {torch} for CUDA {cuda}, on {date}: milliseconds of the device, medians of rounds in
which all take turns; a language model of {layers} blocks of width {width}. `aten`, `cuda` and `by cost` are
backends of this project: an executor that is captured by `torch.cuda.graph`, and a `TrainStep` (AdamW), which
is a CUDA graph. "eager, as a graph" is the model of PyTorch, captured likewise.
`python benchmarks/cuda_models.py` measures them.

![Time on the device relative to eager](gpu-benchmarks.svg)

| | {names} |
|---|{lines}
"""


def section(found: Mapping[str, Any]) -> str:
    """Return the part of the page on models."""
    names = list(dict.fromkeys(name for row in found["rows"].values() for name in row))
    head = SECTION.format(
        gpu=found["gpu"], cuda=found["cuda"], torch=found["machine"]["torch"], date=found["machine"]["date"],
        layers=LAYERS, width=WIDTH, names=" | ".join(names), lines="---:|" * len(names),
    )  # fmt: skip
    return head + "".join(
        f"| {title} | {' | '.join(cell(row.get(name)) for name in names)} |\n"
        for title, row in found["rows"].items()
    )


def cell(value: float | str | None) -> str:
    return "-" if value is None else "failed" if isinstance(value, str) else f"{value:.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--compile", action="store_true", help="measure torch.compile, too: minutes")
    parser.add_argument("--seconds", type=float, default=600, help="after so many, the rest is left out")
    parser.add_argument("--json", type=Path, help="write the results to this file, after each case")
    options = parser.parse_args()
    torch.backends.cudnn.allow_tf32 = False
    device = torch.device("cuda:0")
    found: dict[str, Any] = {
        "machine": machine(),
        "gpu": torch.cuda.get_device_name(device),
        "cuda": torch.version.cuda,
        "rows": {},
    }
    deadline = time.monotonic() + options.seconds
    for title, make in CASES.items():
        for kind, contenders in (("inference", inference), ("training", training)):
            if time.monotonic() > deadline:
                continue
            torch.manual_seed(0)
            row = measured(contenders(make(device), options.compile))
            found["rows"][f"{title}, {kind}"] = row
            print(f"{title}, {kind}:", json.dumps(row), flush=True)
            if options.json:
                options.json.write_text(json.dumps(found, indent=1) + "\n")
            torch.cuda.empty_cache()
    print(section(found))


if __name__ == "__main__":
    main()
