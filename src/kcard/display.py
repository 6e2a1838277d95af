"""How answers, cards, hubs and evaluations are shown: as lines of text, and as HTML in notebooks (display.html)."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kcard.errors import printable
from kcard.io import counted
from kcard.text import LIST_MARK, file_title, split_sentences

if TYPE_CHECKING:
    from jinja2 import Environment

    from kcard.types import Answer, Citation, CitationVerdict, Passage, Source

SCORES = ("relevance", "faithfulness", "factuality")
MAX_SHOWN_CHARACTERS = 240  # characters of a passage
MAX_REPEATED_WORDS = 8  # of a sentence that is already in the answer
CONSTANT_GATES = ("always", "never")  # their score is always the same


@dataclass(frozen=True)
class Quotation:
    """A sentence of a passage in three parts, of which the middle one is what matters, and its way to its source.

    steps   the card, then the file with its line
    scores  the passage's known faithfulness and factuality, by name
    claim   the sentence of the answer, if the passage contradicts it, or none supports it
    is_generated  whether the card's model wrote the passage
    """

    before: str = ""
    cited: str = ""
    after: str = ""
    steps: tuple[str, ...] = ()
    scores: tuple[tuple[str, float], ...] = ()
    claim: str = ""
    verdict: "CitationVerdict" = "supported"
    is_generated: bool = False

    @property
    def sentence(self) -> str:
        return self.before + self.cited + self.after

    @property
    def line(self) -> str:
        """Return it as one line: `"Kuiper found Miranda." <- moons (retrieval) <- a.md:3`; without quotation marks what
        the answer says and no passage: `not in the cards: It is made of cheese.`"""
        quoted = f'"{self.sentence}"' if self.sentence else ""
        return self.line_of(quoted, self.steps, self.warning)

    @property
    def warning(self) -> str:
        """Return the verdict with the sentence of the answer; "" for a supported one."""
        return f"{self.verdict}: {self.claim}" if self.claim else ""

    @staticmethod
    def line_of(quoted: str, steps: Sequence[str], warning: str = "") -> str:
        line = quoted
        if steps:
            line = " <- ".join((quoted, *steps)).lstrip()
        return " - but: ".join(filter(None, (warning, line)))


def quotations(answer: "Answer") -> list[Quotation]:
    """Return the distinct quotations of an answer's citations, in their order.

    Where an answer repeats several whole sentences of one passage, the first citation stands for all of them.
    """
    text = " ".join(answer.answer.split())
    distinct: dict[object, Citation] = {}
    for at, citation in enumerate(answer.citations):
        is_sentence = citation.passage is not None and not citation.quote and len(answer.citations) > 1
        repeats = is_sentence and " ".join(citation.sentence.split()) in text
        key: object = citation.passage if repeats else (at,)
        if citation.quote and citation.verdict == "supported":
            key = citation.passage, citation.quote
        distinct.setdefault(key, citation)
    quoted = [_quotation(citation, answer) for citation in distinct.values()]
    return list(dict.fromkeys(quoted))


def warning_of(answer: "Answer") -> str:
    """Return one line on what the answer says and the cards do not, "" if they support all of it."""
    warnings = [quotation.warning for quotation in quotations(answer) if quotation.warning]
    if not warnings:
        return ""
    if all(citation.verdict == "not in the cards" for citation in answer.citations):
        return "(warning: not in the cards)"
    return f"(warning: {'; '.join(warnings)})"


def _quotation(citation: "Citation", answer: "Answer") -> Quotation:
    claim = " ".join(citation.sentence.split())
    if citation.passage is None:
        return Quotation(claim=claim, verdict=citation.verdict)
    # The card, and the place of the sentence.
    passage = answer.passages[citation.passage]
    is_contradicted = citation.verdict == "contradicted"
    origin = "retrieval" if passage.source else "model"
    if citation.support < 1 and not is_contradicted:
        origin += f", support {number(citation.support)}"
    steps = [f"{passage.card} ({origin})"]
    source = passage.source or passage.evidence
    where = place(source and replace(source, line=citation.line or source.line))
    if where:
        steps.append(where)
    scores = []
    for name in SCORES[1:]:
        value = getattr(passage, name)
        if value is not None:
            scores.append((name, value))
    quotation = Quotation(steps=tuple(steps), scores=tuple(scores), is_generated=passage.source is None)
    if is_contradicted:
        return replace(quotation, before=citation.quote, claim=claim, verdict=citation.verdict)
    before, cited, after = _quoted_parts(citation, passage, answer)
    return replace(quotation, before=before, cited=cited, after=after)


def _quoted_parts(citation: "Citation", passage: "Passage", answer: "Answer") -> tuple[str, str, str]:
    """Return the passage's sentence that contains the cited words, split at these.

    A whole sentence that is already in the answer is cut to its first words; it is left out where all citations come
    from one passage.
    """
    cited = " ".join(citation.sentence.split())
    sentences = [citation.quote]
    if not citation.quote:
        sentences = split_sentences(passage.text if passage.pruned is None else passage.pruned)
    for sentence in sentences:
        line = " ".join(sentence.split())
        at = line.lower().find(cited.lower())
        end = at + len(cited)
        # A number may be part of what is cited: "1. May".
        before, after = LIST_MARK.sub("", line[:at]), line[end:]
        if at >= 0 and len(before + after) > 1:
            return before, line[at:end], after
    quote = LIST_MARK.sub("", " ".join(citation.quote.split()))
    if quote and cited.lower() not in quote.lower():
        return quote, "", ""
    if cited not in " ".join(answer.answer.split()):
        return cited, "", ""
    if len({other.passage for other in answer.citations}) == 1:
        return "", "", ""
    words = cited.split()
    beginning = " ".join(words[:MAX_REPEATED_WORDS])
    if len(words) > MAX_REPEATED_WORDS:
        beginning += " …"
    return beginning, "", ""


def nearest_quotation(answer: "Answer") -> Quotation | None:
    """Return the nearest text in its passage, cut to MAX_SHOWN_CHARACTERS; None if there is none."""
    nearest = answer.nearest
    if nearest is None:
        return None
    where = place(nearest)
    steps = (where,) if where else ()
    quote = " ".join(nearest.text.split())
    for passage in answer.passages:
        line = " ".join(passage.text.split())
        at = line.find(quote)
        if at >= 0:
            end, room = at + len(quote), max(0, MAX_SHOWN_CHARACTERS - len(quote)) // 2
            begin, stop = max(0, at - room), min(len(line), end + room)
            before, after = line[begin:at], line[end:stop]
            if begin:
                before = f"… {before.partition(' ')[2]}"
            if stop < len(line):
                after = f"{after.rpartition(' ')[0]} …"
            return Quotation(before, quote, after, steps)
    return Quotation(nearest.text, "", "", steps)


def headline(answer: "Answer") -> str:
    """Return the answer, after the letter of the chosen option if there is one."""
    if answer.choice:
        return f"{answer.choice}. {answer.answer}"
    return answer.answer


def summary(answer: "Answer") -> str:
    """Return the confidence, what the gate decided, and what the answer took, in one line."""
    gate = answer.gate.name
    if gate not in CONSTANT_GATES:
        gate += f" {answer.gate.score:.2f}"
    # A gate that asks for cards gets none where no card fits the question.
    decision = "cards used" if answer.gate.fired and answer.cards else "no cards used"
    parts = [
        _confidence(answer) if answer.known else "no answer found",
        f"{decision} (gate: {gate})",
        f"mode: {answer.mode}",
        counted(answer.calls, "LLM call"),
    ]
    usage = answer.usage
    if usage is not None and usage.tokens_in is not None:
        parts.append(f"{usage.tokens_in} + {usage.tokens_out} tokens")
    parts.append(f"{answer.seconds:.2f} s")
    return " · ".join(filter(None, parts))


def footer(answer: "Answer") -> str:
    """Return the confidence, whether no card was used, and the seconds, in one line."""
    parts = [_confidence(answer) if answer.known else ""]
    if not (answer.gate.fired and answer.cards):
        parts.append("no cards used")
    parts.append(f"{answer.seconds:.2f} s")
    return " · ".join(filter(None, parts))


def _confidence(answer: "Answer") -> str:
    if answer.confidence is None:
        return ""
    confidence = f"confidence {answer.confidence:.2f}"
    if not answer.is_calibrated:
        confidence += " (not calibrated for this LLM)"
    return confidence


def plain_text(answer: "Answer") -> str:
    """Return the answer and, numbered, the quotations that support it, or the nearest passage if it is not known.

    Control characters, which a terminal would obey, are escaped.
    """
    lines = [headline(answer)]
    for i, quotation in enumerate(quotations(answer), start=1):
        line = f"[{i}] {quotation.line.removeprefix('<- ')}"
        if quotation.scores:
            line += f" ({', '.join(f'{name} {number(value)}' for name, value in quotation.scores)})"
        lines.append(line)
    nearest = nearest_quotation(answer)
    if nearest is not None:
        where = "".join(f" ({step})" for step in nearest.steps)
        lines.append(f'nearest passage: "{nearest.sentence}"{where}')
    return printable("\n".join(lines))


def place(source: "Source | None") -> str:
    """Return the file, line and section of a text; "" if its file is unknown. A section that is only the file's name is
    left out."""
    if source is None or not source.file:
        return ""
    where = f"{source.file}:{source.line}"
    if source.section and source.section != file_title(source.file):
        where += f", {source.section}"
    return where


def number(score: float | None, form: str = ".2f") -> str:
    if score is None:
        return "-"
    return format(score, form)


# HTML for notebooks: self-contained, without scripts and foreign requests; the template escapes every value.


def answer_html(answer: "Answer") -> str:
    """Return the answer, its quotations, and its passages with their scores in a part that opens."""
    scores = []
    for name in SCORES:
        if any(getattr(passage, name) is not None for passage in answer.passages):
            scores.append(name)
    columns, rows = ["status", "card", "text", *scores], []
    for passage in answer.passages:
        figures = [number(getattr(passage, name)) for name in scores]
        status = "kept" if passage.kept else "dropped"
        rows.append([status, passage.card, passage.knowledge, *figures])
    return _render(
        "answer",
        question=answer.question,
        headline=headline(answer),
        quotations=quotations(answer),
        nearest=nearest_quotation(answer),
        summary=summary(answer),
        columns=columns,
        rows=rows,
    )


def fields_html(title: str, subtitle: str, fields: Mapping[str, object]) -> str:
    """Return a title, a sentence and named values, of which empty ones are left out."""
    shown = {name: value for name, value in fields.items() if value not in (None, "")}
    return _render("fields", title=title, subtitle=subtitle, fields=shown)


def table_html(title: str, tables: Sequence[tuple[str, Sequence[str], Sequence[Sequence[str]]]]) -> str:
    """Return tables of (caption, headings, rows) under a title; texts stand left, numbers right."""
    return _render("tables", title=title, tables=tables)


def _render(name: str, **values: Any) -> str:
    return _environment().get_template("display.html").render(view=name, **values).strip()


@cache
def _environment() -> "Environment":
    from jinja2 import Environment, FileSystemLoader

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    environment.tests["figure"] = lambda text: bool(
        re.fullmatch(r"[-+]?[\d.,]*\d[\d.,e+-]*( \S+)?|-|\[.*\]", text)
    )
    environment.filters["number"] = number
    return environment
