"""Models of the run: builder, arguments, and sizes that may vary."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

# By name, the size that a model is captured with, and another that its dynamic graph must take.
SIZES: dict[str, tuple[int, int]] = {
    "batch": (2, 3),
    "sequence": (8, 13),
    "target": (5, 9),
    "samples": (800, 1120),
    "height": (64, 96),
    "width": (64, 128),
}

Fill = Callable[["tuple[int, ...]", torch.Generator], torch.Tensor]


def numbers(shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    return torch.randn(shape, generator=generator)


def tokens(count: int) -> Fill:
    """Return a maker of token ids below ``count``; the lowest, which often mean padding, are left out."""
    return lambda shape, generator: torch.randint(4, count, shape, generator=generator)


def position(value: int) -> Fill:
    """Return a maker of one number: where in a cache to go on."""
    return lambda shape, generator: torch.full(shape, value)


def mask(shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    """Return ones, but for the last two columns of the first row: what is padding."""
    ones = torch.ones(shape, dtype=torch.int64)
    ones[0, -2:] = 0
    return ones


@dataclass(frozen=True, slots=True)
class Input:
    """One argument of a model.

    Attributes:
        name: The parameter of ``forward`` that it fills.
        shape: Its sizes; a name stands for one of ``SIZES``.
        fill: Makes its content.
        count: Not None for a list of so many tensors.
    """

    name: str
    shape: tuple[int | str, ...]
    fill: Fill = numbers
    count: int | None = None

    def example(self, sizes: Mapping[str, int], generator: torch.Generator) -> Any:
        shape = tuple(sizes[size] if isinstance(size, str) else size for size in self.shape)
        made = [self.fill(shape, generator) for _ in range(1 if self.count is None else self.count)]
        return made[0] if self.count is None else made

    def dynamic_shapes(self, dims: Mapping[str, Any]) -> Any:
        """Return what torch.export takes for this argument, where the sizes named in ``dims`` vary."""
        by_axis = {axis: dims[size] for axis, size in enumerate(self.shape) if size in dims}
        return by_axis if self.count is None else [by_axis] * self.count


@dataclass(frozen=True, slots=True)
class Case:
    """A model and how it is run.

    Attributes:
        name: Unique among all.
        library: Where the model is from.
        kind: What sort of model it is.
        build: Makes it, on the default device, with weights of the library's own initialization.
        inputs: Its arguments, all passed by keyword.
        sizes: What takes the place of ``SIZES``.
    """

    name: str
    library: str
    kind: str
    build: Callable[[], torch.nn.Module]
    inputs: tuple[Input, ...]
    sizes: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def varying(self) -> tuple[str, ...]:
        """Return the names of the sizes that may vary, in the order of the inputs."""
        names = [size for each in self.inputs for size in each.shape if isinstance(size, str)]
        return tuple(dict.fromkeys(names))

    def examples(self, other: tuple[str, ...] = ()) -> dict[str, Any]:
        """Return arguments: of the first of each size, or of the other for those named in ``other``."""
        generator = torch.Generator().manual_seed(0)
        sizes = {name: pair[name in other] for name, pair in {**SIZES, **self.sizes}.items()}
        return {each.name: each.example(sizes, generator) for each in self.inputs}

    def dynamic_shapes(self, names: tuple[str, ...]) -> dict[str, Any]:
        """Return what torch.export takes to let the sizes ``names`` vary."""
        dims = dict.fromkeys(names, torch.export.Dim.DYNAMIC)
        return {each.name: each.dynamic_shapes(dims) for each in self.inputs}

    def choices(self) -> Iterator[tuple[str, ...]]:
        """Yield which sizes to let vary: all, then the batch alone, then the others alone."""
        names = self.varying
        rest = tuple(name for name in names if name != "batch")
        yield from dict.fromkeys(choice for choice in (names, names[:1], rest) if choice)
