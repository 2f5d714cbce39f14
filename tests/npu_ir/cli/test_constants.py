"""Tensors outside the ``state_dict`` on the command line; ``npu run`` and ``npu info`` of large graphs."""

import json
from collections.abc import Callable

import torch
from safetensors.torch import save_file

from npu_ir import save_ir
from tests.support.rows import each_row
from tests.support.small_programs import program

MODEL = """
import torch

class Scaled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(2, 2)
        self.register_buffer("frequencies", torch.arange(1.0, 3.0), persistent=False)
        self.shift = torch.ones(2)

    def forward(self, x):
        return self.linear(x) * self.frequencies + self.shift

def on_meta():
    with torch.device("meta"):
        return Scaled()
"""


FILES = {"scaled.py": MODEL}
SETUP = [
    "extract scaled.py:on_meta -i 'f32[1, 2]' -o bare.json",
    "extract scaled.py:Scaled -i 'f32[1, 2]' -o full.json --meta",
]
ONE, WEIGHTS, CONSTANTS = "-i x=@x.pt", "--weights w.safetensors", "--constants c.safetensors"
MISSING = "(not in the state_dict: pass it in constants=)"


@each_row("command, code, said", [
    (f"run bare.json {WEIGHTS} {CONSTANTS} {ONE}", 0,
        ["[[3, 5]]", "w.safetensors; constants of c.safetensors"]),
    (f"run full.json {WEIGHTS} {ONE}", 0, ["[[2, 3]]"]),
    (f"run full.json {WEIGHTS} {CONSTANTS} {ONE}", 0, ["[[3, 5]]"]),
    (f"run bare.json --random-weights 1 {CONSTANTS} {ONE}", 0,
        ["random, seed 1; constants of c.safetensors"]),
    (f"verify bare.json scaled.py:Scaled {WEIGHTS} {CONSTANTS}", 0, ["graph and model agree: 1 result"]),
    ("verify bare.json scaled.py:Scaled", 0, ["graph and model agree: 1 result"]),
    (f"run bare.json {WEIGHTS}", 1,
        [f"missing: frequencies, f32[2] {MISSING}", f"missing: shift, f32[2] {MISSING}",
            "tensors outside the state_dict go into constants= (--constants FILE)"]),
    (f"run bare.json {WEIGHTS} --constants both.safetensors", 2,
        ["linear.weight is one tensor in w.safetensors and another in both.safetensors\n  fix: "]),
    (f"verify bare.json scaled.py:Scaled {WEIGHTS} --constants both.safetensors", 2, ["and another in both"]),
])  # fmt: skip
def test_constants_come_from_a_file_of_their_own(
    command: str, code: int, said: list[str], npu: Callable[..., str]
) -> None:
    both = {"linear.weight": torch.ones(2, 2), "frequencies": torch.ones(2), "shift": torch.zeros(2)}
    save_file({"linear.weight": torch.eye(2), "linear.bias": torch.zeros(2)}, "w.safetensors")
    save_file({"frequencies": torch.tensor([3.0, 5.0]), "shift": torch.zeros(2)}, "c.safetensors")
    save_file(both, "both.safetensors")
    torch.save(torch.ones(1, 2), "x.pt")

    printed = npu(command, code=code)

    assert [text for text in said if text not in printed] == []


def test_run_sums_up_many_updates_unless_all_are_asked_for(npu: Callable[..., str]) -> None:
    graph = program("input %x: f32[1] return %x")
    (x,) = graph.inputs
    for index in range(15):
        buffer = graph.add_buffer(f"count{index}", x.type, persistent=False, data=torch.ones(1))
        graph.set_update(buffer, x)
    save_ir(graph, "counters.json")

    summary, everything = npu("run counters.json"), npu("run counters.json --all-updates")

    assert "updated count11" in summary
    assert "updated count12" not in summary
    assert "... and 3 more updates: --all-updates prints them" in summary
    assert "updated count14" in everything
    assert "more update" not in everything


def test_info_names_ops_that_nothing_here_runs(npu: Callable[..., str]) -> None:
    text = "input %x: f32[2] %y: f32[2] = aten.relu.default(%x) %z: f32[2] = aten.of_the_future.default(%y)"
    save_ir(program(f"{text} return %z"), "future.json")

    assert "1 op that neither PyTorch nor a plugin has here:" in npu("info future.json")
    assert json.loads(npu("info future.json --json"))["unknown_ops"] == ["aten.of_the_future.default"]
