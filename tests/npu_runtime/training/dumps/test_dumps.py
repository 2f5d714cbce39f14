"""The stages of a captured step as files: readable, the same each time, all together or none."""

import json
from pathlib import Path

import pytest

from npu_runtime import CaptureError
from npu_runtime.backends.registry import named_backends
from npu_runtime.lowering.lowered_graph import lower
from npu_runtime.lowering.notation import schema_name
from npu_runtime.training.dumps.call_log import Call, CallLog
from npu_runtime.training.dumps.write_dumps import call_log_dump, graph_dump, lowered_dumps, write_dumps
from tests.support.backends.tiny_backend import TinyBackend, two_layers

GRAPH = """\
graph 'two-layers': 7 values, 4 nodes, 0 updates
values
  v000  x  shape=(2, 3) dtype=f32  input
  v001  w1  shape=(3, 5) dtype=f32  param
  v002  w2  shape=(5, 4) dtype=f32  param
  v003  h  shape=(2, 5) dtype=f32
  v004  a  shape=(2, 5) dtype=f32
  v005  s  shape=(2, 5) dtype=f32
  v006  y  shape=(2, 4) dtype=f32
nodes
  #000 aten.mm.default (0, 1) -> (3) {}
  #001 aten.relu.default (3) -> (4) {}
  #002 aten.sigmoid.default (4) -> (5) {}
  #003 aten.mm.default (5, 2) -> (6) {}
results
  v006  y
updates"""

LOWERED = """\
lowered 'two-layers': 6 ops, 5 of tiny, 1 of aten
temporaries
  v007  h.packed  shape=(3, 5) dtype=f32
  v008  y.packed  shape=(5, 4) dtype=f32
ops
  #000 Pack (1) -> (7) {} kid=- backend=tiny
  #001 Gemm (0, 7) -> (3) {schema=GEMM, attrs=01000080} kid=gemm_tiny backend=tiny
  #002 Relu (3) -> (4) {} kid=- backend=tiny
  #003 aten.sigmoid.default (4) -> (5) {} kid=- backend=aten
  #004 Pack (2) -> (8) {} kid=- backend=tiny
  #005 Gemm (5, 8) -> (6) {schema=GEMM, attrs=01000080} kid=gemm_tiny backend=tiny
fell back
  1 x tiny: it multiplies and rectifies"""

ATTRS = """\
attributes of 'two-layers': 6 ops
  #000 Pack
  #001 Gemm
       schema=GEMM attrs=01 00 00 80
  #002 Relu
  #003 aten.sigmoid.default
  #004 Pack
  #005 Gemm
       schema=GEMM attrs=01 00 00 80"""

TRACE = CallLog(
    "two-layers",
    (
        Call("bind", "aten", "views", ("aten.t.default",), ("t",)),
        Call("compute", "tiny", "tiny.run", ("Pack", "Gemm"), ("h",)),
        Call("commit", "aten", "copy", (), ()),
    ),
)


@pytest.mark.smoke
def test_a_graph_is_a_line_for_each_value_and_node() -> None:
    assert graph_dump(two_layers()).text == GRAPH


def test_a_lowering_says_who_runs_what_and_why_the_rest_fell_back() -> None:
    lowered, attrs = lowered_dumps(lower(two_layers(), named_backends(TinyBackend())))

    assert (lowered.text, attrs.text) == (LOWERED, ATTRS)
    assert str(lower(two_layers(), named_backends(TinyBackend()))) == LOWERED


def test_the_record_has_what_the_text_has() -> None:
    lowered, attrs = lowered_dumps(lower(two_layers(), named_backends(TinyBackend())))

    assert lowered.data["ops"][1] == {
        "kind": "Gemm",
        "backend": "tiny",
        "kernel": "gemm_tiny",
        "inputs": [0, 7],
        "outputs": [3],
        "nodes": ["h"],
        "refusals": {},
    }
    assert lowered.data["ops"][3]["refusals"] == {"tiny": "it multiplies and rectifies"}
    assert attrs.data[1] == {
        "op": 1,
        "kind": "Gemm",
        "schema": "GEMM",
        "schema_id": 1296909639,
        "bytes": "01000080",
    }
    assert attrs.data[3] == {"op": 3, "kind": "aten.sigmoid.default", "attrs": {}}


