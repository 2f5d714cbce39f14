"""The benchmark of layers on the host: what is timed computes what PyTorch does."""

from collections.abc import Iterator

import pytest
import torch

from tests.support.scripts import forgotten, imported


@pytest.fixture(scope="module", autouse=True)
def _forget() -> Iterator[None]:
    with forgotten():
        yield


def test_all_that_is_timed_computes_what_pytorch_does() -> None:
    layers = imported("host_layers")
    cases = [
        *((title, layers.convolutions(*numbers)) for title, numbers in layers.CONVOLUTIONS.items()),
        *((title, layers.attentions(*numbers)) for title, numbers in layers.ATTENTIONS.items()),
    ]

    for title, runs in cases:
        expected = runs.pop("torch")()
        for name, run in runs.items():
            torch.testing.assert_close(
                run(), expected, rtol=1e-4, atol=1e-3, msg=lambda text, of=(title, name): f"{of}: {text}"
            )
