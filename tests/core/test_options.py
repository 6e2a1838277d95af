"""Options are declared once: the command line has those of the library, with its defaults, and help for each."""

import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, assert_type, get_args

import pytest
import typer
from typer.main import get_command
from typer.testing import CliRunner

import kcard
from kcard.api import gates
from kcard.cli.main import app
from kcard.cli.options import command_for
from kcard.errors import UsageError
from kcard.integrators.options import Preset
from kcard.options import REQUIRED, Option, check_values, declared, documented, takes
from kcard.selectors.registry import PRESETS


def bake(
    bread: Annotated[str, Option("Which bread.", argument=True)],
    *,
    heat: Annotated[int, Option("Degrees.", least=50, most=300)] = 220,
    loaves: Annotated[float | None, Option("How many.", least=1, default="as many as fit")] = None,
    oven: str = "not an option",
) -> str:
    """Bake bread."""
    return f"{bread} at {heat}, {loaves}, {oven}"


def test_a_signature_declares_its_options() -> None:
    options = declared(bake)
    assert list(options) == ["bread", "heat", "loaves"]
    assert options["bread"].default is REQUIRED
    assert (options["heat"].kind, options["heat"].default, options["heat"].option.help) == (
        int,
        220,
        "Degrees.",
    )


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"heat": 40}, "heat is 40: it must be between 50 and 300"),
        ({"heat": 301}, "between 50 and 300"),
        ({"loaves": 0.5}, "loaves is 0.5: it must be at least 1"),
        ({"heat": float("nan")}, "between 50 and 300"),
    ],
)
def test_a_number_out_of_range_is_refused(values: dict[str, float], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        check_values(bake, values)


@pytest.mark.parametrize("values", [{"heat": 50}, {"heat": 300}, {"loaves": None}, {}, {"other": -1}])
def test_a_number_in_its_range_is_taken(values: dict[str, float]) -> None:
    check_values(bake, values)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"selectors": "best"},
            "selectors 'best' is unknown: choose one of offline, paper, modern, multilingual",
        ),
        ({"memory": "much"}, "size 'much'"),
        ({"device": "tpu"}, "device 'tpu' is unknown: choose cpu, cuda or cuda:N"),
        (
            {"mode": "sideways"},
            "mode 'sideways' is unknown: choose one of top-down, bottom-up, hybrid, direct",
        ),
        ({"n2": 0}, "n2 is 0: it must be at least 1"),
    ],
)
def test_a_wrong_option_is_refused_also_where_no_card_is_asked(values: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        kcard.Pipeline(**{"mode": "direct", **values})


def test_the_presets_are_those_of_the_catalogue() -> None:
    assert set(get_args(Preset)) == set(PRESETS)


def test_the_docstring_lists_the_options() -> None:
    def toast(*, slices: Annotated[int | None, Option("How many.", default="all")] = None) -> None:
        """Toast bread."""

    assert documented(toast).__doc__ == "Toast bread.\n\nOptions:\n    slices: How many. Default: all."


def test_a_command_takes_the_options_of_its_function_and_of_its_view() -> None:
    application = typer.Typer(rich_markup_mode=None)
    shown: list[str] = []

    @application.command()
    @command_for(bake, leave_out={"heat"})
    def bakery(values: dict[str, object], loud: Annotated[bool, typer.Option("--loud")] = False) -> None:
        """Bake and show."""
        shown.append(bake(**values).upper() if loud else bake(**values))  # type: ignore[arg-type]

    run = CliRunner().invoke
    assert run(application, ["rye", "--loaves", "2", "--loud"]).exit_code == 0
    assert run(application, ["wheat"]).exit_code == 0
    assert run(application, ["rye", "--heat", "60"]).exit_code == 2
    assert shown == ["RYE AT 220, 2.0, NOT AN OPTION", "wheat at 220, None, not an option"]
    output = run(application, ["--help"]).output
    assert "Bake and show." in output
    assert "[default: as many as fit]" in output


VERBS: dict[str, tuple[Any, ...]] = {
    "add": (kcard.add,),
    "ask": (kcard.AskOptions, kcard.RayOptions),
    "audit": (kcard.audit, kcard.RayOptions),
    "browse": (kcard.browse,),
    "calibrate": (kcard.calibrate,),
    "check": (kcard.check,),
    "exam": (kcard.exam,),
    "gate collect": (kcard.AskOptions,),
    "gate eval": (gates.evaluate,),
    "gate fit": (gates.fit,),
    "publish": (kcard.publish,),
    "train": (kcard.train, kcard.TrainOptions),
    "train-many": (kcard.train, kcard.TrainOptions, kcard.RayOptions),
}
# What a command of the same options does not take: every question of `gate collect` is asked with cards; those of
# one card where there are many.
LEFT_OUT = {
    ("gate collect", "gate"),
    ("audit", "card"),
    *(
        ("train-many", name)
        for name in ("corpus", "name", "description", "study", "update", "output", "resume")
    ),
}


def commands(group: Any, before: str = "") -> Iterator[tuple[str, Any]]:
    """Every command with its whole name."""
    for name in group.commands:
        command = group.get_command(None, name)
        if hasattr(command, "commands"):
            yield from commands(command, f"{before}{name} ")
        else:
            yield f"{before}{name}", command


def test_the_command_line_and_python_have_the_same_options_and_defaults() -> None:
    registered = dict(commands(get_command(app)))
    for name, targets in VERBS.items():
        offered = {p.name: p for p in registered[name].params}
        for target in targets:
            for option in declared(target).values():
                if (name, option.name) in LEFT_OUT:
                    continue
                shown = offered[option.name].default
                default = tuple(shown) if isinstance(option.default, tuple) else shown
                assert default == (None if option.default is REQUIRED else option.default), (
                    name,
                    option.name,
                )


def test_every_option_of_every_command_has_help() -> None:
    bare = [
        f"{name} {parameter.name}"
        for name, command in commands(get_command(app))
        for parameter in command.params
        if not parameter.help
    ]
    assert bare == []


# Signatures: what help(), notebooks and type checkers show of a function that passes options on.

ROOT = Path(__file__).resolve().parents[2]


def public_functions() -> dict[str, Callable[..., Any]]:
    """The names of kcard, and every function of its API."""
    functions = {f"kcard.{name}": getattr(kcard, name) for name in kcard.__all__ if name != "__version__"}
    for module in pkgutil.iter_modules([str(ROOT / "src" / "kcard" / "api")], "kcard.api."):
        for name, value in vars(importlib.import_module(module.name)).items():
            if inspect.isfunction(value) and value.__module__ == module.name and name[0] != "_":
                functions[f"{module.name}.{name}"] = value
    return functions


def test_every_public_signature_names_its_options_with_types() -> None:
    functions = public_functions()
    assert len(functions) > 60
    for name, function in functions.items():
        for parameter in inspect.signature(function).parameters.values():
            assert parameter.kind is not parameter.VAR_KEYWORD, (name, parameter)
            assert parameter.annotation not in (parameter.empty, Any), (name, parameter)


@pytest.mark.parametrize(
    ("function", "sources"),
    [
        (kcard.ask, (kcard.AskOptions,)),
        (kcard.Pipeline, (kcard.AskOptions,)),
        (kcard.ask_on_cluster, (kcard.AskOptions,)),
        (kcard.train, (kcard.TrainOptions,)),
        (kcard.collect, (kcard.AskOptions,)),
        (kcard.evaluate, (kcard.AskOptions,)),
        (kcard.audit_many, (kcard.audit,)),
        (kcard.train_many, (kcard.train, kcard.TrainOptions)),
        (kcard.watch, (kcard.sync,)),
    ],
)
def test_options_that_are_passed_on_are_in_the_signature(
    function: Callable[..., Any], sources: tuple[Callable[..., Any], ...]
) -> None:
    left_out = {
        kcard.collect: {"gate"},
        kcard.evaluate: {"mode", "select"},
        kcard.audit_many: {"card"},
        kcard.train_many: {"corpus", "name", "description", "study", "update"},
    }
    parameters = inspect.signature(function).parameters
    options = {name: option for source in sources for name, option in declared(source).items()}
    missing = set(options) - set(parameters)
    assert missing == left_out.get(function, set())
    documentation = inspect.getdoc(function.__init__ if isinstance(function, type) else function)  # type: ignore[misc]
    for name in set(options) & set(parameters) - set(declared(function)) - {
        "output",
        "resume",
        "card",
        "folder",
    }:
        assert parameters[name].default == options[name].default
        assert f"    {name}: {options[name].option.help}" in str(documentation)


@pytest.mark.parametrize(
    ("function", "options", "message"),
    [
        (
            kcard.ask,
            {"question": "Who?", "modes": "direct"},
            "ask() has no option 'modes': did you mean 'mode'?",
        ),
        (kcard.ask, {"question": "Who?", "zzz": 1}, "ask() has no option 'zzz': help(ask) lists them"),
        (kcard.Pipeline, {"gates": "never"}, "Pipeline() has no option 'gates': did you mean 'gate'?"),
        (kcard.AskOptions, {"card": "x"}, "AskOptions() has no option 'card': did you mean 'cards'?"),
        (kcard.train, {"corpus": "x", "epoch": 1}, "train() has no option 'epoch': did you mean 'epochs'?"),
        (kcard.evaluate, {"tasks": "mmlu", "mode": "direct"}, "evaluate() has no option 'mode'"),
        (
            kcard.publish,
            {"card": "x", "privat": True},
            "publish() has no option 'privat': did you mean 'private'?",
        ),
        (kcard.login, {"hub": "x", "tokens": "y"}, "login() has no option 'tokens': did you mean 'token'?"),
    ],
)
def test_a_misspelt_option_is_a_type_error_that_names_the_nearest(
    function: Callable[..., object], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(TypeError, match=f"^{re.escape(message)}"):
        function(**options)


def test_type_checkers_find_misspelt_options_and_wrong_values() -> None:
    """`make lint` fails where mypy does not report what is ignored here."""
    with pytest.raises(TypeError, match="did you mean 'mode'"):
        kcard.ask("Who?", modes="direct")  # type: ignore[call-arg]
    with pytest.raises(UsageError, match="mode 'sideways' is unknown"):
        kcard.ask("Who?", mode="sideways")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="kind 'tree' is unknown"):
        kcard.train("notes", kind="tree")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="did you mean 'documents'"):
        kcard.audit_many([], document=1)  # type: ignore[call-arg]


