"""What a prologue has used meanwhile does not stay with the process."""

import subprocess
import sys

import pytest
import torch

from npu_ir import extract_ir
from npu_runtime.executor import freed_memory
from npu_runtime.executor.freed_memory import release_after_prologue

# Layers whose weights are made integers: each takes memory for floats meanwhile, beside what stays.
SCRIPT = """
import ctypes, gc, re, torch
from npu_ir import extract_ir
from npu_passes import PassManager
from npu_passes.library.quantization.quantize_weights import QuantizeWeights
from npu_runtime import IRExecutor

def private_bytes():
    return int(re.search(r"RssAnon:\\s+(\\d+) kB", open("/proc/self/status").read())[1]) << 10

model = torch.nn.Sequential(*[torch.nn.Linear(1024, 1024) for _ in range(24)])
x = torch.randn(1, 1024)
graph = PassManager([QuantizeWeights(bits=8)]).run(extract_ir(model.eval(), (x,))).graph
executor = IRExecutor(graph, model.state_dict(), backend="host")
gc.collect()
before = private_bytes()
ctypes.CDLL(None).malloc_trim(0)
print((before - private_bytes()) >> 20)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
def test_an_executor_of_quantized_weights_leaves_no_freed_memory_behind() -> None:
    found = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)

    assert int(found.stdout) < 8  # MiB, of 24 that the integers take


def test_freed_memory_is_given_back_after_large_prologues_only(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    monkeypatch.setattr(freed_memory, "_trim", lambda: calls.append)
    graph = extract_ir(torch.nn.Linear(4, 4).eval(), (torch.zeros(1, 4),))
    (made,) = graph.nodes[-1].outputs
    (given, *_) = graph.inputs

    release_after_prologue({made: torch.zeros(4)})
    release_after_prologue({given: torch.zeros(1 << 23)})
    assert not calls

    release_after_prologue({made: torch.zeros(1 << 23)})
    assert calls == [0]
