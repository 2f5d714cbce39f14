"""The key of a compiled step: the digest of everything that its trace, its passes and its plan depend on."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.optim import Optimizer

from npu_ir._torch.pytree import pytree_node
from npu_ir.core.structure import flatten
from npu_ir.plugins.backend import Backend
from npu_passes import PassManager
from npu_runtime.executor.options import resolve_step_passes
from npu_runtime.training.cache.content_hash import ContentHash, UnknownContentError
from npu_runtime.training.cache.environment import add_environment
from npu_runtime.training.cache.known_code import OWN_PACKAGES
from npu_runtime.training.capture.options import CaptureOptions
from npu_runtime.training.tracing import hyperparameters
from npu_runtime.training.tracing.components import TrainingComponents

VERSION = 3
# Of an optimizer: what a trace replaces, and what PyTorch's schedulers keep in it for themselves.
_REPLACED = frozenset({"param_groups", "state", "step", "defaults"})
_OF_SCHEDULERS = frozenset({"_opt_called", "_step_count"})


def make_step_key(
    function: Callable[..., Any],
    components: TrainingComponents,
    state: Mapping[str, torch.Tensor],
    batch: tuple[Sequence[Any], Mapping[str, Any]],
    options: Mapping[str, Any],
) -> str:
    """Return the digest of what a step is traced for.

    Args:
        function: The step function.
        components: Its training components.
        state: The optimizer state before the step, by name.
        batch: The arguments of a call.
        options: Further options, of plain data or objects of known code.

    Raises:
        UnknownContentError: Something that the step depends on cannot be described by content.
    """
    tensors = {**components.parameters(), **components.buffers()}
    content = ContentHash(tensors)
    content.add_text("step", str(VERSION))
    content.add(dict(options), "the options")
    _add_components(content, components, state)
    leaves, structure = flatten((tuple(batch[0]), dict(batch[1])))
    content.add_text("batch", repr(structure))
    for kind in _container_classes((tuple(batch[0]), dict(batch[1]))):
        content.add(kind, "a class of the batch")
    for index, leaf in enumerate(leaves):
        first = next(number for number, other in enumerate(leaves) if other is leaf)
        content.add_text("argument", str(first))  # code may ask whether two arguments are one object
        _add_leaf(content, leaf, f"argument {index} of the batch")
    content.add(function, "the step")
    return content.digest()


def make_environment_key() -> str:
    """Return the digest of the environment; see `add_environment`."""
    content = ContentHash()
    add_environment(content)
    return content.digest()


def describe_compilation(
    options: CaptureOptions, backends: Sequence[Backend], device: torch.device
) -> dict[str, Any]:
    """Return the options that decide what a step is compiled to: its passes, backends and device.

    Raises:
        UnknownContentError: Steps on this device, or of such a backend, are not stored.
    """
    if device.type != "cpu":
        raise UnknownContentError(f"steps on {device.type} are not stored")
    for backend in backends:
        if type(backend).__module__.partition(".")[0] not in OWN_PACKAGES:
            raise UnknownContentError(f"the backend {backend.name!r} may depend on anything")
    passes = resolve_step_passes(options.passes, device, backends)
    chosen = () if passes is None else PassManager(passes).passes
    return {
        "backends": [(backend.name, type(backend)) for backend in backends],
        "passes": list(chosen),
        "pipeline": passes if isinstance(passes, str) else None,
        "device": device,
    }


def _add_components(
    content: ContentHash, components: TrainingComponents, state: Mapping[str, torch.Tensor]
) -> None:
    content.add_text("aliases", repr(components.aliases()))
    for prefix, module in components.modules.items():
        content.add_text("module", prefix)
        content.add(module, prefix or "the model")
    for name, buffer in components.buffers().items():
        if not components.is_persistent(name):  # its content is part of a graph
            content.add_text("content", name)
            content.add_content(buffer)
    for module in components.stateless_modules:
        content.add(module, "the loss")
    for name, tensor in state.items():
        content.add_text("state", name, repr((tensor.shape, tensor.stride(), tensor.dtype, tensor.device)))
    owners = components.trained_names()
    for prefix, optimizer in components.optimizers.items():
        content.add_text("optimizer", prefix, repr(owners[prefix]))
        _add_optimizer(content, optimizer)


def _add_optimizer(content: ContentHash, optimizer: Optimizer) -> None:
    content.add_optimizer(optimizer, _REPLACED, _OF_SCHEDULERS)
    is_known = type(optimizer).__module__.startswith("torch.optim")
    # Optimizers of PyTorch read these where they make groups, but for switches.
    defaults = optimizer.defaults.items()
    content.add({key: value for key, value in defaults if not (is_known and type(value) is float)})
    for index, group in enumerate(optimizer.param_groups):
        content.add_text("group", str(len(group["params"])))
        for key, value in group.items():
            if key == "params":
                continue
            content.add_text(key)
            if hyperparameters.is_open(value):
                content.add_text("open", type(value).__name__, *_signs(value))
            else:
                content.add(value, f"{key!r} of group {index}")


def _signs(value: Any) -> Iterator[str]:
    """Yield the signs of open numbers, by which optimizers branch: other branches are other entries."""
    if isinstance(value, (tuple, list)):
        for item in value:
            yield from _signs(item)
    else:
        number = float(value)
        yield "zero" if number == 0 else str(math.copysign(1, number))


def _container_classes(tree: Any) -> Iterator[type]:
    """Yield the classes of the containers in arguments: code may call their methods."""
    node = pytree_node(type(tree))
    if isinstance(tree, dict):
        parts = list(tree.values())
    elif isinstance(tree, (tuple, list)):
        parts = list(tree)
    elif node is not None:
        parts = node.flatten(tree)[0]
    else:
        return
    yield type(tree)
    for part in parts:
        yield from _container_classes(part)


def _add_leaf(content: ContentHash, leaf: Any, where: str) -> None:
    if isinstance(leaf, torch.Tensor):
        content.add_tensor_type(leaf)
    else:
        content.add(leaf, where)
