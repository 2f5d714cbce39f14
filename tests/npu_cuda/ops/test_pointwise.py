"""What pointwise ops have in common: precision, sizes, threads, conversions, and their table in Python."""

import struct
from collections.abc import Callable, Iterator
from itertools import permutations

import pytest
import torch

import npu_cuda
from npu_cuda import _C, NotSupportedError, OpKind
from npu_cuda.errors import InvalidArgumentError

FUNCTIONS = {
    "Exp": torch.exp, "Expm1": torch.expm1, "Log": torch.log, "Log1p": torch.log1p, "Tanh": torch.tanh,
    "Erf": torch.erf, "Sin": torch.sin, "Cos": torch.cos, "Sigmoid": torch.sigmoid, "Rsqrt": torch.rsqrt,
}  # fmt: skip
DTYPES = [
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16,
    torch.int8, torch.uint8, torch.bool,
]  # fmt: skip


def call(name: str, inputs: list[torch.Tensor], output: torch.Tensor, *attrs: object) -> torch.Tensor:
    npu_cuda.op_call(npu_cuda.kinds()[name], inputs, [output], *attrs)
    return output


def units_in_the_last_place(actual: torch.Tensor, exact: torch.Tensor) -> torch.Tensor:
    """Return the error of float32 numbers, in the distance of two neighbours at the exact value."""
    nearest = exact.float()
    spacing = (torch.nextafter(nearest.abs(), torch.tensor(torch.inf)) - nearest.abs()).double()
    return ((actual.double() - exact).abs() / spacing).nan_to_num(0, 0, 0)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_is_within_a_few_units_in_the_last_place(name: str) -> None:
    bits = torch.arange(-(2**31), 2**31, 6007, dtype=torch.int64).to(torch.int32)
    x = torch.cat([bits.view(torch.float32), torch.linspace(-20, 20, 100001)])
    exact = FUNCTIONS[name](x.double())

    y = call(name, [x], torch.empty_like(x))

    assert torch.equal(y.isnan(), exact.isnan())
    overflows = exact.float().isinf()
    assert torch.equal(y[overflows], exact.float()[overflows])
    normal = exact.float().abs() >= torch.finfo(torch.float32).tiny
    assert float(units_in_the_last_place(y, exact)[normal & ~overflows].max()) <= 3


@pytest.mark.parametrize(("name", "function"), [("Fmod", torch.fmod), ("Pow", torch.pow)])
def test_a_function_of_two_floats_is_that_of_doubles_rounded(
    name: str, function: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
) -> None:
    generator = torch.Generator().manual_seed(0)
    bits = torch.randint(-(2**31), 2**31, (2, 50000), generator=generator).to(torch.int32)
    numbers = torch.tensor(
        [0.0, -0.0, 1, -1, 2, -2, 0.5, 3, 6, torch.inf, -torch.inf, torch.nan, 1e-40, 3e38]
    )
    x, y = torch.cat([bits.view(torch.float32), torch.cartesian_prod(numbers, numbers).T], dim=1).contiguous()
    y[::2] = y[::2].clamp(-9, 9)
    exact = function(x.double(), y.double())

    z = call(name, [x, y], torch.empty_like(x))

    assert torch.equal(z.isnan(), exact.isnan())
    assert torch.equal(z.isinf(), exact.float().isinf())
    assert torch.equal(z.signbit()[~z.isnan()], exact.signbit()[~z.isnan()])
    assert float(units_in_the_last_place(z, exact)[z.isfinite()].max()) <= (0.5 if name == "Fmod" else 1)


@pytest.mark.parametrize("name", ["EltwiseAdd", "Gelu", "Less", "BitwiseXor"])
def test_every_size_gives_what_the_whole_gives(name: str) -> None:
    (info,) = (op for op in npu_cuda.pointwise_ops() if op["name"] == name)
    dtype = torch.float32 if "f32" in info["computed_in"] else torch.int64
    result = torch.bool if name == "Less" else dtype
    inputs = [torch.randn(70).mul(100).to(dtype) for _ in info["inputs"]]
    whole = call(name, inputs, torch.empty(70, dtype=result))
    for size in range(1, 71):
        padded = torch.zeros(size + 1, dtype=result)

        call(name, [x[:size] for x in inputs], padded[:size])

        assert torch.equal(padded[:size], whole[:size])
        assert padded[size] == 0


@pytest.mark.usefixtures("threads")
def test_threads_do_not_change_a_bit() -> None:
    x, row = torch.randn(301, 1001), torch.randn(1001)
    results = []
    for count in (1, 2, 3, 7):
        _C.set_thread_count(count)
        assert _C.thread_count() == count
        results.append(call("Mul", [x.t(), row[:, None]], torch.empty(1001, 301)))
        results.append(call("Mul", [x, row], torch.empty(301, 1001)).t())

    assert all(torch.equal(result, x.t() * row[:, None]) for result in results)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("width", [1, 5, 64, 128, 200, 512, 513, 1024, 1100])
