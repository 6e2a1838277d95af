"""Imports run downward, part folders shadow nothing, and nothing heavy is imported to print help."""

import ast
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

import kcard

ROOT = Path(__file__).resolve().parents[2]
PARTS = {
    "gates": 2,
    "selectors": 2,
    "llms": 2,
    "cards": 2,
    "hub": 2,
    "evaluation": 3,
    "training": 3,
    "integrators": 4,
}
CORE = 1
LAYERS = PARTS | {"api": 5, "serve": 6, "cli": 7}
# What `--help` must not import.
HEAVY = {"torch", "transformers", "peft", "sklearn", "sqlalchemy", "alembic", "openai", "numpy.linalg"}
HEAVY |= {"rich.table", "fastapi", "huggingface_hub"}

# The methods of Card return what the API's functions return, so its types name what lies above.
PRODUCT = ROOT / "cards" / "card.py"
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.Lambda)
# Names that could stand for anything. Fields that are serialized, and what is read beside them, keep theirs.
EMPTY_NAMES = {"found", "given", "asked", "told", "kept", "made", "said", "wanted", "held"}


@dataclass(frozen=True)
class Code:
    """What the rules ask of a file, which is parsed once for all of them.

    modules     modules of ours that it imports, with the names that it imports from them
    classes     names of its classes
    attributes  names after a dot
    empty       SCOPE.NAME of what it calls by a name that says nothing
    loading     (line, trust_remote_code) of the calls that load a model whose class the model's files choose
    """

    modules: frozenset[str]
    classes: tuple[str, ...]
    attributes: frozenset[str]
    empty: frozenset[str]
    loading: tuple[tuple[int, str | None], ...]


@cache
def read(path: Path) -> Code:
    modules, classes, attributes, empty, loading = set(), [], set(), set(), []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            modules |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.Attribute):
            attributes.add(node.attr)
        elif isinstance(node, ast.Call) and loads_by_name(node):
            given = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
            loading.append((node.lineno, given.get("trust_remote_code")))
        if isinstance(node, ast.ClassDef):
            classes.append(node.name)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            empty |= {f"{getattr(node, 'name', path.stem)}.{name}" for name in bound(node) & EMPTY_NAMES}
    ours = frozenset(name for name in modules if name.startswith("kcard."))
    return Code(ours, tuple(classes), frozenset(attributes), frozenset(empty), tuple(loading))


def bound(scope: ast.AST) -> set[str]:
    """The names that a class or function binds itself, less those of its comprehensions."""
    names = {n.name for n in ast.iter_child_nodes(scope) if isinstance(n, ast.FunctionDef | ast.ClassDef)}
    if isinstance(scope, ast.FunctionDef):
        names |= {argument.arg for argument in ast.walk(scope.args) if isinstance(argument, ast.arg)}
    rest = [*ast.iter_child_nodes(scope)]
    while rest:
        node = rest.pop()
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        if not isinstance(node, (*COMPREHENSIONS, ast.FunctionDef, ast.ClassDef)):
            rest += ast.iter_child_nodes(node)
    return names


def loads_by_name(call: ast.Call) -> bool:
    """Whether the class is chosen by the files: Auto classes and sentence-transformers; a class of transformers
    itself runs no code of a repository, nor does our own `pipeline`."""
    called = call.func
    if any(keyword.arg == "modules" for keyword in call.keywords):
        return False
    if isinstance(called, ast.Attribute) and called.attr in ("from_pretrained", "from_config"):
        owner = ast.unparse(called.value)
        return owner.startswith("Auto") or owner == "kind"
    if isinstance(called, ast.Name) and called.id == "pipeline":
        return bool(call.keywords)
    return isinstance(called, ast.Name) and called.id in ("SentenceTransformer", "CrossEncoder")


def imports(path: Path) -> set[str]:
    """The packages that a file imports."""
    return {name.split(".")[1] for name in read(path).modules}


def library() -> dict[str, Path]:
    """Return every module of the library by its name."""
    modules = {}
    for part in (*PARTS, "cli"):
        for path in sorted((ROOT / part).rglob("*.py")):
            modules[".".join(("kcard", *path.relative_to(ROOT).with_suffix("").parts))] = path
    for path in sorted((ROOT / "src" / "kcard").rglob("*.py")):
        modules[".".join(path.relative_to(ROOT / "src").with_suffix("").parts)] = path
    return {name.removesuffix(".__init__"): path for name, path in modules.items()}


def package_of(module: str) -> str:
    """Return the part of kcard that a module belongs to; "" for kcard itself."""
    return module.partition(".")[2].partition(".")[0]


