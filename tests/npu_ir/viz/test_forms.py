"""Forms of drawings: well-formed whatever the names, laid out, and written to files."""

import itertools
import re
import stat
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from npu_ir import Graph, Provenance
from npu_ir.errors import VisualizationError
from npu_ir.viz import draw, to_dot, to_mermaid, to_svg
from npu_ir.viz.columns import FRAME_PAD
from npu_ir.viz.layers import Spot
from npu_ir.viz.layout import Layout, compute_layout, frame_rows
from tests.support.drawn_graphs import F32, FORMS, blocks, chain
from tests.support.random_graphs import graphs
from tests.support.rows import each_row
from tests.support.small_programs import program
from tests.support.tiers import examples

HOSTILE = [
    "<built-in function getitem>", "a\"b'c", "x]y[z", "é 漢字 😀", "a&b<c>&amp;", "`tick`",
    "**bold** _it_ __init__", "1. list", "- dash", "%%{init: {}}%%", "end", "back\\slash\\n",
    "{curly} (round) |pipe|", "new\nline\x00\u202e\ud800", "#quot; #35;", "fa:fa-car http://x.y", "$$x^2$$",
    "a;b --> n1", "</text></svg><script>alert(1)</script>", "]]>", "tail\\",
]  # fmt: skip


def named(name: str) -> Graph:
    """Return a graph in which everything is called ``name``."""
    graph = Graph(name)
    x, weight = graph.add_input(name, F32), graph.add_parameter(name, F32)
    for _ in range(2):
        x = graph.insert(name, [x, weight], types=F32, name=name, provenance=Provenance(name)).outputs[0]
    graph.set_outputs({name: x})
    graph.set_update(weight, x)
    return graph


def printed(name: str) -> str:
    return "".join(char if char.isprintable() else "\ufffd" for char in name)


def unescaped(label: str) -> str:
    """Return what mermaid shows of a label in quotes: it reads ``#60;`` as ``<``."""
    return re.sub(r"#(\d+);", lambda match: chr(int(match[1])), label).replace("\u200b", "")


MERMAID_LINES = [
    r'[inwou]\d+[(\[{/]+"[^"`\\<>#]*"[)\]}/]+:::[a-z]+',
    r'subgraph f\d+\["[^"`\\<>#]*"\]',
    r"end",
    r'[inwou]\d+ --> (\|"[^"`\\<>#]*"\| )?[nou]\d+',
    r"classDef [a-z]+ [-a-z]+:[#a-z0-9]+(,[-a-z]+:[#a-z0-9]+)*",
    r"class f\d+(,f\d+)* frame",
    r"linkStyle default stroke:#[0-9a-f]{6}",
]


def check_mermaid(text: str) -> None:
    first, title, second, kind, *lines = text.splitlines()
    assert (first, second, kind) == ("---", "---", "flowchart TD")
    assert re.fullmatch(r'title: "([^"\\<>&]|\\["\\])*"', title)
    for line in lines:
        plain = re.sub(r"#\d+;|<br>", "", line.strip())
        assert any(re.fullmatch(wanted, plain) for wanted in MERMAID_LINES), line


@each_row("name", HOSTILE)
@each_row("weights", [False, True])
def test_mermaid_shows_every_name_and_runs_none(name: str, weights: bool) -> None:
    text = to_mermaid(named(name), weights=weights)

    check_mermaid(text)
    labels = [
        unescaped(label).split("<br>")[0]
        for label in re.findall(r'^ *[in]\d+\W+"(.*)"\W+:::', text, re.MULTILINE)
    ]
    assert labels == [printed(name)[:44]] * 3


@each_row("text", ["1. list", "12) list", "- list", "+ list", "fa:fa-car", "$$x$$", r"\n"])
def test_mermaid_labels_leave_nothing_that_mermaid_would_interpret(text: str) -> None:
    label = re.search(r'n0\("(.*?)<br>', to_mermaid(named(text)))

    assert not re.search(r"^\d*[-+.)] |fa:fa|\$|\\", label[1])
    assert not re.search(r"fa:fa|\$\$|\\n", re.sub(r"#(\d+);", lambda match: chr(int(match[1])), label[1]))