@pytest.mark.usefixtures("threads")
def test_what_broadcasts_is_repeated_over_rows_of_any_width(width: int, dtype: torch.dtype) -> None:
    x, row, column = (torch.randn(shape).to(dtype) for shape in ((77, width), (width,), (77, 1)))
    expected = torch.lerp(x, row.expand(77, width), column.expand(77, width))

    for count in (1, 3):
        _C.set_thread_count(count)
        y = call("Lerp", [x, row, column], torch.empty_like(x))

        torch.testing.assert_close(y, expected)


@pytest.mark.parametrize(("source", "target"), [*permutations(DTYPES, 2)])
def test_copy_converts_as_pytorch_does(source: torch.dtype, target: torch.dtype) -> None:
    small = torch.tensor([0.0, 1.0, 2.75, 100.5, 55.0, 0.25] * 11)
    signed = small if torch.uint8 in (source, target) else torch.cat([small, -small])
    x = signed.to(source)

    y = call("Copy", [x], torch.empty(len(x), dtype=target))

    assert torch.equal(y, x.to(target))


def test_an_op_of_real_numbers_has_no_integer_result() -> None:
    x = torch.ones(3, dtype=torch.int64)

    assert torch.equal(call("Exp", [x], torch.empty(3)), x.exp())
    with pytest.raises(NotSupportedError, match="Exp has no result of int64 for such inputs"):
        call("Exp", [x], torch.empty(3, dtype=torch.int64))


def payloads() -> Iterator[tuple[bytes, float]]:
    """Yield the first fields of softplus' attributes, and the result for 2."""
    yield struct.pack("<d", 0.5), float(torch.nn.functional.softplus(torch.tensor(2.0), beta=0.5))
    yield struct.pack("<dd", 1.0, 1.0), 2.0


@pytest.mark.parametrize(("payload", "expected"), [*payloads()])
def test_attributes_that_are_not_given_have_their_defaults(payload: bytes, expected: float) -> None:
    schema = int.from_bytes(b"SFPL", "little")

    y = call("Softplus", [torch.tensor([2.0])], torch.empty(1), schema, payload)

    assert float(y) == pytest.approx(expected, rel=1e-6)
    with pytest.raises(InvalidArgumentError, match="takes attributes of schema SFPL"):
        call("Softplus", [torch.tensor([2.0])], torch.empty(1), schema, payload[:-1])


def test_the_step_of_adam_is_that_of_pytorch() -> None:
    param, grads = torch.randn(50), torch.randn(3, 50)
    theirs = torch.nn.Parameter(param.clone())
    optimizer = torch.optim.AdamW([theirs], lr=0.1, weight_decay=0.1)
    state = [param.clone(), torch.zeros(50), torch.zeros(50)]
    step = torch.zeros((), dtype=torch.int32)
    corrections = [torch.empty(()), torch.empty(())]
    for grad in grads:
        theirs.grad = grad.clone()
        optimizer.step()

        call("StepInc", [step], step)
        npu_cuda.op_call(
            OpKind.BiasCorr, [step], corrections, *npu_cuda.attrs("BCOR", beta1=0.9, beta2=0.999)
        )
        npu_cuda.op_call(
            OpKind.AdamStep,
            [state[0], grad, *state[1:], *corrections],
            state,
            *npu_cuda.attrs("ADAM", lr=0.1, weight_decay=0.1, flags=1),
        )

    torch.testing.assert_close(state[0], theirs.detach(), rtol=1e-5, atol=1e-6)


def test_an_optimizer_writes_its_state_in_place_and_nothing_else() -> None:
    grad, param = torch.ones(8), torch.ones(8)

    with pytest.raises(
        InvalidArgumentError, match="output 0 overlaps input 1: this op does not work in place"
    ):
        call("SgdStep", [param, grad], grad)


@pytest.mark.parametrize(("name", "field", "wanted"), [
    ("EltwiseAdd", "expression", "fma(p.alpha, other, x)"),
    ("AdamStep", "inputs", ["param", "grad", "m", "v", "bc1_inv", "bc2_inv"]),
    ("BitwiseAnd", "computed_in", ["i64"]),
    ("Square", "instructions", [("load", (), 0.0), ("mul", (0, 0), 0.0)]),
    ("Sigmoid", "flops", 1),
])  # fmt: skip
def test_the_table_says_how_an_op_is_computed(name: str, field: str, wanted: object) -> None:
    (op,) = (op for op in npu_cuda.pointwise_ops() if op["name"] == name)

    assert op[field] == wanted
