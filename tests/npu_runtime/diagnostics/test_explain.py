"""`explain` tells of every node who runs it, and why not another backend."""

import json
from typing import Any

import pytest
import torch

from npu_ir import ExecutionError, Graph, extract_ir, parse_ir
from npu_ir.plugins import plugin_manager
from npu_passes import optimize
from npu_passes.manager.statistics import graph_statistics
from npu_runtime import Backend, BackendError, profile
from npu_runtime.diagnostics.explain import Explanation, Total, explain, explain_graph
from npu_runtime.executor.executor import IRExecutor
from tests.support.backends.picky_backends import Net, Picky, Smooth
from tests.support.corpus.case import Function
from tests.support.rows import each_row

X = torch.randn(5, 3)


@pytest.fixture
def graph() -> Graph:
    return extract_ir(Net(), (X,))


def executor_of(graph: Graph, *backends: Backend) -> IRExecutor:
    return IRExecutor(graph, Net().state_dict(), backend=backends or "aten", passes=None)


def table_of(found: Explanation) -> list[tuple[str, str]]:
    return [(node.name, node.backend) for node in found.nodes]


@pytest.mark.smoke
def test_every_node_is_told_who_runs_it(graph: Graph) -> None:
    executor = executor_of(graph, Picky())

    found = explain(executor)

    assert found.backends == ("picky", "aten")
    assert [found.share(name) for name in found.backends] == [1.0, 0.0]
    assert [found.share(name, "count") for name in found.backends] == [0.6, 0.4]
    assert table_of(found) == [
        ("add", "aten"), ("linear", "picky"), ("sigmoid", "aten"), ("linear_1", "picky"), ("relu", "picky")
    ]  # fmt: skip
    assert [node.part for node in found.nodes] == [0, 1, 2, 3, 3]
    assert [node.module for node in found.nodes][1:4] == ["first", "", "second"]
    kernels = [node.kernel for node in found.nodes]
    assert kernels[0] == executor.instructions[0].kernel
    assert [kernels[1], *kernels[3:]] == ["linear_f32", "linear_1_f32", "relu_f32"]


def test_the_other_backends_have_their_reasons(graph: Graph) -> None:
    found = explain_graph(graph, [Picky(), Smooth()])

    _, linear, sigmoid, *_ = found.nodes
    assert linear.reasons == {
        "smooth": "picky is preferred, and takes it", "aten": "picky is preferred, and takes it"
    }  # fmt: skip
    assert sigmoid.reasons == {
        "picky": "no kernel for aten.sigmoid.default", "aten": "smooth is preferred, and takes it"
    }  # fmt: skip
    assert {key: [node.name for node in nodes] for key, nodes in found.refusals().items()} == {
        ("picky", "no kernel for aten.add.Tensor"): ["add"],
        ("picky", "no kernel for aten.sigmoid.default"): ["sigmoid"],
        ("smooth", "it is not smooth"): ["add"],
    }


def test_a_call_is_timed_where_arguments_are_given(graph: Graph) -> None:
    executor = executor_of(graph, Picky())

    found = explain(executor, (X,), repeat=2)

    seconds = [node.seconds for node in found.nodes]
    assert found.is_timed
    assert all(item is not None and item > 0 for item in (*seconds[:3], seconds[4]))
    assert seconds[3] == 0.0  # the call of the node behind it runs this node, too
    assert sum(found.share(name, "time") for name in found.backends) == pytest.approx(1.0)


def test_steps_that_begin_with_one_node_have_a_time_each(monkeypatch: pytest.MonkeyPatch) -> None:
    def split(x: torch.Tensor) -> torch.Tensor:
        rows = x.exp().view(3, 5)
        return rows[0] * rows[1] + rows[2]

    executor = IRExecutor(extract_ir(Function(split), (X,)), passes="default")
    assert [instruction.nodes[0].name for instruction in executor.instructions].count("view#1") == 3
    measured = profile(executor, (X,))
    monkeypatch.setattr("npu_runtime.diagnostics.profile.profile", lambda *args, **options: measured)

    nodes = explain(executor, (X,)).nodes

    assert sum(node.seconds or 0.0 for node in nodes) == pytest.approx(measured.steps_seconds)


def test_a_tensor_in_place_of_the_arguments_is_refused(graph: Graph) -> None:
    for call in (profile, explain):
        with pytest.raises(
            ExecutionError, match=r"positional arguments are a tuple, not Tensor\n.*\n  fix: pass \(x,\)"
        ):
            call(executor_of(graph), X)  # type: ignore[operator]


def test_operations_of_packed_products_count_as_before_the_passes() -> None:
    model = torch.nn.Sequential(torch.nn.Conv2d(64, 128, 3, stride=2), torch.nn.ReLU()).eval()
    graph = extract_ir(model, (torch.randn(1, 64, 28, 28),))
    packed = optimize(graph, "cpu")

    before, after = explain_graph(graph, "aten"), explain_graph(packed, "aten")

    assert any("mkldnn._convolution_pointwise" in node.op_type for node in after.nodes)
    assert after.totals["aten"].flops == before.totals["aten"].flops > 0
    assert after.unknown_flops == 0
    assert graph_statistics(packed).flops == before.totals["aten"].flops


