"""Ops on lists: an optimizer's step, clipping and loss scaling, as PyTorch computes them."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch

import npu_cuda
from npu_cuda import _C
from npu_cuda.errors import InvalidArgumentError

SHAPES = ((7,), (), (0, 3), (1,), (33, 20), (40_000,), (5, 2, 200))
Tensors = list[torch.Tensor]


def call(name: str, inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor], *attrs: Any) -> None:
    npu_cuda.op_call(npu_cuda.kinds()[name], list(inputs), list(outputs), *attrs)


def joined(lists: Sequence[Tensors]) -> Tensors:
    return [x for each in lists for x in each]


def numbers(positive: bool = False) -> Tensors:
    made = [torch.randn(shape) for shape in SHAPES]
    return [x.abs() + 0.1 for x in made] if positive else made


def scalars() -> Tensors:
    return [torch.rand(()) + 1 for _ in SHAPES]


@pytest.mark.parametrize(("name", "single", "lists", "outputs", "attrs"), [
    ("MultiSgd", "SgdStep", [numbers(), numbers()], 1, (0, b"")),
    ("MultiSgd", "SgdStep", [numbers(), numbers(), scalars()], 1, (0, b"")),
    ("MultiSgdMomentum", "SgdMomentumStep", [numbers(), numbers(), numbers()], 2, (0, b"")),
    ("MultiAdam", "AdamStep", [numbers(), numbers(), numbers(), numbers(True), scalars(), scalars()], 3,
        (0, b"")),
    ("MultiAmsgrad", "AmsgradStep",
        [numbers(), numbers(), numbers(), numbers(True), numbers(True), *[scalars() for _ in range(3)]], 4,
        (0, b"")),
    ("MultiClipByNorm", "ClipByNorm", [numbers(), scalars()], 1, (0, b"")),
    ("MultiUnscale", "Unscale", [numbers(), scalars()], 1, (0, b"")),
    ("MultiStepInc", "StepInc", [scalars()], 1, (0, b"")),
])  # fmt: skip
@pytest.mark.parametrize("threads", [1, 3])
def test_lists_give_the_bits_of_the_single_op(
    name: str, single: str, lists: list[Tensors], outputs: int, attrs: tuple[int, bytes], threads: int
) -> None:
    results = [[torch.full_like(x, torch.nan) for x in lists[0]] for _ in range(outputs)]
    before = _C.thread_count()
    try:
        _C.set_thread_count(threads)
        call(name, joined(lists), joined(results), *attrs)
    finally:
        _C.set_thread_count(before)

    for i in range(len(SHAPES)):
        wanted = [torch.empty_like(lists[0][i]) for _ in range(outputs)]
        call(single, [column[i] for column in lists], wanted, *attrs)
        assert all(torch.equal(column[i], each) for column, each in zip(results, wanted, strict=True))


def parameters() -> tuple[Tensors, Tensors]:
    torch.manual_seed(0)
    ours = numbers()
    return ours, [torch.nn.Parameter(x.clone()) for x in ours]


def set_grads(theirs: Tensors, step: int) -> Tensors:
    torch.manual_seed(step + 1)
    for each in theirs:
        each.grad = torch.randn(each.shape)
    return [each.grad.clone() for each in theirs if each.grad is not None]


@pytest.mark.parametrize(("optimizer", "options"), [
    (torch.optim.Adam, {}),
    (torch.optim.Adam, {"weight_decay": 0.1, "maximize": True}),
    (torch.optim.Adam, {"amsgrad": True, "weight_decay": 0.1}),
    (torch.optim.AdamW, {"weight_decay": 0.1}),
    (torch.optim.AdamW, {"amsgrad": True, "maximize": True}),
])  # fmt: skip
@pytest.mark.parametrize("captured", [False, True])
def test_ten_steps_of_adam_are_those_of_pytorch(
    optimizer: Any, options: dict[str, Any], captured: bool
) -> None:
    ours, theirs = parameters()
    reference = optimizer(theirs, lr=0.1, **options)
    has_largest = options.get("amsgrad", False)
    states = [[torch.zeros_like(x) for x in ours] for _ in range(3 if has_largest else 2)]
    steps = [torch.zeros(()) for _ in ours]
    corrections = [torch.zeros(()) for _ in range(2 * len(ours))]
    grads = [torch.empty_like(x) for x in ours]
    flags = (optimizer is torch.optim.AdamW) + 2 * options.get("maximize", False)
    decay = options.get("weight_decay", 0.01 if optimizer is torch.optim.AdamW else 0.0)
    numbers_of = {"lr": 0.1, "weight_decay": decay, "flags": flags}
    kind, schema = ("MultiAmsgrad", "MAMS") if has_largest else ("MultiAdam", "MADM")
    written = [*ours, *joined(states)]
    calls: list[Any] = [
        ("MultiStepInc", steps, steps),
        ("MultiBiasCorr", steps, corrections, *npu_cuda.attrs("MBCR", beta1=0.9, beta2=0.999)),
        (kind, [*ours, *grads, *joined(states), *corrections], written,
            *npu_cuda.attrs(schema, **numbers_of)),
    ]  # fmt: skip
    graph = capture(calls) if captured else None

    for step in range(10):
        for ours_now, now in zip(grads, set_grads(theirs, step), strict=True):
            ours_now.copy_(now)
        reference.step()
        if graph:
            graph.launch()
        else:
            for each in calls:
                call(*each)

    for each, wanted in zip(ours, theirs, strict=True):
        torch.testing.assert_close(each, wanted.detach(), rtol=1e-5, atol=1e-6)


def capture(calls: Sequence[Any]) -> Any:
    """Return a graph of calls on the host; tensors with memory of their own are slots."""
    program = npu_cuda.Program("host")
    slots: dict[int, tuple[int, torch.Tensor]] = {}

    def slot_of(x: torch.Tensor) -> int:
        if id(x) not in slots:
            spec = npu_cuda.TensorSpec(str(x.dtype).removeprefix("torch."), list(x.shape))
            slots[id(x)] = program.slot(spec), x
        return slots[id(x)][0]

    for name, inputs, outputs, *attrs in calls:
        program.add(npu_cuda.kinds()[name], list(map(slot_of, inputs)), list(map(slot_of, outputs)), *attrs)
    program.finalize()
    for slot, x in slots.values():
        program.bind(slot, x)
    return program.capture()


@pytest.mark.parametrize("options", [
    {},
    {"weight_decay": 0.1, "maximize": True},
    {"momentum": 0.9},
    {"momentum": 0.9, "dampening": 0.5, "weight_decay": 0.1, "maximize": True},
    {"momentum": 0.9, "nesterov": True},
])  # fmt: skip
def test_ten_steps_of_sgd_are_those_of_pytorch(options: dict[str, Any]) -> None:
    ours, theirs = parameters()
    reference = torch.optim.SGD(theirs, lr=0.1, **options)
    momenta = [torch.full_like(x, torch.nan) for x in ours] if "momentum" in options else []
    name, schema = ("MultiSgdMomentum", "MSGM") if momenta else ("MultiSgd", "MSGD")
    fixed = {key: value for key, value in options.items() if key not in ("nesterov", "maximize")}
    flags = options.get("nesterov", False) + 4 * options.get("maximize", False)

    for step in range(10):
        grads = set_grads(theirs, step)
        reference.step()
        first = 2 if momenta and step == 0 else 0
        attrs = npu_cuda.attrs(schema, lr=0.1, flags=flags + first, **fixed)
        call(
            name,
            [*ours, *grads, *[torch.zeros_like(x) if first else x for x in momenta]],
            [*ours, *momenta],
            *attrs,
        )

    for each, wanted in zip(ours, theirs, strict=True):
        torch.testing.assert_close(each, wanted.detach(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("max_norm", [0.5, 1e6])
def test_gradients_are_clipped_as_by_pytorch(max_norm: float) -> None:
    _, theirs = parameters()
    grads, norm = set_grads(theirs, 0), torch.empty(())

    call("GlobalNorm", grads, [norm])
    attrs = npu_cuda.attrs("MCLP", max_norm=max_norm)
    call("MultiClipByNorm", [*grads, *[norm] * len(grads)], grads, *attrs)
    wanted = torch.nn.utils.clip_grad_norm_(theirs, max_norm)

    torch.testing.assert_close(norm, wanted, rtol=1e-6, atol=0)
    for each, param in zip(grads, theirs, strict=True):
        torch.testing.assert_close(each, param.grad, rtol=1e-6, atol=0)


def test_the_norm_of_a_list_does_not_depend_on_threads() -> None:
    grads, norms = numbers(), []
    before = _C.thread_count()
    try:
        for threads in (1, 2, 5):
            _C.set_thread_count(threads)
            norms.append(torch.empty((), dtype=torch.float64))
            call("GlobalNorm", grads, norms[-1:])
    finally:
        _C.set_thread_count(before)

    assert norms[0] == norms[1] == norms[2]


@pytest.mark.parametrize("value", [1.0, torch.inf, -torch.inf, torch.nan])
@pytest.mark.parametrize("inv_scale", [1.0, 0.125])
def test_gradients_are_unscaled_as_by_pytorch(value: float, inv_scale: float) -> None:
    grads, scale = numbers(), torch.tensor(inv_scale)
    grads[4][3, 5] = value
    found = torch.zeros(1)
    wanted, wanted_found = [x.clone() for x in grads], torch.zeros(1)

    call("FoundInf", [found, *grads], [found])
    call("MultiUnscale", [*grads, *[scale] * len(grads)], grads)
    torch._amp_foreach_non_finite_check_and_unscale_(wanted, wanted_found, scale)

    assert found == wanted_found == (value != 1)
    assert all(torch.equal(a.nan_to_num(9), b.nan_to_num(9)) for a, b in zip(grads, wanted, strict=True))


def test_the_scale_of_a_loss_moves_as_in_pytorch() -> None:
    ours, theirs = ([torch.tensor(2.0**125), torch.tensor(0, dtype=torch.int32)] for _ in range(2))
    attrs = npu_cuda.attrs("LSUP", growth_factor=3.0, backoff_factor=0.25, growth_interval=2)

    for found in (0, 0, 1, 0, 0, 0, 0, 0, 1, 1, 0, 0):
        flag = torch.tensor(float(found))
        call("LossScaleUpdate", [*ours, flag], ours, *attrs)
        torch._amp_update_scale_(*theirs, flag, 3.0, 0.25, 2)

        assert ours == theirs


def test_a_list_has_any_length() -> None:
    params, grads = ([torch.full((3,), value) for _ in range(1000)] for value in (1.0, 2.0))
    attrs = npu_cuda.attrs("MSGD", lr=0.25)

    call("MultiSgd", [*params, *grads], params, *attrs)
    graph = capture([("MultiSgd", [*params, *grads], params, *attrs)])
    graph.launch()

    assert all(x.eq(0).all() for x in params)


def test_a_place_of_a_list_is_no_other_place() -> None:
    params, grads = ([torch.ones(3) for _ in range(20)] for _ in range(2))
    twice = [params[0], params[0], *params[2:]]

    for inputs, outputs, text in (
        (
            [*params, *grads],
            params[::-1],
            r"output \d+ overlaps input \d+: it is not at the same place of a list that is written in place",
        ),
        ([*params, *grads], grads, r"output \d+ overlaps input [23]\d: it is not at the same place"),
        ([*twice, *grads], twice, r"output [01] overlaps (in|out)put [01]"),
        (
            [*params, *grads[1:]],
            params,
            "MultiSgd takes 2 to 4 inputs and 1 output, of which the last 4 and 1 are",
        ),
    ):
        with pytest.raises(InvalidArgumentError, match=text):
            call("MultiSgd", inputs, outputs)
