"""Whole models and training steps on a GPU: the results of PyTorch, most nodes by the kernels of CUDA."""

from collections import Counter
from collections.abc import Callable, Mapping

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from npu_ir import extract_ir
from npu_runtime import IRExecutor, TrainStep
from npu_runtime.diagnostics.explain import explain

pytestmark = pytest.mark.gpu


class Block(nn.Module):
    """A block of a language model, with its embedding and its head."""

    def __init__(self, words: int = 97, width: int = 64, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(32, width)
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.head = nn.Linear(width, words, bias=False)

    def forward(self, words: Tensor) -> Tensor:
        x = self.words(words) + self.places(torch.arange(words.shape[1], device=words.device))
        split = self.qkv(self.first(x)).chunk(3, -1)
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in split)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        x = x + self.down(F.gelu(self.up(self.second(x))))
        return self.head(x)


class Picture(nn.Module):
    """A small network for images, with what such networks have."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU())
        self.pool = nn.MaxPool2d(3, 2, 1)
        self.body = nn.Sequential(nn.Conv2d(16, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.SiLU())
        self.head = nn.Linear(16, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool(self.stem(x))
        x = x + self.body(x)
        return self.head(F.adaptive_avg_pool2d(x, 1).flatten(1))


def words() -> Tensor:
    return torch.randint(97, (3, 17), device="cuda")


def picture() -> Tensor:
    return torch.randn(2, 3, 33, 29, device="cuda")


MODELS: Mapping[str, tuple[Callable[[], nn.Module], Callable[[], Tensor]]] = {
    "language": (Block, words), "picture": (Picture, picture),
}  # fmt: skip


@pytest.fixture(autouse=True)
def _full_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)


def made(name: str) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    model, given = MODELS[name]
    return model().cuda(), given()


def test_an_executor_that_is_told_nothing_takes_what_costs_less() -> None:
    model, x = made("language")
    model.eval()
    executor = IRExecutor(extract_ir(model, (x,)), model.state_dict())

    torch.testing.assert_close(executor(x), model(x), rtol=1e-4, atol=1e-4)
    assert {backend.name for backend in executor.backends} == {"cuda", "aten"}


@pytest.mark.parametrize("passes", [None, "default", "fuse"])
@pytest.mark.parametrize("name", MODELS)
def test_a_model_computes_what_it_does_in_pytorch(
    name: str, passes: str | None, answer: Callable[[str], None]
) -> None:
    model, x = made(name)
    model.eval()
    executor = IRExecutor(extract_ir(model, (x,)), model.state_dict(), backend="cuda", passes=passes)

    for given in (x, x.flip(0)):
        torch.testing.assert_close(executor(given), model(given), rtol=1e-4, atol=1e-4)

    totals = {backend: total.count for backend, total in explain(executor).totals.items()}
    answer(f"{name}, passes {passes}: nodes by backend {totals}, {len(executor.instructions)} instructions")
    assert totals["cuda"] >= 7


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_model_of_short_floats(dtype: torch.dtype) -> None:
    model, x = made("language")
    model.eval().to(dtype)
    executor = IRExecutor(extract_ir(model, (x,)), model.state_dict(), backend="cuda")

    exact = model.float()(x)

    torch.testing.assert_close(executor(x).float(), exact, rtol=0.05, atol=0.05)


@pytest.mark.parametrize("backend", ["aten", "cuda"])
def test_a_model_of_short_floats_trains(backend: str) -> None:
    model, x = made("language")
    other, _ = made("language")
    for each in (model, other):
        each.to(torch.bfloat16)
    step = TrainStep(
        model, torch.optim.SGD(model.parameters(), lr=0.1), cross_entropy, backend=backend, capture="require"
    )
    eager, target = torch.optim.SGD(other.parameters(), lr=0.1), words()

    for _ in range(3):
        eager.zero_grad()
        expected = cross_entropy(other(x), target)
        expected.backward()
        eager.step()
        torch.testing.assert_close(step(x, target), expected, rtol=0.02, atol=0.02)
    assert step.artifact.capture_state == "cuda-graph"


def test_an_executor_becomes_part_of_a_graph_of_torch() -> None:
    model, x = made("language")
    model.eval()
    executor = IRExecutor(extract_ir(model, (x,)), model.state_dict(), backend="cuda")
    executor(x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = executor(x)
    x.copy_(x.flip(0))

    graph.replay()

    torch.testing.assert_close(result, model(x), rtol=1e-4, atol=1e-4)


def test_an_executor_runs_on_the_current_stream() -> None:
    model, x = made("picture")
    model.eval()
    executor = IRExecutor(extract_ir(model, (x,)), model.state_dict(), backend="cuda")
    expected = model(x)
    late = torch.zeros_like(x)
    executor(late)
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()

    with torch.cuda.stream(stream):
        torch.cuda._sleep(100_000_000)
        late.copy_(x)
        result = executor(late)
    stream.synchronize()

    torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-4)


def cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(logits.flatten(0, -2), target.flatten())


OPTIMIZERS: Mapping[str, Callable[..., torch.optim.Optimizer]] = {
    "sgd": lambda weights: torch.optim.SGD(weights, lr=0.05, momentum=0.9, weight_decay=0.01),
    "adamw": lambda weights: torch.optim.AdamW(weights, lr=0.01),
}


@pytest.mark.parametrize("passes", ["train", "train-fuse"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("name", MODELS)
def test_a_model_trains_as_in_pytorch(
    name: str, optimizer: str, passes: str, answer: Callable[[str], None]
) -> None:
    model, x = made(name)
    other, _ = made(name)
    other.load_state_dict(model.state_dict())
    step = TrainStep(
        model, OPTIMIZERS[optimizer](model.parameters()), cross_entropy, backend="cuda", passes=passes
    )
    eager = OPTIMIZERS[optimizer](other.parameters())

    for _ in range(4):
        target = words() if name == "language" else torch.randint(10, (2,), device="cuda")
        eager.zero_grad()
        expected = cross_entropy(other(x), target)
        expected.backward()
        eager.step()
        torch.testing.assert_close(step(x, target), expected, rtol=1e-3, atol=1e-3)

    kernels = Counter(item.backend for item in step.artifact.lowered.ops)
    answer(f"a step of {name}, {optimizer}, passes {passes}: ops by backend {dict(kernels)}")
    assert step.artifact.capture_state == "cuda-graph", step.explain()
    for found, wanted in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(found, wanted, rtol=2e-3, atol=2e-3)
