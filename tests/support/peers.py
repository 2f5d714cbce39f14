"""Peers that are installed everywhere: PyTorch runs the program that they are given."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from npu_runtime.interop.peers import PEERS, Peer


def without_peers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget the peers of this process, which may be installed or not."""
    for name in tuple(PEERS):
        monkeypatch.delitem(PEERS, name)


def fake_peer(
    title: str = "Fake", change: Callable[[torch.Tensor], torch.Tensor] = torch.Tensor.clone
) -> Peer:
    """Return a peer whose results are changed by a function."""

    def compiled(module: Any, threads: int) -> Any:
        def call(arrays: Sequence[Any]) -> list[Any]:
            with torch.no_grad():
                return [change(item).numpy() for item in module(*map(torch.from_numpy, arrays))]

        return call

    return Peer(title, (), lambda program: program.module(), compiled)


def refusing_peer(title: str, error: Exception) -> Peer:
    """Return a peer that raises an error when it is to convert a program."""

    def convert(program: Any) -> Any:
        raise error

    return Peer(title, (), convert, lambda form, threads: form)
