"""The trained model of the demo: scikit-learn's handwritten digits and a small residual network."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn

# Makes a training step of images and labels, and returns its loss.
Step = Callable[[Tensor, Tensor], Tensor]
MakeStep = Callable[[nn.Module, torch.optim.Optimizer], Step]

BATCH = 64
TEST_IMAGES = 540


@dataclass(frozen=True, slots=True)
class Digits:
    """1,797 handwritten digits of 8 x 8 pixels, shuffled and split.

    Attributes:
        train_images: [n, 1, 8, 8], from 0 (paper) to 1 (ink).
        train_labels: [n], 0 to 9.
        test_images: As ``train_images``; never seen in training.
        test_labels: As ``train_labels``.
    """

    train_images: Tensor
    train_labels: Tensor
    test_images: Tensor
    test_labels: Tensor


@dataclass(frozen=True, slots=True)
class Epoch:
    """The state of training after one pass over the training images."""

    loss: float
    test_accuracy: float


@dataclass(frozen=True, slots=True)
class Training:
    """A finished training run.

    Attributes:
        epochs: How training stood after each.
        seconds: Of all of it.
        first_seconds: Of the first step: where a graph is made of it, that is in here.
        steps: How many there were.
    """

    epochs: tuple[Epoch, ...]
    seconds: float
    first_seconds: float
    steps: int


class ResidualBlock(nn.Module):
    """Two convolutions with batch norm, added to their input."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        return torch.relu(x + y)


class DigitNet(nn.Module):
    """8 x 8 pixels in, ten logits out."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = convolution(1, 16)
        self.block1 = ResidualBlock(16)
        self.down = convolution(16, 32, stride=2)
        self.block2 = ResidualBlock(32)
        self.head = nn.Linear(32, 10)

    def forward(self, images: Tensor) -> Tensor:
        x = self.block1(self.stem(images))
        x = self.block2(self.down(x))
        return self.head(x.mean((2, 3)))


def convolution(inputs: int, outputs: int, stride: int = 1) -> nn.Sequential:
    """Return a 3 x 3 convolution with batch norm and an in-place ReLU."""
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
    )


def load() -> Digits:
    """Return the digits that ship with scikit-learn; always split the same way."""
    data = load_digits()
    images = torch.tensor(data.images / 16, dtype=torch.float32).unsqueeze(1)
    labels = torch.tensor(data.target)
    train_images, test_images, train_labels, test_labels = train_test_split(
        images, labels, test_size=TEST_IMAGES, stratify=labels, random_state=0
    )
    return Digits(train_images, train_labels, test_images, test_labels)


def train(
    model: nn.Module, digits: Digits, epochs: int, make_step: MakeStep, on_epoch: Callable[[Epoch], None]
) -> Training:
    """Train ``model`` in place with AdamW on a one-cycle schedule."""
    with single_thread():
        start = time.perf_counter()
        history = []
        times: list[float] = []
        for epoch in run_epochs(model, digits, epochs, make_step, times):
            history.append(epoch)
            on_epoch(epoch)
        seconds = time.perf_counter() - start
        return Training(tuple(history), seconds, times[0] if times else 0.0, len(times))


def make_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters())


@contextlib.contextmanager
def single_thread() -> Iterator[None]:
    """Let PyTorch use one thread: for images this small, a second one costs more than it gives."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def run_epochs(
    model: nn.Module, digits: Digits, epochs: int, make_step: MakeStep, times: list[float]
) -> Iterator[Epoch]:
    """Train, and yield after each epoch how training stands; ``times`` gets the seconds of each step.

    Batches are all of one size: in each epoch, a few images are left out, other ones each time.
    """
    batches = len(digits.train_images) // BATCH
    optimizer = make_optimizer(model)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.01, total_steps=max(epochs, 1) * batches)
    step = make_step(model, optimizer)
    for _ in range(epochs):
        model.train()
        total = 0.0
        for indices in torch.randperm(len(digits.train_images))[: batches * BATCH].split(BATCH):
            begin = time.perf_counter()
            loss = step(digits.train_images[indices], digits.train_labels[indices])
            times.append(time.perf_counter() - begin)
            schedule.step()
            total += loss.item()
        logits = logits_in_batches(model, digits.test_images, BATCH)
        yield Epoch(total / batches, accuracy(logits, digits.test_labels))


def logits_in_batches(model: nn.Module, images: Tensor, batch: int) -> Tensor:
    """Return eager PyTorch's logits for all images, [n, 10], computed in batches of ``batch``.

    The last batch is filled up with zeros, as the process that runs the graph does it: its shapes are
    fixed. Leaves the model in eval mode.
    """
    model.eval()
    missing = -len(images) % batch
    padded = torch.cat([images, images.new_zeros(missing, *images.shape[1:])])
    with torch.no_grad():
        return torch.cat([model(part) for part in padded.split(batch)])[: len(images)]


def accuracy(logits: Tensor, labels: Tensor) -> float:
    """Return the fraction of rows whose largest logit is the label's."""
    return (logits.argmax(1) == labels).double().mean().item()
