"""Changes of schemas since a file was written; an edited one stands for another PyTorch."""

import pytest

from npu_ir import parse_ir
from npu_ir.serial.compatibility import OpCompatibility, Verdict, compare_op
from npu_ir.serial.compatibility.comparison import calls_by_op
from tests.support.rows import each_row

OK, FINE, MIGRATABLE, BROKEN = Verdict
CALLS = """graph G {
  input %x: f32[2]
  input %y: f32[2]

  %plain: f32[2] = aten.add.Tensor(self=%x, other=%y)
  %scaled: f32[2] = aten.add.Tensor(self=%plain, other=%y) {alpha=1}

  return %scaled
}
"""


def compared(recorded: str | None, op_type: str = "aten.add.Tensor", text: str = CALLS) -> OpCompatibility:
    return compare_op(op_type, recorded, calls_by_op(parse_ir(text))[op_type])


@pytest.mark.smoke
def test_an_op_of_the_same_schema_is_unchanged() -> None:
    op = compared("aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor")

    assert (op.verdict, op.changes) == (OK, ())


@each_row("recorded, verdict, kind, text", [
    ("(Tensor self, Tensor other, *, Scalar alpha=2) -> Tensor",
        MIGRATABLE, "changed default", "'alpha' had the default 2, and has 1"),
    ("(Tensor self, Tensor other, *, Scalar alpha) -> Tensor", OK, None, None),
    ("(Tensor self, Tensor other) -> Tensor",
        FINE, "new argument", "'alpha' is new, with the default 1: the graph means what it did if"),
    ("(Tensor self, *, Scalar alpha=1) -> Tensor",
        BROKEN, "new argument", "'other' is new, has no default, and no call states it"),
    ("(Tensor self, Tensor other, *, Scalar alpha=1, int k=2) -> Tensor",
        MIGRATABLE, "removed argument", "'k' is gone, whose default was 2"),
    ("(Tensor self, Tensor other, Tensor third, *, Scalar alpha=1) -> Tensor",
        BROKEN, "removed argument", "'third' is gone, which every call states"),
    ("(Tensor self, Tensor other, *, Scalar beta=1) -> Tensor",
        MIGRATABLE, "renamed argument", "'beta' is gone; 'alpha' has its position, type and default"),
    ("(Tensor self, Tensor other, *, Scalar beta=1, int k=2) -> Tensor",
        MIGRATABLE, "removed argument", "'beta' is gone, whose default was 1"),
    ("(Tensor self, Tensor? other, *, Scalar alpha=1) -> Tensor",
        BROKEN, "changed type", "'other' was of type Optional[Tensor], and is of Tensor"),
    ("(Tensor self, Tensor other, *, Scalar alpha=1) -> (Tensor, Tensor)",
        BROKEN, "changed results", "it returned (Tensor, Tensor), and returns (Tensor)"),
    ("(Tensor(a) self, Tensor other, *, Scalar alpha=1) -> Tensor(a)",
        BROKEN, "changed results", "its results share memory with other arguments"),
    ("(Tensor(a!) self, Tensor other, *, Scalar alpha=1) -> Tensor",
        BROKEN, "changed type", "'self' was written to, and is not"),
    ("(Tensor self, Future( other) -> Tensor",
        BROKEN, "unreadable schema", "the recorded schema cannot be read: 'aten::add.Tensor(Tensor"),
])  # fmt: skip
def test_a_change_of_a_schema_is_judged_by_the_calls(
    recorded: str, verdict: Verdict, kind: str | None, text: str | None
) -> None:
    op = compared(f"aten::add.Tensor{recorded}")

    assert op.verdict is verdict
    assert kind is None or True in [text in change.text for change in op.changes if change.kind == kind]


def test_a_changed_default_does_not_matter_where_every_call_states_the_argument() -> None:
    text = CALLS.replace("other=%y)\n", "other=%y) {alpha=3}\n")

    op = compared("aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=2) -> Tensor", text=text)

    assert op.verdict is FINE
    assert op.changes[0].text.endswith("every call states it")


def test_a_changed_default_names_the_nodes_that_leave_the_argument_out() -> None:
    op = compared("aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=2) -> Tensor")

    assert op.changes[0].nodes == ("plain",)
    assert "writes alpha=2 where it is left out" in op.changes[0].fix


