"""The notebooks in examples/ run from top to bottom without a network, and print what they show."""

import ast
import asyncio
import contextlib
import copy
import io
import re
from pathlib import Path
from typing import Any

import pytest

nbclient: Any = pytest.importorskip("nbclient", reason="nbclient is not installed: make dev-all")
nbformat: Any = pytest.importorskip("nbformat", reason="nbformat is not installed: make dev-all")

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
NAMES = ("own_notes", "api_llm", "evaluation_table")


def printed(notebook: Any) -> list[str]:
    """What each cell prints, in one piece however it was flushed, without what differs from run to run."""
    texts = [
        "".join(output.text for output in cell.get("outputs", ()) if output.get("name") == "stdout")
        for cell in notebook.cells
    ]
    return [re.sub(r"\d+\.\d+ s\b", "… s", text) for text in texts]


def test_every_notebook_is_listed_here_and_on_the_page_about_python() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.ipynb")} == set(NAMES)
    page = (EXAMPLES.parent / "docs" / "python.md").read_text(encoding="utf-8")
    for name in NAMES:
        assert f"(../examples/{name}.ipynb)" in page
        assert (EXAMPLES / f"{name}.ipynb").stat().st_size < 60_000
        cells = nbformat.read(EXAMPLES / f"{name}.ipynb", as_version=4).cells
        assert all(cell.execution_count for cell in cells if cell.cell_type == "code"), "store its outputs"
        outputs = [output for cell in cells for output in cell.get("outputs", ())]
        assert any("text/html" in output.get("data", {}) for output in outputs), f"{name} shows no table"


def run_cell(code: str, names: dict[str, Any]) -> tuple[str, bool]:
    """Run a cell in this process, as Jupyter does, while an event loop runs; return what it prints, and whether its
    last value is shown as HTML."""
    *body, last = ast.parse(code).body
    value = last.value if isinstance(last, ast.Expr) else ast.Constant(None)
    rest = body if isinstance(last, ast.Expr) else [*body, last]
    with contextlib.redirect_stdout(io.StringIO()) as text:
        exec(compile(ast.Module(rest, []), "cell", "exec"), names)
        shown = eval(compile(ast.fix_missing_locations(ast.Expression(value)), "cell", "eval"), names)
    return text.getvalue(), bool(getattr(shown, "_repr_html_", str)())


@pytest.mark.parametrize("name", [pytest.param("evaluation_table", marks=pytest.mark.slow), "api_llm"])
def test_the_code_of_a_notebook_prints_what_it_shows(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(EXAMPLES)
    shown = nbformat.read(EXAMPLES / f"{name}.ipynb", as_version=4)
    run = copy.deepcopy(shown)
    names: dict[str, Any] = {"__name__": "__main__"}
    is_html: list[bool] = []

    async def cells() -> None:
        for cell in (cell for cell in run.cells if cell.cell_type == "code"):
            text, as_html = run_cell(cell.source, names)
            cell.outputs = [nbformat.v4.new_output("stream", name="stdout", text=text)]
            is_html.append(as_html)

    asyncio.run(cells())
    if "server" in names:
        names["server"].server_close()
    assert printed(run) == printed(shown)
    data = [[o.get("data", {}) for o in c.outputs] for c in shown.cells if c.cell_type == "code"]
    assert is_html == [any("text/html" in each for each in outputs) for outputs in data]


@pytest.mark.timeout(600)
def test_a_notebook_runs_in_jupyter_and_prints_what_it_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")  # whatever leaves this machine fails
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "127.0.0.1,localhost")
    shown = nbformat.read(EXAMPLES / "own_notes.ipynb", as_version=4)
    run = nbformat.read(EXAMPLES / "own_notes.ipynb", as_version=4)
    nbclient.NotebookClient(run, timeout=240, resources={"metadata": {"path": str(EXAMPLES)}}).execute()
    assert printed(run) == printed(shown)
