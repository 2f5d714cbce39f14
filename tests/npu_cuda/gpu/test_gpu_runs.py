"""`TrainStep.run` on a GPU: batches on the CPU are copied there while it computes."""

import copy
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from npu_runtime import TrainStep

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("is_pinned", [False, True], ids=["pageable", "pinned"])
@pytest.mark.parametrize("backend", ["aten", "cuda"])
def test_a_run_on_batches_of_the_cpu_equals_calls_on_batches_of_the_gpu(
    backend: str, is_pinned: bool
) -> None:
    torch.manual_seed(0)
    called = nn.Sequential(nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 10)).cuda()
    run = copy.deepcopy(called)
    calls, step = (
        TrainStep(model, torch.optim.SGD(model.parameters(), 0.1), F.cross_entropy, backend=backend)
        for model in (called, run)
    )
    batches = [(torch.randn(1024, 512), torch.randint(0, 10, (1024,))) for _ in range(200)]
    buffer = tuple(torch.empty_like(item, pin_memory=is_pinned) for item in batches[0])

    def refill() -> Iterator[tuple[Tensor, ...]]:
        for batch in batches:
            for target, item in zip(buffer, batch, strict=True):
                target.copy_(item)
            yield buffer

    expected = torch.stack([calls(*(item.cuda() for item in batch)) for batch in batches])
    losses = step.run(refill())

    assert losses.is_cuda
    assert torch.equal(losses, expected)
    for name, item in called.state_dict().items():
        assert torch.equal(run.state_dict()[name], item), name
