"""The help of commands with many options: `--help` shows the few that most people need, `--help-all` all of them."""

import textwrap
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperArgument, TyperCommand

from kcard.cli.output import echo

IS_LONG = "kcard.is_long_help"  # in the context's meta
ARGUMENTS, OPTIONS = "Arguments", "Options"  # headings of the short help
MAX_SENTENCE = 1000  # characters of what a command does
FLAG_COLUMNS = 26  # of a list of options, beside what they mean


class LongCommand(TyperCommand):
    """A command whose help comes in two lengths: the short one leaves out the options of a panel."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        sections: dict[str, list[tuple[str, str]]] = {ARGUMENTS: [], OPTIONS: []}
        for param in self.get_params(ctx):
            panel = getattr(param, "rich_help_panel", None) or OPTIONS
            record = param.get_help_record(ctx)
            if record is not None:
                sections.setdefault(ARGUMENTS if isinstance(param, TyperArgument) else panel, []).append(
                    record
                )
        panels = [heading for heading in sections if heading not in (ARGUMENTS, OPTIONS)]
        is_long = bool(ctx.meta.get(IS_LONG))
        for heading, records in sections.items():
            if records and (is_long or heading not in panels):
                with formatter.section(heading):
                    formatter.write_dl(records)
        if not is_long:
            count = sum(len(sections[heading]) for heading in panels)
            names = "; ".join(heading[0].lower() + heading[1:] for heading in panels)
            formatter.write_paragraph()
            formatter.write_text(
                f"{count} more options: {names}. `{ctx.command_path} --help-all` shows them."
            )


def tree(ctx: typer.Context, names: Sequence[str]) -> str:
    """Return the help of the commands of a group, in this order: each with its first sentence, its arguments and its
    options in a line each."""
    group: Any = ctx.command
    formatter = ctx.make_formatter()
    for name in names:
        command = group.get_command(ctx, name)
        path = f"{ctx.command_path} {name}"
        own = typer.Context(command, parent=ctx, info_name=name)
        usage = "" if hasattr(command, "commands") else f" {' '.join(command.collect_usage_pieces(own))}"
        with formatter.section(f"{path}{usage}"):
            formatter.write_text(command.get_short_help_str(MAX_SENTENCE))
            records = [param.get_help_record(own) for param in command.get_params(own)]
            rows = [(record[0], _first_line(record[1], formatter.width)) for record in records if record]
            if rows:
                formatter.write_dl(rows, col_max=FLAG_COLUMNS)
        if hasattr(command, "commands"):
            formatter.write(tree(own, command.list_commands(own)))
    return str(formatter.getvalue())


def _first_line(text: str, width: int) -> str:
    """Return as much of an option's help as fits beside its name."""
    sentence = " ".join(text.split())
    return textwrap.shorten(sentence, width - FLAG_COLUMNS - 4, placeholder=" …", break_on_hyphens=False)


def _show_all(ctx: typer.Context, is_requested: bool) -> None:
    if is_requested and not ctx.resilient_parsing:
        ctx.meta[IS_LONG] = True
        echo(ctx.get_help())
        raise typer.Exit


HelpAll = Annotated[
    bool,
    typer.Option("--help-all", callback=_show_all, is_eager=True, help="Show every option and exit."),
]
