"""Which adapters are loaded on a server: a limited number of places, from which the least recently used one leaves.

Other programs may load and drop adapters of the same server. So what the server lists counts, not what was loaded
from here, and a name that vanished is loaded again.
"""

import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Condition, Lock

from kcard.cards.lm.vllm.server import Server

__all__ = ["PLACES", "PREFIX", "Place", "Places"]

PLACES = 4  # where the server does not tell
FRESH = (
    60.0  # seconds after which a model is checked again: its server may have been started anew with another
)
LEFT = 60.0  # seconds for which another program's adapter is left alone
PREFIX = "kcard-"  # of the names of all adapters that kcard loads


@dataclass
class Place:
    """A model that is in use or was lately.

    users  how many are at it
    loads  how often it was made ready
    since  when that was last, in seconds of time.monotonic
    """

    name: str
    users: int = 0
    loads: int = 0
    since: float = 0.0
    lock: Lock = field(default_factory=Lock)

    def ready(self, prepare: Callable[[], None], seen: int = 0) -> int:
        """Prepare the model, unless that was done more than `seen` times and lately; how often it was done.

        What `prepare` raises is raised, and the next call prepares again.
        """
        with self.lock:
            if self.loads <= seen or time.monotonic() - self.since > FRESH:
                prepare()
                self.loads, self.since = max(self.loads, seen) + 1, time.monotonic()
            return self.loads


class Places:
    """Places for `most` adapters on a server; None: as many as the server takes into a batch, where it says so."""

    def __init__(self, server: Server, most: int | None = None) -> None:
        self._server, self._most = server, most
        self._places: OrderedDict[str, Place] = OrderedDict()
        self._changed = Condition()
        self._loading = Lock()
        self._ask_again = 0.0
        self._loaded: set[str] = set()
        self._seen: dict[str, float] = {}

    @property
    def most(self) -> int:
        """PLACES until the server tells, which is asked now and then."""
        if self._most is None and time.monotonic() >= self._ask_again:
            self._most, self._ask_again = self._server.adapters_at_once(), time.monotonic() + FRESH
        return self._most or PLACES

    @contextmanager
    def held(self, name: str) -> Iterator[Place]:
        """A place for the adapter, which it keeps while the block lasts. Waits until one is free."""
        place = self._taken(name)
        try:
            yield place
        except BaseException:
            place.loads = 0  # whatever went wrong: it is checked before it is used again
            raise
        finally:
            with self._changed:
                place.users -= 1
                self._changed.notify_all()

    def load(self, name: str, load: Callable[[], None]) -> None:
        """Have the server load an adapter, unless it lists it; before that, others leave where the places are full.

        What this program uses at the moment does not leave, nor do other programs' adapters, unless they have been
        there for a while: those of programs that ended.
        """
        with self._loading:
            names = [model.name for model in self._server.models() if model.parent is not None]
            if name in names:
                return
            for other in self._leaving([found for found in names if found.startswith(PREFIX)]):
                self._server.unload(other)
            self._loaded.add(name)
            load()

    def _taken(self, name: str) -> Place:
        most = self.most
        with self._changed:
            while name not in self._places and not self._room(most):
                self._changed.wait()
            self._places.setdefault(name, Place(name))
            self._places.move_to_end(name)
            self._places[name].users += 1
            return self._places[name]

    def _room(self, most: int) -> bool:
        """Whether a place is free, after idle ones were left."""
        for idle in self._idle()[: max(0, len(self._places) + 1 - most)]:
            del self._places[idle]
        return len(self._places) < most

    def _leaving(self, listed: list[str]) -> list[str]:
        """Those of the listed ones that leave so that one more has a place."""
        now = time.monotonic()
        self._seen = {name: self._seen.get(name, now) for name in listed}
        with self._changed:
            counted = [
                name
                for name in listed
                if name in self._places or name in self._loaded or now - self._seen[name] >= LEFT
            ]
            gone = [name for name in counted if name not in self._places]
            idle = [name for name in self._idle() if name in counted]
            return [*gone, *idle][: max(0, len(counted) + 1 - self.most)]

    def _idle(self) -> list[str]:
        """Places that nobody is at, the least recently used first."""
        return [name for name, place in self._places.items() if not place.users]