@each_row("name", HOSTILE)
@each_row("weights", [False, True])
def test_svg_shows_every_name(name: str, weights: bool) -> None:
    root = ElementTree.fromstring(to_svg(named(name), weights=weights))

    shown = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert shown.count(printed(name)) >= 4
    tags = {element.tag.rpartition("}")[2] for element in root.iter()}
    assert tags <= {"svg", "g", "rect", "path", "polygon", "text", "title"}


@each_row("name", HOSTILE)
@each_row("weights", [False, True])
def test_dot_shows_every_name_in_a_well_formed_label(name: str, weights: bool) -> None:
    text = to_dot(named(name), weights=weights)

    lines = re.findall(r"^  *([in]\d+) \[label=<(.*)>, shape=", text, re.MULTILINE)
    labels = [ElementTree.fromstring(f"<LABEL>{label}</LABEL>") for _, label in lines]
    assert [label.findtext("B") for label in labels] == [printed(name)] * 3
    (frame,) = re.findall(r'^ *label="(.*)"; labeljust', text, re.MULTILINE)
    assert re.sub(r"\\(.)", r"\1", frame) == printed(name)
    check_dot(text)


def test_dot_leaves_no_element_empty() -> None:
    graph = Graph("")
    graph.set_outputs(graph.insert("", [graph.add_input("", F32)], types=F32).outputs[0])

    assert "><" not in re.sub(r"</?(TABLE|TR|TD)[^>]*>|<BR/>", " ", to_dot(graph))


def check_dot(text: str) -> None:
    """Check that quotes, HTML and brackets of ``text`` close in the order they open."""
    bare = re.sub(r'"([^"\\]|\\.)*"|<(?:[^<>]|<[^<>]*>)*>', "S", text)
    assert not set(bare) - set(
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_ ,.;=[]{}->\n"
    ), bare
    assert bare.count("{") == bare.count("}") == 1 + bare.count("subgraph")
    assert bare.count("[") == bare.count("]")


@examples(20)
@given(graph=graphs(max_nodes=12), max_nodes=st.integers(2, 12), weights=st.booleans())
def test_any_graph_can_be_drawn_in_any_form(graph: Graph, max_nodes: int, weights: bool) -> None:
    check_mermaid(to_mermaid(graph, max_nodes=max_nodes, weights=weights))
    check_dot(to_dot(graph, max_nodes=max_nodes, weights=weights))
    ElementTree.fromstring(to_svg(graph, max_nodes=max_nodes, weights=weights))


@each_row("form", FORMS)
def test_equal_graphs_give_equal_drawings_and_stay_as_they_are(form: Callable[..., str]) -> None:
    graph, wrong = blocks(5), chain(["a", "b"])
    first, second = wrong.nodes
    wrong.set_input(first, 0, second.outputs[0])
    before = str(graph)

    assert form(graph, max_nodes=4, weights=True) == form(blocks(5), max_nodes=4, weights=True)
    assert str(graph) == before
    assert all(name in form(wrong) for name in ("op0", "op1"))  # though they stand in the wrong order


@st.composite
def layouts(draw: st.DrawFn) -> tuple[dict[str, Spot], list[tuple[str, str]]]:
    count = draw(st.integers(1, 20))
    sizes = st.integers(20, 200)
    frames = st.sampled_from([(), ("f",), ("f", "g"), ("f", "g", "i"), ("h",)])
    steps = st.none() | st.integers(0, count)
    shapes = {f"b{i}": Spot(draw(sizes), draw(sizes), draw(frames), draw(steps)) for i in range(count)}
    pairs = st.tuples(st.integers(0, count - 1), st.integers(0, count - 1)).filter(
        lambda pair: pair[0] < pair[1]
    )
    found = draw(st.lists(pairs, unique=True, max_size=40)) if count > 1 else []
    return shapes, [(f"b{source}", f"b{target}") for source, target in found]


def overlapping(layout: Layout) -> Iterator[tuple[object, object]]:
    for one, other in itertools.combinations(layout.spots.values(), 2):
        apart = abs(one.x - other.x) >= (one.width + other.width) / 2
        if not apart and one.y < other.y + other.height and other.y < one.y + one.height:
            yield one, other


