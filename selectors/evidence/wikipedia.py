"""Wikipedia, or any other MediaWiki, as evidence: paragraphs of the pages that its own search finds for a claim.

Every claim that is looked up is sent to the wiki: it is used only where it is named.
"""

import hashlib
import re
import urllib.parse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kcard.answer import Source
from kcard.concurrency import in_order
from kcard.config import settings
from kcard.errors import UsageError
from kcard.index import Index
from kcard.selectors.evidence.mediawiki import MediaWiki
from kcard.selectors.evidence.segment import parts

__all__ = ["Wikipedia", "open_wikipedia"]

LICENCE = "CC BY-SA 4.0"
PAGES = 3
CONCURRENCY = 3  # requests at a time, so that the encyclopedia is not strained
WORDS = 12  # of a claim, that pages must all hold
LONGEST = 300  # characters that the search takes
LANGUAGE = re.compile(r"[a-z]{2,3}(-[a-z]+)*|simple")
TOKEN = re.compile(r"[^\W_]+(?:['’.-][^\W_]+)*")
HEADING = re.compile(r"^=+ .* =+$")
# Words of a question or a claim that are on every page or on none, and would only narrow the search.
IDLE = {
    "what", "which", "when", "where", "whom", "whose", "does", "that", "this", "these", "those", "with", "from",
    "have", "been", "were", "there", "their", "they",
}  # fmt: skip


def open_wikipedia(argument: str = "") -> "Wikipedia":
    """`argument`: a language (de), English where there is none, or the address of another wiki's api.php.

    Nothing is asked yet. Raises UsageError for an argument that is neither.
    """
    if argument.startswith(("http://", "https://")):
        host = urllib.parse.urlsplit(argument).hostname
        if not host or "?" in argument or "#" in argument:
            raise UsageError(
                f"wikipedia:{argument} is not the URL of an api.php, such as https://HOST/w/api.php"
            )
        name, api, licence = f"wikipedia:{host}", argument, ""
    else:
        language = argument or "en"
        if not LANGUAGE.fullmatch(language):
            raise UsageError(f"wikipedia:{argument}: name a language, such as wikipedia:de, or an api.php")
        name, api, licence = f"wikipedia:{language}", f"https://{language}.wikipedia.org/w/api.php", LICENCE
    digest = hashlib.sha256(api.encode()).hexdigest()
    return Wikipedia(
        name, licence, digest, MediaWiki(api, settings().home / "evidence" / f"wiki-{digest[:16]}")
    )


@dataclass(frozen=True)
class Wikipedia:
    """`digest`: of the address alone, since what stands there changes. `licence`: of the texts, where it is known."""

    name: str
    licence: str
    digest: str
    wiki: MediaWiki

    @property
    def notes(self) -> tuple[str, ...]:
        """What the user should know: that claims leave the machine, and which replies were old."""
        host = urllib.parse.urlsplit(self.wiki.api).hostname
        old = ", ".join(sorted(self.wiki.stale))
        notes = (f"evidence {self.name}: queries are sent to {host}",)
        return (
            (*notes, f"evidence {self.name}: it could not be reached; cached replies of {old} were used")
            if old
            else notes
        )

    def find(self, claim: str, k: int) -> list[Source]:
        """At most `k` paragraphs that share a word with the claim, best first by BM25.

        `file` is the page's title, address and licence, `line` the number of the paragraph. Raises CorpusError where
        the wiki can't be asked.
        """
        if k < 1:
            return []
        paragraphs = [p for page in self._pages(claim) for p in self._paragraphs(page)]
        index = Index.build(f"{title} {source.text}" for title, source in paragraphs)
        return [replace(paragraphs[row][1], score=score) for row, score in index.search(claim, k)]

    def find_all(self, claims: Sequence[str], k: int) -> list[list[Source]]:
        """The same for each claim, CONCURRENCY of them at a time."""
        return list(in_order(lambda claim: self.find(claim, k), claims, CONCURRENCY))

    def _pages(self, claim: str) -> list[dict[str, Any]]:
        """The pages that hold all that matters of the claim; where there are none, those that hold most of it."""
        for query in _queries(claim):
            if pages := self._search(query):
                return pages
        return []

    def _search(self, query: str) -> list[dict[str, Any]]:
        """Pages with their whole text, best first. The API gives one text a reply, and says how to go on."""
        asked = {
            "action": "query", "generator": "search", "gsrsearch": query, "gsrlimit": str(PAGES), "gsrnamespace": "0",
            "prop": "extracts|info", "inprop": "url", "explaintext": "1", "exsectionformat": "wiki", "exlimit": "max",
        }  # fmt: skip
        found: dict[int, dict[str, Any]] = {}
        onward: dict[str, str] = {}
        for _ in range(PAGES + 1):
            reply = self.wiki.get(**asked, **onward)
            for page in _list(reply.get("query"), "pages"):
                if isinstance(page, dict) and isinstance(page.get("pageid"), int):
                    found.setdefault(page["pageid"], {}).update(page)
            if reply.get("batchcomplete") or not isinstance(reply.get("continue"), dict):
                break
            onward = {key: str(value) for key, value in reply["continue"].items()}
        return sorted(found.values(), key=lambda page: page.get("index", 0))

    def _paragraphs(self, page: dict[str, Any]) -> Iterator[tuple[str, Source]]:
        """(title, paragraph) of a page, without headings; the title stands before a paragraph that lacks it."""
        title, text, url = (str(page.get(key) or "") for key in ("title", "extract", "fullurl"))
        if url and isinstance(page.get("lastrevid"), int):
            url = f"{url}{'&' if '?' in url else '?'}oldid={page['lastrevid']}"
        place = ", ".join(part for part in (title, url, self.licence) if part)
        subject = title.partition(" (")[0]
        lines = [line.strip() for line in text.splitlines()]
        kept = [line for line in lines if line and not HEADING.match(line)]
        for number, line in enumerate(kept, 1):
            for part in parts(line):
                # Paragraphs speak of "he" and "the city": who that is, the title says.
                named = part if subject.lower() in part.lower() else f"{subject}: {part}"
                yield title, Source(named, place, number)


def _queries(claim: str) -> Iterator[str]:
    """What to search for: pages with all that matters, then with any of the names and numbers, or of the words."""
    tokens = list(dict.fromkeys(TOKEN.findall(claim)))
    telling = [t for t in tokens if _matters(t)] or tokens
    names = [t for t in telling if t[0].isupper() or t[0].isdigit()] or telling
    queries = [_joined(telling[:WORDS], " "), _joined(names, " OR ")]
    yield from (query for query in dict.fromkeys(queries) if query)


def _matters(token: str) -> bool:
    return token.lower() not in IDLE and (len(token) > 3 or not token[0].islower())


def _joined(tokens: list[str], between: str) -> str:
    """As many of them as the search takes. Lower case, since AND, OR and NOT are commands to it."""
    query = ""
    for token in tokens:
        longer = f"{query}{between}{token.lower()}" if query else token.lower()[:LONGEST]
        if len(longer) > LONGEST:
            break
        query = longer
    return query


def _list(found: Any, key: str) -> list[Any]:
    value = found.get(key) if isinstance(found, dict) else None
    return value if isinstance(value, list) else []
