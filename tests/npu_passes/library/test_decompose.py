"""Graphs are taken apart into core ATen: the same values, and what stays is said with the reason."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.export import Dim

from npu_ir import Graph, execute_ir, extract_ir, parse_ir
from npu_ir.ops.schema import find_op
from npu_passes import PassError, PassManager, passes_of
from npu_passes.core.journal import Journal, use_journal
from npu_passes.library.decompose import Decompose
from npu_passes.testing import check_pass


def not_core(graph: Graph) -> set[str]:
    """Return the ATen op types in a graph and its regions that are not core."""
    found = {node.op_type for part in graph.graphs() for node in part.nodes}
    ops = {op_type: find_op(op_type) for op_type in found if op_type.startswith("aten.")}
    return {op_type for op_type, op in ops.items() if torch.Tag.core not in op.tags}  # type: ignore[union-attr]


def decomposed(graph: Graph, **options: Any) -> Journal:
    """Run the pass on a graph; return what it said."""
    journal = Journal()
    before = str(graph)
    with use_journal(journal):
        changed = Decompose(**options).run(graph)
    graph.check()
    assert changed == (str(graph) != before)
    return journal


class ConvBlock(nn.Module):
    """A residual block with what convnets have around convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.main = nn.Sequential(
            *(nn.Conv2d(4, 8, 3, padding=1), nn.BatchNorm2d(8), nn.Hardswish()),
            *(nn.Conv2d(8, 4, 1, groups=2), nn.GroupNorm(2, 4), nn.SiLU()),
        )
        self.up = nn.Upsample(scale_factor=2, mode="bilinear")
        self.head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = nn.functional.max_pool2d(x + self.main(x), 2)
        return torch.log_softmax(self.head(self.up(x)), -1)


class Decoder(nn.Module):
    """Layers as of GPT-2: the attention as one op, and written out."""

    def __init__(self, layers: int = 2) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, 16)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, activation="gelu", norm_first=True)
            for _ in range(layers)
        )
        self.mix = nn.Linear(16, 48)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embedding(ids)
        for layer in self.layers:
            x = layer(x)
        q, k, v = self.mix(x).unflatten(-1, (3, 2, 8)).permute(2, 0, 3, 1, 4)
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return y.transpose(1, 2).flatten(2) @ self.embedding.weight.T


MODELS = [
    pytest.param(ConvBlock(), torch.randn(2, 4, 8, 8), id="conv"),
    pytest.param(Decoder(), torch.randint(0, 11, (2, 5)), id="gpt-2"),
]


@pytest.mark.parametrize(("model", "x"), MODELS)
def test_a_model_becomes_core_aten_with_the_same_results(model: nn.Module, x: torch.Tensor) -> None:
    graph = extract_ir(model.eval(), (x,))
    places = {node.provenance for node in graph.nodes}

    journal = decomposed(graph)

    assert not_core(graph) == set()
    assert not journal.refusals
    assert {node.provenance for node in graph.nodes} <= places
    found = execute_ir(graph, (x,), weights=model.state_dict())
    torch.testing.assert_close(found, model(x), rtol=1e-5, atol=1e-6)
    assert not Decompose().run(graph)


@pytest.mark.parametrize(("model", "x"), MODELS)
def test_a_model_of_open_sizes_becomes_core_aten_too(model: nn.Module, x: torch.Tensor) -> None:
    graph = extract_ir(model.eval(), (x,), dynamic_shapes=({0: Dim("batch", min=1, max=64)},))

    decomposed(graph)

    assert not_core(graph) == set()
    for batch in (2, 3):
        call = torch.cat([x] * 2)[:batch]
        found = execute_ir(graph, (call,), weights=model.state_dict())
        torch.testing.assert_close(found, model(call), rtol=1e-5, atol=1e-6)


def test_next_to_canonicalize_it_comes_to_an_end_where_reshape_is_kept() -> None:
    graph = extract_ir(ConvBlock().eval(), (torch.randn(2, 4, 8, 8),))

    result = PassManager("canonicalize,decompose{keep=[aten.reshape.default]}").run(graph)

    assert result.converged
    assert not_core(result.graph) <= {"aten.reshape.default"}


def test_the_pass_keeps_what_every_pass_promises() -> None:
    graphs = [extract_ir(model.eval(), (x,)) for model, x in (item.values for item in MODELS)]

    assert check_pass(Decompose(), graphs) == len(graphs)


