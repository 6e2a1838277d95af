"""Cloze questions: a statement with a name, a date or a number taken out and asked for.

Two sources. A claim of VitaminC, read in the evidence that supports it, which tells it in other words, among sentences
that tell something else. A sentence of an encyclopedic paragraph, some of its words dropped, read in its paragraph or,
where another paragraph on the same matter names the same thing, in that one. Pretraining on such questions teaches
where phrases end before there are many questions of people (Lewis, Denoyer and Riedel, ACL 2019; Ram et al., ACL 2021).
"""

import gzip
import json
import random
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from kcard.sentences import spans as sentences
from kcard.training.spans import SMALL, entities
from recipes.reader.claims import plain
from recipes.reader.example import Reading, Spans

__all__ = ["of_claims", "of_paragraphs"]

AROUND = 4  # other sentences beside the evidence, at most
SHORTEST, LONGEST = 5, 24  # words of a statement
DROPPED = 0.25  # of the small words and every tenth other
FRONTED = 0.5  # share of the questions that begin with the question word
LIKE = 2  # words that a paragraph must share with a statement of another one
MONTHS = "January|February|March|April|May|June|July|August|September|October|November|December"
DATE = re.compile(rf"(?:\d{{1,2}} )?(?:{MONTHS})\b.*|[12]\d{{3}}s?")
PERSON = re.compile(r"[A-Z][\w.'’-]+(?: [A-Z][\w.'’-]*)+")


def of_claims(data: Path, count: int, seed: int) -> list[Reading]:
    """At most `count`, of supported claims that have something to ask for."""
    rng = random.Random(seed)
    with gzip.open(data / "fact_check" / "train.jsonl.gz", "rt", encoding="utf-8") as stream:
        rows = [json.loads(line) for line in stream]
    evidence = [plain(row["evidence"]) for row in rows]
    found: list[Reading] = []
    for at in rng.sample(range(len(rows)), len(rows)):
        if len(found) == count:
            break
        row = rows[at]
        claim = plain(row["claim"]).rstrip(".")
        told = row["label"] == "SUPPORTS"
        spans = [s for s in entities(claim) if told and _once(claim[slice(*s)], evidence[at])]
        if spans:
            span = rng.choice(spans)
            others = {rng.choice(evidence) for _ in range(rng.randrange(AROUND + 1))} - {evidence[at]}
            parts = [evidence[at], *sorted(o for o in others if claim[slice(*span)] not in o)]
            rng.shuffle(parts)
            found.append(_reading(_asked(claim, span, rng), claim[slice(*span)], "", " ".join(parts), ()))
    return found


def of_paragraphs(groups: Sequence[Sequence[tuple[str, str]]], count: int, seed: int) -> list[Reading]:
    """At most `count`, at most one of a paragraph. `groups`: (title, text) of paragraphs about one matter each."""
    rng = random.Random(seed)
    places = [(group, *paragraph) for group in groups for paragraph in group]
    found: list[Reading] = []
    for group, title, text in rng.sample(places, len(places)):
        if len(found) == count:
            break
        found += _of_paragraph(title, text, group, rng)
    return found


def _of_paragraph(
    title: str, text: str, group: Sequence[tuple[str, str]], rng: random.Random
) -> Iterator[Reading]:
    statements = [text[a:b].rstrip(".") for a, b in sentences(text)]
    options = []
    for statement in statements:
        if SHORTEST <= statement.count(" ") + 1 <= LONGEST:
            for span in entities(statement):
                answer = statement[slice(*span)]
                if answer.lower() not in SMALL and answer not in title:
                    others = [p for p in group if p[1] != text and _tells(p, statement, answer)]
                    options += [(statement, span, p) for p in others] * 4 + [(statement, span, (title, text))]
    options = [option for option in options if _once(option[0][slice(*option[1])], option[2][1])]
    if options:
        statement, span, (section, context) = rng.choice(options)
        answer = statement[slice(*span)]
        near = tuple(p for p in group if answer not in p[1] and p[1] != text)
        question = _asked(f"{statement}", span, rng)
        if not set(title.split()) & set(statement.split()) and rng.random() < 0.5:
            question = f"{title}: {question}"
        yield _reading(question, answer, section, context, near)


def _tells(paragraph: tuple[str, str], statement: str, answer: str) -> bool:
    shared = _words(statement.replace(answer, "")) & _words(f"{paragraph[0]} {paragraph[1]}")
    return answer in paragraph[1] and len(shared) >= LIKE


def _asked(statement: str, span: tuple[int, int], rng: random.Random) -> str:
    """The statement with a question word in the place of the span, or in front."""
    before, after = statement[: span[0]].split(), statement[span[1] :].split()
    word = _question_word(statement[slice(*span)], after)
    before, after = ([w for w in part if not _dropped(w, rng)] for part in (before, after))
    parts = [word, *after, *before] if rng.random() < FRONTED and len(after) > 1 else [*before, word, *after]
    text = " ".join(parts).strip(" ,;:") + "?"
    return text.lower() if rng.random() < DROPPED else text[0].upper() + text[1:]


def _question_word(answer: str, after: Sequence[str]) -> str:
    if DATE.fullmatch(answer):
        return "when"
    if answer[0].isdigit():
        return "how many" if after and after[0].islower() and after[0].endswith("s") else "what"
    return "who" if PERSON.fullmatch(answer) else "what"


def _dropped(word: str, rng: random.Random) -> bool:
    return rng.random() < (DROPPED if word.lower() in SMALL else 0.1)


def _reading(
    question: str, answer: str, section: str, text: str, near: tuple[tuple[str, str], ...]
) -> Reading:
    spans = tuple(match.span() for match in _places(answer, text))
    evidence: Spans = tuple((a, b) for a, b in sentences(text) if any(a <= s[0] < b for s in spans))
    return Reading(question, section, text, True, spans, evidence, group="cloze", near=near)


def _once(answer: str, text: str) -> bool:
    return len(answer) > 1 and len(list(_places(answer, text))) == 1


def _places(answer: str, text: str) -> Iterator[re.Match[str]]:
    return re.finditer(rf"(?<!\w){re.escape(answer)}(?!\w)", text)


def _words(text: str) -> set[str]:
    return set(re.findall(r"[a-z0-9]{4,}", text.lower()))
