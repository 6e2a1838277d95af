"""The notebooks in examples/ run from top to bottom without a network, and print what they show."""

import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
NAMES = ("own_notes", "api_llm", "evaluation_table")


def printed(notebook: nbformat.NotebookNode) -> list[str]:
    """What each cell prints, in one piece however it was flushed, without what differs from run to run."""
    texts = [
        "".join(output.text for output in cell.get("outputs", ()) if output.get("name") == "stdout")
        for cell in notebook.cells
    ]
    return [re.sub(r"\d+\.\d+ s\b", "… s", text) for text in texts]


def test_every_notebook_is_listed_here_and_on_the_page_about_python() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.ipynb")} == set(NAMES)
    page = (EXAMPLES.parent / "docs" / "python.md").read_text(encoding="utf-8")
    assert all(f"(../examples/{name}.ipynb)" in page for name in NAMES)


@pytest.mark.timeout(600)  # half a minute of processor time, but the machine may be busy
@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_runs_and_prints_what_it_shows(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")  # whatever leaves this machine fails
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "127.0.0.1,localhost")
    shown = nbformat.read(EXAMPLES / f"{name}.ipynb", as_version=4)
    assert all(cell.execution_count for cell in shown.cells if cell.cell_type == "code"), "store its outputs"
    assert (EXAMPLES / f"{name}.ipynb").stat().st_size < 60_000
    run = nbformat.read(EXAMPLES / f"{name}.ipynb", as_version=4)
    NotebookClient(run, timeout=240, resources={"metadata": {"path": str(EXAMPLES)}}).execute()
    assert printed(run) == printed(shown)
    html = [
        o.data["text/html"]
        for c in shown.cells
        for o in c.get("outputs", ())
        if "text/html" in o.get("data", {})
    ]
    assert html, "it shows no table"
