"""Options are declared once: the command line has those of the library, with its defaults, and help for each."""

import re
from collections.abc import Iterator
from typing import Annotated, Any, get_args

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
from kcard.options import REQUIRED, Option, check_values, declared, documented
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