if TYPE_CHECKING:
    assert_type(kcard.ask("Who?", cards="moons", n1=2), kcard.Answer)


def test_type_checkers_see_every_public_name_where_it_is() -> None:
    block = (ROOT / "src" / "kcard" / "__init__.py").read_text(encoding="utf-8")
    imports = dict(re.findall(r"^    from ([\w.]+ import \w+) as (\w+)$", block, re.M))
    assert {name: line.split()[0] for line, name in imports.items()} == kcard._HOMES


def test_what_type_checkers_know_of_the_options_is_what_they_declare() -> None:
    command = [sys.executable, str(ROOT / "docs" / "keywords.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_function_that_takes_over_options_keeps_its_own_declaration() -> None:
    @takes(bake, leave_out={"loaves"})
    def sell(price: Annotated[float, Option("In euros.", least=0)], **options: Any) -> str:
        """Bake and sell."""
        return f"{bake(**options)} for {price}"

    assert list(declared(sell)) == ["price"]
    assert str(inspect.signature(sell)) == "(price: float, *, bread: str, heat: int = 220) -> str"
    assert sell(2.5, bread="rye") == "rye at 220, None, not an option for 2.5"
    with pytest.raises(TypeError, match="did you mean 'heat'"):
        sell(2.5, bread="rye", head=100)


@pytest.mark.parametrize(
    ("typed", "completion"),
    [
        ("kcard.ask('Who?', mod", "mode="),
        ("kcard.train('notes', epo", "epochs="),
        ("kcard.Pipeline(max_c", "max_cards="),
        ("kcard.evaluate('mmlu', llm_u", "llm_url="),
    ],
)
def test_notebooks_complete_the_names_of_options(typed: str, completion: str) -> None:
    jedi = pytest.importorskip("jedi")  # which completes in IPython
    completions = jedi.Interpreter(typed, [{"kcard": kcard}]).complete()
    assert completion in [item.name for item in completions]
