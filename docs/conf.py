"""Settings of the documentation; `nox -s docs` builds it."""

from __future__ import annotations

from typing import Any

from pygments.lexers.special import TextLexer

import npu_ir
import npu_ir.plugins.backend

# Its annotations name the graph, which it imports for type checkers only; npu_cuda has one, too.
vars(npu_ir.plugins.backend)["Graph"] = npu_ir.Graph

project = "npu-ir"
release = npu_ir.__version__
language = "en"

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
]
exclude_patterns = ["_build"]

myst_enable_extensions = ["colon_fence", "deflist", "fieldlist"]
myst_heading_anchors = 3

autodoc_class_signature = "separated"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_default_options = {"members": True}
python_maximum_signature_line_length = 80
napoleon_numpy_docstring = False
napoleon_use_ivar = True

copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

html_theme = "furo"
html_title = f"npu-ir {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]


def keep_colon(*event: Any) -> None:
    """Keep napoleon from taking what stands before a colon in the docstring of a property for its type.

    A colon in front says that no type is given: all of ours are annotated.

    Args:
        event: What autodoc-process-docstring comes with: app, what, name, obj, options, lines.
    """
    _, what, *_, lines = event
    if what in ("property", "attribute", "data") and lines:
        lines[0] = f": {lines[0]}"


def setup(app: Any) -> None:
    """Run `keep_colon` before napoleon, which has the priority 500; show mermaid as text."""
    app.connect("autodoc-process-docstring", keep_colon, priority=400)
    app.add_lexer("mermaid", TextLexer)
