"""kcard hub worker, jobs, measure, appeal, appeals, decide: what this hub measures, and appeals against quarantine."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from kcard.api.worker import worker as verb
from kcard.cli.command import command_for
from kcard.cli.completion import published
from kcard.cli.hub_option import HubOption, elsewhere, here
from kcard.cli.output import Json, as_data, echo, note, print_json

if TYPE_CHECKING:
    from kcard.hub.repositories.appeals import Appeal
    from kcard.hub.repositories.jobs import Job

__all__ = ["register"]

DatabaseUrl = Annotated[
    str | None,
    typer.Option(help="The hub's database. [default: the setting database_url]", show_default=False),
]


def register(hub: typer.Typer) -> None:
    for command in (worker, jobs, measure, appeal, appeals, decide):
        hub.command()(command)


@command_for(verb)
def worker(given: dict[str, Any], database_url: DatabaseUrl = None) -> None:
    """Measure published versions, from a queue that workers share; Ctrl-C puts the current job back."""
    verb(**given, hub=here(database_url), report=note)


def jobs(
    state: Annotated[
        Literal["waiting", "running", "done", "failed"] | None,
        typer.Option(help="Only jobs in this state.", show_default=False),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of jobs.")] = 100,
    database_url: DatabaseUrl = None,
    json_: Json = False,
) -> None:
    """List measurements that wait, run, are done or have failed, latest first."""
    found = here(database_url).jobs.list(state, limit)
    if json_:
        print_json([_job(job) for job in found])
        return
    for job in found:
        due = f"due {job.due:%Y-%m-%d %H:%M}" if job.state == "waiting" else None
        cells = (
            job.number,
            job.state,
            job.reference,
            f"attempts {job.attempts}",
            job.worker or due,
            job.error,
        )
        echo("  ".join(str(cell) for cell in cells if cell is not None))


def measure(
    cards: Annotated[
        list[str] | None,
        typer.Argument(
            help="Cards. [default: all cards that no job measured or will]",
            autocompletion=published,
            show_default=False,
        ),
    ] = None,
    database_url: DatabaseUrl = None,
    json_: Json = False,
) -> None:
    """Have cards measured by a worker."""
    hub = here(database_url)
    added = [hub.jobs.add(hub.get(card)) for card in cards] if cards else hub.jobs.add_missing(hub.list())
    if json_:
        print_json([_job(job) for job in added])
    note(f"{len(added)} job{'' if len(added) == 1 else 's'} added; `kcard hub worker` does them")


def appeal(
    card: Annotated[
        str,
        typer.Argument(
            help="A card; of a remote hub namespace/name.", autocompletion=published, show_default=False
        ),
    ],
    text: Annotated[str, typer.Option("--note", help="Why the audit is wrong.", show_default=False)],
    hub: HubOption = None,
    json_: Json = False,
) -> None:
    """Appeal against a card's quarantine, once for each audit: it is audited again, and an administrator decides."""
    url = elsewhere(hub)
    if url is not None:
        from kcard.api.remote import appeal as appeal_there

        made = appeal_there(card, text, hub=url)
    else:
        local = here()
        made = _appeal(local.appeals.make(local.get(card), text))
    if json_:
        print_json(made)
    note(f"appeal {made['number']} was made; an administrator will decide")


def appeals(
    undecided: Annotated[bool, typer.Option("--open", help="Only those without a decision.")] = False,
    database_url: DatabaseUrl = None,
    json_: Json = False,
) -> None:
    """List appeals against quarantine, latest first."""
    found = here(database_url).appeals.list(undecided=undecided or None)
    if json_:
        print_json([_appeal(each) for each in found])
        return
    for each in found:
        echo("  ".join(_cells(each)))


def decide(
    number: Annotated[int, typer.Argument(help="The appeal's number.", show_default=False)],
    answer: Annotated[
        Literal["release", "keep"], typer.Argument(help="release or keep.", show_default=False)
    ],
    text: Annotated[str, typer.Option("--note", help="The reason.")] = "",
    database_url: DatabaseUrl = None,
    json_: Json = False,
) -> None:
    """Decide an appeal: release the card from quarantine, or keep it there."""
    decided = here(database_url).appeals.decide(number, answer, text)
    if json_:
        print_json(_appeal(decided))
    note(f"{decided.reference} is {decided.decision}")


def _cells(each: "Appeal") -> Iterable[str]:
    second = "not done" if each.second_factuality is None else f"{each.second_factuality:.2f}"
    yield from (str(each.number), each.decision or "open", each.reference)
    yield f"audit {each.audit}: {_score(each.factuality)}, second audit: {second}"
    yield f"{each.author or '-'}: {each.note}"
    if each.decision_note:
        yield f"{each.decided_by or '-'}: {each.decision_note}"


def _score(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _job(job: "Job") -> dict[str, Any]:
    return {"reference": job.reference} | as_data(job)


def _appeal(each: "Appeal") -> dict[str, Any]:
    return {"reference": each.reference} | as_data(each)
