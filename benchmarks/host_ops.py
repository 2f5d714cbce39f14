"""Time of the ops of the backend host, relative to PyTorch's into given memory, and of chains of ops."""

from __future__ import annotations

import statistics
import timeit
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from bars import Bar
from torch import Tensor, nn

from npu_cuda.backend import HostBackend
from npu_cuda.backend.pointwise_rules import ELEMENTWISE_RULES
from npu_ir import extract_ir

SIZES = {"1k": 1 << 10, "64k": 1 << 16, "4M": 1 << 22}
DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
CHAINED = 1 << 20
CPU = torch.device("cpu")
aten = torch.ops.aten

Arguments = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Case:
    """One op on tensors of about n elements.

    Attributes:
        title: For the table.
        op: The overload of PyTorch.
        arguments: Made from a number of elements and a dtype.
    """

    title: str
    op: Any
    arguments: Callable[[int, torch.dtype], Arguments]


class Call(nn.Module):
    """An op with its arguments; tensors are the inputs."""

    def __init__(self, op: Any, arguments: Arguments) -> None:
        super().__init__()
        self.op, self.arguments = op, arguments

    def forward(self, *tensors: Tensor) -> Any:
        given = iter(tensors)
        return self.op(*(next(given) if isinstance(item, Tensor) else item for item in self.arguments))


def pointwise_cases() -> Iterator[Case]:
    """Yield a case for each op of the table of pointwise rules that has a variant with given results."""
    for name in sorted(ELEMENTWISE_RULES):
        namespace, op, overload = name.split(".")
        if namespace != "aten" or not (packet := getattr(aten, op, None)):
            continue
        call = getattr(packet, overload)
        if out_variant(call) is not None and not op.startswith(("bitwise", "__", "logical", "floor_divide")):
            yield Case(f"{op}.{overload}".removesuffix(".default"), call, pointwise_arguments(call))


def pointwise_arguments(op: Any) -> Callable[[int, torch.dtype], Arguments]:
    numbers = {
        "threshold": 0, "self_is_result": False, "is_result": False, "reduction": 0, "min": 0.25, "max": 0.75,
    }  # fmt: skip

    def arguments(count: int, dtype: torch.dtype) -> Arguments:
        made: list[Any] = []
        for argument in op._schema.arguments:
            if argument.kwarg_only:
                continue
            if "Tensor" in str(argument.type):
                tensor = torch.rand(count).add(0.25)
                made.append(tensor > 0.7 if argument.name in {"mask", "condition"} else tensor.to(dtype))
            elif argument.name in numbers:
                made.append(numbers[argument.name])
            else:
                made.append(argument.default_value if argument.has_default_value() else 0.5)
        return tuple(made)

    return arguments


