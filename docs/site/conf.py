"""Configuration of Sphinx for the documentation site, which docs/site/build.py builds."""

import inspect
import re
from typing import Any

from kcard import __version__

project, author, copyright = "kcard", "the kcard authors", "the kcard authors"  # noqa: A001 - Sphinx's names
version = release = __version__

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx_copybutton"]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4
nb_execution_mode = "off"  # notebooks carry their outputs; tests/project/test_examples.py executes them
copybutton_prompt_text = "$ "
suppress_warnings = ["misc.highlighting_failure"]
smartquotes = False  # -- is how options begin

html_theme = "furo"
html_title = "kcard"
html_static_path: list[str] = []
html_show_sourcelink = False
html_copy_source = False

autodoc_typehints = "description"
autodoc_typehints_description_target = "documented_params"
autodoc_member_order = "bysource"
python_use_unqualified_type_names = True

PARAMETER = re.compile(r"^    (\w+): (.*)$")
ALIGNED = re.compile(r"^(\w[\w, ]*?) {2,}(\S.*)$")  # name   what it means


def to_restructured_text(docstring: str) -> list[str]:
    """Return a docstring in the markup that autodoc reads: options and aligned lists become lists of parameters."""
    lines: list[str] = []
    fields: list[str] = []
    in_section = in_item = False
    for line in docstring.splitlines():
        text = re.sub(r"(?<!`)`([^`]+)`(?!`)", r"``\1``", re.sub(r"([*|@])", r"\\\1", line))
        if line in ("Options:", "Args:", "Raises:"):
            in_section, in_item = line != "Raises:", False
            continue
        if in_section and (match := PARAMETER.match(text)):
            fields.append(f":param {match[1]}: {match[2]}")
        elif in_section and line.startswith("     "):
            fields[-1] += " " + text.strip()
        elif match := ALIGNED.match(text):
            lines += [] if in_item else [""]
            lines.append(f"- **{match[1]}**: {match[2]}")
            in_item = True
        elif in_item and line.startswith("  "):
            lines.append("  " + text.strip())
        else:
            in_section = in_section and not line.strip()
            lines += ["", text.strip()] if in_item and line.strip() else [text.strip()]
            in_item = False
    return [*lines, "", *fields, ""]


def process_docstring(_app: Any, _what: str, _name: str, value: Any, _options: Any, lines: list[str]) -> None:
    lines[:] = to_restructured_text(inspect.cleandoc("\n".join(lines)))
    if isinstance(value, type) and value.__doc__ and value.__doc__.startswith(f"{value.__name__}("):
        lines[:] = []  # the text that dataclasses write


def setup(app: Any) -> None:
    app.connect("autodoc-process-docstring", process_docstring)
