"""A hub whose pages answer questions, with small cards of passages."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from kcard.api.answer_process import program
from kcard.hub.server.dependencies import ServerOptions
from kcard.hub.server.questions import Program, run_ask_workers
from tests.hub.client.cards import rivers
from tests.hub.server.browser_session import hub_for_browsers
from tests.hub.shared_hub import Shared

__all__ = ["MOONS", "RIVERS", "asking_hub", "publish_passages"]

MOONS = (
    "Christiaan Huygens discovered Titan, a moon of Saturn, in 1655.",
    "Asaph Hall discovered Phobos, a moon of Mars, in 1877.",
    "William Lassell discovered Triton, a moon of Neptune, in 1846.",
)
RIVERS = (
    "The Rhine rises in the Alps.",
    "The Oder rises in the Sudetes.",
    "The Po rises in the Cottian Alps.",
)


@contextmanager
def asking_hub(
    folder: Path, answering: Program | None = None, options: ServerOptions | None = None, **settings: Any
) -> Iterator[Shared]:
    """As hub_for_browsers, with one process that answers; without `answering` it asks the cards."""
    with run_ask_workers(1, answering or program()) as socket:
        asking = replace(options or ServerOptions(), asking=socket)
        with hub_for_browsers(folder, asking, **settings) as shared:
            yield shared


def publish_passages(
    shared: Shared, folder: Path, name: str, passages: tuple[str, ...], about: str, *, private: bool = False
) -> None:
    """Publish the first version of a card that looks passages up."""
    card = rivers(folder, *passages, name=name.partition("/")[2], description=about)
    repository = shared.create(name, private=private)
    files = {path: (card.folder / path).read_bytes() for path in [*card.manifest.files, "kcard.json"]}
    commit = shared.put(name, files)
    shared.hub.publications.publish(repository, "v1", commit.sha, shared.identity("ada:admin"))
