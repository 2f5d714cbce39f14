"""Every page of the site is in its navigation, and links between files lead somewhere."""

import re
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.support.places import ROOT
from tests.support.scripts import TOOLS, imported

DOCS = ROOT / "docs"
TOCTREE = re.compile(r"^```\{toctree\}\n(?P<lines>.*?)^```$", re.MULTILINE | re.DOTALL)
CAPTION = re.compile(r"^:caption: (.+)$", re.MULTILINE)
LINK = re.compile(r'\]\(([^)\s]+)\)|(?:src|srcset)="([^"]+)"')
CODE = re.compile(r"^```.*?^```$|`[^`\n]+`", re.MULTILINE | re.DOTALL)


def entries(page: Path) -> dict[str, list[str]]:
    """Return what the toctrees of a page list, by caption."""
    found = {}
    for tree in TOCTREE.finditer(page.read_text(encoding="utf-8")):
        caption = CAPTION.search(tree["lines"])
        names = [line for line in tree["lines"].splitlines() if line and not line.startswith(":")]
        found[caption[1] if caption else ""] = [name.partition("<")[2].rstrip(">") or name for name in names]
    return found


def listed() -> list[str]:
    return [name for names in entries(DOCS / "index.md").values() for name in names]


def test_every_page_is_in_the_navigation_once() -> None:
    pages = {path.relative_to(DOCS).with_suffix("").as_posix() for path in DOCS.rglob("*.md")}
    decisions = {page for page in pages if page.startswith("adr/0")}  # adr/index lists them by a pattern

    names = listed()

    assert set(names) == pages - decisions - {"index"}, "list the page in a toctree of docs/index.md"
    assert len(names) == len(set(names))
    assert entries(DOCS / "adr" / "index.md") == {"": ["0*"]}


def test_every_tutorial_is_on_the_first_page_and_in_the_readme() -> None:
    tutorials = entries(DOCS / "index.md")["Tutorials"]
    landing, readme = ((ROOT / name).read_text(encoding="utf-8") for name in ("docs/index.md", "README.md"))

    assert len(tutorials) == 8
    for name in tutorials:
        assert f"({name}.md)" in landing
        assert f"(docs/{name}.md)" in readme


def test_capture_is_not_about_cuda_graphs() -> None:
    for name in listed():
        title = (DOCS / f"{name}.md").read_text(encoding="utf-8").partition("# ")[2].partition("\n")[0]

        assert not ("CUDA graph" in title and "captur" in title.lower()), name
    assert "concepts/cuda-graphs" in listed()
    assert "concepts/capture" not in listed()


def test_links_between_files_lead_to_files() -> None:
    pages = [
        *DOCS.rglob("*.md"),
        *(ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md")),
    ]
    broken = [
        f"{page.relative_to(ROOT)}: {target}"
        for page in pages
        for link in LINK.findall(CODE.sub("", page.read_text(encoding="utf-8")))
        if not urlsplit(target := "".join(link)).scheme and not target.startswith("#")
        if not (page.parent / target.partition("#")[0]).exists()
    ]

    assert broken == []


def test_the_live_page_has_what_the_first_page_links_to() -> None:
    pytest.importorskip("transformers", reason="it has GPT-2")
    site_pictures = imported("site_pictures", TOOLS)
    landing = (DOCS / "index.md").read_text(encoding="utf-8")

    page = site_pictures.gpt2_page(n_layer=2, n_embd=64, n_head=4)

    assert site_pictures.HTML in page, "pictures are taken in two themes"
    assert f"gpt2.html#{site_pictures.SELECTED}\n" in landing
    assert '"name":"layer_norm_1"' in page
    assert '"overlays":[{"name":"time"' in page
