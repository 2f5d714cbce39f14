"""Training steps as CUDA graphs: the same as the executor, and nothing that moves, leaks or is frozen."""

from typing import Any

import pytest
import torch
from torch.nn import functional as F

from npu_runtime import CaptureError, CompileArtifact, check_replay, compile_and_capture
from tests.support.training.full_state import Convolutions, Mlp, require_same, state_bits

pytestmark = pytest.mark.gpu


def mlp(dropout: float = 0.0, **options: Any) -> tuple[CompileArtifact, tuple[torch.Tensor, ...]]:
    model = Mlp(dropout).cuda()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    batch = torch.randn(3, 7).cuda(), torch.randn(3, 5).cuda()
    options = {"passes": None, "capture": "require", **options}
    return compile_and_capture(model, optimizer, F.mse_loss, batch, **options), batch


def test_a_step_becomes_a_cuda_graph_and_nothing_has_changed() -> None:
    torch.manual_seed(0)
    random = torch.cuda.get_rng_state()

    artifact, _ = mlp(dropout=0.5)

    assert artifact.capture_state == "cuda-graph"
    assert not any(item.any() for name, item in artifact.state.items() if name.endswith(("step", "exp_avg")))
    assert torch.equal(torch.cuda.get_rng_state(), random)


@pytest.mark.parametrize("passes", [None, "train"])
def test_a_replay_does_what_the_executor_does(passes: str | None) -> None:
    artifact, batch = mlp(passes=passes)

    for _ in range(5):
        expected = artifact.mutations(*batch)
        artifact.replay(*batch)
        for name, item in expected.items():
            torch.testing.assert_close(artifact.weights[name].detach(), item, rtol=1e-5, atol=1e-6)


def test_convolutions_with_batch_norm_are_captured() -> None:
    model = Convolutions().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    batch = torch.randn(3, 2, 6, 4, device="cuda"), torch.tensor([0, 3, 1], device="cuda")
    artifact = compile_and_capture(model, optimizer, F.cross_entropy, batch, passes=None, capture="require")

    artifact.replay(*batch)

    assert int(model.norm.num_batches_tracked) == 1
    assert check_replay(artifact, *batch).ok


@pytest.mark.parametrize("passes", [None, "train"])
def test_numbers_and_seeds_are_not_frozen_and_no_tensor_moves(passes: str | None) -> None:
    artifact, batch = mlp(dropout=0.5, passes=passes)
    pointers = artifact.pointers()
    before = state_bits(artifact)

    report = check_replay(artifact, *batch)

    assert report.violations == ()
    assert artifact.pointers() == pointers
    assert state_bits(artifact) == before


def test_a_thousand_replays_allocate_nothing() -> None:
    artifact, batch = mlp()
    artifact.replay(*batch, borrow=True)
    torch.cuda.synchronize()
    before = torch.cuda.memory_stats()["allocation.all.allocated"]

    for _ in range(1000):
        artifact.replay(*batch, borrow=True)
    torch.cuda.synchronize()

    assert torch.cuda.memory_stats()["allocation.all.allocated"] == before


def test_the_same_seed_gives_the_same_steps() -> None:
    artifact, batch = mlp(dropout=0.5)
    initial = {name: item.clone() for name, item in artifact.state.items()}
    ends = []
    for _ in range(2):
        with torch.no_grad():
            for name, item in artifact.state.items():
                item.copy_(initial[name])
        torch.cuda.manual_seed(7)
        for _ in range(10):
            artifact.replay(*batch)
        ends.append({name: item.clone() for name, item in artifact.state.items()})

    require_same(ends[0], ends[1])


def test_a_capture_in_a_capture_is_refused() -> None:
    model = Mlp().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batch = torch.randn(3, 7, device="cuda"), torch.randn(3, 5, device="cuda")
    graph = torch.cuda.CUDAGraph()

    with torch.cuda.graph(graph), pytest.raises(CaptureError, match="captures do not nest"):
        compile_and_capture(model, optimizer, F.mse_loss, batch, passes=None, capture="require")


@torch.library.custom_op("npu_gpu_test::waits", mutates_args=())
def waits(x: torch.Tensor) -> torch.Tensor:
    torch.cuda.synchronize()
    return x.clone()


@waits.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


def test_a_recording_that_fails_leaves_the_generator_and_the_allocator_as_they_were() -> None:
    model = Mlp(dropout=0.5).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batch = torch.randn(3, 7, device="cuda"), torch.randn(3, 5, device="cuda")
    earlier, earlier_batch = mlp(dropout=0.5)

    artifact = compile_and_capture(
        model, optimizer, lambda y, target: F.mse_loss(y, waits(target)), batch, passes=None
    )

    assert artifact.capture_state == "planned"
    assert "not permitted when stream is capturing" in artifact.reason
    assert torch.isfinite(artifact.replay(*batch))
    assert torch.randn(1000, device="cuda").std() > 0.5
    assert mlp(dropout=0.5)[0].capture_state == "cuda-graph"
    assert check_replay(earlier, *earlier_batch).ok  # seeds still reach its recording
    torch.cuda.empty_cache()
