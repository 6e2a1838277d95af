"""kcard check: does this evidence support that claim? One claim, or a file of them."""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kcard.cli.output import console, counter, note, print_json
from kcard.errors import UsageError

if TYPE_CHECKING:
    from kcard.api.check import Checked

__all__ = ["register"]

EVIDENCE = (
    "Where evidence is searched: a file or folder of text, wikipedia, or a registered name. Repeatable."
)
INPUT = "Claims, one JSON object a line: claim, and evidence (a text or a list of texts)."


def register(app: typer.Typer) -> None:
    app.command()(check)


def check(
    claim: Annotated[str | None, typer.Argument(help="The claim.", show_default=False)] = None,
    evidence: Annotated[list[str] | None, typer.Option(help=EVIDENCE, show_default=False)] = None,
    text: Annotated[
        list[str] | None, typer.Option(help="Evidence as such. Repeatable.", show_default=False)
    ] = None,
    input_: Annotated[Path | None, typer.Option("--input", help=INPUT)] = None,
    output: Annotated[Path | None, typer.Option(help="Where the scores of --input go.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with --output.")] = False,
    checker: Annotated[str, typer.Option(help="Who checks; `kcard selectors` lists them.")] = "minilm",
    device: Annotated[str, typer.Option(help="Where the checker runs: cpu, cuda or cuda:N.")] = "cpu",
    trust_remote_code: Annotated[
        bool, typer.Option("--trust-remote-code", help="Run code from the checker's repository.")
    ] = False,
    json_: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check a claim against evidence: how far it is supported, and by which words."""
    if (claim is None) == (input_ is None):
        raise UsageError("give one claim, or --input FILE with --output FILE")
    if (input_ is None) != (output is None):
        raise UsageError("--input and --output go together")
    if input_ is not None and output is not None:
        if evidence or text:
            raise UsageError("--evidence and --text go with one claim: --input brings its own evidence")
        _check_file(input_, output, checker, resume, device, trust_remote_code)
        return
    if resume:
        raise UsageError("--resume goes with --input and --output")
    if not evidence and not text:
        raise UsageError("a claim needs evidence: --evidence FILE, FOLDER or NAME, or --text TEXT")
    from kcard.api.check import check as check_claim

    checked = check_claim(
        claim or "",
        evidence or (),
        texts=text or (),
        checker=checker,
        device=device,
        trust_remote_code=trust_remote_code,
        report=_told,
    )
    if json_:
        print_json(checked.to_json())
    else:
        _print(checked)


def _check_file(
    source: Path, target: Path, checker: str, resume: bool, device: str, trust_remote_code: bool
) -> None:
    from kcard.api.check_file import check_file

    try:
        with _progress() as report:
            totals = check_file(
                source,
                target,
                checker=checker,
                resume=resume,
                device=device,
                trust_remote_code=trust_remote_code,
                report=report,
                told=_told,
            )
    except KeyboardInterrupt:
        note(f"interrupted: what was scored is in {target}; go on with the same command and --resume")
        sys.exit(130)
    before = f", {totals.earlier} of them before" if totals.earlier else ""
    note(f"{totals.claims} claims scored{before}: {target}")


@contextmanager
def _progress() -> Iterator[Callable[[int, int], None]]:
    """A bar from the first scores on; how many claims there are is not known before."""
    with ExitStack() as shown:
        bars: list[Callable[[int], None]] = []

        def report(done: int, claims: int) -> None:
            if not bars:
                bars.append(shown.enter_context(counter("checking", claims)))
            bars[0](done)

        yield report


def _told(text: str) -> None:
    note(f"note: {text}")


def _print(checked: "Checked") -> None:
    out = console()
    if checked.source is None or checked.score is None:
        out.print("unknown: no evidence was found")
        return
    out.print(f"{checked.verdict}  {checked.score:.2f}")
    out.print(f"  {checked.window or '(no word of the evidence was read)'}", markup=False)
    if checked.source.file:
        out.print(f"  {checked.source.file}:{checked.source.line}", markup=False, style="dim")
