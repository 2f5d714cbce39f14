"""Reports on graph files of another PyTorch, and their migration."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import npu_ir
from npu_ir import SerializationError, check_compatibility, execute_ir, load_ir, migrate_ir, save_ir

ADD = "aten.add.Tensor"


class Net(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> Any:
        return torch.cond(x.sum() > 0, lambda x: torch.add(x, x), lambda x: x.neg(), (torch.add(x, 1.0),))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    save_ir(npu_ir.extract_ir(Net(), (torch.ones(2),)), tmp_path / "net.json")
    return tmp_path / "net.json"


def with_schema(path: Path, op_type: str, schema: str) -> None:
    document = json.loads(path.read_text())
    document["schemas"][op_type] = schema
    document["torch"] = "2.1.0"
    path.write_text(json.dumps(document))


@pytest.mark.smoke
def test_a_file_of_this_pytorch_is_compatible(path: Path) -> None:
    report = check_compatibility(path)

    assert report.is_compatible
    assert {op.verdict.value for op in report.ops} == {"unchanged"}
    assert migrate_ir(path) == load_ir(path)


def test_an_old_default_is_written_into_calls_in_regions_too(path: Path) -> None:
    with_schema(path, ADD, "aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=3) -> Tensor")

    with pytest.raises(SerializationError, match="has another schema.*\n.*\n  fix: npu check-compat"):
        load_ir(path)
    graph = migrate_ir(path)

    adds = [node for part in graph.graphs() for node in part.nodes if node.op_type == ADD]
    assert [node.attrs["alpha"] for node in adds] == [3] * len(adds)
    assert torch.equal(execute_ir(graph, (torch.ones(2),)), torch.full((2,), 16.0))


def test_a_migrated_graph_records_the_present_schemas(path: Path) -> None:
    with_schema(path, ADD, "aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=3) -> Tensor")

    save_ir(migrate_ir(path), path)

    assert check_compatibility(path).is_compatible
    assert "alpha=1" in json.loads(path.read_text())["schemas"][ADD]


def edit_calls(graph: dict[str, Any], edit: Callable[[dict[str, Any]], None]) -> None:
    for row in graph["nodes"]:
        if row["op"] == ADD:
            edit(row)
        for region in row.get("regions", {}).values():
            edit_calls(region, edit)


def with_calls(path: Path, edit: Callable[[dict[str, Any]], None]) -> None:
    document = json.loads(path.read_text())
    edit_calls(document, edit)
    path.write_text(json.dumps(document))


def rename_other(row: dict[str, Any]) -> None:
    row["operands"] = ["second" if operand == "other" else operand for operand in row["operands"]]
    row["attrs"] = {"second" if name == "other" else name: item for name, item in row["attrs"].items()}


def test_a_renamed_argument_gets_its_new_name(path: Path) -> None:
    with_calls(path, rename_other)
    with_schema(path, ADD, "aten::add.Tensor(Tensor self, Tensor second, *, Scalar alpha=1) -> Tensor")

    report = check_compatibility(path)
    graph = migrate_ir(path)

    assert "'second' is gone; 'other' has its position, type and default" in str(report)
    assert torch.equal(execute_ir(graph, (torch.ones(2),)), torch.full((2,), 4.0))


def test_an_argument_that_is_gone_is_left_out_where_it_had_its_default(path: Path) -> None:
    with_calls(path, lambda row: row["attrs"].update(k=2))
    schema = "aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1, int k=2) -> Tensor"
    with_schema(path, ADD, schema)

    graph = migrate_ir(path)

    adds = [node for part in graph.graphs() for node in part.nodes if node.op_type == ADD]
    assert not any("k" in node.attrs for node in adds)


def test_what_no_edit_makes_up_for_is_refused(path: Path) -> None:
    with_schema(path, ADD, "aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor[]")

    with pytest.raises(
        SerializationError, match=r"aten\.add\.Tensor cannot be migrated: it returned \(List\[Tensor\]\)"
    ):
        migrate_ir(path)


def test_the_report_is_text_and_json(path: Path) -> None:
    with_schema(path, ADD, "aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=3) -> Tensor")

    report = check_compatibility(path)
    data = json.loads(json.dumps(report.to_dict()))

    assert str(report).startswith("made with PyTorch 2.1.0, compared with PyTorch ")
    assert "1 can be migrated" in str(report)
    (changed,) = [op for op in data["ops"] if op["changes"]]
    assert (changed["op"], changed["verdict"]) == (ADD, "can be migrated")
    assert changed["changes"][0]["argument"] == "alpha"
    assert (data["compatible"], data["migratable"]) == (False, True)


def test_damaged_files_are_refused_as_by_load_ir(path: Path) -> None:
    path.write_text(path.read_text().replace('"schemas": {', '"schemas": {"x.y": 1,'))

    with pytest.raises(SerializationError, match=r"expected a string, found 1\n.*schemas\['x\.y'\]"):
        check_compatibility(path)
