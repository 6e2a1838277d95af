"""Draws which package imports which, as of now and, beside it, as of another commit.

    python benchmarks/import_structure.py --before 4fecdef --picture docs/pictures/imports.svg

A box is a package, as wide as it has lines; a line is one import or more, thicker with more. Blue lines run downward;
red ones run up or between two packages that import each other.
"""

import argparse
import ast
import io
import subprocess
import tarfile
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PARTS = (
    "cli",
    "front",
    "integrators",
    "evaluation",
    "training",
    "gates",
    "selectors",
    "llms",
    "cards",
    "hub",
)
# From top to bottom; what is inside cards/ and hub/ lies below its part.
ROWS = (
    ("cli",),
    ("api", "front"),
    ("integrators",),
    ("evaluation", "training"),
    ("gates", "selectors", "llms"),
    ("hub.server", "hub.client", "hub.remote", "cards"),
    ("hub", "hub.migrations", "cards.kinds"),
    ("cards.lm",),
    ("hub.repositories", "cards.lm.engine", "cards.engine"),
    ("hub.accounts", "cards.format"),
    ("hub.records", "hub.checks"),
    ("hub.store", "hub.refusals", "cards.embedded"),
    ("core",),
)


ALONE = {"hub.refusals", "cards.embedded"}  # files at the top of a part that all of it may import


@dataclass(frozen=True)
class Structure:
    """The lines of each package, and how often one imports another."""

    lines: Counter[str]
    imports: Counter[tuple[str, str]]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--before", help="a commit to compare with")
    parser.add_argument(
        "--picture", type=Path, help="an SVG file; otherwise the imports that run upward are listed"
    )
    args = parser.parse_args()
    found = {"now": read(ROOT)}
    if args.before:
        with tempfile.TemporaryDirectory() as scratch:
            found = {f"at {args.before}": read(checked_out(args.before, Path(scratch))), **found}
    for when, structure in found.items():
        upward = [pair for pair in structure.imports if is_upward(structure, pair)]
        print(
            f"{when}: {sum(structure.lines.values())} lines, {len(structure.lines)} packages, {len(upward)} upward"
        )
        print("\n".join(f"  {importer} -> {imported}" for importer, imported in sorted(upward)))
    if args.picture:
        draw(found, args.picture)


def checked_out(commit: str, folder: Path) -> Path:
    archive = subprocess.run(["git", "archive", commit], cwd=ROOT, check=True, capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        tar.extractall(folder, filter="data")
    return folder


def read(root: Path) -> Structure:
    """The structure of a checkout; links are passed by."""
    packages = {module_name(root, path): path for path in sources(root)}
    lines, imports = Counter[str](), Counter[tuple[str, str]]()
    for name, path in packages.items():
        here = package(name)
        text = path.read_text(encoding="utf-8")
        lines[here] += text.count("\n")
        for imported in imported_modules(text):
            target = next((n for n in (imported, imported.rpartition(".")[0]) if n in packages), None)
            if target is not None and package(target) not in {here, "core"}:  # everything imports the core
                imports[here, package(target)] += 1
    return Structure(lines, imports)


def sources(root: Path) -> list[Path]:
    folders = [root / part for part in PARTS] + [root / "src" / "kcard"]
    return [path for folder in folders for path in sorted(folder.rglob("*.py")) if ours(path, root)]


def ours(path: Path, root: Path) -> bool:
    return path.resolve().relative_to(root.resolve()) == path.relative_to(root)


def module_name(root: Path, path: Path) -> str:
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[2:] if parts[:2] == ("src", "kcard") else parts)


def imported_modules(text: str) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("kcard"):
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {name.removeprefix("kcard.") for name in found}


def package(module: str) -> str:
    """The row's word for a module: hub.store for hub.store.blobs, core for errors."""
    known = {name for row in ROWS for name in row}
    if module in {"__init__", "__main__"}:
        return "api" if module == "__init__" else "cli"
    parts = module.split(".")[: None if module in ALONE else -1]
    while parts and ".".join(parts) not in known:
        parts.pop()
    return ".".join(parts) or "core"


def is_upward(structure: Structure, pair: tuple[str, str]) -> bool:
    importer, imported = (level(name) for name in pair)
    return importer > imported or (importer == imported and pair[::-1] in structure.imports)


def level(name: str) -> int:
    return next(number for number, row in enumerate(ROWS) if name in row)


def draw(found: dict[str, Structure], picture: Path) -> None:
    import matplotlib
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7 * len(found), 9), layout="constrained")
    for axes, (when, structure) in zip(
        figure.subplots(1, len(found), squeeze=False)[0], found.items(), strict=True
    ):
        places: dict[str, tuple[float, float]] = {}
        levels = sorted({level(name) for name in structure.lines})
        for height, number in enumerate(reversed(levels)):
            row = [name for name in ROWS[number] if name in structure.lines]
            widths = [max(0.9, structure.lines[name] / 4000) for name in row]
            left = -(sum(widths) + 0.5 * (len(row) - 1)) / 2
            if all(name.startswith(("hub", "cards")) for name in row):  # two columns
                left = -1.0 - sum(w + 0.5 for n, w in zip(row, widths, strict=True) if n.startswith("hub"))
            for name, width in zip(row, widths, strict=True):
                left = max(left, 1.2) if name.startswith("cards") else left
                places[name] = (left + width / 2, height)
                axes.add_patch(
                    matplotlib.patches.FancyBboxPatch(
                        (left, height - 0.22),
                        width,
                        0.44,
                        boxstyle="round,pad=0.02",
                        fc="#f4f4f4",
                        ec="#555",
                        zorder=3,
                    )
                )
                label = f"{name}\n{structure.lines[name] / 1000:.1f}k"
                axes.text(left + width / 2, height, label, ha="center", va="center", fontsize=7, zorder=4)
                left += width + 0.5
        for pair, count in structure.imports.items():
            upward = is_upward(structure, pair)
            (x, y), (to_x, to_y) = (places[name] for name in pair)
            axes.annotate(
                "",
                (to_x, to_y + (0.24 if to_y < y else -0.24 if to_y > y else 0)),
                (x, y),
                arrowprops={
                    "arrowstyle": "-|>",
                    "color": "#c33" if upward else "#4477aa",
                    "alpha": 0.9 if upward else 0.35,
                    "lw": min(3, 0.4 + count / 20),
                    "connectionstyle": "arc3,rad=0.12",
                },
                zorder=2 if upward else 1,
            )
        axes.set_title(f"{when}: {sum(structure.lines.values()) / 1000:.1f}k lines", fontsize=10)
        axes.set_xlim(-4.2, 4.2)
        axes.set_ylim(-0.6, len(levels) - 0.4)
        axes.axis("off")
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "kcard"}):
        figure.savefig(picture, metadata={"Date": None})


if __name__ == "__main__":
    main()
