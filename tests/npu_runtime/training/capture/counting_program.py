"""Programs for tests: a step over fixed memory that changes its state, draws random numbers, and may fail."""

from collections.abc import Mapping

import torch


class CountingProgram:
    """Adds noise to ``w``, its lr to ``m``, and counts its runs."""

    def __init__(self, device: str = "cpu", fails_at: int | None = None) -> None:
        self.state: Mapping[str, torch.Tensor] = {
            "w": torch.arange(6.0, device=device).view(2, 3).t(),
            "m": torch.tensor([float("nan"), -0.0, 1e-45], device=device),
            "step": torch.zeros((), dtype=torch.int64, device=device),
            "mask": torch.ones(1, device=device).expand(4),
        }
        self.fails_at = fails_at
        self.seen: list[int] = []

    def run(self, numbers: float = 0.5) -> None:
        self.seen.append(int(self.state["step"]))
        self.state["w"].add_(torch.randn(3, 2))
        self.state["m"].add_(numbers)
        self.state["step"].add_(1)
        if self.fails_at == len(self.seen):
            raise RuntimeError("the device is gone")
