"""`TrainStep.run`: many steps in one call do what as many calls do."""

import copy
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn, optim
from torch.utils.data import DataLoader, TensorDataset

from npu_ir import ExecutionError
from npu_runtime import TracingError, TrainStep

Batches = list[tuple[Tensor, Tensor]]
MODELS: dict[str, Callable[[], nn.Module]] = {
    "linear": lambda: nn.Linear(6, 4),
    "dropout": lambda: nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.4), nn.ReLU(), nn.Linear(8, 4)),
    "batch norm": lambda: nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 4)),
}


def make_step(model: str = "linear", adam: bool = False, **options: Any) -> tuple[nn.Module, TrainStep]:
    torch.manual_seed(0)
    made = MODELS[model]()
    optimizer: optim.Optimizer = (
        optim.Adam(made.parameters(), 0.01) if adam else optim.SGD(made.parameters(), 0.1, momentum=0.9)
    )
    return made, TrainStep(made, optimizer, F.cross_entropy, **options)


def make_batches(count: int, size: int = 5) -> Batches:
    generator = torch.Generator().manual_seed(1)
    return [
        (torch.randn(size, 6, generator=generator), torch.randint(0, 4, (size,), generator=generator))
        for _ in range(count)
    ]


def assert_same(found: nn.Module, expected: nn.Module) -> None:
    for name, item in expected.state_dict().items():
        assert torch.equal(found.state_dict()[name], item), name


def after_calls(batches: Batches, model: str = "linear", adam: bool = False) -> tuple[nn.Module, Tensor]:
    """Return the model and the losses after a call for each batch."""
    made, step = make_step(model, adam)
    torch.manual_seed(2)
    return made, torch.stack([step(*batch) for batch in batches])


def loader_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "npu-batches"]


@pytest.mark.parametrize("capture", ["prefer", "off"])
@pytest.mark.parametrize("adam", [False, True], ids=["sgd", "adam"])
@pytest.mark.parametrize("model", MODELS)
def test_a_run_equals_as_many_calls_to_the_bit(model: str, adam: bool, capture: str) -> None:
    batches = make_batches(20)
    expected, losses = after_calls(batches, model, adam)
    made, step = make_step(model, adam, capture=capture, borrow=True)

    torch.manual_seed(2)
    found = torch.cat([step.run(batches[:11]), step.run(batches[11:])])

    assert torch.equal(found, losses)
    assert_same(made, expected)
    assert not loader_threads()


def test_all_results_of_a_step_are_stacked_in_its_structure() -> None:
    torch.manual_seed(0)
    model = nn.Linear(6, 4)

    def loss_fn(output: Tensor, target: Tensor) -> dict[str, Any]:
        return {"loss": F.cross_entropy(output, target), "more": [output]}

    step = TrainStep(model, optim.SGD(model.parameters(), 0.1), loss_fn)
    batches = make_batches(7)
    expected = [copy.deepcopy(model)(batches[0][0])]

    results = step.run(batches)

    assert results["loss"].shape == (7,)
    assert results["more"][0].shape == (7, 5, 4)
    assert torch.allclose(results["more"][0][0], expected[0])
    assert torch.equal(F.cross_entropy(results["more"][0][6], batches[6][1]), results["loss"][6])


def test_no_more_batches_are_drawn_than_there_are_steps() -> None:
    _, step = make_step()
    batches = make_batches(30)
    iterator = iter(batches)

    first, second = step.run(iterator, 12), step.run(iterator, 3)

    assert (len(first), len(second)) == (12, 3)
    assert next(iterator) is batches[15]
    assert len(step.run(iterator, 100)) == 14


def test_no_batch_makes_results_of_no_rows() -> None:
    _, step = make_step()
    batches = make_batches(1)

    with pytest.raises(
        ExecutionError, match=r"(?s)there was no batch, and there was no step.*used before has"
    ):
        step.run([])
    step(*batches[0])

    for losses in (step.run([]), step.run(batches, 0)):
        assert losses.shape == (0,)
        assert losses.dtype is torch.float32


def test_batches_of_other_sizes_take_part() -> None:
    data = TensorDataset(*(torch.cat(items) for items in zip(*make_batches(6), strict=True)))
    loader = DataLoader(data, batch_size=8)
    batches = [tuple(batch) for batch in loader]
    assert len(batches[-1][0]) == 6
    expected, losses = after_calls(batches * 2)
    made, step = make_step()

    found = torch.cat([step.run(loader), step.run(loader)])

    assert torch.equal(found, losses)
    assert_same(made, expected)


