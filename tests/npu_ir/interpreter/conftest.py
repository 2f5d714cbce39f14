"""What the tests of execution watch."""

from typing import Any

import pytest

from npu_ir.ops.execution import execute_node


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    names: list[str] = []

    def watched(node: Any, *given: Any) -> list[Any]:
        names.append(node.name)
        return execute_node(node, *given)

    monkeypatch.setattr("npu_ir.interpreter.run_nodes.execute_node", watched)
    return names
