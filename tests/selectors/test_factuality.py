"""Factuality: the paper's formula over a real checker and a real index."""

import dataclasses
from collections.abc import Sequence

import numpy as np
import pytest

from kcard.interfaces import Array, Pair
from kcard.offline.checker import MiniLMChecker
from kcard.selectors.evidence import CorpusEvidence
from kcard.selectors.factuality import judge
from kcard.types import Passage, Source

FACTS = [
    "In the 2022 senate elections, Oregon elected Ron Wyden.",
    "In the 2022 senate elections, Washington elected Patty Murray.",
    "In the 2022 senate elections, Ohio elected J. D. Vance.",
]
EVIDENCE = {"senate": CorpusEvidence([Source(text, "facts.txt", i) for i, text in enumerate(FACTS, start=1)])}
TRUE = Passage("senate", "Ron Wyden won the 2022 senate race in Oregon.")
FALSE = Passage("senate", "Patty Murray won the 2022 senate race in Oregon.")


@dataclasses.dataclass
class Counted:
    """The real checker, with its calls kept."""

    calls: list[list[Pair]] = dataclasses.field(default_factory=list)

    def support(self, pairs: Sequence[Pair]) -> Array:
        self.calls.append(list(pairs))
        return MiniLMChecker().support(pairs)


def test_a_true_passage_scores_high_a_false_one_low_and_each_names_its_source() -> None:
    true, false = judge([TRUE, FALSE], EVIDENCE, MiniLMChecker(), with_summary=False)
    assert true.faithfulness is not None
    assert false.faithfulness is not None
    assert true.faithfulness > 0.5 > false.faithfulness
    assert true.evidence is not None
    assert (true.evidence.text, true.evidence.file, true.evidence.line) == (FACTS[0], "facts.txt", 1)
    assert true.evidence.score > 0


def test_faithfulness_is_the_mean_of_summary_and_best_evidence() -> None:
    checker = MiniLMChecker()
    text = f"{TRUE.text} {FALSE.text}"
    pruned = "Patty Murray won in Oregon."
    (judged,) = judge([Passage("senate", text, pruned=pruned)], EVIDENCE, checker)
    facts = checker.support([Pair(text, source.text) for source in EVIDENCE["senate"].find(text, 3)])
    (summary,) = checker.support([Pair(pruned, text)])
    assert judged.faithfulness == pytest.approx((float(summary) + float(facts.max())) / 2, abs=1e-5)
    (alone,) = judge([Passage("senate", text, pruned=pruned)], EVIDENCE, checker, with_summary=False)
    assert alone.faithfulness == pytest.approx(float(facts.max()), abs=1e-5)


@pytest.mark.parametrize("pruned", [None, TRUE.text])
def test_a_document_that_was_not_pruned_is_its_own_summary(pruned: str | None) -> None:
    passage = dataclasses.replace(TRUE, pruned=pruned)
    (with_summary,) = judge([passage], EVIDENCE, MiniLMChecker())
    (without,) = judge([passage], EVIDENCE, MiniLMChecker(), with_summary=False)
    assert with_summary.faithfulness is not None
    assert without.faithfulness is not None
    assert with_summary.faithfulness == pytest.approx((1 + without.faithfulness) / 2)


def test_no_evidence_is_unknown_and_asks_the_checker_nothing() -> None:
    checker = Counted()
    strangers = [Passage("senate", "Zanzibar qwertz."), Passage("other", TRUE.text), Passage("senate", "")]
    judged = judge([dataclasses.replace(p, faithfulness=0.3) for p in strangers], EVIDENCE, checker)
    assert [(p.faithfulness, p.evidence) for p in judged] == [(None, None)] * 3
    assert checker.calls == []


def test_all_passages_go_to_the_checker_in_one_call_and_no_pair_twice() -> None:
    checker = Counted()
    passages = [TRUE, FALSE, dataclasses.replace(TRUE, pruned="Ron Wyden won."), TRUE]
    judged = judge(passages, EVIDENCE, checker, k=2)
    (pairs,) = checker.calls
    assert len(pairs) == len(set(pairs)) == 5
    assert judged[0] == judged[3]
    assert [p.text for p in judged] == [p.text for p in passages]


def test_a_passage_is_judged_alike_in_any_company() -> None:
    passages = [TRUE, FALSE, Passage("senate", "Oregon " * 60)]
    together = [p.faithfulness for p in judge(passages, EVIDENCE, MiniLMChecker())]
    alone = [judge([p], EVIDENCE, MiniLMChecker())[0].faithfulness for p in passages]
    assert np.array(together, dtype=float) == pytest.approx(np.array(alone, dtype=float), abs=1e-4)


def test_only_k_texts_are_read() -> None:
    checker = Counted()
    judge([FALSE], EVIDENCE, checker, k=1, with_summary=False)
    assert [len(pairs) for pairs in checker.calls] == [1]
