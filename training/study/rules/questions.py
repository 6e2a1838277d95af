"""Questions that a clause answers, made by rules: for its subject, and for names, dates and numbers behind its verb.

None has the form of the exam's questions, which training never sees: those begin with who, what, when, where, why and
how, these begin with "which" or have the question word inside.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from kcard.training.spans import SMALL, bare
from kcard.training.study.item import Kind
from kcard.training.study.rules.answers import Names, is_date, spans
from kcard.training.study.rules.clauses import Clause, clipped
from kcard.training.study.rules.inflection import inflections

__all__ = ["Draft", "about_both", "drafts"]

LEAST = 2  # words behind the verb, without which a question says too little
LONGEST = 6  # words of an answer
BEFORE = re.compile(r"(?:^| )(in|on|at|since|until|by|before|after|during|from|to|with|for|against|near|of)$")
TIMES = frozenset(["in", "on", "since", "until", "by", "before", "after", "during", "from"])
PLACES = frozenset(["in", "at", "near"])
TITLE = re.compile(r"(?:^|(?<=[ ,]))(?:the |an? )?([a-z]{3,}(?:er|or|ist|ian|ect|back|man|king|queen|ent))$")
COUNTED = re.compile(r" ([a-z]{3,}s)\b")


@dataclass(frozen=True)
class Draft:
    """`kind`: reverse for the subject, direct for the rest."""

    kind: Kind
    text: str
    answer: str


def drafts(clause: Clause, names: Names) -> list[Draft]:
    """The questions that a clause of a sentence that stands alone answers."""
    made = [*_about_subject(clause, names), *_about_rest(clause, names)]
    return [draft for draft in made if _tells(draft.text) and len(draft.answer.split()) <= LONGEST]


def about_both(first: Sequence[Clause], second: Sequence[Clause], names: Names) -> Iterator[Draft]:
    """Which person discovered Titan in 1655 and described the rings of Saturn?"""
    said = {clause.subject: predicate for clause in first if (predicate := _predicate(clause))}
    for clause in second:
        other, noun = _predicate(clause), names.noun(_plain(clause.subject))
        if noun and other and clause.subject in said:
            yield Draft(
                "link", _tidy(f"Which {noun} {said[clause.subject]} and {other}?"), _plain(clause.subject)
            )


def _plain(subject: str) -> str:
    return re.sub(r"^(?:The|An?) ", "", subject)


def _predicate(clause: Clause) -> str:
    """What a clause says of its subject, such as "discovered Titan in 1655"; "" where that is too little."""
    rest = clipped(clause.rest)
    told = len(rest.split()) >= LEAST and len(rest.rpartition(" ")[2]) > 1  # not cut off after an initial
    return f"{clause.verb} {rest}{clause.tail}" if told else ""


def _about_subject(clause: Clause, names: Names) -> Iterator[Draft]:
    """Which person discovered Titan in 1655?"""
    subject = _plain(clause.subject)
    noun, said = names.noun(subject), _predicate(clause)
    one = "ones" if clause.verb in ("are", "were", "have") else "one"
    if said:
        yield Draft("reverse", _tidy(f"Which {one if noun in ('', 'thing') else noun} {said}?"), subject)


def _about_rest(clause: Clause, names: Names) -> Iterator[Draft]:
    """In which year did Huygens discover Titan? Huygens discovered Titan with how many lenses?"""
    if dated := re.fullmatch(r"(in|on|since|by|until) ([12]\d{3})", clause.time):
        untimed = replace(clause, time="")
        yield Draft("direct", _turned(untimed, f"{dated[1]} which year", clipped(clause.rest), ""), dated[2])
    for start, end in spans(clause.rest):
        lead, span, tail = clause.rest[:start].rstrip(), clause.rest[start:end], clause.rest[end:]
        if clipped(f"{lead} it") != f"{lead} it".strip():
            return  # what follows stands in another clause
        after = clipped(tail) if tail.startswith(" ") else ""
        if lead.endswith(("like", "as")) or (lead.endswith("from") and tail.startswith(" to ")):
            continue
        if lead.rpartition(" ")[2][:1].isupper():
            continue  # part of a longer name
        if tail.startswith(("'", "’", "-", "–", "%")) or lead.endswith(("$", "£", "€")):
            continue
        if span.replace(",", "").isdigit() and not is_date(span):
            if counted := COUNTED.match(tail):
                text = f"{clause.subject} {clause.verb} {lead} how many {counted[1]} {clipped(tail[counted.end() :])}"
                yield Draft("direct", _tidy(f"{text}{clause.tail}?"), span)
        elif (asked := _asked(lead, span, names)) and not _describes(tail):
            words, before = asked
            if words.endswith("which thing"):
                text = (
                    f"{clause.subject} {clause.verb} {before} {words.replace('which thing', 'what')} {after}"
                )
                yield Draft("direct", _tidy(f"{text}{clause.tail}?"), span)
            elif not (is_date(span) and clause.time):
                yield Draft("direct", _turned(clause, words, before, after), span)


def _turned(clause: Clause, words: str, before: str, after: str) -> str:
    body = (
        f"{words} {clause.helper} {clause.inner_subject} {clause.lemma or ''} {before} {after}{clause.tail}?"
    )
    return _tidy(f"{body[0].upper()}{body[1:]}")


def _asked(lead: str, span: str, names: Names) -> tuple[str, str] | None:
    """(what is asked for, with its preposition, and what stood before it); None where it is not sure."""
    lead = re.sub(r"(?:^| )the$", "", lead)
    titled = TITLE.search(lead)
    before = BEFORE.search(lead[: titled.start()].rstrip() if titled else lead)
    word = before[1] if before else ""
    rest = lead[: before.start()] if before else lead[: titled.start()].rstrip() if titled else lead
    if is_date(span):
        unit = "decade" if span.endswith("s") else "year" if span.isdigit() else "date"
        word = "on" if word == "in" and unit == "date" else word
        return (f"{word} which {unit}", rest) if word in TIMES else None
    if titled and "NN" in inflections(titled[1]):
        noun = titled[1]
    else:
        noun = names.noun(span)
        if noun in ("", "thing") and word in PLACES and names.may_be_place(span):
            noun = "place"
    return (f"{word} which {noun}".strip(), rest) if noun and word != "of" else None


def _describes(tail: str) -> bool:
    """Whether a name is part of what follows, such as "American" of "American football"."""
    following = re.match(r" ([a-z]+)", tail)
    if following is None or following[1] in SMALL:
        return False
    return bool(inflections(following[1]) & {"NN", "NNS", "JJ"})


def _tells(question: str) -> bool:
    """Whether a question says what it is about: a name or number and another word, or three other words."""
    told = [bare(word) for word in question.split()[1:]]
    telling = [word for word in told if len(word) > 3 and word.lower() not in SMALL]
    named = any(word[:1].isupper() or word[:1].isdigit() for word in told)
    return len(telling) >= (3 if named else 4)


def _tidy(text: str) -> str:
    return re.sub(r" +([?,.])", r"\1", " ".join(text.split()))
