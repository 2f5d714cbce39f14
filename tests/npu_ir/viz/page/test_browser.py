"""Pages of graphs in a browser: what a click, a key and the address do. Skipped without Chromium."""

import html
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from npu_ir import Graph, diff_ir, to_html
from tests.support.drawn_graphs import F32, blocks

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
CHROMIUM = next(filter(None, map(shutil.which, NAMES)), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason=f"no Chromium here: none of {', '.join(NAMES)}")

# Functions for the scripts of tests: they act as a person does, by events at points of the screen.
ACTIONS = (Path(__file__).parent / "actions.js").read_text("utf-8")


def run_page(page: str, script: str, folder: Path, address: str = "") -> dict[str, Any]:
    """Return what a script noted in ``seen`` while it used a page in Chromium."""
    body = f"(async () => {{ await frame(); {script} }})().catch((error) => errors.push(error.stack))"
    noted = 'document.body.innerHTML = ""; document.body.dataset.seen = JSON.stringify({ ...seen, errors })'
    path = folder / "page.html"
    path.write_text(
        page.replace("</body>", f"<script>{ACTIONS} {body}.then(() => {{ {noted} }});</script></body>")
    )
    command = [str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--window-size=1200,900"]
    command += [f"--user-data-dir={folder / 'profile'}", "--virtual-time-budget=6000", "--dump-dom"]
    done = subprocess.run(
        [*command, path.as_uri() + address], capture_output=True, text=True, timeout=60, check=True
    )
    value = done.stdout.partition('data-seen="')[2].partition('"')[0]
    found: dict[str, Any] = json.loads(html.unescape(value))
    assert found.pop("errors") == []
    return found


def changed() -> Graph:
    """Return the graph of `blocks`, with another op in the second block."""
    graph = blocks(3)
    (node, *_) = [node for node in graph.nodes if node.provenance.module == "layers.1.up"]
    other = graph.insert(
        "other", node.inputs, types=node.outputs[0].type, before=node, provenance=node.provenance
    )
    graph.replace_all_uses(node.outputs[0], other.outputs[0])
    graph.erase(node)
    return graph


def test_modules_open_and_close_and_boxes_have_details(tmp_path: Path) -> None:
    seen = run_page(
        to_html(blocks(12)),
        """
        const repeat = page.views[0].model.items.find((item) => item.isRepeat);
        seen.first = names();
        await double(repeat);
        seen.unfolded = names().length;
        await double(itemOf("layers.3"));
        seen.opened = names().filter((name) => ["norm#3", "linear#3", "add#3"].includes(name));
        await click(itemOf("linear#3"));
        seen.details = text("details");
        seen.address = location.hash;
        await press("ArrowDown", page.views[0].canvas);
        seen.user = page.selected.name;
        await press("Escape", document.body);
        seen.closed = document.getElementById("details").hidden;
        await pressButton("do-close");
        seen.last = names();
        await pressButton("do-open");
        seen.all = names().length;
        """,
        tmp_path,
    )

    assert seen["first"] == ["x", "mask", "stem", "layers.0 … layers.11", "head", "output"]
    assert seen["unfolded"] == 18
    assert seen["opened"] == ["norm#3", "linear#3", "add#3"]
    assert all(
        word in seen["details"] for word in ("layers.3.up.weight", "layers.3", "f32[2, 3]", "USERS (1)")
    )
    assert seen["address"] == "#node=linear%233"
    assert (seen["user"], seen["closed"]) == ("add#3", True)
    assert seen["last"] == seen["first"]
    assert seen["all"] == 18 + 12 * 3


def test_search_finds_shows_and_selects(tmp_path: Path) -> None:
    seen = run_page(
        to_html(blocks(12)),
        """
        await press("/", document.body);
        const input = document.getElementById("search");
        seen.focus = document.activeElement === input;
        await type(input, "layers.7 norm");
        seen.found = [...document.querySelectorAll("#results li b")].map((row) => row.textContent);
        await press("Enter", input);
        seen.selected = page.selected.name;
        const { view, clientX, clientY } = point(page.selected);
        seen.inSight = document.elementFromPoint(clientX, clientY) === view.canvas;
        await type(input, "nothing like this");
        seen.none = text("results");
        """,
        tmp_path,
    )

    assert seen == {
        "focus": True, "found": ["norm#7"], "selected": "norm#7", "inSight": True, "none": "nothing found",
    }  # fmt: skip


def test_overlays_colour_boxes_and_the_address_names_a_node(tmp_path: Path) -> None:
    graph = blocks(2)
    steps = [
        {"name": node.name, "nodes": [node.name], "seconds": 1e-3 * (node.name == "head") + 1e-6,
         "backend": "aten", "kernel": "k", "bytes_read": 8, "bytes_written": 8}
        for node in graph.nodes
    ]  # fmt: skip

    seen = run_page(
        to_html(graph, overlays=[{"call_seconds": 1.0, "steps": steps}]),
        """
        seen.selected = page.selected.name;
        const [head, stem] = [itemOf("head"), itemOf("stem")];
        page.select(null);
        page.views[0].fit();
        await frame();
        seen.before = [colour(head) === colour(stem), text("legend")];
        const choice = document.getElementById("overlay");
        seen.choices = [...choice.options].map((option) => option.text);
        await type(choice, "time");
        seen.after = [colour(head) === colour(stem), text("legend")];
        const light = colour(head);
        await pressButton("do-theme");
        seen.dark = [colour(head) === light, document.documentElement.dataset.theme];
        """,
        tmp_path,
        "#node=norm%231",
    )

    assert seen["selected"] == "norm#1"
    assert seen["before"][0] is True
    assert "op" in seen["before"][1]
    assert seen["choices"] == ["kind of box", "time", "memory traffic", "size of results"]
    assert seen["after"][0] is False
    assert "1 ms" in seen["after"][1]
    assert seen["dark"] == [False, "dark"]


def test_both_graphs_of_a_difference_are_side_by_side(tmp_path: Path) -> None:
    seen = run_page(
        to_html(diff_ir(blocks(3), changed())),
        """
        const [before, after] = page.views;
        seen.heads = [...document.querySelectorAll(".pane h2")].map((head) => head.innerText.split("\\n")[0]);
        const node = after.model.boxes.find((item) => item.record.op === "other");
        page.go(node);
        await frame();
        seen.details = text("details");
        seen.partner = page.shownSelection(before).name;
        const { clientX, clientY } = point(page.shownSelection(before));
        seen.inSight = document.elementFromPoint(clientX, clientY) === before.canvas;
        seen.legend = text("legend");
        seen.group = statusOf(after.model.byName.get("layers.1"));
        """,
        tmp_path,
    )

    assert all(head.startswith(word) for head, word in zip(seen["heads"], ("before:", "after:"), strict=True))
    assert "changed" in seen["details"]
    assert (seen["partner"], seen["inSight"], seen["group"]) == ("linear#1", True, "changed")
    assert "unchanged" in seen["legend"]


def test_strange_names_are_shown_as_text_and_an_empty_graph_beside_them(tmp_path: Path) -> None:
    strange = Graph("<img src=x onerror=errors.push('run')>")
    x = strange.add_input("", F32)
    node = strange.insert("<b>op</b>", [x], {"text": "</script>"}, types=x.type, name="")
    strange.set_outputs(node.outputs[0])

    seen = run_page(
        to_html(diff_ir(Graph("empty"), strange)),
        """
        seen.title = text("title");
        const [empty, view] = page.views;
        seen.empty = [empty.shown.boxes.length, Number.isFinite(empty.shown.boxes[0].w)];
        await click(view.model.boxes[1]);
        seen.details = text("details");
        """,
        tmp_path,
    )

    assert seen["title"] == "empty → <img src=x onerror=errors.push('run')>"
    assert seen["empty"] == [1, True]
    assert "<b>op</b>" in seen["details"]
    assert "</script>" in seen["details"]
