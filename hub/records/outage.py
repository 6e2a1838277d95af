"""A database that does not answer: one transaction at a time tries it, all others fail at once.

Otherwise, each of them would wait, and occupy a thread, until it notices by itself.
"""

import threading
import time

from kcard.errors import Unavailable

__all__ = ["Outage"]

AGAIN_SECONDS = 1.0  # until the next try
TRY_SECONDS = 10.0  # until another transaction tries, if the one that does takes longer


class Outage:
    """Whether the database `name` is known not to answer. Thread-safe."""

    def __init__(self, name: str) -> None:
        self._name, self._lock = name, threading.Lock()
        self._next_try: float | None = None

    def check(self) -> None:
        """Raise Unavailable during an outage, unless it is time to try again."""
        if self._next_try is None:
            return
        with self._lock:
            now = time.monotonic()
            if self._next_try is not None and now < self._next_try:
                raise Unavailable(f"hub database {self._name} does not answer: try again later")
            self._next_try = now + TRY_SECONDS

    def noticed(self, error: object) -> None:
        """Begin an outage if a driver's error says that the database did not answer."""
        if type(error).__module__.startswith("sqlite3"):
            return
        from kcard.hub.records.silence import is_silence

        if is_silence(error):
            with self._lock:
                self._next_try = time.monotonic() + AGAIN_SECONDS

    def ended(self) -> None:
        """The database answers."""
        if self._next_try is not None:
            with self._lock:
                self._next_try = None
