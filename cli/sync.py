"""kcard sync: a card is brought up to date with its folder."""

import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kcard.api.sync import Foreseen, Synced
from kcard.api.sync import sync as verb
from kcard.cli.command import command_for
from kcard.cli.output import Json, echo, note, print_json, progress
from kcard.errors import KcardError, TrainingInterrupted
from kcard.training.progress import duration

if TYPE_CHECKING:
    from kcard.answer import Source

__all__ = ["register"]

SHOWN = 10  # passages of a kind
LONG = 90  # characters of a passage


def register(app: typer.Typer) -> None:
    app.command()(sync)


@command_for(verb)
def sync(
    given: dict[str, Any],
    watch: Annotated[
        bool, typer.Option("--watch", help="Go on: sync again whenever the folder has changed, until Ctrl-C.")
    ] = False,
    interval: Annotated[
        float,
        typer.Option(
            help="With --watch: seconds between looks at the folder, and without a change before a sync."
        ),
    ] = 2.0,
    json_: Json = False,
) -> None:
    """Bring a card up to date with its folder: learn what was added, forget what was removed."""
    try:
        with progress() as report:
            if watch:
                _watch(given, interval, json_, report)
            else:
                found = verb(**given, report=report)
    except TrainingInterrupted as stop:
        note(f"kcard: {stop}")
        sys.exit(130)
    if not watch:
        _show(found, json_)


def _watch(given: dict[str, Any], interval: float, as_json: bool, report: Any) -> None:
    from kcard.api.watch import watch

    def failed(error: KcardError) -> None:
        note(f"kcard: {error}")

    note(f"watching {given['folder']}; Ctrl-C ends it")
    try:
        watch(
            **given, interval=interval, done=lambda found: _show(found, as_json), failed=failed, report=report
        )
    except TrainingInterrupted:
        raise
    except KeyboardInterrupt:
        note(f"stopped watching {given['folder']}")


def _show(found: Synced, as_json: bool) -> None:
    if as_json:
        print_json(_data(found))
        return
    changes = found.changes
    for sign, sources in (("+", changes.added), ("-", changes.removed)):
        _list(sources, sign)
    _list_changed(changes.changed)
    for was, now in changes.renamed.items():
        echo(f"> {was} is {now}")
    for held in changes.held:
        echo(f"! {held.file}: {held.passages} passages kept: {held.reason}")
    echo(
        f"{found.card}: {len(changes.added)} added, {len(changes.changed)} changed, {len(changes.removed)} removed, "
        f"{changes.moved} moved; passages in all: {len(changes.corpus.passages)}"
    )
    if found.refused:
        note(found.refused)
    if found.foreseen is not None:
        echo(_expected(found.foreseen))
    if found.record is None or found.folder is None:
        return
    if found.record.recall is not None:
        note(found.record.recall.summary())
    echo(f"{found.version or found.folder}, {found.record.way} in {found.record.seconds:.0f} s")


def _expected(foreseen: Foreseen) -> str:
    if foreseen.way == "indexed":
        return "a sync would index the passages again"
    if foreseen.way == "continued":
        return "a sync would go on from the model's weights"
    why = f": {foreseen.why}" if foreseen.why else ""
    last = "" if foreseen.seconds is None else f" (last time {duration(foreseen.seconds)})"
    return f"a sync would train the model from scratch{last}{why}"


def _list(sources: "Sequence[Source]", sign: str) -> None:
    for source in sources[:SHOWN]:
        echo(f"{sign} {_line(source)}")
    if len(sources) > SHOWN:
        echo(f"{sign} … and {len(sources) - SHOWN} more")


def _list_changed(pairs: "Sequence[tuple[Source, Source]]") -> None:
    """Each passage before and after, where they differ."""
    for old, new in pairs[:SHOWN]:
        letters = zip(_one_line(old), _one_line(new), strict=False)
        at = next((place for place, (was, now) in enumerate(letters) if was != now), 0)
        echo(f"~ {_line(old, at)}\n  {_line(new, at)}")
    if len(pairs) > SHOWN:
        echo(f"~ … and {len(pairs) - SHOWN} more")


def _line(source: "Source", at: int = 0) -> str:
    """Where the passage stands, and of a long one the part that holds character `at`."""
    text, start = _one_line(source), 0 if at < LONG // 2 else at - LONG // 2
    shown = ("…" if start else "") + text[start : start + LONG] + ("…" if len(text) > start + LONG else "")
    return f"{source.file}:{source.line}  {shown}"


def _one_line(source: "Source") -> str:
    return " ".join(source.text.split())


def _data(found: Synced) -> dict[str, Any]:
    changes = found.changes
    return {
        "card": found.card,
        "folder": None if found.folder is None else str(found.folder),
        "version": found.version or None,
        "refused": found.refused or None,
        "foreseen": None if found.foreseen is None else asdict(found.foreseen),
        "passages": {"before": changes.before, "now": len(changes.corpus.passages)},
        "added": [_place(source) for source in changes.added],
        "removed": [_place(source) for source in changes.removed],
        "changed": [{"before": _place(old), "after": _place(new)} for old, new in changes.changed],
        "moved": changes.moved,
        "renamed": dict(changes.renamed),
        "held": [asdict(held) for held in changes.held],
        "sync": None if found.record is None else asdict(found.record),
    }


def _place(source: "Source") -> dict[str, Any]:
    return {"file": source.file, "line": source.line, "text": source.text}
