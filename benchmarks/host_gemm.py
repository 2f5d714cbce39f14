"""Time of products by packed weights on the host, relative to PyTorch's and ONNX Runtime's, on one thread."""

from __future__ import annotations

import statistics
import time
import timeit
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from bars import Bar
from torch import Tensor

from npu_cuda import _C

# Rows, inputs, outputs.
SIZES = (
    *((rows, size, size) for size in (16, 64, 256, 768) for rows in (1, 8, 64, 128)),
    (1, 4096, 4096),
)  # fmt: skip
# So many products of small matrices are one call, which costs more than one of them.
MANY, SMALL = 64, 1 << 16

Run = Callable[[], Any]


def title(rows: int, inputs: int, outputs: int) -> str:
    return f"{rows} x {inputs} x {outputs}"


def layers(inputs: int, outputs: int) -> int:
    return MANY if inputs * outputs <= SMALL else 1


def ours(x: Tensor, weights: list[Tensor], biases: list[Tensor]) -> Run:
    """Return a program of a product per weight."""
    program = _C.Program("host")
    kinds = _C.kinds()

    def slot(tensor: Tensor) -> int:
        dtype = str(tensor.dtype).removeprefix("torch.")
        number = program.slot(_C.TensorSpec(dtype, tensor.shape, tensor.stride(), 16))
        bound.append((number, tensor))
        return int(number)

    bound: list[tuple[int, Tensor]] = []
    outputs = weights[0].shape[0]
    width = next((width for width in (16, 32) if outputs <= width), 64)
    row = slot(x)
    for weight, bias in zip(weights, biases, strict=True):
        panels = torch.empty(-(-outputs // width), weight.shape[1], width, dtype=x.dtype)
        _C.op_call(kinds["PackMatrix"], [weight.t()], [panels])
        tensors = [row, slot(panels), slot(bias)], [slot(torch.empty(x.shape[0], outputs, dtype=x.dtype))]
        program.add(kinds["PackedGemm"], *tensors, int.from_bytes(b"PGEM", "little"), b"\1\0\0\0")
    program.finalize()
    for number, tensor in bound:
        program.bind(number, tensor)
    return program.run


def torch_addmm(x: Tensor, weights: list[Tensor], biases: list[Tensor]) -> Run:
    transposed = [weight.t() for weight in weights]
    results = [torch.empty(x.shape[0], weight.shape[0], dtype=x.dtype) for weight in weights]

    def run() -> None:
        for weight, bias, result in zip(transposed, biases, results, strict=True):
            torch.addmm(bias, x, weight, out=result)

    return run


def torch_mm(x: Tensor, weights: list[Tensor], biases: list[Tensor]) -> Run:  # noqa: ARG001 - the sum is left out
    transposed = [weight.t() for weight in weights]
    results = [torch.empty(x.shape[0], weight.shape[0], dtype=x.dtype) for weight in weights]

    def run() -> None:
        for weight, result in zip(transposed, results, strict=True):
            torch.mm(x, weight, out=result)

    return run


def onnx_gemm(x: Tensor, weights: list[Tensor], biases: list[Tensor]) -> Run:
    """Return a session of a Gemm per weight, which are constants that ONNX Runtime packs."""
    import onnx
    import onnxruntime
    from onnx import TensorProto, helper, numpy_helper

    count, outputs = len(weights), weights[0].shape[0]
    nodes = [helper.make_node("Gemm", ["x", f"w{i}", f"b{i}"], [f"y{i}"], transB=1) for i in range(count)]
    constants = [
        numpy_helper.from_array(tensor.numpy(), f"{letter}{i}")
        for letter, tensors in (("w", weights), ("b", biases))
        for i, tensor in enumerate(tensors)
    ]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, list(x.shape))]
    results = [
        helper.make_tensor_value_info(f"y{i}", TensorProto.FLOAT, [x.shape[0], outputs]) for i in range(count)
    ]
    graph = helper.make_graph(nodes, "gemm", inputs, results, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    data = model.SerializeToString()
    onnx.checker.check_model(model)
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", onnxruntime.OrtValue.ortvalue_from_numpy(x.numpy()))
    for i in range(count):
        made = np.empty((x.shape[0], outputs), np.float32)
        binding.bind_ortvalue_output(f"y{i}", onnxruntime.OrtValue.ortvalue_from_numpy(made))
    return lambda: session.run_with_iobinding(binding)


PEERS = {"torch.mm(out=)": torch_mm, "torch.addmm(out=)": torch_addmm, "ONNX Runtime": onnx_gemm}


def measure(quick: bool) -> list[dict[str, Any]]:
    """Return a row per size: its title, our time of a product in us, and its ratio to each peer's."""
    torch.manual_seed(0)
    return [measure_one(*size, rounds=5 if quick else 15, seconds=0.003 if quick else 0.02) for size in SIZES]


def measure_one(rows: int, inputs: int, outputs: int, rounds: int, seconds: float) -> dict[str, Any]:
    count = layers(inputs, outputs)
    given = (
        torch.randn(rows, inputs),
        [torch.randn(outputs, inputs) for _ in range(count)],
        [torch.randn(outputs) for _ in range(count)],
    )
    runs = {"ours": ours(*given), **{name: make(*given) for name, make in PEERS.items()}}
    numbers = {
        name: max(1, int(seconds / min(timeit.repeat(run, number=1, repeat=3)))) for name, run in runs.items()
    }
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            # The time of this thread: other work on the machine matters less.
            spent = timeit.timeit(run, number=numbers[name], timer=time.thread_time)
            times[name].append(spent / numbers[name] / count)
    ratios = {
        name: statistics.median(
            mine / others for mine, others in zip(times["ours"], times[name], strict=True)
        )
        for name in PEERS
    }
    return {"title": title(rows, inputs, outputs), "us": 1e6 * min(times["ours"]), "ratios": ratios}


def bars(rows: list[dict[str, Any]]) -> list[Bar]:
    """Return the limits on the ratios to the best of the peers."""
    values = {row["title"]: max(row["ratios"].values()) for row in rows}
    return [
        Bar("time of a product by packed weights over the best of PyTorch's and ONNX Runtime's", 0.9, values),
        Bar("the same, in the mean", 0.6, values, is_mean=True),
    ]


if __name__ == "__main__":
    torch.set_num_threads(1)
    for row in measure(quick=False):
        print(
            f"{row['title']:18s} {row['us']:10.2f} us  "
            + "  ".join(f"{k} {v:.2f}" for k, v in row["ratios"].items()),
            flush=True,
        )
