"""Study material without an LLM: what rules and the small models of the package make of a passage.

A sentence is made to stand alone, its clauses are turned into questions, and both are said in other words. What is not
sure is left out. Nothing is drawn: the same corpus gives the same material. The kinds are MeMo's, but for those that
take an LLM: what follows from a passage, its summary, and what it leaves open.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path

from kcard import cache
from kcard.answer import Source
from kcard.encoder import embed
from kcard.errors import UsageError
from kcard.json_values import build
from kcard.protocols import Checker, Pair, Reader
from kcard.sentences import split
from kcard.training.study.checks import checked
from kcard.training.study.item import StudyItem
from kcard.training.study.rules.answers import Names
from kcard.training.study.rules.antecedents import standing_alone
from kcard.training.study.rules.clauses import Clause, clauses
from kcard.training.study.rules.neighbours import in_other_words, reworded
from kcard.training.study.rules.questions import Draft, about_both, drafts
from kcard.training.study.tasks import Assignment
from kcard.training.study.writing import Material

__all__ = ["BY", "written"]

BY = "rules:1"  # with their version
NEARNESS = (0.65, 0.55)  # cosines of words that stand for others, ever further away
REMEDY = "name an LLM that writes it, such as --llm openai:MODEL, or leave it out"
# A sentence in other words has so much at least of the sentence encoder's cosine and of the checker's support: antonyms
# have .8.
SAME, SURE = 0.7, 0.9

Items = Iterator[StudyItem | str]  # a string: why one was left out


def written(
    passages: Sequence[Source],
    wanted: Sequence[Assignment],
    checker: Checker,
    reader: Reader,
    language: str | None,
    progress: Callable[[int, int], None] | None = None,
) -> Material:
    """The items about all assignments of a corpus, each text once; what its passages don't support is counted.

    `language`: code of the corpus' language. `progress` is called with (done, all). What was written about a passage is
    remembered (kcard.cache). Raises UsageError where the corpus is not in English, or gives nothing.
    """
    if language not in (None, "en"):
        raise UsageError(
            f"the rules for study material are English, and the corpus is in {language}: {REMEDY}"
        )
    names = Names.of(passage.text for passage in passages)
    items: dict[tuple[str, str], StudyItem] = {}
    left_out = Counter[str]()
    for done, assignment in enumerate(wanted, 1):
        found = _remembered(assignment, names, checker, reader)
        left_out.update(found.left_out)
        for item in found.items:
            if items.setdefault((item.kind, item.text.casefold()), item) is not item:
                left_out["said before"] += 1
        if progress:
            progress(done, len(wanted))
    if not items:
        raise UsageError(
            f"the rules for study material make nothing of these {len(passages):,} passages: {REMEDY}"
        )
    return Material([*items.values()], dict(left_out))


def _remembered(assignment: Assignment, names: Names, checker: Checker, reader: Reader) -> Material:
    def made(_: list[int]) -> list[bytes]:
        found = _Writing(assignment, names, checker, reader).material()
        return [json.dumps({"items": [*map(asdict, found.items)], "left_out": found.left_out}).encode()]

    code = cache.source_digest(*sorted(Path(__file__).parent.glob("*.py")))
    digest, known = str(getattr(checker, "sha256", "")), names.told(assignment.texts)
    key = cache.key("study", code, digest, known, assignment.task, *assignment.texts)
    found = json.loads(cache.remembered([key], made)[0])
    return Material([build(StudyItem, item) for item in found["items"]], found["left_out"])


@dataclass(frozen=True)
class _Writing:
    assignment: Assignment
    names: Names
    checker: Checker
    reader: Reader

    def material(self) -> Material:
        made = {"questions": self._questions, "statements": self._statements, "links": self._links}
        found = [*made[self.assignment.task]()]
        kept = [item for item in found if isinstance(item, StudyItem)]
        return Material(kept, Counter(why for why in found if isinstance(why, str)))

    def _questions(self) -> Items:
        for clause in self._clauses[0]:
            asked = {}
            for draft in drafts(clause, self.names):
                found = self._asked(draft)
                yield found
                if isinstance(found, StudyItem):
                    asked[draft.text] = draft.answer
            for other in self._other_words(clause) if asked else ():
                for draft in drafts(other, self.names):
                    if draft.answer in asked.values() and draft.text not in asked:
                        yield self._checked(StudyItem("far", draft.text, draft.answer))

    def _asked(self, draft: Draft) -> StudyItem | str:
        """A question in the passage's words, to which the reader must find the answer, whatever its kind."""
        found = self._checked(StudyItem("direct", draft.text, draft.answer))
        return replace(found, kind=draft.kind) if isinstance(found, StudyItem) else found

    def _statements(self) -> Items:
        for sentence, alone in zip(self._sentences[0], self._alone[0], strict=True):
            if alone != sentence:
                yield self._checked(StudyItem("rewrite", alone))
            made = dict.fromkeys(in_other_words(alone, least) for least in NEARNESS)
            for other in self._same([text for text in made if text != alone], alone):
                yield self._checked(StudyItem("rewrite", other))
        for clause in self._clauses[0]:
            yield self._checked(StudyItem("rewrite", clause.sentence))

    def _links(self) -> Items:
        first, second = self._clauses
        for draft in about_both(first, second, self.names):
            yield self._checked(StudyItem("link", draft.text, draft.answer))

    def _other_words(self, clause: Clause) -> Iterator[Clause]:
        """The clause in other words, ever further away."""
        made = {other.sentence: other for least in NEARNESS if (other := reworded(clause, least))}
        for sentence in self._same([*made], clause.sentence):
            yield made[sentence]

    def _same(self, made: Sequence[str], sentence: str) -> Iterator[str]:
        """Those that mean the same as the sentence, as the encoder and the checker see it."""
        if made:
            near = embed(made) @ embed([sentence])[0]
            supports = self.checker.support([Pair(other, self.assignment.texts[0]) for other in made])
            for other, cosine, support in zip(made, near, supports, strict=True):
                if cosine >= SAME and support >= SURE:
                    yield other

    def _checked(self, item: StudyItem) -> StudyItem | str:
        item = replace(item, passages=self.assignment.digests, by=BY)
        return checked(item, self.assignment.texts, self.checker, self.reader)

    @cached_property
    def _sentences(self) -> list[list[str]]:
        return [split(passage.text) for passage in self.assignment.passages]

    @cached_property
    def _alone(self) -> list[list[str]]:
        titles = (passage.section.rpartition(" > ")[2] for passage in self.assignment.passages)
        return [
            standing_alone(sentences, title, self.names)
            for sentences, title in zip(self._sentences, titles, strict=True)
        ]

    @cached_property
    def _clauses(self) -> list[list[Clause]]:
        """Of the sentences that stand alone: a name for a pronoun must be one that the checker believes."""
        return [[clause for alone in found for clause in clauses(alone)] for found in self._alone]