def test_results_of_other_shapes_are_refused() -> None:
    model = nn.Linear(6, 4)

    def loss_fn(output: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        return F.cross_entropy(output, target), output

    step = TrainStep(model, optim.SGD(model.parameters(), 0.1), loss_fn)

    with pytest.raises(
        ExecutionError,
        match=r"(?s)step 4 of run: its results cannot be stacked.*result 1 is f32\[2, 4\], and was f32"
        r"\[5, 4\].*drop_last=True",
    ):
        step.run([*make_batches(3), *make_batches(2, size=2)])


def test_what_the_iterable_raises_names_the_step() -> None:
    batches = make_batches(9)
    expected, _ = after_calls(batches)
    made, step = make_step()

    def broken() -> Iterator[tuple[Tensor, Tensor]]:
        yield from batches
        raise OSError("the disk is gone")

    with pytest.raises(ExecutionError, match="step 10 of run: OSError: the disk is gone") as caught:
        step.run(broken())

    assert isinstance(caught.value.__cause__, OSError)
    assert_same(made, expected)
    assert not loader_threads()


@pytest.mark.parametrize("place", [0, 1, 6])
def test_a_step_that_fails_changes_nothing_and_those_before_are_taken(place: int) -> None:
    batches = make_batches(12)
    expected, _ = after_calls(batches[:place]) if place else (make_step()[0], None)
    made, step = make_step()
    wrong = batches[place][0], torch.full((5,), 99)

    with pytest.raises(ExecutionError, match=rf"(?s)step {place + 1} of run: .*99.*"):
        step.run([*batches[:place], wrong, *batches[place:]])

    assert_same(made, expected)
    assert not loader_threads()
    assert len(step.run(batches)) == 12


def test_a_batch_is_what_a_call_takes() -> None:
    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(6, 4)

        def forward(self, x: Tensor, labels: Tensor | None = None) -> Tensor:
            return self.layer(x).mean() if labels is None else F.cross_entropy(self.layer(x), labels)

    model = Named()
    step = TrainStep(model, optim.SGD(model.parameters(), 0.1))
    (x, labels), *_ = make_batches(1)

    assert step.run([{"x": x, "labels": labels}] * 3).shape == (3,)
    assert step.run([x, x]).shape == (2,)
    assert step.run([[x], (x,)]).shape == (2,)


def test_an_iterable_may_reuse_its_tensors() -> None:
    batches = make_batches(20)
    expected, losses = after_calls(batches)
    made, step = make_step()
    buffer = tuple(map(torch.empty_like, batches[0]))

    def refill() -> Iterator[tuple[Tensor, ...]]:
        for batch in batches:
            for target, item in zip(buffer, batch, strict=True):
                target.copy_(item)
            yield buffer

    assert torch.equal(step.run(refill()), losses)
    assert_same(made, expected)


def test_a_step_that_writes_to_its_batch_changes_that_of_the_caller() -> None:
    model = nn.Linear(6, 4)
    optimizer = optim.SGD(model.parameters(), 0.1)

    def function(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        x.add_(1)
        return loss.detach()

    step = TrainStep(function)
    batches = [x for x, _ in make_batches(4)]
    before = [x.clone() for x in batches]

    step.run(batches)

    for x, old in zip(batches, before, strict=True):
        assert torch.equal(x, old + 1)


def test_batches_that_require_gradients_are_copied_without_their_history() -> None:
    _, step = make_step()
    batches = [(x.requires_grad_(), target) for x, target in make_batches(9)]
    _, losses = after_calls(batches)

    found = step.run(batches)

    assert torch.equal(found, losses)
    assert not found.requires_grad


def test_rates_that_change_between_runs_are_used() -> None:
    batches = make_batches(12)
    made, step = make_step()
    expected, eager = make_step()
    for item in (step, eager):
        scheduler = optim.lr_scheduler.ExponentialLR(next(iter(item._components.optimizers.values())), 0.5)
        for start in range(0, 12, 4):
            part = batches[start : start + 4]
            if item is step:
                step.run(part)
            else:
                for batch in part:
                    eager(*batch)
            scheduler.step()

    assert_same(made, expected)


def test_calls_of_other_threads_wait_for_the_end_of_a_run() -> None:
    _, step = make_step()
    batches = make_batches(40)
    step(*batches[0])
    order: list[str] = []

    def call() -> None:
        step(*batches[0])
        order.append("call")

    def begin_a_call() -> Iterator[tuple[Tensor, Tensor]]:
        yield batches[0]
        other.start()
        yield from batches
        order.append("drawn")

    other = threading.Thread(target=call)
    losses = step.run(begin_a_call())
    other.join()

    assert len(losses) == 41
    assert order == ["drawn", "call"]


@pytest.mark.parametrize(("batches", "steps"), [(3, None), ([], -1)])
def test_what_is_no_iterable_or_no_number_is_refused(batches: Any, steps: int | None) -> None:
    _, step = make_step()

    with pytest.raises(TracingError, match="run takes an iterable of batches and a number of steps"):
        step.run(batches, steps)


@pytest.mark.parametrize("convert", [Tensor.to_sparse, Tensor.to_sparse_csr])
@pytest.mark.filterwarnings("ignore:Sparse")
def test_a_sparse_batch_is_refused_with_a_fix(convert: Callable[[Tensor], Tensor]) -> None:
    _, step = make_step()
    ((inputs, target),) = make_batches(1)
    step(inputs, target)

    with pytest.raises(TracingError, match=r"(?s)has a tensor of the layout torch.sparse_c.*\.to_dense\(\)"):
        step(convert(inputs), target)
