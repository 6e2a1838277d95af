"""Claims about passages that are known to hold, or not, without an LLM.

Of people's questions about encyclopedic paragraphs (SQuAD): the right answer; another answer in the same paragraphs to
a question of the same form; an answer of another form; an answer from elsewhere; words that the embedded reader wrongly
takes for the answer; words of the question. Most of them as a statement made of question and answer. Of paragraphs and
manuals: sentences as they stand there, or their beginnings; the same with another number, name or option, or negated;
sentences from elsewhere.
"""

import gzip
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from kcard.embedded.question_forms import fits, form_of
from kcard.index import Index
from kcard.integrators.claims import claim_of, specifics
from kcard.text import split_sentences

QUESTIONS_PER_ARTICLE = 9
PASSAGES = 3
UNANSWERED = 0.25  # share of questions whose paragraph is left out
SHORTEST, LONGEST = 6, 60  # words of a sentence
READER = "the reader's wrong words"  # a kind whose answers the reader gives (fit.py)


@dataclass(frozen=True)
class Claim:
    """A claim about passages. `group`: the article or manual; `holds`: whether the passages say so."""

    group: str
    question: str
    passages: tuple[str, ...]
    answer: str
    holds: bool
    kind: str


def from_paragraphs(path: Path, rng: Random) -> Iterator[Claim]:
    """Yield claims about the paragraphs of squad-dev.jsonl.gz: rows of title, context, questions with their answers."""
    articles: dict[str, list[dict[str, object]]] = {}
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            articles.setdefault(row["title"], []).append(row)
    for title, rows in articles.items():
        contexts = [str(row["context"]) for row in rows]
        asked = [(i, q["question"], q["answer"]) for i, row in enumerate(rows) for q in row["questions"]]  # type: ignore[attr-defined]
        index = Index.build(contexts)
        for place, question, answer in rng.sample(asked, min(QUESTIONS_PER_ARTICLE, len(asked))):
            found = [number for number, _ in index.search(question, PASSAGES + 1)]
            is_answered = rng.random() >= UNANSWERED
            shown = [number for number in found if number != place or is_answered][:PASSAGES]
            if is_answered and place not in shown:
                shown[-1] = place
            passages = tuple(contexts[number] for number in shown)
            others = [
                a
                for i, q, a in asked
                if q != question and fits(form_of(question), a) and not _alike(a, answer)
            ]
            inside = [a for a in others if any(a in text for text in passages)]
            outside = [a for a in others if not any(a in text for text in passages)]
            if is_answered:
                yield Claim(title, question, passages, said(question, answer, rng), True, "answer")
            if inside:
                statement = said(question, rng.choice(inside), rng)
                yield Claim(title, question, passages, statement, False, "sibling")
            yield Claim(title, question, passages, answer, False, READER)
            if outside and rng.random() < 0.5:
                statement = said(question, rng.choice(outside), rng)
                yield Claim(title, question, passages, statement, False, "elsewhere")
            misfits = [a for _, _, a in asked if not fits(form_of(question), a)]
            if misfits:
                yield Claim(
                    title, question, passages, said(question, rng.choice(misfits), rng), False, "misfit"
                )
            names = [word for word in question.rstrip("?").split()[1:] if word[0].isupper()]
            if names and rng.random() < 0.2:
                yield Claim(
                    title, question, passages, said(question, rng.choice(names), rng), False, "question"
                )
            if rng.random() < 0.5:
                foreign = [text for text in contexts if text not in passages]
                yield from _sentences(title, question, passages, foreign, 1, rng)


def from_passages(rows: Sequence[dict[str, object]], rng: Random) -> Iterator[Claim]:
    """Yield claims about passages of manuals: rows of manual, question, knowledge."""
    for row in rows:
        passages = tuple(map(str, row["knowledge"]))  # type: ignore[call-overload]
        same = [other for other in rows if other["manual"] == row["manual"]]
        texts = [str(text) for other in same for text in other["knowledge"]]  # type: ignore[attr-defined]
        foreign = [text for text in texts if text not in passages]
        yield from _sentences(str(row["manual"]), str(row["question"]), passages, foreign, 2, rng)


def _sentences(
    group: str, question: str, passages: tuple[str, ...], foreign: Sequence[str], count: int, rng: Random
) -> Iterator[Claim]:
    """Yield sentences of the passages, the same with an error, and a sentence of foreign texts."""
    sentences = [
        s for text in passages for s in split_sentences(text) if SHORTEST <= len(s.split()) <= LONGEST
    ]
    names = sorted({name for text in foreign[:20] for name in specifics(text)})
    for sentence in rng.sample(sentences, min(count, len(sentences))):
        words = sentence.split()
        beginning = " ".join(words[: rng.randint(SHORTEST, len(words))])
        yield Claim(group, question, passages, rng.choice((sentence, beginning)), True, "sentence")
        wrong = _with_error(sentence, names, rng)
        if wrong and not any(wrong in text for text in passages):
            yield Claim(group, question, passages, wrong, False, "error")
    if foreign:
        others = [s for s in split_sentences(rng.choice(foreign)) if len(s.split()) >= SHORTEST]
        if others:
            yield Claim(group, question, passages, rng.choice(others), False, "foreign")


def _with_error(sentence: str, names: Sequence[str], rng: Random) -> str:
    """Return the sentence with another number, name or option, or negated; "" if neither is possible."""
    for name in sorted(specifics(sentence), key=lambda _: rng.random()):
        place = re.search(rf"(?<!\w){re.escape(name)}(?!\w)", sentence, re.IGNORECASE)
        alike = [
            n
            for n in names
            if n != name and (n[0].isdigit(), n[0] == "-") == (name[0].isdigit(), name[0] == "-")
        ]
        if place and alike:
            other = rng.choice(alike)
            other = other.title() if place[0][0].isupper() else other
            return sentence[: place.start()] + other + sentence[place.end() :]
    negated = re.sub(r"\b(is|are|was|can|will|must)\b", r"\1 not", sentence, count=1)
    return "" if negated == sentence else negated


def said(question: str, answer: str, rng: Random) -> str:
    """Return the answer alone or, twice as often, as a statement with the question."""
    statement = claim_of(question, answer).replace(":", "")
    return rng.choice((answer, statement[0].upper() + statement[1:], statement[0].upper() + statement[1:]))


def _alike(one: str, other: str) -> bool:
    return one.lower() in other.lower() or other.lower() in one.lower()
