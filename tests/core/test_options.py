"""Options are declared once: the command line has those of the library, with its defaults, and help for each."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, assert_type, get_args

import pytest
import typer
from typer.main import get_command
from typer.testing import CliRunner

import kcard
from kcard.cli.main import app
from kcard.cli.options import command_for
from kcard.errors import UsageError
from kcard.integrators.options import Preset
from kcard.options import REQUIRED, Option, OptionGroup, check_values, declared
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
    for taken in ({"heat": 50}, {"heat": 300}, {"loaves": None}, {}, {"other": -1}):
        check_values(bake, taken)


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        (
            "selectors",
            "best",
            "selectors 'best' is unknown: choose one of offline, paper, modern, multilingual",
        ),
        ("memory", "much", "size 'much'"),
        ("device", "tpu", "device 'tpu' is unknown: choose cpu, cuda or cuda:N"),
        ("mode", "sideways", "mode 'sideways' is unknown: choose one of top-down, bottom-up, hybrid, direct"),
        ("n2", 0, "n2 is 0: it must be at least 1"),
    ],
)
def test_a_wrong_option_is_refused_also_where_no_card_is_asked(option: str, value: Any, message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        kcard.Pipeline(**{"mode": "direct", option: value})


def test_the_presets_are_those_of_the_catalogue() -> None:
    assert set(get_args(Preset)) == set(PRESETS)


def test_the_docstring_lists_the_options() -> None:
    @dataclass(frozen=True)
    class Heat(OptionGroup, panel="The oven"):
        """How hot it is."""

        heat: Annotated[int, Option("Degrees.", least=50)] = 220

    @dataclass(frozen=True)
    class Toast(Heat):
        """How bread is toasted."""

        slices: Annotated[int | None, Option("How many.", default="all")] = None

    listed = "How bread is toasted.\n\nOptions:\n    slices: How many. Default: all.\n    heat: Degrees."
    assert Toast.__doc__ == listed
    assert [option.option.panel for option in declared(Toast).values()] == ["", "The oven"]
    assert Toast.of(None, {"slices": 2}) == Toast.of(Toast(heat=90), {"slices": 2, "heat": 220})
    with pytest.raises(UsageError, match="heat is 40: it must be at least 50"):
        Toast(heat=40)
    with pytest.raises(TypeError, match=r"Toast\(\) has no option 'slice': did you mean 'slices'"):
        Toast.of(None, {"slice": 2})


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


def commands(group: Any, before: str = "") -> Iterator[tuple[str, Any]]:
    """Every command with its whole name."""
    for name in group.commands:
        command = group.get_command(None, name)
        if hasattr(command, "commands"):
            yield from commands(command, f"{before}{name} ")
        else:
            yield f"{before}{name}", command


def test_every_option_of_every_command_has_help() -> None:
    bare = [
        f"{name} {parameter.name}"
        for name, command in commands(get_command(app))
        for parameter in command.params
        if not parameter.help
    ]
    assert bare == []


# Options that are passed on by name.

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("function", "option", "message"),
    [
        (kcard.ask, "modes", "AskOptions() has no option 'modes': did you mean 'mode'?"),
        (kcard.ask, "zzz", "AskOptions() has no option 'zzz': help(AskOptions) lists them"),
        (kcard.Pipeline, "gates", "AskOptions() has no option 'gates': did you mean 'gate'?"),
        (kcard.train, "epoch", "TrainOptions() has no option 'epoch': did you mean 'epochs'?"),
        (kcard.train_many, "name", "train_many() has no option 'name'"),
        (kcard.train_many, "update", "train_many() has no option 'update'"),
        (kcard.evaluate, "mode", "evaluate() has no option 'mode'"),
        (kcard.audit_many, "document", "audit_many() has no option 'document': did you mean 'documents'?"),
    ],
)
def test_a_misspelt_option_is_a_type_error_that_names_the_nearest(
    function: Callable[..., object], option: str, message: str
) -> None:
    first = () if function is kcard.Pipeline else ("x",)
    with pytest.raises(TypeError, match=f"^{re.escape(message)}"):
        function(*first, **{option: 1})


if TYPE_CHECKING:
    assert_type(kcard.ask("Who?", cards="moons", n1=2), kcard.Answer)


def test_type_checkers_see_every_public_name_where_it_is() -> None:
    block = (ROOT / "src" / "kcard" / "__init__.py").read_text(encoding="utf-8")
    imports = dict(re.findall(r"^    from ([\w.]+ import \w+) as (\w+)$", block, re.M))
    assert {name: line.split()[0] for line, name in imports.items()} == kcard._HOMES
