"""The errors of kcard, and text that is safe to print.

    KcardError
    ├── UsageError           an argument is wrong; the message names it, its value and what is accepted
    ├── CorpusError          a corpus is missing, empty or unreadable
    ├── CardError            a folder is not a card, or its manifest is of an unknown form
    │   └── DamagedCard      a file of the card is missing, or not the one that the manifest names
    ├── HubError             the hub can't do it: nothing published, a name taken, a database in use
    │   ├── UnknownCard      no card, version or alias of that name
    │   ├── DiskFull         a disk has no room for what is to be written
    │   └── Unavailable      the database or the store can't be reached, or is busy: a retry may succeed
    ├── ModelUnavailable     a base model, tokenizer or checkpoint can't be loaded
    ├── LLMError             the answering model failed: endpoint down, refused, malformed reply
    │   ├── RequestRefused   the server refuses this request, such as one that is too long; others may be answered
    │   └── QuestionsFailed  requests about some questions of a batch failed; the others may have replies
    ├── ClusterError         the Ray cluster can't be reached, was lost, or has no node for the work
    ├── MissingExtra         an optional dependency is not installed; the message names the extra
    ├── QuestionLogError     the log of questions can't be read or written
    └── TrainingInterrupted  training was stopped by the user; a checkpoint is kept and named

A message names the value, what was expected and the remedy, in one line. Only the command line turns an
error into an exit code.
"""

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kcard.types import Question

# Control characters (C0 without tab and line feed, DEL, C1), characters that reverse the order of text, and surrogates,
# which can't be encoded. Joiners and direction marks stay: scripts need them.
CONTROL_CHARACTER = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    r"""Return the text with \x1b in place of an escape character; likewise for all others that a terminal obeys."""
    return CONTROL_CHARACTER.sub(lambda match: match[0].encode("unicode_escape").decode("ascii"), text)


def json_escaped(text: str) -> str:
    """Return serialized JSON of the same value in which control characters are escaped."""
    return CONTROL_CHARACTER.sub(
        lambda match: json.dumps(match[0])[1:-1] if match[0] != "\x7f" else "\\u007f", text
    )


class KcardError(Exception):
    """Base class of all errors that kcard raises deliberately."""


class UsageError(KcardError):
    """An argument is wrong; nothing was done."""


class CorpusError(KcardError):
    """A corpus is missing, empty or unreadable."""


class CardError(KcardError):
    """A folder is not a card, or its manifest is of a form that this version does not know."""


class DamagedCard(CardError):
    """A file of the card is missing or does not have the sha256 that the manifest names."""


class HubError(KcardError):
    """The hub can't do what was asked."""


class UnknownCard(HubError):
    """The hub holds no card, version or alias of that name."""


class DiskFull(HubError):
    """A disk of the hub has no room left; nothing was changed."""


class Unavailable(HubError):
    """The hub's database or store can't be reached, or is busy; a retry may succeed."""


class ModelUnavailable(KcardError):
    """A model, tokenizer or checkpoint can't be loaded."""


class LLMError(KcardError):
    """The answering model failed; the question may be asked again."""


class RequestRefused(LLMError):
    """The answering model refuses this request because of its content: it is too long, for example."""


class QuestionsFailed(LLMError):
    """Requests about these questions failed; the message is the first one's. `failures`: by kcard.types.Question."""

    def __init__(self, failures: "Mapping[Question, LLMError]") -> None:
        super().__init__(str(next(iter(failures.values()))))
        self.failures = failures


class ClusterError(KcardError):
    """The Ray cluster can't be reached, was lost, or has no suitable node; finished results are kept."""


class MissingExtra(KcardError):
    """An optional dependency is not installed; the message names the extra that brings it."""


class QuestionLogError(KcardError):
    """The log of questions can't be read or written; the message names the file."""


class TrainingInterrupted(KcardError):
    """Training was stopped by the user; the message names the checkpoint to resume from."""


def first_line(error: BaseException) -> str:
    """Return the first line of another library's error, or its type if it has no message."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return printable((lines or [type(error).__name__])[0].rstrip("."))


def one_line(error: BaseException, longest: int = 300) -> str:
    """Return an error's message on one line of at most `longest` characters, safe to print."""
    return printable((" ".join(str(error).split()) or type(error).__name__)[:longest])
