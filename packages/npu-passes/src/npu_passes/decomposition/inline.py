"""Inlining of an op's expansion.

```python
expanded = expansion(node, graph.symbols)
with self.rewrite(graph, "core", node) as edit:
    inline(edit, node, expanded)
```
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from npu_ir import OpNode, Value
from npu_ir.ops.effects import is_view
from npu_passes.core.edit import Edit
from npu_passes.decomposition.expansion import Expansion
from npu_passes.decomposition.recorded_calls import RecordedCall, Ref
from npu_passes.rewriting.aliasing import is_visible_outside
from npu_passes.rewriting.value_replacement import convert_strides


def inline(edit: Edit, node: OpNode, found: Expansion) -> None:
    """Replace ``node`` by the calls of its expansion that its used outputs depend on."""
    added = [_add_constant(edit, data) for data in found.constants]
    values_before = (*node.inputs, *added)
    values: dict[int, Value] = dict(enumerate(values_before))
    wanted = [result for result, output in zip(found.results, node.outputs, strict=True) if output.uses]
    for step in _select_needed(found.calls, wanted):
        args, kwargs = _substitute_refs(step.args, values), _substitute_refs(dict(step.kwargs), values)
        outputs = edit.calls(step.op_type, *args, types=step.types, **kwargs)
        values.update(enumerate(outputs, start=step.first))
    for output, result in zip(node.outputs, found.results, strict=True):
        if output.uses:
            value = convert_strides(edit, values[result.index], output.type)
            if value in values_before and not is_view(node) and is_visible_outside(output):
                # The op returned a new tensor, which callers may write into: it must not alias an input.
                value = edit.call("aten.clone.default", value)
            edit.replace(output, value)
    edit.erase(node)


def _select_needed(steps: Sequence[RecordedCall], results: Sequence[Any]) -> list[RecordedCall]:
    """Return the calls that results depend on, and those without outputs, which are assertions."""
    wanted = {result.index for result in results if isinstance(result, Ref)}
    needed = []
    for step in reversed(steps):
        outputs = range(step.first, step.first + len(step.types))
        if not step.types or not wanted.isdisjoint(outputs):
            needed.append(step)
            wanted.update(step.reads)
    return needed[::-1]


def _substitute_refs(item: Any, values: Mapping[int, Value]) -> Any:
    if isinstance(item, Ref):
        return values[item.index]
    if isinstance(item, (list, tuple)):
        return [_substitute_refs(part, values) for part in item]
    if isinstance(item, dict):
        return {name: _substitute_refs(part, values) for name, part in item.items()}
    return item


def _add_constant(edit: Edit, data: torch.Tensor) -> Value:
    taken = edit.graph.constants
    target = next(name for number in range(len(taken) + 1) if (name := f"traced_{number}") not in taken)
    return edit.graph.add_constant(target, data)
