"""The log of the questions that `kcard ask` and `kcard chat` answered: an SQLite file in the user's home.

Each call opens the file anew, so that processes may share it. Search reads every row, since a person's log is small:
it finds parts of words in any language, which an index of words would not.
"""

import json
import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kcard.config import settings
from kcard.display import Quotation, headline, quotations, summary
from kcard.errors import QuestionLogError, first_line
from kcard.types import Answer

FORM = 1  # of the file (PRAGMA user_version)
MAX_WAIT_SECONDS = 2.0  # for another process that writes
COLUMNS = "number, time, command, llm, question, typed, answer, summary, sources"
TABLE = """
CREATE TABLE IF NOT EXISTS questions (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    time TEXT NOT NULL,
    command TEXT NOT NULL,
    llm TEXT NOT NULL,
    question TEXT NOT NULL,
    typed TEXT NOT NULL,
    answer TEXT NOT NULL,
    summary TEXT NOT NULL,
    sources TEXT NOT NULL
)"""


@dataclass(frozen=True)
class LoggedAnswer:
    """An answered question.

    number   from 1
    time     when it was answered, in UTC, as ISO 8601
    command  ask or chat
    llm      what stands for the LLM after --llm
    typed    what the user typed, where an LLM rewrote it to `question`; else ""
    summary  confidence, cards, mode, calls, tokens and seconds, in one line
    sources  the quotations of the answer's citations
    """

    number: int
    time: str
    command: str
    llm: str
    question: str
    typed: str
    answer: str
    summary: str
    sources: tuple[Quotation, ...]

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON-ready data; `typed` only where the question was rewritten."""
        data = {name: getattr(self, name) for name in COLUMNS.split(", ")}
        data["sources"] = [_source_json(source) for source in self.sources]
        if not self.typed:
            del data["typed"]
        return data


class QuestionLog:
    """The log in a file, which only its owner may read. Methods raise QuestionLogError where it can't be used."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = settings().home / "log.sqlite" if path is None else path

    def add(self, answer: Answer, llm: str, command: str, typed: str = "") -> None:
        """Add an answer; the file is created with its folder. See LoggedAnswer for the arguments."""
        row = (
            datetime.now(UTC).isoformat(timespec="seconds"),
            command,
            llm,
            answer.question,
            "" if typed == answer.question else typed,
            headline(answer),
            summary(answer),
            json.dumps([_source_json(source) for source in quotations(answer)], ensure_ascii=False),
        )
        # Half a surrogate pair, which an LLM's server may send, is no text for SQLite.
        texts = [text.encode("utf-8", "replace").decode() for text in row]
        with self._errors():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            os.close(os.open(self.path, os.O_CREAT | os.O_RDWR, 0o600))
            with closing(self._connect("rw")) as file, file:
                file.execute("BEGIN IMMEDIATE")
                file.execute(TABLE)
                file.execute(f"PRAGMA user_version = {FORM}")
                columns = COLUMNS.removeprefix("number, ")
                file.execute(f"INSERT INTO questions ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", texts)

    def last(self, count: int) -> list[LoggedAnswer]:
        """Return so many answers, the newest first."""
        return self._select("ORDER BY number DESC LIMIT ?", (count,))

    def find(self, number: int) -> LoggedAnswer | None:
        """Return the answer of a number."""
        rows = self._select("WHERE number = ?", (number,))
        return rows[0] if rows else None

    def search(self, words: Sequence[str], count: int) -> list[LoggedAnswer]:
        """Return at most so many answers whose question or answer contains every word, or part of a word, in upper or
        lower case; the newest first."""
        conditions = " AND ".join(
            ["instr(folded(question || ' ' || typed || ' ' || answer), ?) > 0"] * len(words)
        )
        folded = [word.casefold() for word in words]
        return self._select(f"WHERE {conditions} ORDER BY number DESC LIMIT ?", (*folded, count))

    def __len__(self) -> int:
        if not self._exists():
            return 0
        with self._errors(), closing(self._connect("ro")) as file:
            (count,) = file.execute("SELECT count(*) FROM questions").fetchone()
        return int(count)

    def clear(self) -> None:
        """Delete the file."""
        with self._errors():
            for suffix in ("", "-journal"):
                self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)

    def _exists(self) -> bool:
        with self._errors():
            return self.path.exists() and self.path.stat().st_size > 0

    def _select(self, rest: str, values: Sequence[object]) -> list[LoggedAnswer]:
        if not self._exists():
            return []
        with self._errors(), closing(self._connect("ro")) as file:
            rows = file.execute(f"SELECT {COLUMNS} FROM questions {rest}", tuple(values)).fetchall()
            return [_logged(row) for row in rows]

    def _connect(self, mode: str) -> sqlite3.Connection:
        uri = f"{self.path.absolute().as_uri()}?mode={mode}"
        file = sqlite3.connect(uri, uri=True, timeout=MAX_WAIT_SECONDS, isolation_level=None)
        file.create_function("folded", 1, str.casefold, deterministic=True)
        file.execute("PRAGMA synchronous = NORMAL")
        (form,) = file.execute("PRAGMA user_version").fetchone()
        if form > FORM:
            file.close()
            raise QuestionLogError(
                f"the log {self.path} was written by a newer version of kcard: update kcard"
            )
        return file

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Raise QuestionLogError, which names the file and the remedy, for an error of SQLite or of the system."""
        try:
            yield
        except sqlite3.DatabaseError as error:
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF
            remedy = ""
            if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR):
                remedy = "; `kcard log clear` deletes it"
            raise QuestionLogError(
                f"the log {self.path} can't be used: {first_line(error)}{remedy}"
            ) from error
        except (ValueError, TypeError, LookupError) as error:  # of a row that somebody else wrote
            raise QuestionLogError(f"the log {self.path} is damaged; `kcard log clear` deletes it") from error
        except OSError as error:
            raise QuestionLogError(f"the log {self.path} can't be used: {error.strerror or error}") from error


def log_answer(answer: Answer, llm: str | None, command: str, typed: str = "") -> str:
    """Add an answer to the user's log, unless the setting `log` is off; a failure is never an error.

    llm  None: the configured one
    Returns a sentence for the user where the answer could not be logged, else "".
    """
    configured = settings()
    if not configured.log:
        return ""
    try:
        QuestionLog().add(answer, llm or configured.llm, command, typed)
    except QuestionLogError as error:
        return f"not logged, since {error} (KCARD_LOG=off keeps no log)"
    return ""


def _logged(row: Sequence[Any]) -> LoggedAnswer:
    number, time, command, llm, question, typed, answer, summed_up, sources = row
    quoted = []
    for source in json.loads(sources):
        steps, claim, verdict = tuple(source["from"]), source["claim"], source["verdict"]
        quoted.append(Quotation(source["quote"], steps=steps, claim=claim, verdict=verdict))
    return LoggedAnswer(number, time, command, llm, question, typed, answer, summed_up, tuple(quoted))


def _source_json(source: Quotation) -> dict[str, Any]:
    """Return a quotation as data: `from` is its card, then the file with its line."""
    return {
        "quote": source.sentence,
        "from": list(source.steps),
        "claim": source.claim,
        "verdict": source.verdict,
    }
