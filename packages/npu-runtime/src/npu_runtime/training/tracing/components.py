"""Training components of a step: its modules and optimizers, found by references of its function."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.jit import ScriptModule
from torch.nn import Module, Parameter
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer

from npu_runtime.errors import TracingError
from npu_runtime.probing.storage import find_overlapping


@dataclass(frozen=True, slots=True)
class TrainingComponents:
    """The modules and optimizers of a step, by the prefix of the names in them.

    Attributes:
        modules: Modules by prefix; a single one has none.
        optimizers: Likewise.
        stateless_modules: Further modules without tensors, such as a loss; guards check them, too.
    """

    modules: Mapping[str, Module]
    optimizers: Mapping[str, Optimizer]
    stateless_modules: Sequence[Module] = ()

    def parameters(self) -> dict[str, Parameter]:
        """Return every parameter by name; a tied one by its first name."""
        return {
            prefix + name: parameter
            for prefix, module in self.modules.items()
            for name, parameter in module.named_parameters()
        }

    def device(self) -> torch.device:
        """Return the device of the first parameter; the CPU if there is none."""
        first = next(iter(self.parameters().values()), None)
        return torch.device("cpu") if first is None else first.device

    def buffers(self) -> dict[str, torch.Tensor]:
        """Return every buffer by name; a tied one by its first name."""
        return {
            prefix + name: buffer
            for prefix, module in self.modules.items()
            for name, buffer in module.named_buffers()
        }

    def aliases(self) -> dict[str, tuple[str, ...]]:
        """Return for each parameter and buffer, by name, its other names."""
        names: dict[int, list[str]] = {}
        for prefix, module in self.modules.items():
            for kind in (module.named_parameters, module.named_buffers):
                for name, tensor in kind(remove_duplicate=False):
                    names.setdefault(id(tensor), []).append(prefix + name)
        tensors = {**self.parameters(), **self.buffers()}
        return {
            name: tuple(other for other in names[id(tensor)] if other != name)
            for name, tensor in tensors.items()
        }

    def is_persistent(self, name: str) -> bool:
        """Return whether a buffer is in the ``state_dict`` of its module."""
        for prefix, module in self.modules.items():
            if name.startswith(prefix):
                owner, _, key = name.removeprefix(prefix).rpartition(".")
                try:
                    return key not in module.get_submodule(owner)._non_persistent_buffers_set
                except AttributeError:
                    continue
        raise AssertionError(f"{name} is a buffer of a module")

    def trained_names(self) -> dict[str, list[str]]:
        """Return the names of the parameters of each optimizer, in its order.

        Raises:
            TracingError: One of them is not a parameter of the modules.
        """
        names = {id(parameter): name for name, parameter in self.parameters().items()}
        names_of: dict[str, list[str]] = {}
        for prefix, optimizer in self.optimizers.items():
            tensors = [tensor for group in optimizer.param_groups for tensor in group["params"]]
            unknown = next((tensor for tensor in tensors if id(tensor) not in names), None)
            if unknown is not None:
                raise TracingError(
                    f"the optimizer {type(optimizer).__name__} updates a tensor "
                    f"of shape {tuple(unknown.shape)} that is not a parameter of the model",
                    fix="make the optimizer of model.parameters(), after the last change to them; or name "
                    "the other module, too: modules=[...]",
                )
            names_of[prefix] = [names[id(tensor)] for tensor in tensors]
        return names_of


def make_components(
    modules: Sequence[tuple[str, Module]], optimizers: Sequence[tuple[str, Optimizer]]
) -> TrainingComponents:
    """Return training components with modules and optimizers by name; a single one gets no prefix.

    Raises:
        TracingError: A module is compiled by TorchScript; a tensor belongs to two modules, or shares memory
            with another one; or a module is lazy and its parameters have no shape yet.
    """
    named_modules = _add_prefixes(modules)
    named_optimizers = _add_prefixes(optimizers)
    for prefix, module in named_modules.items():
        _require_python(prefix, module)
    components = TrainingComponents(named_modules, named_optimizers)
    tensors = {**components.parameters(), **components.buffers()}
    _require_own_tensors(tensors)
    return components


def _require_python(prefix: str, module: Module) -> None:
    """Refuse modules whose ``forward`` is not Python: there is nothing to trace in them."""
    for path, part in module.named_modules():
        if isinstance(part, ScriptModule):
            name = f"{prefix}{path}".rstrip(".")
            raise TracingError(
                f"{repr(name) if name else 'the model'} is compiled by TorchScript, and cannot be traced",
                fix="give the module that was passed to torch.jit.script or torch.jit.trace",
            )


def _require_own_tensors(tensors: Mapping[str, torch.Tensor]) -> None:
    """Refuse tensors without a shape, of two modules, or in the memory of another one."""
    names: dict[int, str] = {}
    for name, tensor in tensors.items():
        if is_lazy(tensor):
            raise TracingError(
                f"{name!r} has no shape yet: its module is lazy",
                fix="run the model once, on a batch, before training it",
            )
        first = names.setdefault(id(tensor), name)
        if first != name:
            raise TracingError(
                f"{first!r} and {name!r} are one tensor in two modules of the step",
                fix="make both modules parts of one, such as a ModuleDict, and have the step refer to that",
            )
    pair = find_overlapping(tensors, tensors)
    if pair is not None:
        raise TracingError(
            f"{pair[0]!r} and {pair[1]!r} are different tensors in the same memory",
            fix="tie them by using one parameter twice, or clone one of them",
        )


def _add_prefixes(items: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    unique: dict[int, tuple[str, Any]] = {}
    for name, item in items:
        unique.setdefault(id(item), (name, item))
    is_single = len(unique) == 1
    return {f"{name}." if name and not is_single else "": item for name, item in unique.values()}


def find_components(
    function: Callable[..., Any],
    modules: Sequence[Module] | None = None,
    optimizers: Sequence[Optimizer] | None = None,
) -> TrainingComponents:
    """Return the modules and optimizers that a step function refers to.

    They are searched in its closure, its globals, its defaults, and the attributes of the object it is a
    method of.

    Modules and optimizers that are given are used instead of those found.

    Raises:
        TracingError: There is no module.
    """
    reached = list(_referenced_objects(function))
    found_modules = [(name, item) for name, item in reached if isinstance(item, Module)]
    outer = [
        pair for pair in found_modules if not any(_is_submodule(pair[1], other) for _, other in found_modules)
    ]
    named_modules = outer if modules is None else _number_names(modules, "module")
    found_optimizers = [(name, item) for name, item in reached if isinstance(item, Optimizer)]
    named_optimizers = found_optimizers if optimizers is None else _number_names(optimizers, "optimizer")
    if not named_modules:
        raise TracingError(
            f"the step function {getattr(function, '__name__', function)!r} refers to no module",
            fix="name what it trains: compile_ir(step, example_batch=..., modules=[model], "
            "optimizers=[optimizer])",
        )
    return make_components(named_modules, named_optimizers)


def _number_names(items: Sequence[Any], word: str) -> list[tuple[str, Any]]:
    return [(f"{word}{index}", item) for index, item in enumerate(items)]


def _is_submodule(module: Module, other: Module) -> bool:
    return module is not other and any(part is module for part in other.modules())


def _referenced_objects(function: Callable[..., Any]) -> Iterator[tuple[str, Any]]:
    """Yield the objects that a function refers to, by name; functions of the same module are followed."""
    pending: list[Any] = [function]
    seen: set[int] = set()
    while pending:
        item = pending.pop()
        if id(item) in seen:
            continue
        seen.add(id(item))
        if isinstance(item, functools.partial):
            pending += [item.func, *item.args, *item.keywords.values()]
            continue
        owner = getattr(item, "__self__", None)
        if owner is not None and not inspect.ismodule(owner) and hasattr(owner, "__dict__"):
            yield from vars(owner).items()
        plain = inspect.unwrap(getattr(item, "__func__", item))
        if not inspect.isfunction(plain):
            continue
        names = inspect.getclosurevars(plain)
        for name, value in [*names.nonlocals.items(), *names.globals.items(), *_defaults(plain)]:
            yield name, value
            if inspect.isfunction(value) and value.__module__ == plain.__module__:
                pending.append(value)


def _defaults(function: Callable[..., Any]) -> list[tuple[str, Any]]:
    parameters = inspect.signature(function).parameters.values()
    return [(item.name, item.default) for item in parameters if item.default is not item.empty]
