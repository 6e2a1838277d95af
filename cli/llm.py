"""kcard llm: LLMs on this computer, and the one that answers."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Annotated, Any

import typer

from kcard.api.hub import pull_llm
from kcard.cli.config import store
from kcard.cli.output import Json, as_data, console, echo, note, print_facts, print_json, progress, table
from kcard.cli.publish import require_remote_url
from kcard.config import settings, user_file
from kcard.errors import UsageError
from kcard.gguf_file import read_gguf
from kcard.io import shown_size
from kcard.llms.local_models import (
    KCARD_HUB,
    MEASURED_QUESTIONS,
    READER_RIGHT,
    READER_WRONG,
    CatalogueEntry,
    LocalServer,
    PulledModel,
    catalogue,
    chosen_spec,
    find_pulled,
    find_servers,
    pull,
    pulled,
    remove,
)

Name = Annotated[str, typer.Argument(help="A pulled LLM; `kcard llm list` shows them.")]

NUMBERS = {"size", "download", "memory", "reads", "writes", "right", "wrong"}

commands = typer.Typer(
    no_args_is_help=True,
    help="LLMs on this computer: list, pull, choose, remove.",
    rich_markup_mode=None,
)


def register(app: typer.Typer) -> None:
    app.add_typer(commands, name="llm")


@commands.command("list")
def list_(json_: Json = False) -> None:
    """List the LLMs that are here, servers on this computer's usual ports, and LLMs to be had."""
    here, servers, chosen = pulled(), find_servers(), settings().llm
    to_be_had = dict(catalogue())
    for model in here:
        to_be_had.pop(model.name, None)
    if json_:
        print_json(
            {
                "chosen": chosen,
                "here": [_row(model) for model in here],
                "servers": [asdict(server) for server in servers],
                "to_be_had": [{"name": name} | asdict(entry) for name, entry in to_be_had.items()],
            }
        )
        return
    echo(f"chosen: {chosen}")
    if here:
        _print_here(here)
    if servers:
        _print_servers(servers)
    if to_be_had:
        _print_to_be_had(to_be_had)
    reader = f"the reader: {READER_RIGHT}, {READER_WRONG}"
    echo(f"\nright, wrong: of {MEASURED_QUESTIONS} questions about manuals ({reader}); to the others")
    echo("kcard said that it doesn't know")
    variants = [entry.measured for entry in catalogue().values() if entry.measured]
    if variants:
        echo(f"* measured with {' and '.join(variants)}")


def _print_here(models: Sequence[PulledModel]) -> None:
    from rich.markup import escape

    echo("\nhere (kcard llm use NAME); tokens read and written a second, as last measured:")
    rows = table("name", "size", "reads", "writes", "right", "wrong", "from", right=NUMBERS)
    for model in models:
        reads, writes = "-", "-"
        if model.speed is not None:
            reads, writes = f"{model.speed.reads:.0f}", f"{model.speed.writes:.0f}"
        source = "unknown"
        if model.origin is not None:
            source = model.origin.source
        figures = _figures(catalogue().get(model.name))
        rows.add_row(*map(escape, (model.name, shown_size(model.size), reads, writes, *figures, source)))
    console().print(rows)


def _print_servers(servers: Sequence[LocalServer]) -> None:
    from rich.markup import escape

    echo("\nservers on this computer:")
    rows = table("program", "model", "to choose it")
    for server in servers:
        for name in server.models:
            rows.add_row(*map(escape, (server.program, name, server.command(name))))
    console().print(rows)


def _print_to_be_had(entries: Mapping[str, CatalogueEntry]) -> None:
    from rich.markup import escape

    licences = " or ".join(sorted({entry.licence for entry in entries.values()}))
    echo(f"\nto be had (kcard llm pull NAME), licence {licences}:")
    rows = table("name", "download", "memory", "right", "wrong", "", right=NUMBERS)
    for name, entry in entries.items():
        sizes = (shown_size(entry.size), shown_size(entry.memory))
        rows.add_row(*map(escape, (name, *sizes, *_figures(entry), entry.about)))
    console().print(rows)


