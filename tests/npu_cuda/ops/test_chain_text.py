"""The CUDA text of chains: what it says, that it compiles, and that it computes what the single ops do."""

import itertools
import os
import shutil
import struct
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from npu_cuda import _C, attrs
from npu_cuda.testing import run_case, run_refusal
from npu_cuda.testing.rows.fused import FUSED, PRODUCT_PLUS_INPUT, fused_attrs
from tests.support.emulator.module import needs_emulator
from tests.support.emulator.run_time_compiler import environment, run_time_compiler  # noqa: F401
from tests.support.tiers import some

ARCHITECTURES = {"f32": (80, 90, 100), "f64": (90,), "i64": (90,)}
DTYPES = {"f32": "float32", "f64": "float64", "i64": "int64"}
ATTRIBUTES = {
    "other": 2,
    "value": 3,
    "axis": -1,
    "low": -1,
    "high": 2,
    "growth_interval": 2,
    "momentum": 0,
    "flags": 1,
    "is_result": 1,
}
MOST_TENSORS, INPUTS = 15, 8
LENGTH = 1 << 10


@dataclass(frozen=True, slots=True)
class Step:
    name: str
    kind: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    attrs: tuple[int, bytes]

    @property
    def packed(self) -> bytes:
        schema, payload = self.attrs
        words = (self.kind, len(self.inputs), len(self.outputs), schema, len(payload))
        numbers = (*words, *self.inputs, *self.outputs)
        return struct.pack(f"<{len(numbers)}I", *numbers) + payload + bytes(-len(payload) % 4)


@dataclass(frozen=True, slots=True)
class Chain:
    """Ops of the tables side by side in one chain, of the same inputs."""

    steps: tuple[Step, ...]
    dtypes: tuple[str, ...]

    @property
    def packed(self) -> tuple[int, bytes]:
        schema, header = attrs("FUSE", temporaries=0, steps=len(self.steps))
        return schema, header + b"".join(step.packed for step in self.steps)

    def specs(self, strides: tuple[int, ...] = (1,)) -> tuple[list[_C.TensorSpec], list[_C.TensorSpec]]:
        specs = [_C.TensorSpec(dtype, (LENGTH,), strides, 16) for dtype in self.dtypes]
        return specs[:INPUTS], specs[INPUTS:]


def chains(type: str, *kinds: str) -> Iterator[Chain]:
    """Yield chains that have each op that is computed in this type once, on tensors of the dtypes in turn."""
    steps: list[Step] = []
    turns = itertools.cycle(kinds)
    dtypes = [next(turns)] * INPUTS
    for row in _C.pointwise_ops():
        if type not in row["computed_in"]:
            continue
        if len(dtypes) + len(row["outputs"]) > MOST_TENSORS:
            yield Chain(tuple(steps), tuple(dtypes))
            steps, dtypes = [], [next(turns)] * INPUTS
        outputs = tuple(range(len(dtypes), len(dtypes) + len(row["outputs"])))
        dtypes += [dtypes[0]] * len(outputs)
        inputs = tuple(range(len(row["inputs"])))
        steps.append(Step(row["name"], row["kind"], inputs, outputs, attributes(row["schema"])))
    yield Chain(tuple(steps), tuple(dtypes))


def attributes(schema: str | None) -> tuple[int, bytes]:
    if schema is None:
        return 0, b""
    fields = _C.attr_schemas()[schema]["fields"]
    return attrs(schema, **{name: ATTRIBUTES.get(name, 0.75) for name, _, _ in fields})


