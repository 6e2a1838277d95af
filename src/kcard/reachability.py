"""Whether something out there answers. No question is ever sent from here."""

import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Generic, TypeVar

__all__ = ["Later", "silence"]

T = TypeVar("T")


class Later(Generic[T]):
    """A call that runs beside others, in a thread that nobody waits for longer than they want."""

    def __init__(self, call: Callable[[], T], otherwise: T) -> None:
        """`otherwise` is the result as long as the call has not come back."""
        self._call, self._found = call, otherwise
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self._found = self._call()

    def result(self, seconds: float) -> T:
        """What the call returned, if it did within `seconds` from now."""
        self._thread.join(seconds)
        return self._found


def silence(url: str, seconds: float) -> str:
    """Why a web server does not answer at `url`; empty where it does, with whatever status."""
    try:
        asked = urllib.request.Request(url, method="HEAD")
        urllib.request.urlopen(asked, timeout=seconds).close()
    except urllib.error.HTTPError:
        return ""
    except (OSError, ValueError) as error:
        return str(getattr(error, "reason", "") or error)
    return ""
