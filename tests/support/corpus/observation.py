"""Snapshots of the observable state of a model and a process, to show that nothing changed."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree

from tests.support.comparison import same_bits
from tests.support.corpus.case import Call

_HOOKS = (
    "_forward_hooks",
    "_forward_pre_hooks",
    "_backward_hooks",
    "_state_dict_hooks",
    "_load_state_dict_pre_hooks",
)


def tensors_of(model: nn.Module) -> dict[str, torch.Tensor]:
    """Return parameters and buffers by every name they go by, non-persistent buffers included."""
    return {
        **dict(model.named_parameters(remove_duplicate=False)),
        **dict(model.named_buffers(remove_duplicate=False)),
    }


def input_tensors(given: Call) -> dict[int, torch.Tensor]:
    leaves = _pytree.tree_leaves(given.tree)
    return {index: leaf for index, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)}


def copies(tensors: dict[Any, torch.Tensor]) -> dict[Any, torch.Tensor]:
    return {key: tensor.detach().clone() for key, tensor in tensors.items()}


def changed(before: dict[Any, torch.Tensor], after: dict[Any, torch.Tensor]) -> dict[Any, torch.Tensor]:
    return {key: after[key].detach() for key in before if not same_bits(before[key], after[key])}


def appearance(model: nn.Module) -> list[Any]:
    """Return all of a model that extraction must leave alone, except what its tensors hold."""
    return [
        line for name, module in model.named_modules(remove_duplicate=False) for line in _seen(name, module)
    ]


def _seen(name: str, module: nn.Module) -> Iterator[Any]:
    yield name, id(module), type(module), module.training, sorted(vars(module))
    yield [(hooks, len(getattr(module, hooks))) for hooks in _HOOKS]
    for key, tensor in (*module._parameters.items(), *module._buffers.items(), *vars(module).items()):
        if isinstance(tensor, torch.Tensor):
            yield key, id(tensor), tensor.device, tensor.dtype, tensor.requires_grad, tensor.is_leaf
            yield None if tensor.is_inference() else tensor._version, tensor.is_leaf and tensor.grad is None


def process_state() -> list[Any]:
    """Return the settings of PyTorch that a call could leave changed."""
    return [
        torch.get_rng_state().tolist(),
        torch.get_default_dtype(),
        torch.get_default_device(),
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.is_autocast_enabled("cpu"),
    ]
