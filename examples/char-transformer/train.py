"""Train a transformer on the text of Python's help, in eager PyTorch and with TrainStep, side by side.

Both start from the same weights and see the same batches, in turns, on one thread. Prints how many steps
per second each makes, and draws the losses of both into one plot. The exit code is 1 if they part.
"""

from __future__ import annotations

import argparse
import copy
import math
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import corpus
import plot
import torch
from model import CharTransformer, continued, next_character_loss
from torch import Tensor, nn

from npu_runtime import TrainStep

# Of a loss. Sums are rounded in another order, and training carries it on.
TOLERANCE = 1e-2
Step = Callable[[Tensor, Tensor], Tensor]


def eager_step(model: nn.Module, optimizer: torch.optim.Optimizer) -> Step:
    """Return the usual loop body."""

    def step(characters: Tensor, following: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = next_character_loss(model(characters), following)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def graph_step(model: nn.Module, optimizer: torch.optim.Optimizer) -> Step:
    """Return the same step as one graph, replayed."""
    return TrainStep(model, optimizer, next_character_loss)


class Trainer:
    """A model in training, and its measurements.

    Attributes:
        losses: Of each step.
        first_seconds: Of the first step, in which a graph is made and planned.
        seconds: Of all others.
    """

    def __init__(
        self, model: CharTransformer, make_step: Callable[..., Step], rate: float, steps: int
    ) -> None:
        self.model = model
        optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
        self._schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: warm_cosine(step, steps))
        self._step = make_step(model, optimizer)
        self.losses: list[float] = []
        self.first_seconds = self.seconds = 0.0

    def train(self, characters: Tensor, following: Tensor) -> None:
        """Make a step, and set the learning rate of the next one."""
        start = time.perf_counter()
        loss = self._step(characters, following)
        self._schedule.step()
        taken = time.perf_counter() - start
        if self.losses:
            self.seconds += taken
        else:
            self.first_seconds = taken
        self.losses.append(loss.item())

    @property
    def steps_per_second(self) -> float:
        return (len(self.losses) - 1) / self.seconds


def break_even(ours: Trainer, eager: Trainer) -> str:
    """Return the step count from which ours takes less total time than eager, first steps included."""
    gain = 1 / eager.steps_per_second - 1 / ours.steps_per_second
    if gain <= 0:
        return "never: its steps take no less"
    steps = max(1, 1 + math.ceil((ours.first_seconds - eager.first_seconds) / gain))
    return f"from {steps:,} steps on; these were {len(ours.losses):,}"


def warm_cosine(step: int, steps: int) -> float:
    """Return the share of the highest learning rate: up in a tenth of the steps, then down along a cosine."""
    warm = max(1, steps // 10)
    if step < warm:
        return (step + 1) / warm
    return 0.5 + 0.5 * math.cos(math.pi * (step - warm) / max(1, steps - warm))


@torch.no_grad()
def held_out_loss(model: CharTransformer, text: corpus.Corpus, size: int, length: int) -> float:
    """Return the mean loss over eight batches of the text that is not trained on."""
    draws = corpus.batches(text.held_out, size, length, seed=1)
    return sum(next_character_loss(model(x), y).item() for x, y in (next(draws) for _ in range(8))) / 8


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, default, meaning in (
        ("steps", 600, "how many steps"),
        ("batch", 16, "texts per step"),
        ("length", 64, "characters per text"),
        ("width", 64, "channels"),
        ("layers", 2, "blocks"),
        ("heads", 4, "of attention, in each block"),
        ("sample", 300, "characters to write at the end"),
    ):
        parser.add_argument(f"--{name}", type=int, default=default, help=f"{meaning} ({default})")
    parser.add_argument("--rate", type=float, default=3e-3, help="the highest learning rate (3e-3)")
    parser.add_argument(
        "--plot", type=Path, default=Path("build/char-transformer.svg"), help="where the losses are drawn"
    )
    options = parser.parse_args(arguments)
    if options.steps < 2:
        parser.error(f"--steps {options.steps}: the first step is not timed, so there must be two at least")
    return options


def trainers(options: argparse.Namespace, vocabulary: int) -> dict[str, Trainer]:
    """Return both, with the same weights."""
    torch.manual_seed(0)
    model = CharTransformer(vocabulary, options.width, options.layers, options.heads, options.length)
    return {
        name: Trainer(copy.deepcopy(model), make_step, options.rate, options.steps)
        for name, make_step in (("eager", eager_step), ("TrainStep", graph_step))
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Train, report, draw; return the exit code."""
    options = parse(arguments)
    torch.set_num_threads(1)  # for steps this small, a second thread costs more than it gives
    text = corpus.load()
    both = trainers(options, len(text.vocabulary))
    draws = corpus.batches(text.training, options.batch, options.length, seed=0)
    for step, batch in zip(range(1, options.steps + 1), draws, strict=False):
        for trainer in both.values():
            trainer.train(*batch)
        if step % max(1, options.steps // 10) == 0:
            losses = ", ".join(f"{name} {trainer.losses[-1]:.4f}" for name, trainer in both.items())
            print(f"step {step:>5}: {losses}", flush=True)
    return report(options, text, both)


def report(options: argparse.Namespace, text: corpus.Corpus, both: dict[str, Trainer]) -> int:
    for name, trainer in both.items():
        loss = held_out_loss(trainer.model, text, options.batch, options.length)
        print(
            f"{name}: {trainer.steps_per_second:.1f} steps/s, first step {trainer.first_seconds:.2f} s, "
            f"loss on held-out text {loss:.4f}"
        )
    eager, ours = both.values()
    print(
        f"TrainStep makes {ours.steps_per_second / eager.steps_per_second:.2f} times as many steps per "
        f"second; it takes less time in all {break_even(ours, eager)}"
    )
    options.plot.parent.mkdir(parents=True, exist_ok=True)
    named = {name: trainer.losses for name, trainer in both.items()}
    options.plot.write_text(plot.curves(named, "step", "training loss"), encoding="utf-8")
    print(f"losses of both: {options.plot}")
    written = continued(ours.model, text.numbers("The "), options.sample, torch.Generator().manual_seed(0))
    print(f"\n{text.text(written)}")
    apart = max(abs(a - b) / b for a, b in zip(ours.losses, eager.losses, strict=True))
    print(f"\nlargest difference of a loss: {apart:.1e} of it")
    return int(not apart <= TOLERANCE)


if __name__ == "__main__":
    sys.exit(main())
