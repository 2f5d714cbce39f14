"""Random programs over relu, add, copy and gemm, and what NumPy says that they compute."""

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

import npu_cuda
from npu_cuda import _C

SIDE = 4
GEMM_ALPHA = 0.125  # keeps products of products small
ARITY = {"EltwiseRelu": 1, "EltwiseAdd": 2, "Copy": 1, "Gemm": 2}
IN_PLACE = ("EltwiseRelu", "EltwiseAdd")


@dataclass(frozen=True)
class RandomOp:
    kind: str
    inputs: tuple[int, ...]
    output: int


@dataclass(frozen=True)
class RandomProgram:
    """Slots 0 to ``externals - 1`` are external, the rest are temporaries; all are float32[SIDE, SIDE]."""

    externals: int
    temporaries: int
    ops: tuple[RandomOp, ...]

    def build(self, device: str = "host") -> _C.Program:
        program = _C.Program(device)
        spec = _C.TensorSpec("float32", (SIDE, SIDE))
        for slot in range(self.externals + self.temporaries):
            program.slot(spec, f"s{slot}", external=slot < self.externals)
        for op in self.ops:
            attrs = npu_cuda.attrs("GEMM", alpha=GEMM_ALPHA) if op.kind == "Gemm" else (0, b"")
            program.add(getattr(_C.OpKind, op.kind), list(op.inputs), [op.output], *attrs)
        program.finalize()
        return program

    def values(self, seed: int = 0) -> list[np.ndarray]:
        numbers = np.random.default_rng(seed)
        return [numbers.integers(-2, 3, (SIDE, SIDE)).astype(np.float32) for _ in range(self.externals)]

    def expected(self, values: list[np.ndarray]) -> list[np.ndarray]:
        slots = [value.copy() for value in values] + [np.empty(0)] * self.temporaries
        for op in self.ops:
            slots[op.output] = computed(op.kind, [slots[slot] for slot in op.inputs])
        return slots[: self.externals]


def computed(kind: str, inputs: list[np.ndarray]) -> np.ndarray:
    if kind == "EltwiseRelu":
        return np.maximum(inputs[0], np.float32(0))
    if kind == "EltwiseAdd":
        return inputs[0] + inputs[1]
    if kind == "Copy":
        return inputs[0].copy()
    return np.float32(GEMM_ALPHA) * (inputs[0] @ inputs[1])


@st.composite
def random_programs(draw: st.DrawFn, max_ops: int = 10) -> RandomProgram:
    externals = draw(st.integers(1, 3))
    slots = externals + draw(st.integers(0, 4))
    readable = list(range(externals))
    ops = []
    for _ in range(draw(st.integers(0, max_ops))):
        kind = draw(st.sampled_from(sorted(ARITY)))
        inputs = tuple(draw(st.sampled_from(readable)) for _ in range(ARITY[kind]))
        outputs = [slot for slot in range(slots) if kind in IN_PLACE or slot not in inputs]
        if not outputs:
            continue
        output = draw(st.sampled_from(outputs))
        ops.append(RandomOp(kind, inputs, output))
        readable += [output] if output not in readable else []
    return RandomProgram(externals, slots - externals, tuple(ops))