def values(dtype: str) -> list[bytes]:
    """Return the bytes of the inputs: special values in all pairs, then random ones."""
    random = np.random.default_rng(0)
    if dtype == "int64":
        special = [0, 1, -1, 2, -2, 3, 7, -7, 62, 63, 64, 2**31, -(2**63), 2**63 - 1]
        numbers = [random.integers(-20, 20, LENGTH) for _ in range(INPUTS)]
    else:
        special = [
            0.0,
            -0.0,
            1.0,
            -1.0,
            0.5,
            1.5,
            -2.5,
            3.0,
            6.0,
            -3.0,
            88.0,
            -110.0,
            1e4,
            1e-7,
            np.nan,
            np.inf,
            -np.inf,
        ]
        numbers = [random.standard_normal(LENGTH) * 3 for _ in range(INPUTS)]
    pairs = np.array(np.meshgrid(special, special)).reshape(2, -1)
    for i, number in enumerate(numbers):
        number[: pairs.shape[1]] = pairs[i % 2]
    kinds = {"float32": np.float32, "float64": np.float64, "int64": np.int64, "float16": np.float16}
    if dtype != "bfloat16":
        return [number.astype(kinds[dtype]).tobytes() for number in numbers]
    return [
        (number.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16).tobytes() for number in numbers
    ]


def on_gpu(dtype: str, content: bytes | None = None) -> _C.Tensor:
    tensor = _C.empty((LENGTH,), dtype, "cuda")
    if content is not None:
        tensor.copy_from(content)
    return tensor


def numbers(tensor: _C.Tensor, dtype: str) -> np.ndarray:
    """Return the bits of the elements, all NaNs alike."""
    content = tensor.to_bytes()
    if dtype == "bfloat16":
        found = (np.frombuffer(content, np.uint16).astype(np.uint32) << 16).view(np.float32)
    else:
        found = np.frombuffer(content, dtype)
    bits = found.view({2: np.uint16, 4: np.uint32, 8: np.uint64}[found.itemsize]).copy()
    bits[found != found] = 1
    return bits


def product_plus_input(strides: tuple[int, ...] = (1,), alignment: int = 16) -> str:
    spec = _C.TensorSpec("float16", (8,), strides, alignment)
    values = fused_attrs(PRODUCT_PLUS_INPUT, [(2, 16)])
    payload = values.pop("payload")
    schema, header = attrs("FUSE", **values)
    return _C.chain_text([spec, spec], [spec], schema, header + payload)


def kernel_of(text: str) -> str:
    """Return what follows the parts that all texts have."""
    return text[text.index("\n__device__ inline void compute") + 1 :]


def test_each_tensor_is_a_variable_of_its_dtype_so_that_steps_round() -> None:
    assert (
        kernel_of(product_plus_input())
        == """\
__device__ inline void compute(half t0, half t1, half& t2) {
  half t3;
  {  // Mul
    const float v0 = convert<float>(t0);
    const float v1 = convert<float>(t1);
    const float v2 = v0 * v1;
    t3 = convert<half>(v2);
  }
  {  // EltwiseAdd
    const float v0 = convert<float>(t3);
    const float v1 = convert<float>(t0);
    const float v3 = fmaf(1.0f, v1, v0);
    t2 = convert<half>(v3);
  }
}

extern "C" __global__ void __launch_bounds__(256) chain(const Rows rows) {
  const i64 first = (i64(blockIdx.x) * 256 + threadIdx.x) * 8;
  if (first >= rows.numel) return;
  const auto t0 = load<half, 8>(rows.data[0], first, rows.numel);
  const auto t1 = load<half, 8>(rows.data[1], first, rows.numel);
  Access<half, 8> t2;
#pragma unroll
  for (int i = 0; i < 8; ++i) compute(t0.items[i], t1.items[i], t2.items[i]);
  store(t2, rows.data[2], first, rows.numel);
}
"""
    )


@pytest.mark.parametrize(
    ("strides", "alignment"), [pytest.param((2,), 16, id="gaps"), pytest.param((1,), 2, id="unaligned")]
)
def test_other_layouts_take_one_element_a_thread(strides: tuple[int, ...], alignment: int) -> None:
    text = product_plus_input(strides, alignment)

    assert "compute(static_cast<half*>(rows.data[0])[at[0]], " in text
    assert "find<1, 3>(rows, i, at)" in text
    assert text == product_plus_input(strides, alignment)


