"""A small wiki that speaks MediaWiki's action API as its documentation has it, as far as search and extracts go.

https://www.mediawiki.org/wiki/API:Query (generators, continuation), Extension:TextExtracts, Manual:Maxlag_parameter.
One whole extract a reply, as TextExtracts gives them without exintro; all words of a search must be on a page, or,
with OR between them, any; a client without a user agent of its own is refused.
"""

import gzip
import json
import re
import threading
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Fault = str  # 429, 429:SECONDS, 503, 404, maxlag, ratelimited, junk, list, half, silent


@dataclass
class Wiki:
    """Pages by title, faults that the next requests meet, and the parameters of those that came."""

    pages: dict[str, str]
    faults: list[Fault] = field(default_factory=list)
    requests: list[dict[str, str]] = field(default_factory=list)
    agents: list[str] = field(default_factory=list)
    api: str = ""

    def reply(self, asked: dict[str, str]) -> dict[str, Any]:
        if asked.get("action") != "query":
            return error("badvalue", f'Unrecognized value for parameter "action": {asked.get("action")}.')
        if asked.get("generator") != "search" or "gsrsearch" not in asked:
            return error("missingparam", 'The "gsrsearch" parameter must be set.')
        if len(asked["gsrsearch"]) > 300:
            return error("cirrussearch-query-too-long", "Search request is longer than the maximum of 300.")
        found = self.search(asked["gsrsearch"])[: int(asked.get("gsrlimit", "10"))]
        if not found:
            return {"batchcomplete": True}
        start = int(asked.get("excontinue", "0"))
        pages = [self.page(title, at, at - 1 == start, asked) for at, title in enumerate(found, 1)]
        # The order of pages is that of their ids, not that of the search: `index` has that.
        reply: dict[str, Any] = {"query": {"pages": sorted(pages, key=lambda page: page["pageid"])}}
        if start + 1 < len(found):
            return {"continue": {"excontinue": start + 1, "continue": "||info"}, **reply}
        return {"batchcomplete": True, **reply}

    def search(self, query: str) -> list[str]:
        any_of = " OR " in query
        words = [word.lower() for word in re.findall(r"\w+", query) if word != "OR"]
        scored = []
        for title, text in self.pages.items():
            on_it = set(re.findall(r"\w+", f"{title} {text}".lower()))
            shared = sum(word in on_it for word in words)
            if shared and (any_of or shared == len(words)):
                scored.append((-shared, title))
        return [title for _, title in sorted(scored)]

    def page(self, title: str, index: int, with_text: bool, asked: dict[str, str]) -> dict[str, Any]:
        pageid = 1000 - list(self.pages).index(title)
        page: dict[str, Any] = {"pageid": pageid, "ns": 0, "title": title, "index": index}
        if with_text and "extracts" in asked.get("prop", ""):
            page["extract"] = self.pages[title]
        if "info" in asked.get("prop", "") and asked.get("inprop") == "url":
            page |= {
                "lastrevid": 7 * pageid,
                "fullurl": f"http://wiki.example/wiki/{title.replace(' ', '_')}",
            }
        return page


def error(code: str, info: str) -> dict[str, Any]:
    return {"error": {"code": code, "info": info, "docref": "See the API's help."}, "servedby": "mw1"}


class Handler(BaseHTTPRequestHandler):
    wiki: Wiki

    def do_GET(self) -> None:
        address = urllib.parse.urlsplit(self.path)
        asked = dict(urllib.parse.parse_qsl(address.query))
        self.wiki.requests.append(asked)
        self.wiki.agents.append(self.headers.get("User-Agent", ""))
        fault = self.wiki.faults.pop(0) if self.wiki.faults else ""
        if address.path != "/w/api.php":
            self.send(404, b"Not Found")
        elif re.match(r"(Python-urllib|python-requests|curl|$)", self.headers.get("User-Agent", "")):
            self.send(403, b"Please set a user-agent and respect our robot policy")
        elif fault:
            self.fail(fault)
        else:
            self.send(200, json.dumps(self.wiki.reply(asked)).encode())

    def fail(self, fault: Fault) -> None:
        name, _, seconds = fault.partition(":")
        after = {"Retry-After": seconds} if seconds else {}
        if name.isdecimal():
            self.send(int(name), b"<!DOCTYPE html><title>Wikimedia Error</title>", **after)
        elif name in {"maxlag", "ratelimited"}:
            said = error(name, "Waiting for 10.64.48.35: 6.1 seconds lagged.")
            self.send(
                200, json.dumps(said).encode(), **{"Retry-After": seconds or "5", "X-Database-Lag": "6"}
            )
        elif name == "junk":
            self.send(200, b'{"query": {"pages": [')
        elif name == "list":
            self.send(200, b"[]")
        elif name == "half":
            self.send(200, b'{"query"', **{"Content-Length": "5000"})
        self.close_connection = True  # "silent": without a word

    def send(self, status: int, body: bytes, **headers: str) -> None:
        if "Content-Length" not in headers and "gzip" in self.headers.get("Accept-Encoding", ""):
            body, headers = gzip.compress(body), {**headers, "Content-Encoding": "gzip"}
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@contextmanager
def serving(pages: dict[str, str]) -> Iterator[Wiki]:
    """The wiki at http://127.0.0.1:PORT/w/api.php."""
    wiki = Wiki(dict(pages))
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (Handler,), {"wiki": wiki}))
    wiki.api = f"http://127.0.0.1:{server.server_address[1]}/w/api.php"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield wiki
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
