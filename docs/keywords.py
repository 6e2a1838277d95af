"""Writes the TypedDicts by which type checkers know the options of functions that pass them on (PEP 692), from the
options' declarations: `python docs/keywords.py`; with --check, only compares.
"""

import ast
import subprocess
import sys
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BEGIN = "# Options by name and type, for type checkers; written by docs/keywords.py from the declarations.\n"
END = "# End of what docs/keywords.py writes.\n"


@dataclass(frozen=True)
class Keywords:
    """A TypedDict of the options that a function or dataclass declares.

    only, without  the options that it has or lacks; empty: all
    bases          TypedDicts that it extends
    """

    name: str
    source: str
    only: Collection[str] = ()
    without: Collection[str] = ()
    bases: tuple[str, ...] = ()


ONE_CARD = ("name", "description", "study", "update", "output", "resume")
BLOCKS = {
    "integrators/options.py": [
        Keywords("QuestionKeywords", "AskOptions", without=("mode", "select")),
        Keywords("AskKeywords", "AskOptions", only=("mode", "select"), bases=("QuestionKeywords",)),
        Keywords("BaselineKeywords", "BaselineOptions"),
    ],
    "training/options.py": [
        Keywords("SharedTrainKeywords", "TrainOptions", without=ONE_CARD),
        Keywords("TrainKeywords", "TrainOptions", only=ONE_CARD, bases=("SharedTrainKeywords",)),
    ],
    "src/kcard/api/train.py": [
        Keywords(
            "TrainManyKeywords", "train", only=("exam", "exam_evidence"), bases=("SharedTrainKeywords",)
        ),
    ],
    "src/kcard/api/exam.py": [Keywords("AuditKeywords", "audit", without=("card", "output"))],
    "src/kcard/api/sync.py": [Keywords("SyncKeywords", "sync", without=("folder", "card"))],
}


def types_of(module: ast.Module, name: str) -> dict[str, str]:
    """Return the types of the options that a function or dataclass declares as Annotated[TYPE, Option(...)]."""
    target = next(
        n
        for n in module.body
        if isinstance(n, ast.ClassDef | ast.FunctionDef) and n.name == name and n.decorator_list
    )
    if isinstance(target, ast.ClassDef):
        fields = [
            (n.target.id, n.annotation)
            for n in target.body
            if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)
        ]
    else:
        arguments = (*target.args.args, *target.args.kwonlyargs)
        fields = [(a.arg, a.annotation) for a in arguments if a.annotation is not None]
    types = {}
    for field, annotation in fields:
        if isinstance(annotation, ast.Subscript) and ast.unparse(annotation.value) == "Annotated":
            assert isinstance(annotation.slice, ast.Tuple)
            types[field] = ast.unparse(annotation.slice.elts[0])
    return types


def block(module: ast.Module, rows: list[Keywords]) -> str:
    """Return the source of a module's TypedDicts."""
    classes = []
    for row in rows:
        lines = [
            f"    {name}: {kind}"
            for name, kind in types_of(module, row.source).items()
            if name not in row.without and (not row.only or name in row.only)
        ]
        bases = ", ".join(row.bases or ("TypedDict",))
        classes.append(f"class {row.name}({bases}, total=False):\n" + "\n".join(lines) + "\n")
    source = BEGIN + "\n\n" + "\n\n".join(classes) + "\n\n" + END
    command = [sys.executable, "-m", "ruff", "format", "--quiet", "--stdin-filename", "keywords.py", "-"]
    done = subprocess.run(command, cwd=ROOT, input=source, capture_output=True, text=True, check=True)
    return done.stdout


def main() -> None:
    for path, rows in BLOCKS.items():
        file = ROOT / path
        source = file.read_text(encoding="utf-8")
        before, _, rest = source.partition(BEGIN)
        _, end, after = rest.partition(END)
        if not end:
            sys.exit(f"{path} has no place for them: add the lines {BEGIN!r} and {END!r}")
        current = before + block(ast.parse(source), rows) + after
        if "--check" not in sys.argv:
            file.write_text(current, encoding="utf-8")
        elif source != current:
            sys.exit(f"{path} is stale: run docs/keywords.py")


if __name__ == "__main__":
    main()
