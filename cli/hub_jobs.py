"""kcard hub worker, jobs, measure: what this hub measures."""

from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from kcard.api.worker import worker as verb
from kcard.cli.command import command_for
from kcard.cli.completion import published
from kcard.cli.hub_option import here
from kcard.cli.output import Json, as_data, echo, note, print_json

if TYPE_CHECKING:
    from kcard.hub.repositories.jobs import Job

__all__ = ["register"]

DatabaseUrl = Annotated[
    str | None,
    typer.Option(help="The hub's database. [default: the setting database_url]", show_default=False),
]


def register(hub: typer.Typer) -> None:
    for command in (worker, jobs, measure):
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


def _job(job: "Job") -> dict[str, Any]:
    return {"reference": job.reference} | as_data(job)
