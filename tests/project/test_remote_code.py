"""No model is loaded in a way that lets its repository run code, unless the user gave --trust-remote-code."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = (
    "benchmarks",
    "cards",
    "cli",
    "demo",
    "evaluation",
    "gates",
    "hub",
    "integrators",
    "llms",
    "recipes",
    "selectors",
    "src",
    "training",
)
GIVEN = "loading.trust_remote_code"  # the user's flag
AFTER_A_CHECK = Path("selectors/pruning.py")  # after check_trust, which reads the same flag


def calls() -> Iterator[tuple[Path, ast.Call]]:
    """Every call in the repository, without the tests."""
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Call):
                    yield path.relative_to(ROOT), node


def loads_by_name(call: ast.Call) -> bool:
    """Whether the class is chosen by the files: Auto classes and sentence-transformers; a class of transformers
    itself runs no code of a repository."""
    called = call.func
    if isinstance(called, ast.Attribute) and called.attr in ("from_pretrained", "from_config"):
        owner = ast.unparse(called.value)
        return owner.startswith("Auto") or owner == "kind"
    return isinstance(called, ast.Name) and called.id in ("pipeline", "SentenceTransformer", "CrossEncoder")


def test_every_model_that_is_loaded_by_name_says_that_its_code_is_not_run() -> None:
    found, wrong = 0, []
    for path, call in calls():
        if not loads_by_name(call) or any(keyword.arg == "modules" for keyword in call.keywords):
            continue
        if isinstance(call.func, ast.Name) and call.func.id == "pipeline" and not call.keywords:
            continue  # kcard's own
        found += 1
        given = {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}.get(
            "trust_remote_code"
        )
        allowed = given == "False" or (given or "").startswith(GIVEN)
        if not allowed and not (given == "True" and path == AFTER_A_CHECK):
            wrong.append(f"{path}:{call.lineno}: trust_remote_code is {given}")
    assert found >= 15
    assert wrong == []