def test_imports_run_downward_only() -> None:
    upward = []
    for name, path in library().items():
        package = package_of(name)
        if not package or package.startswith("__"):
            continue
        for other in sorted(imports(path) - {package}):
            if not may_import(package, other) and path != PRODUCT:
                upward.append(f"{name} imports kcard.{other}")
    assert upward == []


def may_import(package: str, other: str) -> bool:
    layer, below = LAYERS.get(package, CORE), LAYERS.get(other, CORE)
    return below < layer or layer == below == CORE or (package, other) == ("evaluation", "training")


# Inside cards/: the base in the package, below the folder of a card, below language models, below the kinds.
CARDS = {
    **dict.fromkeys(
        ("card", "passages", "profile", "model_card", "hugging_face", "model_limits", "pickle_process"), 1
    ),
    **dict.fromkeys(("adapters", "fingerprint", "models"), 2),
    **dict.fromkeys(("generators",), 3),
    "pool": 4,
}
ENGINE = "kcard.cards.models.batched"


# Inside hub/: a file at its top is of the floor "", above what a hub is made of and below who asks it.
HUB = {
    "errors": 0,
    **dict.fromkeys(("storage", "object_store", "checks", "db", "values"), 1),
    **dict.fromkeys(("accounts", "quotas", "tokens"), 2),
    **dict.fromkeys(("permissions", "repositories", "card_metadata", "history"), 3),
    **dict.fromkeys(("trees", "uploads", "versions", "publications", "figures", "audits"), 3),
    **dict.fromkeys(("search", "search_index", "listing", "snapshots", "pools", "garbage"), 3),
    "": 4,
    "client": 5,
    "server": 6,
}


@pytest.mark.parametrize(("package", "floors"), [("hub", HUB), ("cards", CARDS)])
def test_imports_inside_a_package_run_downward_only(package: str, floors: Mapping[str, int]) -> None:
    def floor(module: str) -> int:
        name = module.split(".")[2]
        return floors[name] if name in floors else floors[""]

    upward = []
    for name, path in library().items():
        if package_of(name) == package:
            below = [module for module in read(path).modules if module.startswith(f"kcard.{package}.")]
            upward += [f"{name} imports {module}" for module in sorted(below) if floor(module) > floor(name)]
    assert upward == []


def test_the_engine_knows_nothing_of_cards() -> None:
    known = {
        name for path in (ROOT / "cards" / "models" / "batched").glob("*.py") for name in read(path).modules
    }
    assert {name for name in known if name.startswith("kcard.cards") and not name.startswith(ENGINE)} == set()


# Modules that are short for a reason: what runs alone, what two packages share, what keeps an extra or rich apart.
SHORT = {"kcard.__main__", "kcard.hub.migrations.env", "kcard.serve.options", "kcard.cli.escapes"}
SHORT |= {"kcard.events", "kcard.version"}
MIGRATIONS = "kcard.hub.migrations.versions."
LEAST, LEAST_OF_ONE_IMPORTER = 60, 100  # lines


def test_a_module_is_worth_opening() -> None:
    paths = {name: path for name, path in library().items() if path.name != "__init__.py"}
    lines = {name: path.read_text(encoding="utf-8").count("\n") for name, path in paths.items()}
    importers: dict[str, int] = dict.fromkeys(paths, 0)
    for path in paths.values():
        names = read(path).modules
        for name in {n for n in (*names, *(n.rpartition(".")[0] for n in names)) if n in importers}:
            importers[name] += 1
    short = {n for n, count in lines.items() if count < LEAST and not n.startswith(MIGRATIONS)}
    assert short == SHORT
    alone = {n for n, count in lines.items() if importers[n] == 1 and count < LEAST_OF_ONE_IMPORTER}
    assert alone - SHORT == set()


def test_no_class_name_stands_for_two_classes() -> None:
    places: dict[str, list[str]] = {}
    for path in library().values():
        for name in read(path).classes:
            places.setdefault(name, []).append(str(path.relative_to(ROOT)))
    assert {name: paths for name, paths in places.items() if len(paths) > 1} == {}


FIELDS = {
    *("AccessRequest.asked", "ExamRun.asked", "Audit.asked"),
    *("CardReport.given", "Exam.given"),
    *("Passage.kept", "Settings.found", "Finding.found"),
    "choices_of.given",
}


def test_a_name_says_what_it_holds() -> None:
    empty = {name for path in library().values() for name in read(path).empty}
    assert empty == FIELDS


# What extras bring (pyproject.toml); transformers looks for those of `selectors` itself.
OPTIONAL = {"bitsandbytes", "psycopg", "ray", "s3fs"}