def test_a_trace_is_a_line_for_each_call() -> None:
    dump = call_log_dump(TRACE)

    assert dump.text == (
        "trace of 'two-layers': 3 calls\n"
        "  #000 bind    aten.t.default kid=views backend=aten  <- t\n"
        "  #001 compute Pack Gemm kid=tiny.run backend=tiny  <- h\n"
        "  #002 commit  - kid=copy backend=aten"
    )
    assert dump.data["calls"][1]["nodes"] == ["h"]


def test_numbers_do_not_depend_on_how_a_graph_was_edited() -> None:
    edited = two_layers()
    node = edited.insert("aten.neg.default", [edited.value("x")], types=edited.value("x").type)
    edited.erase(node)
    copy = edited.clone()

    assert graph_dump(edited).text == graph_dump(copy).text == GRAPH
    assert graph_dump(edited).data == graph_dump(two_layers()).data


def test_files_are_text_and_json_and_the_same_each_time(tmp_path: Path) -> None:
    dumps = (graph_dump(two_layers()), call_log_dump(TRACE))

    files = write_dumps(tmp_path / "new" / "folder", dumps)
    first = [path.read_bytes() for path in files]
    again = [path.read_bytes() for path in write_dumps(tmp_path / "new" / "folder", dumps)]

    assert [path.name for path in files] == [
        "20_ir.txt",
        "20_ir.json",
        "50_runtime_trace.txt",
        "50_runtime_trace.json",
    ]
    assert files[0].read_text() == GRAPH + "\n"
    assert json.loads(files[1].read_text()) == graph_dump(two_layers()).data
    assert first == again
    assert len(list((tmp_path / "new" / "folder").iterdir())) == 4


def test_a_folder_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")

    with pytest.raises(CaptureError, match="the dumps cannot be written(?s:.*)the folder exists"):
        write_dumps(tmp_path / "taken", (graph_dump(two_layers()),))


def test_ids_of_schemas_are_shown_as_their_letters() -> None:
    names = {0: "", 0x4D4D4547: "GEMM", 7: "0x7", 1 << 40: "0x10000000000"}

    assert {schema_id: schema_name(schema_id) for schema_id in names} == names


def test_a_trace_without_the_ops_that_are_asked_for_is_refused() -> None:
    TRACE.require("Gemm", 1)
    TRACE.require("Pack")

    with pytest.raises(CaptureError, match=r"the trace has 1 ops 'Gemm', not 2(?s:.*)Gemm x1, Pack x1"):
        TRACE.require("Gemm", 2)
    with pytest.raises(CaptureError, match="the trace has 0 ops 'npu.adam_step.default', not at least one"):
        TRACE.require("npu.adam_step.default")


def a_trace_of(*changes: Call) -> CallLog:
    calls = (
        Call("compute", "tiny", "tiny.run", ("Pack", "Gemm", "Relu"), ("h", "a")),
        Call("compute", "aten", "sigmoid.out", ("aten.sigmoid.default",), ("s",)),
        Call("compute", "tiny", "tiny.run", ("Pack", "Gemm"), ("y",)),
    )
    return CallLog("two-layers", changes or calls)


def test_a_trace_is_compared_with_its_lowering() -> None:
    lowered = lower(two_layers(), named_backends(TinyBackend()))
    first, second, third = a_trace_of().calls
    on_aten = Call("compute", "aten", "mm", ("aten.mm.default",), ("h",))
    without_pack = Call("compute", "tiny", "tiny.run", ("Gemm",), ("y",))

    a_trace_of().require_lowering(lowered)
    for calls, message in (
        ((first, second), "node 'y' did not run"),
        ((first, second, third, second), "'s' ran 2 times"),
        (
            (first, second, third, Call("compute", "aten", "neg", (), ("neg",))),
            "node 'neg' ran, and was not lowered",
        ),
        ((on_aten, second, third), "node 'h' ran on 'aten', and was lowered for 'tiny'"),
        ((first, second, without_pack), "Pack of 'tiny' ran 1 times, and was lowered 2 times"),
    ):
        with pytest.raises(CaptureError, match=message):
            a_trace_of(*calls).require_lowering(lowered)
