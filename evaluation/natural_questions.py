"""Questions as people ask them, made of the sentences of a corpus by rules: who, when, where, how many, what, why, how.

The answer is a part of the sentence, the question the rest of it, turned round and put into other words. They are a
little easier for a card than people's own (docs/results.md, "Does the exam flatter?").
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random

from kcard.evaluation.clauses import AUXILIARIES, Clause, clause
from kcard.evaluation.metrics import substring
from kcard.evaluation.rewording import reworded
from kcard.training.question_forms import held_out_wording
from kcard.training.spans import SMALL, bare, entities

__all__ = ["Natural", "drawn", "natural_questions"]

MONTHS = "January|February|March|April|May|June|July|August|September|October|November|December"
DATE = re.compile(
    rf"\b(?:(?:\d{{1,2}} )?(?:{MONTHS})(?: \d{{1,2}}(?:st|nd|rd|th)?)?(?:,? \d{{4}})?"
    r"|[12]\d{3}s?|\d{1,2}th century)\b"
)
NUMBER = re.compile(
    r"\d[\d,.]*(?: (?:million|billion|thousand|percent))?|(?:two|three|four|five|six|seven|eight|nine|ten|eleven|twelve"
    r"|twenty|thirty|forty|fifty|hundred)\b",
    re.IGNORECASE,
)
TIMES = {"in", "on", "since", "until", "by", "before", "after", "during", "from"}
PLACES = {"in", "at", "near", "outside", "within"}
PREPOSITIONS = (
    TIMES
    | PLACES
    | {"to", "of", "for", "with", "as", "into", "under", "over", "about", "between", "through", "against"}
)
REASON = re.compile(r",? (?:because(?: of)?|due to|so that|in order to) ", re.IGNORECASE)
MEANS = re.compile(r" (?:by (?=\w+ing\b)|using |by means of |with the help of )")
TASK = re.compile(
    r"To ([a-z][^,]{8,80}), "
    r"((?:use|run|type|press|set|add|enter|select|choose|click|call|open|edit|pass|specify)\b.{3,})"
)
ENDS = re.compile(r"[,;:(]| (?:and|but|which|that|who|where|when|while|because|so|although|as|or|if)\b")
PERSON = re.compile(
    r"(?:(?:Dr|Mr|Mrs|Sir|Saint|St|King|Queen|Pope|President)\.? )?"
    r"[A-Z][\w.'’-]+(?: (?:de|van|von|der|la|[A-Z]\.?))?(?: [A-Z][\w'’-]+)+$"
)
GROUPS = re.compile(
    r"\b(?:University|Company|Project|Foundation|Party|Army|Church|Council|Museum|Institute|Association|System|Act|War|"
    r"Empire|Republic|River|City|Street|College|School|League|Bowl|Treaty|Law|Linux|Software|Corporation|Inc|Ltd|States?|"
    r"Kingdom|Union|Society|Park|Island|Valley|Ocean|Sea|Lake|Mountains?|County|Parliament|Court|Station|Center|Centre)\b"
)
ARTICLES = ("The", "A", "An", "Each", "Every", "All", "Both", "Most", "Some")
BRACKETS = re.compile(r"[\"“”()\[\]{}]")
LONGEST_ANSWER = 8  # words
RARE = {"what": 0.3}  # how often a form is drawn, beside the others


@dataclass(frozen=True)
class Natural:
    """A question with its answer, a part of the sentence. `around`: what stands before and after the answer there."""

    text: str
    answer: str
    form: str
    around: tuple[str, str] = ("", "")


def natural_questions(sentence: str, rng: Random) -> list[Natural]:
    """The questions that the sentence answers, in other words than its own; none where its structure is unclear."""
    sentence = " ".join(sentence.split())
    found = [*_task(sentence)]
    if parts := clause(sentence):
        found += [*_subject(parts), *_reason(parts), *_means(parts), *_definition(parts), *_spans(parts)]
    return [
        Natural(_tidy(reworded(text, rng)), answer, form, _around(sentence, answer))
        for form, text, answer in found
        if _is_answer(answer, form) and sentence.count(answer) == 1 and _tells(text)
    ]


Made = Iterator[tuple[str, str, str]]  # form, question, answer


def _subject(c: Clause) -> Made:
    """Who founded Debian?"""
    rest = _clipped(c.rest)
    words = c.subject.split()
    named = any(word[:1].isupper() for word in words[1:]) or (
        words[0][:1].isupper() and words[0] not in ARTICLES
    )
    if named and len(words) <= 6 and len(rest.split()) >= 3:
        word = _asking(c.subject)
        yield word.lower(), f"{word} {c.verb} {rest}{_when(c)}?", _named(c.subject)


def _definition(c: Clause) -> Made:
    """What is a swap file?"""
    if c.verb in ("is", "are", "was", "were") and len(c.subject.split()) <= 4:
        definition = re.match(r"(?:an?|the) (.+)", _clipped(c.rest))
        if definition and 1 < len(definition[1].split()) <= LONGEST_ANSWER:
            yield "what", f"What {c.verb} {_lowered(c.subject)}?", definition[1]


def _spans(c: Clause) -> Made:
    """A question for each date, number and name after the verb."""
    for start, end in _answers(c.rest):
        span, lead, tail = c.rest[start:end], c.rest[:start].rstrip(), c.rest[end:].lstrip()
        if ENDS.search(f"{lead} "):
            return  # what follows stands in another clause
        before = bare(lead.rpartition(" ")[2]).lower()
        without = lead.rpartition(" ")[0] if before in PREPOSITIONS else lead
        after = _clipped(tail) if tail[:1].isalpha() else ""
        if before in TIMES and DATE.fullmatch(span):
            yield "when", f"When {_turned(c, f'{without} {after}')}?", span
        elif before in PLACES and span[:1].isupper() and not DATE.fullmatch(span) and not _is_person(span):
            yield "where", f"Where {_turned(c, f'{without} {after}')}?", span
        elif NUMBER.fullmatch(span) and (noun := re.match(r"([a-z]{3,}s)\b", tail)):
            others = _clipped(tail[noun.end() :].strip()) if tail[noun.end() : noun.end() + 1] == " " else ""
            yield "how many", f"How many {noun[1]} {_turned(c, f'{lead} {others}')}?", span
        elif before == "by" and c.verb in AUXILIARIES and span[:1].isupper():
            yield (
                "who",
                f"By {'whom' if _is_person(span) else 'what'} {_turned(c, f'{without} {after}')}?",
                span,
            )
        elif not lead and c.lemma and span[:1].isupper():
            word = "Whom" if _is_person(span) else "What"
            yield "what", f"{word} {_turned(c, after)}?", span


def _is_answer(answer: str, form: str) -> bool:
    longest = LONGEST_ANSWER * (3 if form in ("why", "how") else 1)
    return 0 < len(answer.split()) <= longest and len(bare(answer)) > 1 and substring(answer, [answer])


def _tells(question: str) -> bool:
    """Whether a question says what it is about: names or numbers, or enough other words."""
    words = [bare(word) for word in question.split()[1:]]
    telling = [word for word in words if len(word) > 3 and word.lower() not in SMALL]
    if BRACKETS.search(question):
        return False
    named = any(word[:1].isupper() or word[:1].isdigit() for word in words)
    return len(telling) >= (2 if named else 3)


def _reason(c: Clause) -> Made:
    """Why was it moved?"""
    if found := REASON.search(c.rest):
        yield "why", f"Why {_turned(c, _clipped(c.rest[: found.start()]))}?", _clipped(c.rest[found.end() :])


def _means(c: Clause) -> Made:
    """How is the list made?"""
    if found := MEANS.search(c.rest):
        yield "how", f"How {_turned(c, _clipped(c.rest[: found.start()]))}?", _clipped(c.rest[found.end() :])


def _task(sentence: str) -> Made:
    """How do I undo a commit?"""
    if found := TASK.match(sentence.rstrip(".")):
        yield "how", f"How {'do I' if found[1].count(' ') % 2 else 'can I'} {found[1]}?", _clipped(found[2])


def _turned(c: Clause, rest: str) -> str:
    """The clause as it stands in a question: the auxiliary first, or do."""
    said = f"{rest.strip()}{_when(c)}" if not DATE.search(rest) else rest.strip()
    if c.lemma is None:
        return f"{c.verb} {_lowered(c.subject)} {said}".strip()
    helper = "did" if c.is_past else "does"
    return f"{helper} {_lowered(c.subject)} {c.lemma} {said}".strip()


def _when(c: Clause) -> str:
    return f" {c.time[0].lower()}{c.time[1:]}" if c.time else ""


def _answers(text: str) -> list[tuple[int, int]]:
    """Places of names, dates and numbers, whole."""
    dates = [match.span() for match in DATE.finditer(text)]
    names = [span for span in entities(text) if not any(a < span[1] and span[0] < b for a, b in dates)]
    numbers = [
        m.span()
        for m in NUMBER.finditer(text)
        if m[0].islower() and not any(a <= m.start() < b for a, b in dates)
    ]
    return sorted(dates + names + numbers)


def _asking(name: str) -> str:
    return "Who" if _is_person(name) else "What"


def _is_person(name: str) -> bool:
    return bool(PERSON.match(name)) and not GROUPS.search(name) and not any(map(str.isdigit, name))


def _named(subject: str) -> str:
    """A subject as an answer: without its article."""
    return re.sub(r"^(?:The|An?) ", "", subject)


def _lowered(subject: str) -> str:
    """A subject within a question, its article in lower case."""
    first, blank, rest = subject.partition(" ")
    return f"{first.lower()}{blank}{rest}" if first in ARTICLES else subject


def _clipped(text: str) -> str:
    """Up to where another clause begins."""
    found = ENDS.search(f"{text} ")
    return re.sub(
        r"(?: (?:such|like|and|or|as|the|a|an|of|in|to))+$",
        "",
        (text[: found.start()] if found else text).strip(" ."),
    )


def _around(sentence: str, answer: str) -> tuple[str, str]:
    before, _, after = sentence.partition(answer)
    return before.strip(), after.strip().rstrip(".!?…")


def _tidy(text: str) -> str:
    return re.sub(r" +([?,.])", r"\1", " ".join(text.split()))


def drawn(sentences: Sequence[str], rng: Random) -> Natural | None:
    """One question of the first of these sentences that gives any, in a wording that training never asks."""
    for sentence in sentences:
        found = [
            replace(question, text=text)
            for question in natural_questions(sentence, rng)
            if (text := held_out_wording(question.text))
        ]
        if found and (rng.random() < RARE["what"] or any(question.form not in RARE for question in found)):
            return rng.choices(found, [RARE.get(question.form, 1.0) for question in found])[0]
    return None