@given(graph=layouts())
def test_boxes_do_not_overlap_edges_lead_down_and_frames_hold_their_boxes_and_no_others(
    graph: tuple[dict[str, Spot], list[tuple[str, str]]],
) -> None:
    layout = compute_layout(*graph)

    assert not list(overlapping(layout))
    assert min(spot.x - spot.width / 2 for spot in layout.spots.values()) >= -1e-6
    assert max(spot.y + spot.height for spot in layout.spots.values()) <= layout.height
    for (source, target), route in zip(graph[1], layout.routes, strict=True):
        assert (route[0], route[-1]) == (layout.spots[source], layout.spots[target])
        assert all(lower.layer == upper.layer + 1 for upper, lower in itertools.pairwise(route))
        assert all(upper.row_bottom < lower.row_top for upper, lower in itertools.pairwise(route))
    for frame, rows in frame_rows(layout.layers).items():
        first = min(spot.layer for spot in layout.spots.values() if frame in spot.frames)
        assert first == 0 or rows[0].top > max(spot.row_bottom for spot in layout.layers[first - 1])
        for id, spot in layout.spots.items():
            left, right = spot.x - spot.width / 2, spot.x + spot.width / 2
            around = [row for row in rows if row.top < spot.y + spot.height and spot.y < row.bottom]
            inside = any(row.left < right and left < row.right for row in around)
            assert inside == (frame in spot.frames), (frame, id)
            if inside:
                assert all(
                    row.left + FRAME_PAD <= left + 1e-6 and right <= row.right - FRAME_PAD + 1e-6
                    for row in around
                )


def test_a_chain_is_drawn_as_one_straight_column_and_crossings_are_avoided() -> None:
    shapes = {f"b{index}": Spot(50 + 10 * index, 40, (), index) for index in range(6)}
    skips = [("b0", "b3"), ("b3", "b5")]
    pairs = [("a", "C"), ("b", "B"), ("c", "A")]

    layout = compute_layout(shapes, [*itertools.pairwise(shapes), *skips])
    crossed = compute_layout({name: Spot(40, 40) for name in "abcABC"}, pairs).spots

    assert len({spot.x for spot in layout.spots.values()}) == 1
    bends = [[spot.x for spot in route[1:-1]] for route in layout.routes[-2:]]
    assert all(len(set(xs)) == 1 for xs in bends)
    assert [crossed[source].x for source, _ in pairs] == [crossed[target].x for _, target in pairs]


def test_a_drawing_of_thousands_of_boxes_needs_no_deep_stack() -> None:
    assert to_svg(chain([""] * 3000), max_nodes=3000).count("<g>") == 3002


def curve_points(path: str) -> Iterator[tuple[float, float]]:
    """Yield points of a path of lines down and cubic curves, a tenth of each apart."""
    x = y = 0.0
    for command, text in re.findall(r"([MVC])([-\d. ]+)", path):
        numbers = [float(number) for number in text.split()]
        if command == "M":
            x, y = numbers
            continue
        end, bottom = numbers[-2:] if command == "C" else (x, numbers[0])
        first, second = (numbers[1], numbers[3]) if command == "C" else (y, bottom)
        for t in (step / 40 for step in range(41)):
            u = 1 - t
            across = x * (u**3 + 3 * u * u * t) + end * (3 * u * t * t + t**3)
            yield across, y * u**3 + 3 * first * u * u * t + 3 * second * u * t * t + bottom * t**3
        x, y = end, bottom


@each_row(
    "graph",
    {
        "skips": blocks(3),
        "fan": program("""input %x: f32[2, 16, 64]
            %a: f32[2, 16, 64] = norm(%x)
            %q: f32[2, 16, 64] = project_with_q(%a)
            %k: f32[2, 16, 64] = project_with_k(%a)
            %v: f32[2, 16, 64] = project_with_v(%a)
            %y: f32[2] = attention(%q, %k, %v, %x)
            return %y"""),
    },
)
def test_no_line_runs_through_a_label(graph: Graph) -> None:
    text = to_svg(graph)

    points = [
        point for path in re.findall(r'<path d="([^"]*)" fill="none"', text) for point in curve_points(path)
    ]
    labels = re.findall(r'<text x="([\d.]+)" y="([\d.]+)"[^>]*paint-order="stroke">([^<]*f32)<', text)
    assert len(labels) >= 2
    for left, base, label in labels:
        x, y, width = float(left), float(base), 5.5 * len(label)
        crossing = [point for point in points if x < point[0] < x + width and y - 8 < point[1] < y]
        assert crossing == [], label