def test_regions_are_taken_apart_too() -> None:
    class Choice(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return torch.cond(x.sum() > 0, lambda x: nn.functional.silu(x), lambda x: x.square(), (x,))

    graph = extract_ir(Choice(), (torch.randn(3),))

    decomposed(graph)

    assert not_core(graph) == set()
    for x in (torch.ones(3), -torch.ones(3)):
        torch.testing.assert_close(execute_ir(graph, (x,)), Choice()(x))


TWO = """graph g {
  input %x: f32[2, 3]
  call (%x)

  %a: f32[2, 3] = aten.silu.default(self=%x)
  %b: f32[2, 3] = aten.hardswish.default(self=%a)

  return %b
}
"""


def test_the_options_say_which_ops_are_taken_apart(subtests: pytest.Subtests) -> None:
    rows = [
        ({"ops": ("aten.silu.default",)}, {"aten.hardswish.default"}),
        ({"keep": ("aten.silu.default",)}, {"aten.silu.default"}),
        (
            {"ops": ("aten.silu.default",), "keep": ("aten.silu.default",)},
            {"aten.silu.default", "aten.hardswish.default"},
        ),
    ]
    for options, left in rows:
        with subtests.test(options=options, left=left):
            graph = parse_ir(TWO)

            decomposed(graph, **options)

            assert not_core(graph) == left


def test_an_op_that_is_kept_is_kept_inside_of_others() -> None:
    graph = parse_ir(
        "graph g {\n  input %x: f32[2, 3]\n  call (%x)\n\n"
        "  %a: f32[2, 3] = aten.log_sigmoid.default(self=%x)\n\n  return %a\n}\n"
    )

    decomposed(graph, keep=("aten.log_sigmoid_forward.default",))

    assert [node.op_type for node in graph.nodes] == ["aten.log_sigmoid_forward.default"]


def one_node(line: str) -> Graph:
    return parse_ir(
        f"graph g {{\n  input %x: f32[4, 4]\n  param %w: f32[4, 4]\n  call (%x)\n\n"
        f"  {line}\n\n  return %y\n}}\n"
    )


def test_what_stays_is_said_with_the_reason(subtests: pytest.Subtests) -> None:
    rows = [
        ("%y: f32[4] = aten.histc.default(self=%x) {bins=4}", "PyTorch has no decomposition of aten.histc"),
        (
            "%y: f32[4, 4] = aten.dropout.default(input=%x) {p=0.5, train=True}",
            "it draws random numbers: other ops would draw others",
        ),
        ("%y: f32[4] = aten.silu.default(self=%x)", r"its parts return f32\[4, 4\], not f32\[4\]"),
    ]
    for line, reason in rows:
        with subtests.test(line=line, reason=reason):
            graph = one_node(line)

            journal = decomposed(graph)

            assert len(graph) == 1
            (refusal,) = journal.refusals
            assert (refusal.pass_name, refusal.rule, refusal.node) == ("decompose", "core", "y")
            assert refusal.reason.startswith(reason.replace("\\", ""))


def test_parts_that_stay_are_said_too() -> None:
    graph = one_node("%y: f32[4, 4] = aten.inverse.default(self=%x)")

    journal = decomposed(graph)

    assert "aten.linalg_inv_ex.default" in not_core(graph)
    assert "PyTorch has no decomposition of aten.linalg_inv_ex.default" in {
        refusal.reason for refusal in journal.refusals
    }


LSTM = """graph lstm {
  input %x: f32[3, 2, 4]
  input %h: f32[1, 2, 8]
  param %w: f32[32, 4]
  param %u: f32[32, 8]
  call (%x, %h)

  %y: f32[3, 2, 8], %hn: f32[1, 2, 8], %cn: f32[1, 2, 8] = \
aten.lstm.input(input=%x, hx[0]=%h, hx[1]=%h, params[0]=%w, params[1]=%u) \
{has_biases=False, num_layers=1, dropout=0.0, train=False, bidirectional=False, batch_first=False, \
_tensor_list_sizes=[2, 2]}

  return %y
}
"""


def test_an_lstm_stays_where_its_parts_are_for_cpus_only() -> None:
    graph = parse_ir(LSTM)

    journal = decomposed(graph)

    if torch.backends.mkldnn.is_available():
        assert [refusal.reason for refusal in journal.refusals] == [
            "it consists of aten.mkldnn_rnn_layer.default, which only CPUs have"
        ]
    else:
        assert not_core(graph) == set()


def test_a_node_of_the_prologue_stays() -> None:
    graph = one_node("%y: f32[4, 4] = aten.silu.default(self=%w)")
    graph.move_to_prologue(graph.node("y"))

    journal = decomposed(graph)

    assert [refusal.reason for refusal in journal.refusals] == [
        "it is in the prologue, to which its parts cannot be added"
    ]


def test_dropout_that_is_off_is_taken_apart() -> None:
    graph = one_node("%y: f32[4, 4] = aten.dropout.default(input=%x) {p=0.5, train=False}")

    decomposed(graph)

    assert not_core(graph) == set()
    x = torch.randn(4, 4)
    assert torch.equal(execute_ir(graph, (x,), weights={"w": x}), x)


def test_what_looks_at_the_memory_of_a_lazy_conjugate_stays() -> None:
    class Imaginary(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.conj().imag

    x = torch.tensor([1 + 2j, 3 - 4j])
    graph = extract_ir(Imaginary(), (x,))

    journal = decomposed(graph)

    assert any("which may hold the conjugate" in refusal.reason for refusal in journal.refusals)
    assert torch.equal(execute_ir(graph, (x,)), x.conj().imag)


def test_the_copy_of_a_result_states_the_strides_that_it_has() -> None:
    class Grid(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
            return list(torch.broadcast_tensors(x, y))

    graph = extract_ir(Grid(), (torch.ones(2, 1), torch.ones(1, 3)))

    decomposed(graph)

    for node in graph.nodes_of("aten.clone.default"):
        assert node.outputs[0].tensor_type.strides is None


@pytest.mark.smoke
def test_an_op_that_is_not_there_is_refused(subtests: pytest.Subtests) -> None:
    for option in ["ops", "keep"]:
        with (
            subtests.test(option=option),
            pytest.raises(
                PassError, match=r"(?s)'aten.nope.default', and there is no such operator.*namespace"
            ),
        ):
            Decompose(**{option: ("aten.linear.default", "aten.nope.default")})


def test_an_op_of_others_is_refused() -> None:
    with pytest.raises(PassError, match=r"does not decompose prims.add.default: only ops of aten and npu"):
        Decompose(ops=("prims.add.default",))


FUSED = (
    "aten.scaled_dot_product_attention.default",
    "npu.add_layer_norm.default",
    "npu.add_rms_norm.default",
    "npu.linear_activation.default",
)


class Fusible(nn.Module):
    """What every fusing pass finds something in."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.layer_norm, self.rms_norm = nn.Linear(8, 8), nn.LayerNorm(8), nn.RMSNorm(8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.linear(x))
        z = self.rms_norm(self.layer_norm(x + y) + y)
        return (z @ z.mT * 0.3).softmax(-1) @ z


def test_with_the_fusing_passes_it_comes_to_an_end_where_it_keeps_what_they_make() -> None:
    graph = extract_ir(Fusible().eval(), (torch.randn(2, 3, 8),))
    keep = ("aten.reshape.default", *FUSED)

    result = PassManager([*passes_of("fuse"), Decompose(keep=keep)]).run(graph)
    without = PassManager([*passes_of("fuse"), Decompose(keep=keep[:1])], max_rounds=4).run(graph)

    assert result.converged
    assert not without.converged
    assert {node.op_type for node in result.graph.body} == set(FUSED)


def test_parts_are_the_same_in_inference_mode(subtests: pytest.Subtests) -> None:
    for first in [True, False]:
        with subtests.test(first=first):
            graph = extract_ir(nn.BatchNorm1d(7 + first).eval(), (torch.randn(5, 7 + first),))

            with torch.inference_mode(first):
                decomposed(graph)

            assert not_core(graph) == set()


def test_a_copy_stays_one_where_its_memory_is_returned(subtests: pytest.Subtests) -> None:
    rows = [
        ("aten.view.default(self=%copy) {size=[2, 2]}", 1),
        ("aten.add.Tensor(self=%copy, other=%copy)", 0),
    ]
    for reader, clones in rows:
        with subtests.test(reader=reader, clones=clones):
            shape = "[2, 2]" if "view" in reader else "[4]"
            graph = parse_ir(
                f"graph g {{\n  input %x: f32[4]\n  call (%x)\n\n"
                "  %copy: f32[4] = aten.lift_fresh_copy.default(self=%x)\n"
                f"  %y: f32{shape} = {reader}\n\n  return %y\n}}"
            )
            x = torch.randn(4)

            decomposed(graph)

            assert len(list(graph.nodes_of("aten.clone.default"))) == clones
            assert execute_ir(graph, (x,)).data_ptr() != x.data_ptr()
