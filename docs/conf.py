"""How Sphinx builds the documentation; `scripts/docs` calls it, with warnings as errors."""

from __future__ import annotations

import importlib.metadata

project = "lmdb-packer"
author = "The lmdb-packer authors"
copyright = author
release = importlib.metadata.version(project)
version = release

extensions = [
    "myst_parser",  # Pages are Markdown, which reads well in the repository too.
    "sphinx.ext.autodoc",  # The Python reference comes from docstrings,
    "sphinx.ext.napoleon",  # which are in Google's style.
    "sphinx_copybutton",
]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]
default_role = "code"  # Docstrings mark code as Markdown does, with single backticks.
suppress_warnings = ["ref.python"]  # `bytes` in a signature is also an attribute of two reports.

myst_enable_extensions = ["colon_fence", "fieldlist"]
myst_heading_anchors = 3

autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True}
autodoc_preserve_defaults = True
python_maximum_signature_line_length = 88
napoleon_google_docstring = True
napoleon_numpy_docstring = False

copybutton_prompt_text = "$ "

html_theme = "furo"
html_static_path = ["style"]
html_css_files = ["site.css"]
html_title = f"{project} {release}"
html_copy_source = False
html_show_sourcelink = False
html_show_copyright = False
html_theme_options = {"navigation_with_keys": True}
