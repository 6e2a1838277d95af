"""The help of commands with many options: `--help` shows the few that most people need, `--help-all` all of them."""

from typing import Annotated, Any

import typer
from typer.core import TyperArgument, TyperCommand

from kcard.cli.output import echo

IS_LONG = "kcard.is_long_help"  # in the context's meta
ARGUMENTS, OPTIONS = "Arguments", "Options"  # headings of the short help


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


def _show_all(ctx: typer.Context, is_requested: bool) -> None:
    if is_requested and not ctx.resilient_parsing:
        ctx.meta[IS_LONG] = True
        echo(ctx.get_help())
        raise typer.Exit


HelpAll = Annotated[
    bool,
    typer.Option("--help-all", callback=_show_all, is_eager=True, help="Show every option and exit."),
]
