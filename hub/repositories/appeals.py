"""Appeals against quarantine: the owner objects to an audit, the hub audits again, an administrator decides."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, TypeAlias, get_args

from sqlalchemy import Connection, Row, Select, insert, select, update

from kcard.errors import UnknownCard
from kcard.hub.accounts.events import write
from kcard.hub.records.database import Database
from kcard.hub.records.repository_tables import appeals, audits, repositories, versions
from kcard.hub.records.utc import now, utc
from kcard.hub.refusals import Conflict, Invalid, NotThere
from kcard.hub.repositories import job_rows, own_namespace, version_rows
from kcard.hub.repositories.figures import Decision, quarantine_reason
from kcard.hub.repositories.quarantine import threshold
from kcard.hub.repositories.versions import Version

__all__ = ["Appeal", "Appeals"]

LONGEST_NOTE = 2000
Answer: TypeAlias = Literal["release", "keep"]
DECISIONS: dict[str, Decision] = {"release": "released", "keep": "kept"}


@dataclass(frozen=True)
class Appeal:
    """An appeal against the quarantine of a version.

    repository     of the card, namespace/name
    audit          the number of the audit that caused it; `factuality` is its score
    second         the number of the second audit, and `second_factuality` its score; None until it is done
    note           the reason that the owner gave
    author         the account that appealed; None: the command line
    decision       of an administrator; None: open
    """

    number: int
    card: str
    repository: str
    version: int
    audit: int
    factuality: float | None
    evidence: str | None
    note: str
    author: str | None
    at: datetime
    second: int | None = None
    second_factuality: float | None = None
    decision: Decision | None = None
    decided_by: str | None = None
    decided_at: datetime | None = None
    decision_note: str | None = None

    @property
    def reference(self) -> str:
        return f"{self.card}@v{self.version}"


class Appeals:
    """The appeals of a hub."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def make(self, version: Version, note: str, *, by: str | None = None) -> Appeal:
        """Appeal against the quarantine of a version, which enqueues a second audit with another seed.

        Raises UnknownCard if the version was removed, Invalid if no audit quarantines it or the note is empty or too
        long, Conflict if there is an appeal against that audit already.
        """
        note = _checked(note)
        with self._database.write() as connection:
            row = version_rows.key(connection, version)
            if row is None:
                raise UnknownCard(f"{version.reference} was removed by another process")
            [fresh] = version_rows.find(connection, versions.c.id == row.id)
            reason = quarantine_reason(fresh.declared, fresh.verified, threshold(connection))
            if reason is None:
                raise Invalid(f"{version.reference} is not quarantined: there is nothing to appeal against")
            if reason.audit is None:
                raise Invalid(
                    f"{version.reference} is quarantined by its own exam, not by an audit of this hub: publish a "
                    "version with a new exam, or ask an administrator to measure it (`kcard hub measure`)"
                )
            if fresh.verified is not None and fresh.verified.appeal is not None:
                raise Conflict(f"there is an appeal against audit {reason.audit} already")
            values = {"audit_id": reason.audit, "note": note, "author": by, "at": now()}
            made = insert(appeals).values(values).returning(appeals.c.id)
            number = int(connection.execute(made).scalar_one())
            job = job_rows.enqueue(connection, row.id, appeal=number)
            detail = {"appeal": number, "audit": reason.audit, "job": job, "note": note}
            write(connection, by, "appeal.made", version.reference, **detail)
            return _appeal(connection, number)

    def list(
        self,
        *,
        undecided: bool | None = None,
        repository: int | None = None,
        limit: int | None = None,
        before: int | None = None,
    ) -> "list[Appeal]":
        """Appeals, newest first, at most `limit`.

        undecided   only those without a decision, or with one; None: all
        repository  only those of the one with this id
        before      only those with a lower number
        """
        query = _rows().order_by(appeals.c.id.desc()).limit(limit)
        if undecided is not None:
            decision = appeals.c.decision
            query = query.where(decision.is_(None) if undecided else decision.is_not(None))
        if repository is not None:
            query = query.where(repositories.c.id == repository)
        if before is not None:
            query = query.where(appeals.c.id < before)
        with self._database.read() as connection:
            return _appeals(connection, query)

    def against(self, audit: int) -> Appeal | None:
        """The appeal against the quarantine that an audit caused; None without one."""
        with self._database.read() as connection:
            return next(iter(_appeals(connection, _rows().where(appeals.c.audit_id == audit))), None)

    def decide(self, number: int, answer: Answer, note: str = "", *, by: str | None = None) -> Appeal:
        """Release the version, or keep it in quarantine. A later audit is judged by itself.

        Raises NotThere for an unknown number, Invalid for an unknown answer, Conflict if it was decided already.
        """
        if answer not in get_args(Answer):
            raise Invalid(f"answer {answer!r}: use release or keep")
        text = _checked(note) if note else None
        with self._database.write() as connection:
            values = {"decision": DECISIONS[answer], "decided_by": by, "decided_at": now()}
            here = update(appeals).where(appeals.c.id == number, appeals.c.decision.is_(None))
            changed = connection.execute(here.values(**values, decision_note=text)).rowcount
            found = _appeals(connection, _rows().where(appeals.c.id == number))
            if not found:
                raise NotThere("object", f"appeal {number} not found: `kcard hub appeals` lists them")
            if not changed:
                raise Conflict(f"appeal {number} was decided already: {found[0].decision}")
            detail = {"appeal": number, "audit": found[0].audit, "decision": found[0].decision, "note": text}
            write(connection, by, "appeal.decided", found[0].reference, **detail)
            return found[0]


def _checked(note: str) -> str:
    """The note. Raises Invalid if it is empty, too long or has control characters."""
    text = note.strip()
    if not text or len(text) > LONGEST_NOTE or not text.replace("\n", " ").isprintable():
        raise Invalid(f"note: give a text of at most {LONGEST_NOTE} characters, without control characters")
    return text


def _appeal(connection: Connection, number: int) -> Appeal:
    return _appeals(connection, _rows().where(appeals.c.id == number))[0]


def _appeals(connection: Connection, query: Select[Any]) -> list[Appeal]:
    own = own_namespace.find(connection)
    return [_value(row, own_namespace.bare(own, row.name)) for row in connection.execute(query).all()]


def _rows() -> Select[Any]:
    second = audits.alias("second")
    joined = appeals.join(audits, audits.c.id == appeals.c.audit_id).join(versions).join(repositories)
    joined = joined.outerjoin(second, second.c.id == appeals.c.second_id)
    columns = (audits.c.factuality, audits.c.evidence, second.c.factuality.label("second_factuality"))
    return select(appeals, *columns, repositories.c.name, versions.c.number).select_from(joined)


def _value(row: Row[Any], card: str) -> Appeal:
    return Appeal(
        number=row.id,
        card=card,
        repository=row.name,
        version=row.number,
        audit=row.audit_id,
        factuality=row.factuality,
        evidence=row.evidence,
        note=row.note,
        author=row.author,
        at=utc(row.at),
        second=row.second_id,
        second_factuality=row.second_factuality,
        decision=row.decision,
        decided_by=row.decided_by,
        decided_at=None if row.decided_at is None else utc(row.decided_at),
        decision_note=row.decision_note,
    )
