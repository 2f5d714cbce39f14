"""Graphs are taken apart into core ATen: the same values, and what stays is said with the reason."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.export import Dim

from npu_ir import Graph, execute_ir, extract_ir
from npu_ir.ops.schema import find_op
from npu_passes import PassError, PassManager, passes_of
from npu_passes.core.journal import Journal, use_journal
from npu_passes.library.decompose import Decompose
from tests.support.corpus.case import Function, Holding
from tests.support.rows import each_row
from tests.support.small_programs import program


def not_core(graph: Graph) -> set[str]:
    """Return the ATen op types in a graph and its regions that are not core."""
    found = {node.op_type for part in graph.graphs() for node in part.nodes}
    ops = {op_type: find_op(op_type) for op_type in found if op_type.startswith("aten.")}
    return {op_type for op_type, op in ops.items() if torch.Tag.core not in op.tags}  # type: ignore[union-attr]


def decomposed(graph: Graph, **options: Any) -> Journal:
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


@pytest.mark.parametrize(("model", "x"), [
    pytest.param(ConvBlock(), torch.randn(2, 4, 8, 8), id="conv"),
    pytest.param(Decoder(), torch.randint(0, 11, (2, 5)), id="gpt-2"),
])  # fmt: skip
def test_a_model_becomes_core_aten_with_the_same_results(model: nn.Module, x: torch.Tensor) -> None:
    graph = extract_ir(model.eval(), (x,), dynamic_shapes=({0: Dim("batch", min=1, max=64)},))

    places = {node.provenance for node in graph.nodes}

    journal = decomposed(graph)

    assert not_core(graph) == set()
    assert not journal.refusals
    assert {node.provenance for node in graph.nodes} <= places
    for batch in (2, 3):
        call = torch.cat([x] * 2)[:batch]
        found = execute_ir(graph, (call,), weights=model.state_dict())
        torch.testing.assert_close(found, model(call), rtol=1e-5, atol=1e-6)


def test_next_to_canonicalize_it_comes_to_an_end_where_reshape_is_kept() -> None:
    graph = extract_ir(ConvBlock().eval(), (torch.randn(2, 4, 8, 8),))

    result = PassManager("canonicalize,decompose{keep=[aten.reshape.default]}").run(graph)

    assert result.converged
    assert not_core(result.graph) <= {"aten.reshape.default"}


def one_node(line: str) -> Graph:
    return program(f"input %x: f32[4, 4]\nparam %w: f32[4, 4]\n{line}\nreturn %y")


def test_the_options_say_which_ops_are_taken_apart(subtests: pytest.Subtests) -> None:
    silu, hardswish = "aten.silu.default", "aten.hardswish.default"
    rows = [
        ({"ops": (silu,)}, {hardswish}),
        ({"keep": (silu,)}, {silu}),
        ({"ops": (silu,), "keep": (silu,)}, {silu, hardswish}),
    ]
    for options, left in rows:
        with subtests.test(options=options):
            graph = one_node(f"%a: f32[4, 4] = {silu}(self=%x)\n%y: f32[4, 4] = {hardswish}(self=%a)")

            decomposed(graph, **options)

            assert not_core(graph) == left


def test_an_op_that_is_kept_is_kept_inside_of_others() -> None:
    graph = one_node("%y: f32[4, 4] = aten.log_sigmoid.default(self=%x)")

    decomposed(graph, keep=("aten.log_sigmoid_forward.default",))

    assert [node.op_type for node in graph.nodes] == ["aten.log_sigmoid_forward.default"]


def in_prologue(line: str) -> Graph:
    graph = one_node(line)
    graph.move_to_prologue(graph.node("y"))
    return graph


def test_what_stays_is_said_with_the_reason(subtests: pytest.Subtests) -> None:
    rows = [
        (one_node("%y: f32[4, 4] = aten.dropout.default(input=%x) {p=0.5, train=True}"),
            "it draws random numbers: other ops would draw others"),
        (in_prologue("%y: f32[4, 4] = aten.silu.default(self=%w)"),
            "it is in the prologue, to which its parts cannot be added"),
    ]  # fmt: skip
    for graph, reason in rows:
        with subtests.test(reason):
            journal = decomposed(graph)

            assert len(graph) == 1
            (refusal,) = journal.refusals
            assert (refusal.pass_name, refusal.rule, refusal.node) == ("decompose", "core", "y")
            assert refusal.reason.startswith(reason)


def test_parts_that_stay_are_said_too() -> None:
    graph = one_node("%y: f32[4, 4] = aten.inverse.default(self=%x)")

    reasons = {refusal.reason for refusal in decomposed(graph).refusals}

    assert "aten.linalg_inv_ex.default" in not_core(graph)
    assert "PyTorch has no decomposition of aten.linalg_inv_ex.default" in reasons


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="no op of CPUs alone")
def test_an_lstm_stays_where_its_parts_are_for_cpus_only() -> None:
    graph = extract_ir(nn.LSTM(4, 8).eval(), (torch.randn(3, 2, 4),))

    assert "it consists of aten.mkldnn_rnn_layer.default, which only CPUs have" in {
        refusal.reason for refusal in decomposed(graph).refusals
    }


def test_what_looks_at_the_memory_of_a_lazy_conjugate_stays() -> None:
    x = torch.tensor([1 + 2j, 3 - 4j])
    graph = extract_ir(Function(lambda x: x.conj().imag), (x,))

    journal = decomposed(graph)

    assert any("which may hold the conjugate" in refusal.reason for refusal in journal.refusals)
    assert torch.equal(execute_ir(graph, (x,)), x.conj().imag)


@pytest.mark.smoke
def test_an_op_that_is_not_there_is_refused(subtests: pytest.Subtests) -> None:
    missing = r"(?s)'aten.nope.default', and there is no such operator.*namespace"
    rows = [
        ({"ops": ("aten.linear.default", "aten.nope.default")}, missing),
        ({"keep": ("aten.nope.default",)}, missing),
        ({"ops": ("prims.add.default",)}, r"does not decompose prims.add.default: only ops of aten and npu"),
    ]
    for options, message in rows:
        with subtests.test(options=options), pytest.raises(PassError, match=message):
            Decompose(**options)


FUSED = (
    "aten.scaled_dot_product_attention.default",
    "npu.add_layer_norm.default",
    "npu.add_rms_norm.default",
    "npu.linear_activation.default",
)


def fusible(self: Any, x: torch.Tensor) -> torch.Tensor:
    """What every fusing pass finds something in."""
    y = torch.relu(self.linear(x))
    z = self.rms_norm(self.layer_norm(x + y) + y)
    return (z @ z.mT * 0.3).softmax(-1) @ z


def test_with_the_fusing_passes_it_comes_to_an_end_where_it_keeps_what_they_make() -> None:
    layers = {"linear": nn.Linear(8, 8), "layer_norm": nn.LayerNorm(8), "rms_norm": nn.RMSNorm(8)}
    graph = extract_ir(Holding(fusible, **layers).eval(), (torch.randn(2, 3, 8),))
    keep = ("aten.reshape.default", *FUSED)

    result = PassManager([*passes_of("fuse"), Decompose(keep=keep)]).run(graph)
    without = PassManager([*passes_of("fuse"), Decompose(keep=keep[:1])], max_rounds=4).run(graph)

    assert result.converged
    assert not without.converged
    assert {node.op_type for node in result.graph.body} == set(FUSED)


@each_row("first", [True, False])
def test_parts_are_the_same_in_inference_mode(first: bool) -> None:
    graph = extract_ir(nn.BatchNorm1d(7 + first).eval(), (torch.randn(5, 7 + first),))

    with torch.inference_mode(first):
        decomposed(graph)

    assert not_core(graph) == set()


@each_row("reader, clones", [
    ("aten.view.default(self=%copy) {size=[2, 2]}", 1),
    ("aten.add.Tensor(self=%copy, other=%copy)", 0),
])  # fmt: skip
def test_a_copy_stays_one_where_its_memory_is_returned(reader: str, clones: int) -> None:
    shape = "[2, 2]" if "view" in reader else "[4]"
    graph = program(f"""
        input %x: f32[4]
        %copy: f32[4] = aten.lift_fresh_copy.default(self=%x)
        %y: f32{shape} = {reader}
        return %y
    """)
    x = torch.randn(4)

    decomposed(graph)

    assert len(list(graph.nodes_of("aten.clone.default"))) == clones
    assert execute_ir(graph, (x,)).data_ptr() != x.data_ptr()
