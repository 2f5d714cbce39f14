"""Additions to and multiplications of output channels are folded, and only these."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from npu_ir import extract_ir
from npu_passes import PassManager, bake
from npu_passes.library.folding.conv_add_folding import ConvAddFolding
from npu_passes.library.folding.output_channels import channel_op
from tests.support.corpus.case import Holding
from tests.support.passes.folding_cases import assert_computes, image, op_types, refusals, run_passes, trained
from tests.support.rows import each_row
from tests.support.small_programs import program

CONV2D, LINEAR = "aten.conv2d.default", "aten.linear.default"
Function = Callable[[Any, Tensor], Tensor]
CHANNELS = 4


def model_of(function: Function, z: Tensor | None = None, **parts: Any) -> nn.Module:
    parts.setdefault("conv", nn.Conv2d(3, CHANNELS, 3))
    return Holding(function, **parts, **({} if z is None else {"z": z})).eval()


def away_from_zero(*shape: int) -> Tensor:
    return torch.rand(shape) + 0.5


OPERATIONS = {
    "conv+z": lambda self, x: self.conv(x) + self.z,
    "z+conv": lambda self, x: self.z + self.conv(x),
    "conv-z": lambda self, x: self.conv(x) - self.z,
    "z-conv": lambda self, x: self.z - self.conv(x),
    "conv*z": lambda self, x: self.conv(x) * self.z,
    "z*conv": lambda self, x: self.z * self.conv(x),
    "conv/z": lambda self, x: self.conv(x) / self.z,
    "alpha": lambda self, x: torch.add(self.conv(x), self.z, alpha=3),
    "alpha-of-conv": lambda self, x: torch.add(self.z, self.conv(x), alpha=-2.5),
    "sub-alpha": lambda self, x: torch.sub(self.conv(x), self.z, alpha=3),
    "sub-alpha-of-conv": lambda self, x: torch.sub(self.z, self.conv(x), alpha=3),
    "rsub-alpha": lambda self, x: torch.rsub(self.conv(x), self.z, alpha=3),
    "rsub-alpha-of-z": lambda self, x: torch.rsub(self.z, self.conv(x), alpha=3),
}


NUMBERS = {
    "conv+n": lambda self, x: self.conv(x) + 2.5,
    "n+conv": lambda self, x: 2 + self.conv(x),
    "conv-n": lambda self, x: self.conv(x) - 0.3,
    "n-conv": lambda self, x: 1 - self.conv(x),
    "conv*n": lambda self, x: self.conv(x) * 0.7,
    "n*conv": lambda self, x: 3 * self.conv(x),
    "conv/n": lambda self, x: self.conv(x) / 3,
    "n-alpha": lambda self, x: torch.add(self.conv(x), 2, alpha=3),
    "n-sub-alpha": lambda self, x: torch.sub(self.conv(x), 2, alpha=3),
    "n-rsub-alpha": lambda self, x: torch.rsub(self.conv(x), 2, alpha=3),
    "add.Scalar": lambda self, x: torch.ops.aten.add.Scalar(self.conv(x), 1.5),
    "rsub.Scalar": lambda self, x: torch.ops.aten.rsub.Scalar(self.conv(x), 1.5),
    "div.Scalar": lambda self, x: torch.ops.aten.div.Scalar(self.conv(x), 1.5),
}


def assert_folded(model: nn.Module, x: Tensor) -> None:
    result = run_passes(model, [x])

    assert len(result.graph.body) == 1
    assert channel_op(result.graph.outputs[0]) is not None
    assert_computes(result.graph, model, [x])


def test_every_operation_on_tensors_and_numbers_is_folded(subtests: pytest.Subtests) -> None:
    rows = {**OPERATIONS, **NUMBERS}
    without_bias = ("z-conv", "conv*z", "rsub-alpha-of-z", "n-conv")
    for bias, case in [*((True, case) for case in rows), *((False, case) for case in without_bias)]:
        with subtests.test(bias=bias, case=case):
            conv = nn.Conv2d(3, CHANNELS, 3, bias=bias)

            assert_folded(model_of(rows[case], away_from_zero(CHANNELS, 1, 1), conv=conv), image(3))


def test_shapes_that_mean_channels_of_an_image_are_folded(subtests: pytest.Subtests) -> None:
    shapes = [(), (1,), (1, 1, 1), (1, 1, 1, 1), (1, 4, 1, 1)]
    for shape, name in itertools.product(shapes, ["conv+z", "z-conv", "conv*z"]):
        with subtests.test(shape=shape, name=name):
            assert_folded(model_of(OPERATIONS[name], away_from_zero(*shape)), image(3))


def test_the_axis_of_channels_is_that_of_the_layer(subtests: pytest.Subtests) -> None:
    conv_rows = {
        "1d": (nn.Conv1d(3, 4, 3), (4, 1), (2, 3, 8)),
        "1d-batch": (nn.Conv1d(3, 4, 3), (1, 4, 1), (2, 3, 8)),
        "3d": (nn.Conv3d(3, 4, 3), (4, 1, 1, 1), (2, 3, 5, 5, 5)),
        "3d-batch": (nn.Conv3d(3, 4, 3), (1, 4, 1, 1, 1), (2, 3, 5, 5, 5)),
        "unbatched": (nn.Conv2d(3, 4, 3), (4, 1, 1), (3, 6, 6)),
        "one-channel": (nn.Conv2d(3, 1, 3), (1,), (2, 3, 6, 6)),
        "1d-transposed": (nn.ConvTranspose1d(4, 6, 3, groups=2), (6, 1), (2, 4, 8)),
        "2d-transposed": (nn.ConvTranspose2d(4, 6, 3, groups=2), (6, 1, 1), (2, 4, 5, 5)),
        "3d-transposed": (nn.ConvTranspose3d(4, 6, 3, groups=2), (6, 1, 1, 1), (2, 4, 3, 3, 3)),
        "padding": (nn.Conv2d(4, 8, 3, padding="same"), (8, 1, 1), (2, 4, 5, 5)),
        "linear": (nn.Linear(3, 4), (4,), (2, 3)),
        "linear-batch": (nn.Linear(3, 4, bias=False), (1, 4), (2, 3)),
        "linear-sequence": (nn.Linear(3, 4), (4,), (2, 5, 3)),
        "linear-sequence-batch": (nn.Linear(3, 4), (1, 1, 4), (2, 5, 3)),
        "linear-unbatched": (nn.Linear(3, 4), (4,), (3,)),
    }
    for (case, (conv, shape, x)), name in itertools.product(conv_rows.items(), ("z-conv", "conv*z")):
        with subtests.test(case=case, name=name):
            assert_folded(model_of(OPERATIONS[name], away_from_zero(*shape), conv=conv), torch.randn(x))


@each_row("function", {
    "index": (lambda self, x: self.conv(x) + self.z[:, None, None]),
    "view": (lambda self, x: self.conv(x) + self.z.view(1, -1, 1, 1)),
    "expand": (lambda self, x: self.conv(x) + self.z.reshape(-1, 1, 1).expand(2, 4, 4, 5)),
    "expand-as": (lambda self, x: self.conv(x) * self.z[:, None, None].expand_as(self.conv(x))),
    "to": (lambda self, x: self.conv(x) + torch.broadcast_to(self.z[:, None, None], (4, 1, 5))),
    "made-in-forward": (lambda self, x: self.conv(x) + torch.arange(4.0)[:, None, None]),
    "computed": (lambda self, x: self.conv(x) + (self.z * 2).exp()[:, None, None]),
    "integers": (lambda self, x: self.conv(x) + self.z.to(torch.int64)[:, None, None]),
    "bools": (lambda self, x: self.conv(x) * (self.z > 1)[:, None, None]),
    "wider-0d": (lambda self, x: self.conv(x) + self.z.double().sum()),
})  # fmt: skip
def test_weights_may_be_computed_reshaped_and_expanded(function: Any) -> None:
    model, x = model_of(function, away_from_zero(CHANNELS)), image(3)

    result = run_passes(model, [x])

    assert op_types(result.graph)[-1] == CONV2D
    assert not {"aten.add.Tensor", "aten.mul.Tensor"} & set(op_types(result.graph))
    assert_computes(result.graph, model, [x])


def test_expansion_to_an_open_size_is_folded() -> None:
    def function(self: Any, x: Tensor) -> Tensor:
        y = self.conv(x)
        return y + self.z.expand(x.shape[0], CHANNELS, 4, 5)

    model = model_of(function, away_from_zero(CHANNELS, 1, 1))
    batch = torch.export.Dim("batch", min=2, max=64)

    result = run_passes(model, [image(3)], dynamic_shapes={"args": ({0: batch},)})

    assert CONV2D in op_types(result.graph)
    assert "aten.add.Tensor" not in op_types(result.graph)
    assert_computes(result.graph, model, [torch.randn(5, 3, 6, 7)])


def test_chains_are_folded_into_one() -> None:
    def function(self: Any, x: Tensor) -> Tensor:
        return 2 - (self.norm(self.conv(x)) * self.s + self.z) / 3

    parts = {"s": away_from_zero(1, CHANNELS, 1, 1), "norm": nn.BatchNorm2d(CHANNELS)}

    assert_folded(trained(model_of(function, away_from_zero(CHANNELS, 1, 1), **parts)), image(3))


def test_long_chains_are_folded_in_one_run() -> None:
    def function(self: Any, x: Tensor) -> Tensor:
        y = self.conv(x)
        for _ in range(80):
            y = y + self.z
        return y

    model, x = model_of(function, away_from_zero(CHANNELS, 1, 1)), image(3)

    result = run_passes(model, [x])

    assert op_types(result.graph) == [CONV2D]
    assert result.rounds == 2
    assert refusals(result) == []
    assert_computes(result.graph, model, [x])


def test_results_are_within_what_is_promised(subtests: pytest.Subtests) -> None:
    dtypes = [torch.float64, torch.bfloat16, torch.float16]
    for dtype, case in itertools.product(dtypes, ("z-conv", "conv/z", "sub-alpha")):
        with subtests.test(dtype=dtype, case=case):
            conv = nn.Conv2d(16, CHANNELS, 3)

            model = model_of(OPERATIONS[case], away_from_zero(CHANNELS, 1, 1), conv=conv).to(dtype)

            assert_folded(model, image(16).to(dtype))


@each_row("number", [0.7, 1 / 3])
def test_weights_are_computed_in_float64(number: Any) -> None:
    model, x = model_of(lambda self, x: (self.conv(x) - 0.1) * number), image(3)

    baked, weights = bake(run_passes(model, [x]).graph, model.state_dict())

    (conv,) = baked.nodes
    weight, bias = (model.conv.get_parameter(name).double() for name in ("weight", "bias"))
    found = [weights[value.name] for value in conv.inputs[1:]]
    assert torch.equal(found[0], (weight * number).float())
    assert torch.equal(found[1], ((bias - 0.1).float().double() * number).float())


def refused(model: nn.Module, *inputs: Tensor) -> list[str]:
    """Return the reasons, having asserted that nothing was done."""
    graph = extract_ir(model, inputs)
    result = PassManager([ConvAddFolding]).run(graph)
    assert result.journal.rewrites == []
    assert result.graph == graph
    return refusals(result)


SQUARE = torch.randn(2, 3, 6, 6)  # convolved to a width of 4, the number of channels
MISALIGNED = "%z is f32[{}], which is not one number for each channel of f32[2, 4, 4, 4]"
CHANGED = "it makes {} of {}: shape or dtype would change"
ADDED = OPERATIONS["conv+z"]


@each_row("shape", [(4,), (1, 4), (4, 1), (1, 4, 1), (4, 4), (1, 1, 4, 1), (4, 4, 4), (2, 4, 1, 1)])
def test_what_is_not_one_number_per_channel_is_refused(shape: Any) -> None:
    reasons = refused(model_of(ADDED, torch.randn(shape)), SQUARE)

    assert reasons == [MISALIGNED.format(", ".join(map(str, shape)))]


def test_what_changes_the_type_of_the_result_is_refused(subtests: pytest.Subtests) -> None:
    narrow = nn.Conv2d(3, 1, 3)
    rows = [
        (narrow, (5, 1, 1), SQUARE, CHANGED.format("f32[2, 5, 4, 4]", "f32[2, 1, 4, 4]")),
        (narrow, (1, 1, 1, 1, 1), SQUARE, CHANGED.format("f32[1, 2, 1, 4, 4]", "f32[2, 1, 4, 4]")),
        (nn.Conv2d(3, 4, 3).bfloat16(), (4, 1, 1), SQUARE.bfloat16(),
            CHANGED.format("f32[2, 4, 4, 4]", "bf16[2, 4, 4, 4]")),
        (nn.Linear(3, 4), (4, 1), torch.randn(2, 4, 3),
            "%z is f32[4, 1], which is not one number for each channel of f32[2, 4, 4]"),
    ]  # fmt: skip
    for conv, shape, x, reason in rows:
        with subtests.test(reason):
            assert refused(model_of(ADDED, torch.randn(shape), conv=conv), x) == [reason]


def updates_the_operand(self: Any, x: Tensor) -> Tensor:
    result = self.conv(x) + self.z
    self.z.add_(1)
    return result


def in_a_region(self: Any, x: Tensor) -> Any:
    return torch.cond(x.sum() > 0, lambda x: self.conv(x) / 4, lambda x: self.conv(x), (x,))


@each_row("function, reason", [
    (updates_the_operand, "%z is updated by the graph, and only weights can be folded"),
    (lambda self, x: self.z / self.conv(x), "it divides by the output of the convolution"),
    (lambda self, x: self.conv(x) + torch.rand(4, 1, 1),
        "%rand is computed in each call, and only weights can be folded"),
    (lambda self, x: (lambda y: (y + self.z) * y)(self.conv(x)),
        "the output of the convolution is used elsewhere"),
    *(
        (
            lambda self, x, number=number: self.conv(x) * number,
            f"a factor of {number} may take the weights out of the range of f32[2, 4, 4, 4]",
        )
        for number in (0, 1e30, -1e-30)
    ),
    (lambda self, x: self.conv(x) + torch.inf, "the number inf is not finite"),
    (lambda self, x: self.conv(x) + torch.nan, "the number nan is not finite"),
])  # fmt: skip
def test_an_operation_that_cannot_be_folded_says_why(function: Any, reason: Any) -> None:
    assert refused(model_of(function, torch.randn(4, 1, 1)), SQUARE) == [reason]


def test_a_model_that_cannot_be_folded_says_why(subtests: pytest.Subtests) -> None:
    rows = [
        (Holding(lambda self, x, y: self.conv(x) + y, conv=nn.Conv2d(3, 4, 3)),
            [SQUARE, torch.randn(4, 1, 1)],
            "%args_1 is an input of the call, and only weights can be folded"),
        (Holding(in_a_region, conv=nn.Linear(3, 4)), [torch.randn(2, 3)],
            "%p_conv_weight is an input of the region, and the convolution reads it as a weight"),
        (
            Holding(
                lambda self, x: nn.functional.linear(x, self.weight, self.bias) + 1,
                weight=nn.Parameter(torch.randn(4, 3)),
                bias=nn.Parameter(torch.randn(1)),
            ),
            [torch.randn(2, 3)],
            "the bias is f32[1], not one number for each of 4 channels",
        ),
        (Holding(lambda self, x: self.conv(x) * 1e-3, conv=nn.Conv2d(3, 4, 3).half()), [SQUARE.half()],
            "a factor of 0.001 may take the weights out of the range of f16[2, 4, 4, 4]"),
    ]  # fmt: skip
    for model, inputs, reason in rows:
        with subtests.test(reason):
            assert refused(model, *inputs) == [reason]


def test_a_factor_that_is_an_input_is_refused() -> None:
    graph = program("""
        input %x: f32[2, 3]
        input %alpha: float
        param %weight: f32[4, 3]
        call (%x, %alpha)
        %linear: f32[2, 4] = aten.linear.default(input=%x, weight=%weight)
        %add: f32[2, 4] = aten.add.Tensor(self=%linear, alpha=%alpha) {other=1}
        return %add
    """)

    result = PassManager([ConvAddFolding]).run(graph)

    assert refusals(result) == ["its alpha is not a plain number: %alpha is an input of the call"]


@each_row("function", {
    "residual": (lambda self, x: self.same(x) + x),
    "two convolutions": (lambda self, x: self.conv(x) + self.two(x)),
    "twice the same": (lambda self, x: (lambda y: y + y)(self.conv(x))),
    "no convolution": (lambda self, x: torch.relu(x) + self.z),
})  # fmt: skip
def test_sums_that_fold_no_weight_are_not_spoken_of(function: Any) -> None:
    convs = {"same": nn.Conv2d(3, 3, 3, padding=1), "two": nn.Conv2d(3, 4, 3)}

    assert refused(model_of(function, torch.randn(3, 1, 1), **convs), SQUARE) == []