@pytest.fixture
def graphviz(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return what replaces graphviz by a Python script, the only program on the path."""
    folder = tmp_path / "bin"
    folder.mkdir()

    def install(script: str, interpreter: str = sys.executable) -> None:
        program = folder / "dot"
        program.write_text(f"#!{interpreter}\nimport sys\n{script}\n")
        program.chmod(program.stat().st_mode | stat.S_IEXEC)

    monkeypatch.setenv("PATH", str(folder))
    return install


@pytest.mark.usefixtures("graphviz")
@each_row(
    "name, form",
    [("g.mmd", to_mermaid), ("g.dot", to_dot), ("g.gv", to_dot), ("g.svg", to_svg), ("G.SVG", to_svg)],
)
def test_text_forms_are_written_without_graphviz(name: str, form: Callable[..., str], tmp_path: Path) -> None:
    graph = blocks(9)

    written = draw(graph, tmp_path / name, max_nodes=6, weights=True)

    assert written == tmp_path / name
    assert written.read_text(encoding="utf-8") == form(graph, max_nodes=6, weights=True)


@pytest.mark.skipif(sys.platform == "win32", reason="a script is no program there")
@each_row("ending", ["png", "pdf"])
def test_graphviz_draws_where_it_is_installed(
    ending: str, graphviz: Callable[[str], None], tmp_path: Path
) -> None:
    graphviz("sys.stdout.write(sys.argv[1] + sys.stdin.read())")
    graph = blocks(2)

    draw(graph, str(tmp_path / f"g.{ending}"))

    assert (tmp_path / f"g.{ending}").read_text(encoding="utf-8") == f"-T{ending}" + to_dot(graph)


def test_an_svg_is_the_same_where_graphviz_is_installed(
    graphviz: Callable[[str], None], tmp_path: Path
) -> None:
    graphviz("sys.exit('not asked')")
    graph = blocks(2)

    draw(graph, tmp_path / "g.svg")

    assert (tmp_path / "g.svg").read_text(encoding="utf-8") == to_svg(graph)


ENDING = r"no drawing is written to a file that ends in '.*'(.|\n)*use \.svg, \.png"


@each_row("name, message", [
    ("g.png", r"a \.png needs graphviz: (.|\n)*fix: install graphviz .* or write an \.svg"),
    ("g.pdf", r"a \.pdf needs graphviz: "),
    ("g", ENDING), ("g.jpg", ENDING), ("g.svg.gz", ENDING), (".svg", ENDING),
    ("missing/g.mmd", "the drawing cannot be written: No such file or directory"),
])  # fmt: skip
@pytest.mark.usefixtures("graphviz")
def test_a_drawing_that_cannot_be_written_is_an_error_with_the_fix(
    name: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(VisualizationError, match=message):
        draw(blocks(1), tmp_path / name)
    assert not [*tmp_path.iterdir()]


@pytest.mark.skipif(sys.platform == "win32", reason="a script is no program there")
@each_row("script, interpreter, message", [
    ("print('half a picture'); sys.exit('Format: \"png\" not recognized')", sys.executable,
        'graphviz failed: Format: "png" not recognized'),
    ("", "/no/such/interpreter", "graphviz cannot be run: No such file"),
])  # fmt: skip
def test_a_failure_of_graphviz_is_an_error_that_leaves_the_old_file(
    script: str, interpreter: str, message: str, graphviz: Callable[..., None], tmp_path: Path
) -> None:
    graphviz(script, interpreter)
    (tmp_path / "g.png").write_text("old")

    with pytest.raises(VisualizationError, match=message):
        draw(blocks(1), tmp_path / "g.png")

    assert [(item.name, item.read_text()) for item in tmp_path.iterdir()] == [("g.png", "old")]


def test_graphviz_that_takes_too_long_is_an_error(
    graphviz: Callable[[str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graphviz("")

    def never_ends(*args: object, timeout: float, **kwargs: object) -> None:
        raise subprocess.TimeoutExpired("dot", timeout)

    monkeypatch.setattr(subprocess, "run", never_ends)

    message = r"did not finish in 120 seconds(.|\n)*fix: use a smaller max_nodes"
    with pytest.raises(VisualizationError, match=message):
        draw(blocks(1), tmp_path / "g.png")
