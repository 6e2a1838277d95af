"""kcard check: does this evidence support that claim? One claim, or a file of them."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kcard.api.check import check as verb
from kcard.cli.command import command_for
from kcard.cli.output import Json, console, late_counter, note, print_json, resumable
from kcard.errors import UsageError

if TYPE_CHECKING:
    from kcard.api.check import Checked

__all__ = ["register"]

INPUT = "Claims, one JSON object per line: claim, and evidence (a text or a list of texts), if --evidence names none."


def register(app: typer.Typer) -> None:
    app.command()(check)


@command_for(verb, optional={"claim"})
def check(
    given: dict[str, Any],
    input_: Annotated[Path | None, typer.Option("--input", help=INPUT)] = None,
    output: Annotated[Path | None, typer.Option(help="File for the scores of --input.")] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Resume an interrupted run into --output.")
    ] = False,
    json_: Json = False,
) -> None:
    """Check how far evidence supports a claim, and with which words."""
    claim, evidence, texts = given.pop("claim"), given.pop("evidence"), given.pop("texts")
    if (claim is None) == (input_ is None):
        raise UsageError("give one claim, or --input FILE with --output FILE")
    if (input_ is None) != (output is None):
        raise UsageError("--input and --output go together")
    if input_ is not None and output is not None:
        if texts:
            raise UsageError("--text goes with one claim: --input brings its own texts")
        _check_file(input_, output, evidence, resume, given)
        return
    if resume:
        raise UsageError("--resume needs --input and --output")
    if not evidence and not texts:
        raise UsageError("a claim needs evidence: --evidence FILE, FOLDER or NAME, or --text TEXT")
    checked = verb(claim, evidence, texts=texts, **given, report=_told)
    if json_:
        print_json(checked.to_json())
    else:
        _print(checked)


def _check_file(
    source: Path, target: Path, evidence: list[str], resume: bool, options: dict[str, Any]
) -> None:
    from kcard.api.check_file import check_file

    with resumable("scores", target), late_counter("checking") as report:
        totals = check_file(
            source, target, evidence or (), resume=resume, **options, report=report, told=_told
        )
    before = f", {totals.earlier} of them before" if totals.earlier else ""
    note(f"{totals.claims} claims scored{before}: {target}")


def _told(text: str) -> None:
    note(f"note: {text}")


def _print(checked: "Checked") -> None:
    out = console()
    if checked.source is None or checked.score is None:
        out.print("not covered: no evidence was found")
        return
    out.print(f"{checked.verdict}  {checked.score:.2f}")
    out.print(f"  {checked.window or '(no word of the evidence was read)'}", markup=False)
    if checked.source.file:
        out.print(f"  {checked.source.file}:{checked.source.line}", markup=False, style="dim")
