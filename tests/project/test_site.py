"""The documentation site has every page and every public name; `make docs` builds it."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

import kcard

ROOT = Path(__file__).resolve().parents[2]


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"site_{name}", ROOT / "docs" / "site" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


build, conf = load("build"), load("conf")


def test_the_reference_has_every_public_name_once() -> None:
    names = [name for topic in build.REFERENCE.values() for name in topic]
    assert sorted(names) == sorted({*kcard.__all__} - {"__version__"})


def test_the_navigation_has_every_page_once() -> None:
    pages = [page for topic in build.NAVIGATION.values() for page in topic]
    docs = [path.stem for path in (ROOT / "docs").glob("*.md")]
    notebooks = [f"examples/{path.stem}" for path in (ROOT / "examples").glob("*.ipynb")]
    assert sorted(pages) == sorted([*docs, *notebooks, "api", "changelog", "contributing"])


def test_links_lead_to_pages_of_the_site_and_source_files_become_names() -> None:
    assert build.relinked("[a](docs/hub.md#the-database)", "") == "[a](hub.md#the-database)"
    assert build.relinked("[b](../CHANGELOG.md)", "docs") == "[b](changelog.md)"
    assert build.relinked("[c](../docs/results.md)", "examples") == "[c](../results.md)"
    assert build.relinked("[`d`](../src/kcard/text.py) [e](https://example.org/)", "docs") == (
        "`d` [e](https://example.org/)"
    )
    with pytest.raises(SystemExit, match="broken"):
        build.relinked("[f](../src/nowhere.py)", "docs")


@pytest.mark.parametrize(
    ("html", "foreign"),
    [
        ('<a href="https://example.org/">', False),
        ('<img src="pictures/a.png"><link rel="stylesheet" href="_static/a.css">', False),
        ('<link rel="stylesheet" href="https://example.org/a.css">', True),
        ('<script src="//example.org/a.js"></script>', True),
        ("<style>a { background: url(https://example.org/a.png) }</style>", True),
    ],
)
def test_what_a_page_would_fetch_from_elsewhere_is_an_error(tmp_path: Path, html: str, foreign: bool) -> None:
    (tmp_path / "page.html").write_text(html, encoding="utf-8")
    assert bool(build.foreign_requests(tmp_path)) is foreign


def test_docstrings_become_lists_of_parameters() -> None:
    lines = conf.to_restructured_text(
        "Return `x`, by * and |.\n\nfolder   where it is,\n         on this disk\nname     its name\n\n"
        "Raises UsageError.\n\nOptions:\n    n1: How many. Default: 3.\n    n2: Others."
    )
    assert lines == [
        "Return ``x``, by \\* and \\|.", "", "",
        "- **folder**: where it is,", "  on this disk", "- **name**: its name", "", "Raises UsageError.", "", "",
        ":param n1: How many. Default: 3.", ":param n2: Others.", "",
    ]  # fmt: skip
