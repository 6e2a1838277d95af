"""Quarantine: cards under the hub's threshold of factuality are visible, but used only where they are named.

What decides is the latest audit of the version that measured factuality. Where there is none it is the exam that
came with the card: whoever made the card made that too, so it can hold the card back and never set it free. A card
of which nobody measured factuality is not held back: unknown is not zero.
"""

from collections.abc import Callable, Sequence
from typing import BinaryIO

from sqlalchemy import delete, insert, select

from kcard.errors import CardError, HubError, UsageError
from kcard.faults import reach
from kcard.hub.accounts.events import write
from kcard.hub.audits import Audits
from kcard.hub.database import Database
from kcard.hub.tables import settings
from kcard.hub.versions import Version
from kcard.json_values import parse

__all__ = ["EXAM", "Quarantine", "examined", "is_exam"]

THRESHOLD = "threshold"
EXAM = "exam.json"
# Where docs/evaluation.md says that an exam has its mean factuality.
MEAN = ("own", "factuality", "mean", "mean")


class Quarantine:
    """The threshold of a hub, and which versions lie under it. `open` gives one file of a version, verified."""

    def __init__(self, database: Database, audits: Audits, open_file: Callable[[str, str], BinaryIO]) -> None:
        self._database, self._audits, self._open = database, audits, open_file

    @property
    def threshold(self) -> float | None:
        """The least factuality, in [0, 1], with which a card is used unnamed; None, at first: any."""
        with self._database.read() as connection:
            found = connection.scalar(select(settings.c.value).where(settings.c.name == THRESHOLD))
        try:
            return None if found is None else _checked(float(found))
        except ValueError:
            raise HubError(
                f"the hub's threshold is {found!r}, not a number: set it again (kcard hub threshold 0.5, or off)"
            ) from None

    def set(self, threshold: float | None, *, by: str | None = None) -> None:
        """Change the threshold for every process that opens this hub; UsageError for one outside [0, 1].

        `by`: the account that changes it, for the log; None: the command line.
        """
        if threshold is not None:
            _checked(threshold)
        with self._database.write() as connection:
            connection.execute(delete(settings).where(settings.c.name == THRESHOLD))
            reach("rows.setting")
            if threshold is not None:
                connection.execute(insert(settings).values(name=THRESHOLD, value=f"{threshold:g}"))
            write(connection, by, "quarantine.set", "hub", threshold=threshold)

    def held(self, versions: Sequence[Version]) -> dict[str, float]:
        """Those of the versions that are quarantined, by reference, with their factuality."""
        threshold = self.threshold
        if threshold is None or not versions:
            return {}
        audited = self._audits.factuality(versions)
        found = {v.reference: audited.get(v.reference, self._examined(v)) for v in versions}
        return {
            reference: score for reference, score in found.items() if score is not None and score < threshold
        }

    def _examined(self, version: Version) -> float | None:
        """Mean factuality by the exam that came with the card; None without one that can be read."""
        if EXAM not in version.files:
            return None
        try:
            with self._open(version.reference, EXAM) as stream:
                return examined(stream.read())
        except (CardError, HubError):
            return None  # using the card says what is damaged


def examined(exam: bytes) -> float | None:
    """Mean factuality, in [0, 1], by the text of an exam; None for one that can't be read."""
    try:
        found = parse(exam.decode())
        for key in MEAN:
            found = found[key]
        return _checked(float(found))
    except (CardError, UsageError, ValueError, TypeError, KeyError):
        return None  # a foreign exam says nothing


def is_exam(text: bytes) -> bool:
    """Whether it is the text of an exam: recall of the card's own corpus, and factuality if that was asked."""
    try:
        own = parse(text.decode())["own"]
        _checked(float(own["recall"]["mean"]))
        return own["factuality"] is None or examined(text) is not None
    except (UsageError, ValueError, TypeError, KeyError):
        return False


def _checked(threshold: float) -> float:
    if not 0 <= threshold <= 1:
        raise UsageError(f"threshold {threshold:g}: it must be between 0 and 1, or off")
    return threshold
