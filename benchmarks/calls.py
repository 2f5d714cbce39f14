"""Cost of a call: what binding its arguments takes, by generated code and by `bind_inputs`.

Prints for each kind of arguments the time of the program itself, that of binding its arguments by generated
code, and in us what a call of the executor takes beyond the program: with generated binding, the same with other sizes in each call, with inputs that the caller has
compared with their types (parameters under ``torch.compile``), and with `bind_inputs` alone. Least times of
interleaved bursts; nothing else should run on the machine.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn, randn
from torch.export import Dim
from torch.utils._pytree import tree_leaves

from npu_ir import convert_exported_program
from npu_runtime import IRExecutor
from npu_runtime._torch.state import below_autograd

Call = tuple[tuple[Any, ...], dict[str, Any]]


@dataclasses.dataclass
class Batch:
    ids: Any
    mask: Any


torch.export.register_dataclass(Batch, serialized_type_name="benchmarks.calls.Batch")


class Model(nn.Module):
    """Adds two tensors of its arguments: what a call costs is its arguments."""

    def forward(
        self, batch: Any, *others: Any, layers: Any = (), scale: float = 1, causal: bool = False
    ) -> Tensor:
        tensors = [leaf for leaf in tree_leaves((batch, others, layers)) if isinstance(leaf, Tensor)]
        return tensors[0] + tensors[-1] * (scale if causal else 1)


def nested(make: Callable[[], Any], batch: Callable[..., Any] = Batch) -> Call:
    """Return 20 leaves: 17 of what ``make`` makes, two flags and None."""
    state = {"k": [make() for _ in range(5)], "v": tuple(make() for _ in range(4)), "empty": None}
    layers = [{"a": make(), "b": make()}, {"a": make(), "b": make()}, batch(make(), make())]
    return (batch(make(), make()), state), {"layers": layers, "scale": 2.0, "causal": False}


def tensors(count: int) -> Callable[[int], Call]:
    return lambda rows: (tuple(randn(rows, 8) for _ in range(count)), {})


def nested_tensors(rows: int) -> Call:
    return nested(lambda: randn(rows, 8))


def sizes_of_nested() -> dict[str, Any]:
    rows = Dim("rows", min=2, max=64)
    (batch, state), options = nested(lambda: {0: rows}, lambda *fields: list(fields))
    flags = dict.fromkeys(["scale", "causal"])
    return {"batch": batch, "others": (state,), **options, **flags}


CASES: dict[str, tuple[Callable[[int], Call], Any]] = {
    "2 tensors": (tensors(2), None),
    "20 leaves, nested": (nested_tensors, None),
    "20 leaves, nested, open sizes": (nested_tensors, sizes_of_nested),
    "100 tensors": (tensors(100), None),
}


def least_us(works: list[Callable[[], Any]], seconds: float) -> list[float]:
    """Return the least time of each function, in turns of 100 calls."""
    least = [float("inf")] * len(works)
    end = time.perf_counter() + seconds * len(works)
    while time.perf_counter() < end:
        for index, work in enumerate(works):
            start = time.perf_counter()
            for _ in range(100):
                work()
            least[index] = min(least[index], (time.perf_counter() - start) * 1e4)
    return least


def measure(make: Callable[[int], Call], sizes: Any, seconds: float) -> dict[str, float]:
    program = torch.export.export(Model(), *make(4), dynamic_shapes=sizes and sizes())
    usual, trusting, general = (IRExecutor(convert_exported_program(program)) for _ in range(3))
    trusting.trust(trusting.graph.inputs)
    general._engine._bind_arguments = lambda args, kwargs: None  # noqa: ARG005
    args, kwargs = make(4)
    others = itertools.cycle([make(rows) for rows in (range(2, 32) if sizes else [4])])
    inputs, symbols = usual._engine._checked_inputs(args, kwargs)
    _, run = usual._engine._active_binding

    def call_with_others() -> None:
        args, kwargs = next(others)
        usual(*args, **kwargs)

    calls = {
        "generated": lambda: usual(*args, **kwargs),
        "other sizes": call_with_others,
        "trusted": lambda: trusting(*args, **kwargs),
        "general": lambda: general(*args, **kwargs),
    }
    with torch.no_grad(), below_autograd():
        (itself,) = least_us([lambda: run(symbols, *inputs)], seconds)
    binding, *beyond = least_us(
        [lambda: usual._engine._bind_arguments(args, kwargs), *calls.values()], seconds
    )
    columns = {name: us - itself for name, us in zip(calls, beyond, strict=True)}
    return {"program": itself, "binding": binding, **columns}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="measure for a tenth of the time: to see it run")
    parser.add_argument("--json", type=Path, help="write the numbers to this file")
    options = parser.parse_args()
    results = {}
    for name, (make, sizes) in CASES.items():
        results[name] = measure(make, sizes, 0.2 if options.quick else 2.0)
        row = "  ".join(f"{column} {us:7.2f}" for column, us in results[name].items())
        print(f"{name:<30}  {row}  us", flush=True)
    if options.json is not None:
        options.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
