"""How the documentation is built: Sphinx, MyST, furo."""

import re

project = "tdfunc"
author = "the tdfunc authors"
copyright = "2026, the tdfunc authors"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.mathjax"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = "tdfunc"
autodoc_member_order = "bysource"
autodoc_typehints = "none"
autoclass_content = "class"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_custom_sections = ["Shapes", "Math"]
myst_heading_anchors = 3
nitpicky = False


def literal(app, what, name, obj, options, lines):
    """Read single backticks in docstrings as code, which is what they are for a reader of the source."""
    text = "\n".join(lines)
    lines[:] = re.sub(r"(:\w+:`[^`]*`|``[^`]*``)|`([^`]+)`", lambda m: m[1] or f"``{m[2]}``", text).split("\n")


def setup(app):
    app.connect("autodoc-process-docstring", literal, priority=400)  # before napoleon