def test_a_graph_of_any_size_is_explained_without_a_device() -> None:
    graph = parse_ir("""
    graph large {
      input %x: f32[1099511627776, 1048576]
      param %w: f32[1048576, 1048576]
      prologue {
        %neg: f32[1048576, 1048576] = aten.neg.default(self=%w)
      }
      %linear: f32[1099511627776, 1048576] = aten.linear.default(input=%x, weight=%neg)
      %sigmoid: f32[1099511627776, 1048576] = aten.sigmoid.default(self=%linear)
      return %sigmoid
    }
    """)

    found = explain_graph(graph, [Smooth()])

    assert table_of(found) == [("linear", "aten"), ("sigmoid", "smooth")]
    assert found.nodes[0].flops == 2 * 2**80
    assert found.prologue_nodes == 1


def test_operations_that_are_not_known_are_told() -> None:
    graph = parse_ir("""
    graph open {
      symbol n in [1, inf]
      input %x: f32[n, 3]
      input %w: f32[3, 3]
      %linear: f32[n, 3] = aten.linear.default(input=%x, weight=%w)
      return %linear
    }
    """)

    found = explain_graph(graph, [Picky()])

    assert found.unknown_flops == 1
    assert "FLOPs without 1 node whose operations are not known" in str(found)


def test_backends_go_by_name_and_one_needs_no_list(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(plugin_manager.get_plugins().backends, "picky", Picky())

    assert explain_graph(graph, ["picky", "aten"]) == explain_graph(graph, "picky")
    assert table_of(explain_graph(graph, Picky())) == table_of(explain_graph(graph, [Picky()]))


def test_a_graph_without_nodes_is_explained() -> None:
    found = explain_graph(parse_ir("graph empty {\n  input %x: f32[3]\n  return %x\n}"), [Picky()])

    assert (found.totals["picky"], found.is_timed) == (Total(), False)
    assert str(found).startswith("graph empty: 0 nodes; asked: picky, aten\n\n")


def test_an_explanation_reads_as_tables(graph: Graph) -> None:
    assert str(explain_graph(graph, [Picky()])) == (
        """\
graph Net: 5 nodes; asked: picky, aten

backend  nodes         parts  FLOPs
picky    3      60.0%  2      200    100.0%
aten     2      40.0%  2      0      0.0%

refused by  nodes  because                             which
picky       1      no kernel for aten.add.Tensor       add
picky       1      no kernel for aten.sigmoid.default  sigmoid

node      op                    backend  kernel                FLOPs
add       aten.add.Tensor       aten     aten.add.Tensor
linear    aten.linear.default   picky    linear_f32            120
sigmoid   aten.sigmoid.default  aten     aten.sigmoid.default
linear_1  aten.linear.default   picky    linear_1_f32          80
relu      aten.relu.default     picky    relu_f32"""
    )


def test_times_stand_in_the_tables(graph: Graph) -> None:
    lines = str(explain(executor_of(graph, Picky()), (X,))).splitlines()

    assert lines[2].split() == ["backend", "nodes", "parts", "FLOPs", "time"]
    assert all(line.split()[-2] in ("us", "ms") and line.endswith("%") for line in lines[3:5])
    assert all(line.split()[-1] in ("us", "ms") for line in lines if line.startswith(("linear ", "relu ")))


def test_an_explanation_becomes_json(graph: Graph) -> None:
    found = explain_graph(graph, Picky())

    data = json.loads(json.dumps(found.to_dict(), allow_nan=False))

    assert data["backends"] == ["picky", "aten"]
    assert data["totals"]["picky"]["flops"] == 200
    assert data["nodes"][2]["reasons"] == {"picky": "no kernel for aten.sigmoid.default"}
    assert [node["name"] for node in data["nodes"]] == [node.name for node in found.nodes]


def test_a_share_that_there_is_not_is_refused() -> None:
    graph = parse_ir(
        "graph g {\n  input %x: f32[3]\n  %y: f32[3] = aten.relu.default(self=%x)\n  return %y\n}"
    )
    found = explain_graph(graph, [Smooth()])
    none = "no node of graph 'g' has FLOPs: .*\n  fix: count nodes: by='count', or --by count"
    for backend, by, message in (
        ("cuda", "count", "'cuda' was not asked\n  fix: those asked are smooth, aten"),
        ("aten", "bytes", "a share is by flops, count, time, not 'bytes'"),
        ("aten", "time", "nothing was timed\n  fix: give the arguments of a call"),
        ("aten", "flops", none),
    ):
        with pytest.raises(BackendError, match=message):
            found.share(backend, by)


def test_a_backend_that_there_is_not_is_refused(graph: Graph) -> None:
    with pytest.raises(BackendError, match="there is no backend 'nowhere'"):
        explain_graph(graph, ["nowhere"])
    with pytest.raises(BackendError, match="5 is not a backend\n  fix: give a name or an instance"):
        explain_graph(graph, [5])  # type: ignore[list-item]


@each_row("item, message", {
    "a graph": (Graph("net"), r"got Graph\n  fix: IRExecutor\(graph, weights\) makes one of a graph"),
    "a model": (torch.nn.ReLU(), r"got ReLU\n  fix: IRExecutor.*, npu_ir\.extract_ir\(model, args\) a graph"),
})  # fmt: skip
def test_what_is_not_an_executor_is_refused(item: Any, message: str) -> None:
    for look in (explain, profile):
        with pytest.raises(ExecutionError, match=f"expected an IRExecutor, {message}"):
            look(item)


def test_an_explanation_is_shown_with_the_counts_of_its_nodes() -> None:
    graph = parse_ir("graph one {input %x: f32[2] %y: f32[2] = aten.relu.default(self=%x) return %y}")

    assert repr(explain_graph(graph, [])) == "<Explanation 'one': 1 nodes, 1 on aten>"