def test_no_module_needs_an_extra_to_be_imported() -> None:
    wanted = [name for name in library() if not name.endswith(("__main__", "migrations.env"))]
    code = f"""
import importlib, sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {OPTIONAL!r}:
            raise ModuleNotFoundError(f"no module {{name}}", name=name)
sys.meta_path.insert(0, Blocked())
for name in {wanted!r}:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        print(name, error.name)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == []


def test_no_part_folder_has_an_init_file() -> None:
    assert [str(p) for part in (*PARTS, "cli") for p in (ROOT / part).rglob("__init__.py")] == []


def test_only_config_reads_the_environment() -> None:
    readers = [name for name, path in library().items() if {"environ", "getenv"} & read(path).attributes]
    assert readers == ["kcard.config"]


# Folders besides the library's with code that loads models.
OTHERS = ("benchmarks", "demo", "recipes")
GIVEN = "loading.trust_remote_code"  # the user's flag
AFTER_A_CHECK = Path("selectors/pruning.py")  # after check_trust, which reads the same flag


def test_every_model_that_is_loaded_by_name_says_that_its_code_is_not_run() -> None:
    paths = [*library().values(), *(path for folder in OTHERS for path in (ROOT / folder).rglob("*.py"))]
    loading = [(path.relative_to(ROOT), *call) for path in paths for call in read(path).loading]
    assert len(loading) >= 15
    assert [
        f"{path}:{line}: trust_remote_code is {given}"
        for path, line, given in loading
        if given != "False"
        and not (given or "").startswith(GIVEN)
        and (given, path) != ("True", AFTER_A_CHECK)
    ] == []


def modules_of(*commands: Sequence[str]) -> list[set[str]]:
    """The modules that are imported after each of these commands, run one after the other in a process of their own;
    all must succeed."""
    code = f"""
import sys
from kcard.cli.main import run
for words in {commands!r}:
    sys.argv = ["kcard", *words]
    try:
        run()
    except SystemExit as end:
        if end.code:
            raise
    print("imported", *sys.modules, file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [set(line.split()[1:]) for line in done.stderr.splitlines() if line.startswith("imported ")]


def test_the_help_lists_every_command_with_its_own_first_sentence_and_imports_none() -> None:
    from kcard.cli.main import COMMANDS, app

    group: Any = get_command(app)
    own = {name: group.get_command(None, name).get_short_help_str(1000) for name in COMMANDS}
    assert {name: text for name, (_, text) in COMMANDS.items()} == own
    overview, of_ask = modules_of(("--help",), ("ask", "--help"))
    assert overview.isdisjoint(HEAVY)
    views = [
        {name.removeprefix("kcard.cli.") for name in loaded if "kcard.cli." in name}
        for loaded in (overview, of_ask)
    ]
    assert views[0] == {"main", "output"}
    assert views[1] & {path.stem for path in (ROOT / "cli").glob("*.py")} == {
        *("ask", "main", "options", "output")
    }


# What takes a second or so to import and is needed by none of the commands that follow a retrieval card.
SLOW = {
    "torch",
    "transformers",
    "peft",
    "sklearn",
    "scipy",
    "bm25s",
    "datasets",
    "pyarrow",
    "pandas",
    "joblib",
}
SLOW |= {"alembic", "huggingface_hub", "httpx", "openai", "fastapi", "uvicorn"}


def test_following_a_retrieval_card_imports_nothing_slow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KCARD_HOME", str(tmp_path / "home"))
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "a.txt").write_text("The Rhine rises in the Alps.\nThe Elbe ends in the North Sea.\n")
    kcard.train(notes, kind="retrieval", name="rivers", description="Rivers")
    kcard.publish("rivers")
    (notes / "a.txt").write_text("The Rhine rises in the Alps.\nThe Oder passes Wroclaw.\n")
    shown = [(command, "rivers") for command in ("publish", "browse", "show", "verify")]
    sync = ("sync", str(notes), "--card", "rivers")
    commands = (*shown, ("cards", "list"), (*sync, "--dry-run"), sync, sync)
    for command, imported in zip(commands, modules_of(*commands), strict=True):
        assert imported & SLOW == set(), command
    (asking,) = modules_of(("ask", "Where does the Rhine rise?", "--cards", "rivers"))
    assert asking & SLOW == set()
    # Nor what runs models of cards, what writes to the hub, or what no question needs.
    unused = (
        "cards.models.stack",
        "cards.models.batched",
        "hub.audits",
        "hub.pools",
        "serve",
        "api",
        "training",
    )
    assert {name for name in asking if name.startswith(tuple(f"kcard.{part}" for part in unused))} == set()