def _figures(entry: CatalogueEntry | None) -> tuple[str, str]:
    """Return the right and wrong answers; with a star where a variant was measured."""
    if entry is None or entry.right is None:
        return "-", "-"
    star = "*" if entry.measured else ""
    return f"{entry.right}{star}", f"{entry.wrong}{star}"


@commands.command("pull")
def pull_(
    name: Annotated[
        str,
        typer.Argument(
            help="A name of `kcard llm list`, hf:OWNER/REPOSITORY/FILE.gguf, or kcard:OWNER/REPOSITORY/FILE.gguf of a "
            "kcard hub."
        ),
    ],
    hub: Annotated[
        str | None, typer.Option(help="URL of the hub of kcard:…. [default: the setting hub_url]")
    ] = None,
    json_: Json = False,
) -> None:
    """Fetch an LLM, and verify it; a download that was interrupted is resumed."""
    is_on_kcard_hub = name.startswith(KCARD_HUB)
    if hub is not None and not is_on_kcard_hub:
        raise UsageError(f"--hub goes with {KCARD_HUB}OWNER/REPOSITORY/FILE.gguf, not with {name!r}")
    with progress() as on_event:
        if is_on_kcard_hub:
            url = require_remote_url(hub)
            model = pull_llm(name, hub=url, on_event=on_event, progress=sys.stderr.isatty())
        else:
            model = pull(name, on_event)
    if json_:
        print_json(_row(model))
        return
    echo(f"{model.name}  {shown_size(model.size)}  {model.path}")
    note(f"to answer with it: kcard llm use {model.name}")


@commands.command()
def use(
    name: Annotated[
        str,
        typer.Argument(
            help="A pulled LLM, a file PATH.gguf, or as for --llm: ollama:MODEL, openai:MODEL ..."
        ),
    ],
    url: Annotated[str | None, typer.Option("--url", help="URL of the server of openai:MODEL.")] = None,
) -> None:
    """Make an LLM the one that answers, in ask, chat, serve and eval, unless --llm names another."""
    spec = chosen_spec(name, url)
    if url is not None:
        store("llm_url", url, user_file())
    store("llm", spec, user_file())


@commands.command()
def show(name: Name, json_: Json = False) -> None:
    """Show a pulled LLM: its architecture, window, licence and origin."""
    model = find_pulled(name)
    file = read_gguf(model.path)
    licence = file.licence
    if not licence and name in catalogue():
        licence = catalogue()[name].licence
    facts: dict[str, Any] = _row(model) | {
        "model": file.name,
        "architecture": file.architecture,
        "parameters": file.parameters,
        "window": file.window,
        "chat": file.has_chat_template,
        "licence": licence,
    }
    if json_:
        print_json(facts)
        return
    if model.speed is not None:
        speed = model.speed
        facts["speed"] = (
            f"reads {speed.reads:g}, writes {speed.writes:g} tokens a second, {speed.threads} threads"
        )
    print_facts(facts, 13)


@commands.command()
def rm(name: Name) -> None:
    """Remove a pulled LLM from this computer."""
    model = remove(name)
    note(f"removed {model.name}: {shown_size(model.size)} are free again")
    if settings().llm == f"local:{name}":
        note("it was the LLM that answers: choose another with `kcard llm use`, such as embedded")


def _row(model: PulledModel) -> dict[str, Any]:
    row: dict[str, Any] = {"name": model.name, "path": str(model.path), "size": model.size}
    row |= {"source": None, "hub": None, "sha256": None, "speed": as_data(model.speed)}
    origin = model.origin
    if origin is not None:
        row |= {"source": origin.source, "hub": origin.hub or None, "sha256": origin.sha256}
    return row
