"""The client of OpenAI-compatible servers that LLMs and the engines of cards share."""

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING

from kcard.errors import MissingExtra

if TYPE_CHECKING:
    import httpx
    from openai import OpenAI

__all__ = ["connected"]

NO_KEY = "none"
CONNECT = 10.0  # seconds; a server that is there accepts a connection sooner
LONG_WAIT = 3.0  # seconds of waiting that the user should hear of


def connected(
    url: str | None,
    key: str | None,
    timeout: float,
    retries: int,
    report: Callable[[str], None] | None = None,
) -> "OpenAI":
    """A client of the server at `url` (…/v1; None: OpenAI itself). Nothing is sent yet.

    `timeout`: seconds for one try. After 429, 5xx, a time-out or a lost connection the client tries again, `retries`
    times; `report` is then called with a sentence. Its connections end with it.

    Raises MissingExtra where the openai package is not installed.
    """
    try:
        from openai import DefaultHttpxClient, OpenAI, Timeout
    except ImportError:
        raise MissingExtra("the openai package is not installed: pip install 'kcard[openai]'") from None
    told = _Told(url or "https://api.openai.com/v1", retries, report)
    limits = Timeout(timeout, connect=min(timeout, CONNECT))
    connections = DefaultHttpxClient(
        timeout=limits, event_hooks={"request": [told.sent], "response": [told.received]}
    )
    client = OpenAI(
        base_url=url, api_key=key or NO_KEY, timeout=limits, max_retries=retries, http_client=connections
    )
    weakref.finalize(client, connections.close)
    return client


class _Told:
    """Tells of tries after the first and of long waits."""

    def __init__(self, where: str, retries: int, report: Callable[[str], None] | None) -> None:
        self._where, self._retries, self._report = where, retries, report

    def sent(self, request: "httpx.Request") -> None:
        """The client numbers its tries in a header."""
        again = request.headers.get("x-stainless-retry-count", "0")
        if self._report and again != "0":
            self._report(f"retrying {self._where} ({again} of {self._retries})")

    def received(self, response: "httpx.Response") -> None:
        wait = response.headers.get("retry-after", "")
        if self._report and response.is_error and wait.isdigit() and LONG_WAIT < int(wait) <= 60:
            self._report(
                f"{self._where} is busy (status {response.status_code}): waiting {wait} s, as requested"
            )