@each_row("stated, verdict", [(2, MIGRATABLE), (3, BROKEN)])
def test_an_argument_that_is_gone_can_be_left_out_only_where_it_had_its_default(
    stated: int, verdict: Verdict
) -> None:
    graph = parse_ir(CALLS)
    for node in graph.nodes:
        graph.set_attrs(node, {"k": stated})

    recorded = "aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1, int k=2) -> Tensor"

    assert compare_op("aten.add.Tensor", recorded, graph.nodes).verdict is verdict


def test_a_default_that_a_schema_encodes_as_a_number_cannot_be_written() -> None:
    text = "graph G {\n input %x: f32[2]\n\n %s: f32[] = aten.sum.default(self=%x)\n\n return %s\n}\n"

    op = compared("aten::sum(Tensor self, *, ScalarType? dtype=7) -> Tensor", "aten.sum.default", text)

    assert op.verdict is BROKEN
    assert "'dtype' had the default 7, and has None" in op.changes[0].text


def test_a_list_of_another_length_is_another_type() -> None:
    text = CALLS.replace("aten.add.Tensor(self=%x, other=%y)", "aten.sum.dim_IntList(self=%x) {dim=[0]}")
    arguments = "Tensor self, int[3]? dim, bool keepdim=False, *, ScalarType? dtype=None"
    recorded = f"aten::sum.dim_IntList({arguments}) -> Tensor"

    op = compared(recorded, "aten.sum.dim_IntList", text)

    assert "'dim' was a list of length 3, and is of length 1" in op.changes[0].text


def test_tensors_without_a_record_are_bound_in_order() -> None:
    graph = parse_ir(CALLS)
    loose = parse_ir("graph G {\n input %x: f32[2]\n\n return %x\n}\n")
    x = loose.inputs[0]
    loose.insert("aten.add.Tensor", [x, x], types=x.type)
    recorded = "aten::add.Tensor(Tensor other, Tensor self, *, Scalar alpha=1) -> Tensor"

    by_name = compare_op("aten.add.Tensor", recorded, graph.nodes)
    by_order = compare_op("aten.add.Tensor", recorded, loose.nodes)

    assert by_name.verdict is OK
    assert "its tensors were other, self, in this order" in by_order.changes[0].text


def test_an_op_whose_schema_the_file_lacks_is_said_to_be_unchecked() -> None:
    op = compared(None)

    assert op.verdict is FINE
    assert "the file records no schema" in op.changes[0].text


@each_row("op_type, kind, text, fix", [
    ("aten.add.Gone", "removed overload", "there is no overload 'Gone' of aten.add here",
        "aten.add.Tensor, which accepts the same arguments"),
    ("aten.cat.Gone", "removed overload", "there is no overload 'Gone' of aten.cat here",
        "none of aten.cat.default, "),
    ("aten.vanished.default", "removed op", "the namespace 'aten' has no op 'vanished' here",
        "use the PyTorch that the file was made with, or export the model again, without this op"),
    ("prims.vanished.default", "removed op", "has no op 'vanished' here",
        "use the version of the library of 'prims' that the file was made with"),
    ("nobody.add.default", "unknown namespace", "nothing here registers the namespace 'nobody'",
        "import the Python package that registers 'nobody', or install its plugin"),
    ("import_module.add.default", "unknown namespace", "nothing here registers the namespace", "import the"),
])  # fmt: skip
def test_an_op_that_is_not_here_is_explained(op_type: str, kind: str, text: str, fix: str) -> None:
    op = compared(None, op_type, CALLS.replace("aten.add.Tensor", op_type))

    (change,) = op.changes
    assert (op.verdict, change.kind, change.nodes) == (BROKEN, kind, ("plain", "scaled"))
    assert text in change.text
    assert fix in change.fix


def test_a_namespace_of_ours_names_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    import npu_ir.plugins.distributions as distributions
    import npu_ir.serial.compatibility.absent_ops as absent_ops

    monkeypatch.setattr(absent_ops, "has_namespace", lambda _: False)
    monkeypatch.setattr(distributions, "installed_version", lambda _: None)

    op = compared(None, "npu.vanished.default", CALLS.replace("aten.add.Tensor", "npu.vanished.default"))

    assert op.changes[0].fix.endswith("is not installed: python -m pip install npu-passes")


def test_functions_of_numbers_and_of_regions_have_no_schema_to_compare() -> None:
    text = "graph G {\n input %n: int\n\n %m: int = operator.add(a=%n, b=%n)\n\n return %m\n}\n"

    assert compared(None, "operator.add", text).verdict is OK
