"""Builds the documentation site from docs/, README.md and examples/ into build/docs/html: `make docs`.

The pages stay as a code host shows them: this copies them to build/docs/source, where README.md is the first page, and
adds the navigation and the Python reference. A broken link or a page that the navigation lacks is an error.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TARGET = ROOT / "build" / "docs"

NAVIGATION: Mapping[str, Sequence[str]] = {
    "Start": ("install", "python", "examples/own_notes", "examples/api_llm", "examples/evaluation_table"),
    "Tasks": (
        "training", "corpora", "sync", "serve", "evaluation", "selectors", "gates", "calibration", "bulk", "privacy",
    ),
    "Hub": ("hub", "server", "server-security"),
    "How it works": ("cards", "integrators", "llms", "engines", "robustness"),
    "Reference": ("api", "commands", "settings", "tasks"),
    "Results": ("results", "claims", "performance", "papers", "changelog"),
    "Change it": ("first_change", "architecture", "extending", "contributing"),
}  # fmt: skip

# Pages at the top of the repository, and their names in the site.
PAGES_OF_ROOT = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
}

# The Python reference: the public names by what they are for. A test compares them with kcard.__all__.
REFERENCE: Mapping[str, Sequence[str]] = {
    "Ask": ("ask", "Pipeline", "AskOptions", "Answer", "Passage", "ask_on_cluster", "RayOptions"),
    "Train and update": (
        *("train", "TrainOptions", "train_many", "index_corpus"),
        *("sync", "watch", "add", "Card", "Manifest"),
    ),
    "Publish": ("publish", "pull", "Hub", "login", "logout", "whoami"),
    "Measure": ("exam", "audit", "audit_many", "browse", "check", "check_file", "evaluate", "report"),
    "Gates": ("collect", "calibrate"),
    "Machine": ("doctor",),
}
# Methods that the reference shows; options and fields are in the docstrings.
METHODS = {
    "Pipeline": ("__call__", "outcomes", "stream", "prepared", "complete", "variant", "cards", "batch"),
    "Answer": ("to_json",),
    "Card": ("open", "ask", "exam", "publish", "push"),
    "Hub": ("publish", "list", "get", "versions", "select", "pull", "remove", "verify"),
}


def reference() -> str:
    """Return the page of the Python reference."""
    lines = [
        "# Python reference",
        "",
        "What `import kcard` offers. [Python](python.md) shows how it is used.",
        "",
    ]
    for topic, names in REFERENCE.items():
        lines += [f"## {topic}", ""]
        for name in names:
            kind = "class" if name[0].isupper() else "function"
            lines += ["```{eval-rst}", f".. auto{kind}:: kcard.{name}"]
            lines += [f"   :members: {', '.join(METHODS[name])}"] if name in METHODS else []
            lines += ["```", ""]
    return "\n".join(lines)


def navigation() -> str:
    """Return the navigation, which the first page carries and the sidebar shows."""
    return "\n".join(
        f"```{{toctree}}\n:hidden:\n:caption: {caption}\n\n" + "\n".join(pages) + "\n```\n"
        for caption, pages in NAVIGATION.items()
    )


def relinked(text: str, folder: str) -> str:
    """Return a page with its links as they are in the site; links to source files become names."""

    def target_of(match: re.Match[str]) -> str:
        label, link = match["label"], match["link"]
        path, _, anchor = link.partition("#")
        if re.match(r"[a-z]+:", link) or not path:
            return match[0]
        place = (ROOT / folder / path).resolve().relative_to(ROOT)
        is_in_site = place.suffix and place.parts[0] in ("docs", "examples")
        if is_in_site or str(place) in PAGES_OF_ROOT:
            page = PAGES_OF_ROOT.get(str(place), str(place).removeprefix("docs/"))
            shown = os.path.relpath(page, "examples" if folder == "examples" else ".")
            return f"[{label}]({shown}{'#' + anchor if anchor else ''})"
        if not (ROOT / place).exists():
            sys.exit(f"{folder or '.'}: the link to {link} is broken")
        return label if label.startswith("`") else f"`{label}`"

    return re.sub(r"\[(?P<label>[^\]]*)\]\((?P<link>[^)\s]+)\)", target_of, text)


def stage(source: Path) -> None:
    """Copy the pages, pictures and notebooks, and write the pages that only the site has."""
    shutil.rmtree(source, ignore_errors=True)
    shutil.copytree(ROOT / "docs" / "pictures", source / "pictures")
    pages = {path.name: path for path in (ROOT / "docs").glob("*.md")}
    for name, page in PAGES_OF_ROOT.items():
        pages[page] = ROOT / name
    for name, path in pages.items():
        folder = str(path.parent.relative_to(ROOT)).removeprefix(".")
        text = relinked(path.read_text(encoding="utf-8"), folder)
        (source / name).write_text(text, encoding="utf-8")
    with (source / "index.md").open("a", encoding="utf-8") as stream:
        stream.write("\n" + navigation())
    (source / "api.md").write_text(reference(), encoding="utf-8")
    (source / "examples").mkdir()
    for path in sorted((ROOT / "examples").glob("*.ipynb")):
        notebook = json.loads(path.read_text(encoding="utf-8"))
        for cell in notebook["cells"]:
            if cell["cell_type"] == "markdown":
                cell["source"] = relinked("".join(cell["source"]), "examples")
        (source / "examples" / path.name).write_text(json.dumps(notebook), encoding="utf-8")


def foreign_requests(folder: Path) -> list[str]:
    """Return what the site's pages and styles would fetch from elsewhere; links to follow are no requests."""
    requests = re.compile(
        r"""(?:\bsrc=|<link[^>]+href=|@import|url\()\s*["'(]*\s*((?:https?:)?//[^"')\s]+)"""
    )
    pages = [path for kind in ("*.html", "*.css") for path in sorted(folder.rglob(kind))]
    return [f"{p.name}: {url}" for p in pages for url in requests.findall(p.read_text(encoding="utf-8"))]


def main() -> None:
    stage(TARGET / "source")
    shutil.rmtree(TARGET / "html", ignore_errors=True)
    options = [
        "--fail-on-warning",
        "--keep-going",
        "--quiet",
        "-c",
        str(Path(__file__).parent),
        "-d",
        str(TARGET / "doctrees"),
    ]
    command = [sys.executable, "-m", "sphinx", *options, str(TARGET / "source"), str(TARGET / "html")]
    code = subprocess.run(command, check=False).returncode
    if code:
        sys.exit(code)
    if foreign := foreign_requests(TARGET / "html"):
        sys.exit("the site would fetch from elsewhere: " + ", ".join(foreign))
    sys.stdout.write(f"{TARGET / 'html' / 'index.html'}\n")


if __name__ == "__main__":
    main()
