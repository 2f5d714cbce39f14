"""One small model of the corpus, and the table that a file of them fills."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from npu_ir import ConversionError

_BUILD_SEED, _INPUT_SEED = 1, 2


@dataclass(frozen=True, slots=True)
class Call:
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    @property
    def tree(self) -> tuple[Any, Any]:
        return self.args, self.kwargs


def call(*args: Any, **kwargs: Any) -> Call:
    return Call(args, kwargs)


def floats(*shapes: tuple[int, ...]) -> Callable[[], Call]:
    return lambda: call(*(torch.randn(shape) for shape in shapes))


class Function(nn.Module):
    """A module without state that calls a function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)


class Holding(nn.Module):
    """A module that calls a function with itself, and holds these attributes: tensors are buffers."""

    def __init__(self, function: Callable[..., Any], **held: Any) -> None:
        super().__init__()
        self.function = function
        for name, item in held.items():
            if isinstance(item, torch.Tensor) and not isinstance(item, nn.Parameter):
                self.register_buffer(name, item)
            else:
                setattr(self, name, item)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(self, *args, **kwargs)


@dataclass(frozen=True, slots=True)
class Case:
    """A model, what it is called with, and what is special about it.

    Attributes:
        id: Shown by pytest.
        build: Returns the model; called under a fixed seed, with ``meta`` as default device too.
        inputs: Returns what it is called with; called under a fixed seed.
        dynamic_shapes: Which sizes the graph leaves open, as torch.export takes it.
        more_inputs: Returns further calls, of other sizes or content, that the same graph must take.
        op: An op type that the graph must contain; "" for any.
        under: The surroundings the model is built, captured and run by eager in; a graph is always
            run outside them.
        unregistered: It reads tensors that it has not registered: without data, these are no constants but
            buffers.
        meta_by_moving: It cannot be built on ``meta``, only moved there.
        tolerance: Largest relative difference from eager; 0 stands for equal to the bit.
        reason: Why the tolerance is not 0.
    """

    id: str
    build: Callable[[], nn.Module]
    inputs: Callable[[], Call]
    dynamic_shapes: Any = None
    more_inputs: Callable[[], Sequence[Call]] = tuple
    op: str = ""
    under: Callable[[], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext
    unregistered: bool = False
    meta_by_moving: bool = False
    tolerance: float = 0.0
    reason: str = ""

    def make_model(self, device: str = "cpu") -> nn.Module:
        """Return the model, the same at every call; on ``meta`` it has no weights."""
        torch.manual_seed(_BUILD_SEED)
        with self.under(), torch.device("cpu" if self.meta_by_moving else device):
            model = self.build()
        return model.to(device) if self.meta_by_moving else model

    def make_call(self) -> Call:
        """Return new inputs, the same at every call."""
        torch.manual_seed(_INPUT_SEED)
        return self.inputs()

    def make_calls(self) -> list[Call]:
        """Return new inputs of every kind the graph must take, the same at every call."""
        return [self.make_call(), *self.more_inputs()]


@dataclass(frozen=True, slots=True)
class Refusal:
    """A model that cannot be captured."""

    id: str
    model: Callable[..., Any]
    inputs: Callable[[], Call]
    error: type[Exception]
    match: str

    def make_model(self) -> nn.Module:
        takes_nothing = inspect.isclass(self.model) or not inspect.signature(self.model).parameters
        made = self.model() if takes_nothing else Function(self.model)
        assert isinstance(made, nn.Module)
        return made


class Refusals:
    def __init__(self) -> None:
        self.refusals: list[Refusal] = []

    def __iter__(self) -> Iterator[Refusal]:
        return iter(self.refusals)

    def add(
        self,
        id: str,
        model: Callable[..., Any],
        match: str,
        inputs: Callable[[], Call] = lambda: call(torch.randn(4, 3)),
        error: type[Exception] = ConversionError,
    ) -> None:
        self.refusals.append(Refusal(id, model, inputs, error, match))


class Table:
    """The models of one topic."""

    def __init__(self, inputs: Callable[[], Call] = call, **options: Any) -> None:
        self.cases: list[Case] = []
        self.inputs, self.options = inputs, options

    def __iter__(self) -> Iterator[Case]:
        return iter(self.cases)

    def given(self, inputs: Callable[[], Call], **options: Any) -> Table:
        """Return a table that adds its cases to this one, with other inputs and options."""
        other = Table(inputs, **options)
        other.cases = self.cases
        return other

    def module(
        self,
        id: str,
        build: Callable[[], nn.Module],
        inputs: Callable[[], Call] | None = None,
        **options: Any,
    ) -> None:
        self.cases.append(Case(id, build, inputs or self.inputs, **{**self.options, **options}))

    def function(
        self, id: str, function: Callable[..., Any], inputs: Callable[[], Call] | None = None, **options: Any
    ) -> None:
        """Add a model that calls ``function``; ``dynamic_shapes`` has one entry for each argument."""
        self._variadic(id, lambda: Function(function), inputs, options)

    def _variadic(
        self, id: str, build: Callable[[], nn.Module], inputs: Any, options: dict[str, Any]
    ) -> None:
        shapes = {**self.options, **options}.get("dynamic_shapes")
        if shapes is not None:
            options["dynamic_shapes"] = {"args": shapes}
        self.module(id, build, inputs, **options)

    def add(
        self,
        inputs: Callable[[], Call] | None = None,
        holding: Callable[[], dict[str, Any]] | None = None,
        **options: Any,
    ) -> Callable[[Any], Any]:
        """Return a decorator that adds the module class or function below it, under its own name.

        Args:
            inputs: What it is called with.
            holding: Returns what the module holds that a function gets as its first argument.
            options: Further attributes of the case.
        """

        def register(model: Any) -> Any:
            name = model.__name__.lower()
            if holding is not None:
                self._variadic(name, lambda: Holding(model, **holding()), inputs, options)
            elif inspect.isclass(model):
                self.module(name, model, inputs, **options)
            else:
                self.function(name, model, inputs, **options)
            return model

        return register