def rows(count: int, dtype: torch.dtype) -> Tensor:
    return torch.rand(count // 256, 256).to(dtype)


def columns(count: int, dtype: torch.dtype) -> Tensor:
    return torch.rand(256, count // 256).to(dtype).t()


CASES = (
    Case("add.Tensor, a row", aten.add.Tensor, lambda n, d: (rows(n, d), rows(256, d)[0])),
    Case("add.Tensor, transposed", aten.add.Tensor, lambda n, d: (rows(n, d), columns(n, d))),
    Case("cast to float64", torch.Tensor.double, lambda n, d: (torch.rand(n).to(d),)),
    Case("cast to bfloat16", torch.Tensor.bfloat16, lambda n, d: (torch.rand(n).to(d),)),
)


def out_variant(op: Any) -> Any | None:
    """Return the overload that writes its results into given tensors; None if there is none."""

    def kinds(overload: Any) -> list[str]:
        return [str(argument.type) for argument in overload._schema.arguments if not argument.is_out]

    packet = op.overloadpacket
    for name in packet.overloads():
        candidate = getattr(packet, name)
        if any(argument.is_out for argument in candidate._schema.arguments) and kinds(candidate) == kinds(op):
            return candidate
    return None


def native(op: Any, arguments: Arguments) -> Callable[[], None] | str:
    """Return the op on host, bound to its arguments; or why host does not take it."""
    tensors = [item for item in arguments if isinstance(item, Tensor)]
    backend = HostBackend()
    graph = extract_ir(Call(op, arguments), tuple(tensors))
    refused = [reason for node in graph.nodes if (reason := backend.supports(node))]
    if refused or not graph.nodes:
        return refused[0] if refused else "it is no node"
    program = backend.prepare(graph, backend.lower(graph), CPU)
    results = [backend.allocate(value.tensor_type, CPU) for value in graph.outputs]
    return backend.bind(program, tensors, results)


def eager(op: Any, arguments: Arguments) -> Callable[[], Any]:
    """Return the op by PyTorch, into results that it has."""
    variant = out_variant(op) if hasattr(op, "overloadpacket") else None
    if variant is None:
        return lambda: op(*arguments)
    found = op(*arguments)
    results = found if isinstance(found, tuple) else (found,)
    names = [argument.name for argument in variant._schema.arguments if argument.is_out]
    into = dict(zip(names, results, strict=True))
    return lambda: variant(*arguments, **into)


def ratio(ours: Callable[[], Any], peer: Callable[[], Any], rounds: int, seconds: float) -> float:
    """Return our time over the peer's: the median of rounds in which both take turns."""
    counts = [max(1, int(seconds / min(timeit.repeat(run, number=1, repeat=3)))) for run in (ours, peer)]
    ratios = []
    for _ in range(rounds):
        mine, others = (
            timeit.timeit(run, number=count) / count for run, count in zip((ours, peer), counts, strict=True)
        )
        ratios.append(mine / others)
    return statistics.median(ratios)


def measure(quick: bool) -> list[dict[str, Any]]:
    """Return a row per op: its title, and the ratios by dtype and size (None where host does not take it)."""
    rows = []
    for case in (*pointwise_cases(), *CASES):
        ratios: dict[str, float | None] = {}
        for dtype, size in ((dtype, size) for dtype in DTYPES for size in SIZES):
            arguments = case.arguments(SIZES[size], DTYPES[dtype])
            ours = native(case.op, arguments)
            ratios[f"{dtype} {size}"] = (
                None if isinstance(ours, str)
                else ratio(ours, eager(case.op, arguments), 3 if quick else 9, 0.002 if quick else 0.02)
            )  # fmt: skip
        rows.append({"title": case.title, "ratios": ratios})
    return rows


def activations(x: Tensor, y: Tensor) -> Tensor:
    z = nn.functional.gelu(x) + y
    z = torch.sigmoid(z) * z * 0.5
    return (torch.tanh(z + 1) - x).relu()


def arithmetic(x: Tensor, y: Tensor) -> Tensor:
    z = (x * y + x) * 2.0 - y
    return z.abs().clamp(0.1, 3.0) * x + 1


def measure_chains(quick: bool) -> list[dict[str, Any]]:
    """Return, per chain of 8 ops, its time over that of eager PyTorch and of ``torch.compile``."""
    x, y = torch.randn(CHAINED), torch.randn(CHAINED)
    rows = []
    for function in (arithmetic, activations):
        ours, compiled = native(function, (x, y)), torch.compile(function)
        compiled(x, y)
        assert not isinstance(ours, str), ours
        peers: Sequence[Callable[[], Any]] = (lambda: function(x, y), lambda: compiled(x, y))
        eager_ratio, compiled_ratio = (ratio(ours, peer, 5 if quick else 15, 0.02) for peer in peers)
        rows.append({"title": function.__name__, "eager": eager_ratio, "compiled": compiled_ratio})
    return rows


def bars(ops: list[dict[str, Any]], chains: list[dict[str, Any]]) -> list[Bar]:
    """Return the limits on the ratios of ops and chains."""
    by_size: dict[str, dict[str, float]] = {}
    for row in ops:
        for column, value in row["ratios"].items():
            if value is not None:
                by_size.setdefault(column, {})[row["title"]] = value
    return [
        *(
            Bar(f"time of an op over PyTorch's, {column}", 0.4 if column.endswith(" 1k") else 1.0, values)
            for column, values in by_size.items()
        ),
        Bar("chains over eager PyTorch", 0.3, {row["title"]: row["eager"] for row in chains}),
        Bar("chains over torch.compile", 1.1, {row["title"]: row["compiled"] for row in chains}),
    ]