@needs_emulator
@pytest.mark.usefixtures("run_time_compiler")
def test_cases_of_the_table_are_right_in_every_way_and_order_of_threads() -> None:
    for case in FUSED.cases():
        outcomes = list(run_case(FUSED, case, "cuda:0"))

        assert any(outcome.way == "schedules" for outcome in outcomes)
        assert [outcome for outcome in outcomes if not outcome.passed] == []


@needs_emulator
@pytest.mark.usefixtures("run_time_compiler")
def test_refusals_have_their_status_and_reason() -> None:
    outcomes = [outcome for refusal in FUSED.refusals() for outcome in run_refusal(FUSED, refusal, "cuda:0")]

    assert [outcome for outcome in outcomes if not outcome.passed] == []


@needs_emulator
@pytest.mark.usefixtures("run_time_compiler")
@pytest.mark.parametrize(
    ("type", "dtypes"),
    [("f32", ("float32", "float16", "bfloat16")), ("f64", ("float64",)), ("i64", ("int64",))],
    ids=["f32", "f64", "i64"],
)
def test_every_op_in_a_chain_has_the_bits_of_the_op_alone(type: str, dtypes: tuple[str, ...]) -> None:
    for chain in chains(type, *dtypes):
        dtype = chain.dtypes[0]
        inputs = [on_gpu(dtype, content) for content in values(dtype)]
        outputs = [on_gpu(dtype) for _ in chain.dtypes[INPUTS:]]
        _C.op_call(_C.kinds()["Fused"], inputs, outputs, *chain.packed)
        for step in chain.steps:
            alone = [on_gpu(dtype) for _ in step.outputs]
            _C.op_call(step.kind, [inputs[i] for i in step.inputs], alone, *step.attrs)

            for tensor, expected in zip(step.outputs, alone, strict=True):
                found = numbers(outputs[tensor - INPUTS], dtype)
                np.testing.assert_array_equal(found, numbers(expected, dtype), err_msg=step.name)


def run_nvcc(text: str, folder: Path, *options: str) -> str:
    if shutil.which("nvcc") is None:
        pytest.skip("nvcc is not on PATH")
    source, made = folder / "chain.cu", folder / "chain.out"
    source.write_text(text)
    flags = ("-std=c++17", "--fmad=false", "-Werror=all-warnings")
    command = ["nvcc", *flags, *options, str(source), "-o", str(made)]
    # What a build with AddressSanitizer preloads is not for nvcc.
    inherited = {name: text for name, text in os.environ.items() if name != "LD_PRELOAD"}
    result = subprocess.run(command, capture_output=True, text=True, check=False, env=inherited)
    assert result.returncode == 0, result.stderr
    return made.read_text(errors="replace")


def test_flat_kernels_move_16_bytes_at_once_and_nothing_through_local_memory(tmp_path: Path) -> None:
    code = run_nvcc(product_plus_input(), tmp_path, "-arch=sm_90", "-ptx")

    assert code.count("ld.global.v4.u32") == 2
    assert code.count("st.global.v4.u32") == 1
    assert ".local" not in code


@pytest.mark.parametrize("type", DTYPES)
def test_texts_compile_for_gpus(type: str, tmp_path: Path) -> None:
    """Say nothing of results: there is no GPU. All ops of a type are in one text."""
    texts = [_C.chain_text(*chain.specs(), *chain.packed) for chain in chains(type, DTYPES[type])]
    bodies = [kernel_of(text).replace('extern "C" ', "") for text in texts]
    common = texts[0][: texts[0].index(kernel_of(texts[0]))]

    whole = common + "".join(f"namespace part{i} {{\n{body}}}\n" for i, body in enumerate(bodies))
    targets = [f"-gencode=arch=compute_{each},code=sm_{each}" for each in some(ARCHITECTURES[type], 1)]
    assert run_nvcc(whole, tmp_path, "-fatbin", *targets)
