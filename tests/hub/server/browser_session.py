"""A browser without a browser: a client that keeps cookies and sends forms as browsers do."""

import html
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from kcard.hub.server import limits
from kcard.hub.server.dependencies import ServerOptions
from tests.hub.shared_hub import Shared, shared_hub

HEADERS = {"Accept": "text/html,application/xhtml+xml;q=0.9,*/*;q=0.8"}
TOKEN = re.compile(r'name="form_token" value="([0-9a-f]*)"')


@contextmanager
def hub_for_browsers(folder: Path, options: ServerOptions | None = None, **settings: Any) -> Iterator[Shared]:
    """As shared_hub; as many may log in as tests want."""
    with pytest.MonkeyPatch.context() as patch:
        for limit in ("OF_ADDRESS", "OF_ACCOUNT_AT_ADDRESS", "OF_ACCOUNT"):
            patch.setattr(limits, limit, 10_000)
        with shared_hub(folder, options, **settings) as shared:
            yield shared


class Browser:
    """Opens pages and sends their forms; it follows no redirects."""

    def __init__(self, shared: Shared) -> None:
        self.shared = shared
        self.http = shared.http()
        self.http.headers.update(HEADERS)
        self.form_token = ""

    def open(self, path: str, status: int = 200) -> str:
        """The text of a page; remembers the token of its forms."""
        answer = self.http.get(path)
        assert answer.status_code == status, (
            f"{answer.status_code} {answer.headers.get('location')} {text(answer)}"
        )
        if match := TOKEN.search(answer.text):
            self.form_token = match[1]
        return answer.text

    def send(self, path: str, data: Mapping[str, str] | None = None, **options: Any) -> httpx.Response:
        """The response to a form, from a page of the hub."""
        headers = {"Origin": self.shared.url, "Sec-Fetch-Site": "same-origin"} | options.pop("headers", {})
        values = {"form_token": self.form_token} | dict(data or {})
        return self.http.post(path, data=values, headers=headers, **options)

    def log_in(self, who: str, token: str = "") -> "Browser":
        """Log in as somebody of `shared.tokens`, such as bob or bob:read, or with another token; open a form."""
        self.open("/login")
        sent = {"name": who.partition(":")[0], "token": token or self.shared.tokens[who]}
        answer = self.send("/login", sent)
        assert answer.status_code == 303, text(answer)
        self.open("/settings/tokens")
        return self

    @property
    def session(self) -> str:
        """The value of the session's cookie."""
        return self.http.cookies.get("kcard_session") or ""


def text(answer: httpx.Response) -> str:
    """What a page says, without style and markup."""
    plain = re.sub(r"<style>.*?</style>", "", answer.text, flags=re.DOTALL)
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", plain)).split())
