"""Prints how dense the code of each package is: `make density`.

    files, lines    of the library
    comp, cond      comprehensions and conditional expressions in 100 lines
    walrus          assignment expressions in 100 lines
    vague           constants of a module that are a bare adjective, adverb or participle, such as LONGEST or SHOWN
    tests           lines of the tests in the folder of the same name

These are figures to look at, not limits: no check reads them.
"""

import ast
import re
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("cards", "cli", "evaluation", "gates", "hub", "integrators", "llms", "selectors", "training")
CORE_PACKAGES = ("api", "serve", "embedded")  # in src/kcard; "core" are the other files there
CORE_TESTS = ("core", "project", "conformance", "wheel")
COMPREHENSIONS = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp

PARTICIPLES = re.compile(r"_?[A-Z]+(?:ED|ING|EST|ABLE|IBLE)")
OTHER_VAGUE_NAMES = {
    *("MOST", "LEAST", "FEW", "MANY", "SOME", "SEVERAL", "ENOUGH", "MORE", "LESS", "ALL", "OTHER", "OTHERS"),
    *("LARGE", "LARGER", "SMALL", "LONG", "SHORT", "NEAR", "FAR", "CLOSE", "WIDE", "NARROW", "LIGHT", "HEAVY"),
    *("SHOWN", "KNOWN", "WRITTEN", "TAKEN", "GIVEN", "BROKEN", "HIDDEN", "TOLD", "MEANT", "LEFT", "LOST", "GONE"),
    *("SURE", "UNSURE", "PLAIN", "WHOLE", "ALIKE", "ALONE", "SAFE", "COMMON", "EMPTY", "FULL", "FRESH", "OLD", "NEW"),
    *("NOW", "ONCE", "EVER", "NEVER", "ALWAYS", "AHEAD", "APART", "AROUND", "ASIDE", "BEFORE", "AFTER", "UNTIL"),
}  # fmt: skip
NOUNS = {"HEADING", "ENCODING", "EMBEDDING", "TRAINING", "RANKING", "ROUTING", "STRING", "OPENING", "ENDING"}
NOUNS |= {"TABLE", "SEED", "FEED", "SPEED", "SPACING", "ROUNDING"}


@dataclass
class Density:
    """The counts of one package."""

    files: int = 0
    lines: int = 0
    comprehensions: int = 0
    conditionals: int = 0
    walruses: int = 0
    vague_constants: int = 0

    def add_file(self, path: Path) -> None:
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text)
        self.files += 1
        self.lines += text.count("\n")
        for node in ast.walk(tree):
            self.comprehensions += isinstance(node, COMPREHENSIONS)
            self.conditionals += isinstance(node, ast.IfExp)
            self.walruses += isinstance(node, ast.NamedExpr)
        self.vague_constants += sum(is_vague(name) for name in constants_of(tree))


def constants_of(module: ast.Module) -> list[str]:
    """Return the names in capitals that a module assigns at its top."""
    names = []
    for statement in module.body:
        for node in ast.walk(statement):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id.isupper():
                names.append(node.id)
    return names


def is_vague(name: str) -> bool:
    """Whether a constant's name is a single word that says how something is, but not what."""
    if name.strip("_") in NOUNS:
        return False
    return name.strip("_") in OTHER_VAGUE_NAMES or PARTICIPLES.fullmatch(name) is not None


def lines_below(folder: Path) -> int:
    return sum(path.read_text(encoding="utf-8").count("\n") for path in folder.rglob("*.py"))


def packages() -> dict[str, tuple[list[Path], list[str]]]:
    """Return the files of each package, and the folders in tests/ of their tests."""
    core = ROOT / "src" / "kcard"
    found = {name: (sorted((ROOT / name).rglob("*.py")), [name]) for name in PACKAGES}
    found |= {name: (sorted((core / name).rglob("*.py")), [name]) for name in CORE_PACKAGES}
    found["core"] = (sorted(core.glob("*.py")), list(CORE_TESTS))
    for name in ("benchmarks", "recipes", "demo"):
        found[name] = (sorted((ROOT / name).rglob("*.py")), [name])
    return found


def main() -> None:
    print_row = "{:<12} {:>5} {:>7} {:>6} {:>6} {:>7} {:>6} {:>7}\n".format
    sys.stdout.write(print_row("package", "files", "lines", "comp", "cond", "walrus", "vague", "tests"))
    for name, (paths, folders) in packages().items():
        density = Density()
        for path in paths:
            density.add_file(path)
        rates = []
        for count in (density.comprehensions, density.conditionals, density.walruses):
            rates.append(f"{100 * count / density.lines:.2f}")
        test_lines = sum(lines_below(ROOT / "tests" / folder) for folder in folders)
        sys.stdout.write(
            print_row(name, density.files, density.lines, *rates, density.vague_constants, test_lines)
        )


if __name__ == "__main__":
    main()
