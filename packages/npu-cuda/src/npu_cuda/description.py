"""Programs and graphs of the native part as text, JSON and drawings in the language of Graphviz.

The native part gives nested dicts; nothing else here knows of it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from typing import Any

from npu_cuda.errors import InvalidArgumentError

Facts = dict[str, Any]


def format_program(facts: Facts, format: str) -> str:
    """Return a program as "text", "json" or "dot".

    Raises:
        InvalidArgumentError: There is no such format.
    """
    if format not in FORMATS:
        raise InvalidArgumentError(
            f"there is no format {format!r} of programs: there are {', '.join(FORMATS)}"
        )
    return FORMATS[format](facts | _totals(facts))


def _totals(facts: Facts) -> dict[str, Any]:
    """Return what a run moves and computes, and the bytes of temporaries as if none shared memory."""
    slots, ops = facts["slots"], facts["ops"]
    workspace = sum(op["workspace_bytes"] for op in ops)
    temporaries = [s for s in slots if _kind(s) == "temporary" and s["first_op"] is not None]
    return {
        "temporary_bytes": workspace + sum(slot["bytes"] for slot in temporaries),
        "workspace_bytes": workspace,
        "bytes": sum((op["bytes"] for op in ops), 0.0),
        "flops": sum((op["flops"] for op in ops), 0.0),
    }


def _text(facts: Facts) -> str:
    slots, ops = facts["slots"], facts["ops"]
    head = f"program on {facts['device']}: {len(slots)} slots, {len(ops)} ops"
    if facts["is_final"]:
        head += (
            f", {_number(facts['bytes'])} bytes and {_number(facts['flops'])} flops per run\n"
            f"arena: {facts['arena_bytes']} bytes for {facts['temporary_bytes']} bytes of temporaries, "
            f"{facts['workspace_bytes']} of them workspace"
        )
    else:
        head += ", not final"
    lines = [head]
    for index, slot in enumerate(slots):
        name = f" '{slot['name']}'" if slot["name"] else ""
        lines.append(f"slot {index}{name}: {_kind(slot)} {slot['tensor']}, {_place(slot)}")
    for index, op in enumerate(ops):
        lines.append(f"op {index}: {_op_text(op)}")
        lines += [f"  not {refusal['kernel_id']}: {refusal['reason']}" for refusal in op["refusals"]]
    return "\n".join(lines) + "\n"


def _kind(slot: Facts) -> str:
    if slot["base"] is not None:
        return "view"
    return "external" if slot["is_external"] else "temporary"


def _place(slot: Facts) -> str:
    if slot["base"] is not None:
        return f"of slot {slot['base']} from byte {slot['base_offset']} on"
    if slot["is_external"]:
        return f"alignment {slot['alignment']}, {'bound' if slot['is_bound'] else 'not bound'}"
    if slot["first_op"] is None:
        return "not used"
    ops = f"ops {slot['first_op']} to {slot['last_op']}"
    return ops if slot["arena_offset"] is None else f"at {slot['arena_offset']}, {ops}"


def _op_text(op: Facts) -> str:
    inputs, outputs = (", ".join(map(str, op[side])) for side in ("inputs", "outputs"))
    workspace = f", workspace of {op['workspace_bytes']} bytes at {op['workspace_offset']}"
    return (
        f"{op['op']}({inputs}) -> ({outputs}) by {_kernel(op)}{', pinned' if op['is_pinned'] else ''}"
        f"{workspace if op['workspace_bytes'] else ''}, "
        f"{_number(op['bytes'])} bytes, {_number(op['flops'])} flops"
    )


def _json(facts: Facts) -> str:
    order = ("device", "is_final", "arena_bytes", "temporary_bytes", "workspace_bytes", "bytes", "flops")
    slots = [{key: value for key, value in slot.items() if key != "tensor"} for slot in facts["slots"]]
    ops = [
        op | {"bytes": _json_number(op["bytes"]), "flops": _json_number(op["flops"])} for op in facts["ops"]
    ]
    whole = {key: facts[key] for key in order}
    whole["bytes"], whole["flops"] = _json_number(whole["bytes"]), _json_number(whole["flops"])
    return json.dumps({**whole, "slots": slots, "ops": ops}, ensure_ascii=False) + "\n"


def _dot(facts: Facts) -> str:
    lines = ["digraph program {"]
    for index, slot in enumerate(facts["slots"]):
        shape = "box" if slot["is_external"] else "ellipse"
        label = f"{index} {_escape(slot['name'])}\\n{_escape(slot['tensor'])}"
        lines.append(f' s{index} [shape={shape}, label="{label}"];')
        if slot["base"] is not None:
            lines.append(f" s{slot['base']} -> s{index} [style=dashed];")
    for index, op in enumerate(facts["ops"]):
        label = f"{index} {_escape(op['op'])}\\n{_escape(_kernel(op))}"
        lines.append(f' o{index} [shape=component, label="{label}"];')
        lines += [f" s{slot} -> o{index};" for slot in op["inputs"]]
        lines += [f" o{index} -> s{slot};" for slot in op["outputs"]]
    return "\n".join([*lines, "}"]) + "\n"


def draw_graph(nodes: Sequence[Facts]) -> str:
    """Return the nodes of a graph of launches in the language of Graphviz."""
    lines = ["digraph graph_of_launches {", "  node [shape=box];"]
    for index, node in enumerate(nodes):
        label = f"{index} {_escape(node['op'])}\\n{_escape(node['kernel_id'])}"
        lines.append(f'  n{index} [label="{label}"];')
        lines += [f"  n{before} -> n{index};" for before in node["after"]]
    return "\n".join([*lines, "}"]) + "\n"


def _kernel(op: Facts) -> str:
    return op["kernel_id"] or "a kernel to be chosen"


def _number(value: float) -> str:
    return f"{value:.15g}"


def _json_number(value: float) -> float | None:
    """Return an int where the value is one, and None where JSON has no number for it."""
    if not math.isfinite(value):
        return None
    return int(value) if value.is_integer() else value


def _escape(text: str) -> str:
    """Return text for the inside of double quotes in DOT."""
    return text.replace("\\", "\\\\").replace('"', '\\"')


FORMATS: dict[str, Callable[[Facts], str]] = {"text": _text, "json": _json, "dot": _dot}
