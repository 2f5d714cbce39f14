"""Memory behind sparse tensors is not written to while they are alive."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from npu_ir import extract_ir
from npu_runtime import IRExecutor, TrainStep, compile_ir
from npu_runtime.errors import TracingError
from tests.support.corpus.case import Function
from tests.support.rows import each_row


def by_places(places: Tensor, numbers: Tensor) -> tuple[Tensor, Tensor]:
    doubled = numbers * 2
    sparse = torch.sparse_coo_tensor(places[None], doubled, (5,))
    return torch.relu(doubled), sparse.to_dense()


def read_again(places: Tensor, numbers: Tensor) -> tuple[Tensor, Tensor]:
    sparse = torch.sparse_coo_tensor(places[None], numbers * 2, (5,))
    values = sparse._values()
    return torch.relu(values), sparse.to_dense()


@each_row("function", {"by places": by_places, "read again": read_again})
@pytest.mark.parametrize("passes", [None, "default", "auto"])
@pytest.mark.filterwarnings("ignore:Sparse")
def test_values_of_a_sparse_tensor_stay(function: Callable[..., Any], passes: str | None) -> None:
    args = torch.tensor([0, 2, 4]), torch.tensor([-1.0, 2.0, -3.0])
    graph = extract_ir(Function(function), args)

    found = IRExecutor(graph, passes=passes)(*args)

    torch.testing.assert_close(found, function(*args), rtol=0, atol=0)


@pytest.mark.parametrize("backend", ["aten", "host", "auto"])
@pytest.mark.filterwarnings("ignore:Sparse")
def test_steps_train_embeddings_with_sparse_gradients(backend: str) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(11, 6, sparse=True), nn.Flatten(), nn.Linear(30, 11))
    eager = copy.deepcopy(model)
    ours, theirs = (torch.optim.SGD(item.parameters(), lr=0.1) for item in (model, eager))
    step = TrainStep(model, ours, F.cross_entropy, backend=backend)

    for _ in range(5):
        tokens, target = torch.randint(0, 11, (3, 5)), torch.randint(0, 11, (3,))
        step(tokens, target)
        theirs.zero_grad()
        F.cross_entropy(eager(tokens), target).backward()
        theirs.step()

    torch.testing.assert_close(list(model.parameters()), list(eager.parameters()), rtol=1e-5, atol=1e-6)


@each_row("function", {
    "softmax": lambda a: torch.sparse.softmax(a, 1).to_dense(),
    "log_softmax": lambda a: torch.sparse.log_softmax(a.coalesce(), 1).to_dense(),
    "product": lambda a: (a @ a).to_dense(),
    "quotient": lambda a: (a / 2).to_dense(),
    "power": lambda a: a.pow(2).to_dense(),
})  # fmt: skip
@pytest.mark.parametrize("passes", [None, "auto"])
@pytest.mark.filterwarnings("ignore:Sparse")
def test_sparse_tensors_are_computed_as_in_eager_mode(
    function: Callable[..., Any], passes: str | None
) -> None:
    a = (torch.arange(16.0).reshape(4, 4) % 3).to_sparse()
    executor = IRExecutor(extract_ir(Function(function), (a,)), passes=passes)

    torch.testing.assert_close(executor(a), function(a), rtol=0, atol=0)
    torch.testing.assert_close(executor.run_flat((a,))[0], [function(a)], rtol=0, atol=0)


class Network(nn.Module):
    """A layer behind a product with a sparse matrix, which a function makes of a buffer."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.register_buffer("edges", (torch.arange(16.0).reshape(4, 4) % 3).to_sparse())
        self.layer = nn.Linear(3, 2)
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(self.function(self.edges) @ x)  # type: ignore[no-any-return, arg-type]


@each_row("function", {
    "as it is": lambda a: a,
    "softmax": lambda a: torch.sparse.softmax(a, 1),
    "product": lambda a: a @ a,
})  # fmt: skip
@pytest.mark.parametrize("passes", [None, "default", "auto"])
@pytest.mark.filterwarnings("ignore:Sparse")
def test_what_depends_on_sparse_buffers_alone_is_computed_when_they_are_bound(
    function: Callable[..., Any], passes: str | None
) -> None:
    model, x = Network(function), torch.randn(4, 3)

    executor = IRExecutor(extract_ir(model, (x,)), model.state_dict(), passes=passes)

    torch.testing.assert_close(executor(x), model(x))


@pytest.mark.filterwarnings("ignore:Sparse")
def test_a_step_refuses_sparse_buffers_by_name() -> None:
    model = Network(lambda a: a)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    message = "(?s)'edges' is a tensor of layout sparse_coo.*fix: keep its indices and values as buffers"

    with pytest.raises(TracingError, match=message):
        TrainStep(model, optimizer, F.mse_loss)
    with pytest.raises(TracingError, match=message):
        compile_ir(model, optimizer, F.mse_loss, (torch.randn(4, 3), torch.randn(4, 2)))
