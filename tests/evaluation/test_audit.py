"""The audit on real cards that look up: one that tells the truth, and one of which half the statements are swapped."""

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kcard.api.exam import audit, browse
from kcard.cards.card import finish
from kcard.errors import CardError, CorpusError, UsageError
from kcard.evaluation.audit import ScoredDocument, summarise_scores
from kcard.evaluation.questions import read_queries
from kcard.evaluation.records import Audit, Distribution, Mean
from kcard.events import Event
from kcard.hub.registry import Hub
from kcard.interfaces import Array, Checker, Pair, Verdict
from kcard.manifest import Manifest
from kcard.types import Source

MOONS = {
    "Phobos": "Mars",
    "Titan": "Saturn",
    "Triton": "Neptune",
    "Io": "Jupiter",
    "Charon": "Pluto",
    "Miranda": "Uranus",
}
LIES = {**MOONS, "Phobos": "Saturn", "Titan": "Mars", "Triton": "Jupiter", "Io": "Neptune"}


@dataclass(frozen=True)
class WordOverlap(Checker):
    """A small real checker: the share of the claim's words that one sentence of the evidence holds."""

    def support(self, pairs: Sequence[Pair]) -> Array:
        return np.array([verdict.score for verdict in self.judge(pairs)], dtype=np.float32)

    def judge(self, pairs: Sequence[Pair]) -> list[Verdict]:
        return [max((self._read(p, s) for s in p.evidence.split(". ")), key=lambda v: v.score) for p in pairs]

    def _read(self, pair: Pair, sentence: str) -> Verdict:
        claim, words = (set(text.lower().strip(".").split()) for text in (pair.claim, sentence))
        return Verdict(len(claim & words) / len(claim), sentence)


@dataclass(frozen=True)
class Doubtful(WordOverlap):
    """The same, less sure: words that all of the statements have support none."""

    def judge(self, pairs: Sequence[Pair]) -> list[Verdict]:
        return [replace(verdict, score=0.7 * verdict.score) for verdict in super().judge(pairs)]


def publish(hub: Hub, folder: Path, name: str, moons: dict[str, str]) -> None:
    folder.mkdir(parents=True)
    manifest = Manifest(name, "Moons", kind="retrieval", language="xx")
    sources = [
        Source(f"{m} is a moon of {p}.", f"{p < 'N'}.txt", i) for i, (m, p) in enumerate(moons.items())
    ]
    finish(folder, manifest, sources)
    hub.publish(folder)


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The home of a hub with both cards."""
    folder = tmp_path_factory.mktemp("published")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KCARD_HOME", str(folder / "home"))
        registry = Hub(folder / "home")
        publish(registry, folder / "honest", "honest", MOONS)
        publish(registry, folder / "liar", "liar", LIES)
        registry.database.close()
    return folder / "home"


@pytest.fixture
def hub(published: Path, home: Path) -> Hub:
    """A hub of one's own with both cards."""
    shutil.copytree(published, home)
    return Hub(home)


@pytest.fixture
def evidence(tmp_path: Path) -> Path:
    path = tmp_path / "atlas.jsonl"
    texts = (f"Astronomy. Of {p} we know that {m} is a moon of it. It orbits {p}" for m, p in MOONS.items())
    path.write_text("".join(f"{json.dumps({'text': text})}\n" for text in texts), encoding="utf-8")
    return path


@pytest.fixture
def queries(tmp_path: Path) -> Path:
    path = tmp_path / "asked.jsonl"
    rows = [
        {"question": f"{moon} circles what", "domain": "inner" if moon in ("Phobos", "Io") else "outer"}
        for moon in MOONS
    ]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return path


def audited(hub: Hub, card: str, **options: Any) -> Any:
    """The audit of a published card by the words that its documents share with the evidence."""
    return audit(card, checker=WordOverlap(), hub=hub, **options)


def mean(scores: Distribution | None) -> float:
    assert scores is not None
    assert scores.mean is not None
    return scores.mean.mean


def test_a_card_that_lies_is_faithful_to_its_corpus_and_not_factual(
    hub: Hub, evidence: Path, queries: Path
) -> None:
    taken: Any = partial(audited, hub, queries=queries, evidence=[evidence], documents=1)
    honest, liar = taken("honest"), taken("liar")
    assert mean(honest.faithfulness) == mean(liar.faithfulness) == 1.0
    assert mean(liar.factuality) < mean(honest.factuality)
    assert [d.query for d in liar.worst[:4]] == [
        f"{m} circles what" for m in ("Phobos", "Titan", "Triton", "Io")
    ]
    assert liar.worst[0].text == "Phobos is a moon of Saturn."
    assert liar.worst[0].evidence.text.startswith("Astronomy. ")
    assert liar.worst[0].window.startswith("Of ")
    assert (liar.ranked_by, liar.evidence, liar.asked, liar.documents) == ("factuality", "atlas.jsonl", 6, 1)
    inner, outer = liar.domains
    assert [(d.name, d.queries) for d in liar.domains] == [("inner", 2), ("outer", 4)]
    assert inner.factuality.mean < outer.factuality.mean


def test_without_evidence_there_is_no_factuality(hub: Hub) -> None:
    taken = audited(hub, "liar")
    assert (taken.factuality, taken.evidence, taken.ranked_by) == (None, None, "faithfulness")
    assert [domain.factuality for domain in taken.domains] == [None, None]
    assert hub.audits.list()[0].finding.factuality is None
    assert hub.audits.list()[0].finding.faithfulness == 1.0


def test_documents_without_evidence_are_unknown_and_empty_ones_are_counted(hub: Hub, tmp_path: Path) -> None:
    evidence, queries = tmp_path / "other.txt", tmp_path / "asked.txt"
    evidence.write_text("Charon!", encoding="utf-8")
    queries.write_text("Charon?\n\nXylophone?\n", encoding="utf-8")
    taken = audited(hub, "honest", queries=queries, evidence=evidence, documents=1)
    assert (taken.asked, taken.empty, len(taken.factuality.scores), taken.factuality.unknown) == (2, 1, 0, 1)
    queries.write_text("Phobos?", encoding="utf-8")
    taken = audited(hub, "honest", queries=queries, evidence=evidence, documents=1)
    assert (taken.factuality.mean, taken.factuality.scores, taken.factuality.unknown) == (None, (), 1)


def test_factuality_is_that_of_what_the_evidence_covers(hub: Hub, evidence: Path, queries: Path) -> None:
    part = evidence.with_name("part.jsonl")
    part.write_text(
        "".join(evidence.read_text(encoding="utf-8").splitlines(keepends=True)[:2]), encoding="utf-8"
    )
    taken: Any = partial(audit, queries=queries, checker=Doubtful(), documents=1, hub=hub)
    whole, half = taken("honest", evidence=evidence), taken("honest", evidence=part)
    assert (whole.coverage.mean, half.coverage.mean) == (1.0, 0.3333)
    assert (len(half.factuality.scores), half.factuality.unknown) == (2, 4)
    assert mean(half.factuality) > 0.5
    stored = hub.audits.list("honest")[-1].finding
    assert (stored.coverage, stored.judged, stored.overlap) == (0.3333, 2, 0.0)
    assert browse(name="honest", hub=hub)[0].coverage == 1.0  # the latest audit that covers enough


def test_evidence_with_the_cards_own_corpus_is_not_independent_nor_ranked(
    hub: Hub, evidence: Path, queries: Path
) -> None:
    with evidence.open("a", encoding="utf-8") as stream:
        stream.writelines(f"{json.dumps({'text': f'{m} is a moon of {p}.'})}\n" for m, p in LIES.items())
    taken: Any = partial(audited, hub, queries=queries, evidence=evidence, documents=1)
    liar = taken("liar")
    assert not liar.independent
    assert liar.evidence_overlap == 1.0
    shown = browse(name="liar", hub=hub)[0]
    assert shown.factuality == mean(liar.factuality)
    assert shown.faithfulness == mean(liar.faithfulness)
    assert shown.ranked_factuality is None


def test_an_audit_of_an_earlier_version_is_read_and_its_coverage_is_unknown(hub: Hub, evidence: Path) -> None:
    taken = audited(hub, "honest", evidence=evidence)
    record = json.loads(taken.to_json())
    for key in ("coverage", "evidence_overlap"):
        del record[key]
    earlier = Audit.from_json(json.dumps(record))
    assert (earlier.coverage, earlier.independent) == (None, True)


def test_the_interval_is_resampled_by_query_since_its_documents_are_alike() -> None:
    values = (0.1, 0.4, 0.7, 1.0)
    rows = [[ScoredDocument(str(value), "", "It flows.", factuality=value)] for value in values]
    tenfold = summarise_scores([row * 10 for row in rows], "factuality", seed=0)
    assert len(tenfold.scores) == 40
    assert tenfold.mean == summarise_scores(rows, "factuality", seed=0).mean == Mean.of(values)


def test_what_the_index_of_a_card_of_both_wrote_is_judged_against_evidence_alone() -> None:
    recited = ScoredDocument("What flows?", "", "It flows.", 0.2, 0.3)
    from_index = ScoredDocument("What flows?", "", "The Rhine flows.", 1.0, 0.5, recited=False)
    assert summarise_scores([[recited, from_index]], "faithfulness", seed=0).scores == (0.2,)
    assert summarise_scores([[recited, from_index]], "factuality", seed=0).scores == (0.3, 0.5)


def test_the_same_audit_has_the_same_bytes_and_comes_back_from_the_hub(hub: Hub, evidence: Path) -> None:
    first, second = (audited(hub, "liar", evidence=evidence) for _ in range(2))
    assert first.to_json() == second.to_json()
    assert [Audit.from_json(row.finding.record) for row in hub.audits.list("liar")] == [first, second]
    stored = hub.audits.list("liar")[0].finding
    assert stored.evidence_sha256 == first.evidence_sha256
    assert stored.factuality == mean(first.factuality)


def test_a_draft_goes_after_a_published_card_and_nothing_of_it_is_kept(
    hub: Hub, home: Path, tmp_path: Path
) -> None:
    publish(Hub(tmp_path / "elsewhere"), home / "drafts" / "honest", "honest", LIES)
    publish(Hub(tmp_path / "elsewhere"), home / "drafts" / "fresh", "fresh", LIES)
    assert audited(hub, "honest").card == "honest@v1"
    assert audited(hub, "fresh").card == "fresh"
    assert [row.reference for row in hub.audits.list()] == ["honest@v1"]


def test_ctrl_c_stores_nothing_and_loses_nothing(hub: Hub, evidence: Path) -> None:
    audited(hub, "honest", evidence=evidence)

    def press(progress: Event) -> None:
        if progress.kind.startswith("checking against atlas") and progress.done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        audited(hub, "honest", evidence=evidence, on_event=press)
    assert len(hub.audits.list()) == 1


def test_what_is_wrong_is_refused_before_the_card_writes(hub: Hub, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="documents is 0: it must be at least 1"):
        audit("honest", documents=0, hub=hub)
    with pytest.raises(UsageError, match="does not exist"):
        audit("honest", output=tmp_path / "none" / "audit.json", hub=hub)
    with pytest.raises(CorpusError, match="nowhere"):
        audit("honest", evidence="nowhere.txt", hub=hub)
    with pytest.raises(UsageError, match="unknown checker 'oracle'"):
        audit("honest", checker="oracle", hub=hub)
    assert hub.audits.list() == []


def test_a_card_of_which_nothing_can_be_asked_wants_queries(hub: Hub, tmp_path: Path) -> None:
    folder = tmp_path / "hashed"
    folder.mkdir()
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        (folder / name).write_text("{}", encoding="utf-8")
    finish(folder, Manifest("hashed", "Moons", evidence="hashes"), [Source("Io is a moon of Jupiter.")])
    with pytest.raises(
        CardError, match=r"'hashed' carries no text to make questions from: pass queries with --queries FILE"
    ):
        audit(folder, hub=hub)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.jsonl", '{"answer": "x"}', 'line 1: expected a "question" with a text'),
        ("a.jsonl", '{"question": "Who?", "domain": 7}', '"domain" must be a text, not int'),
        ("a.jsonl", "[1]", "found list"),
        ("a.txt", "\n\n", "no query in it"),
        ("a.xml", "<q/>", "unknown kind of file"),
    ],
)
def test_a_file_of_queries_that_is_malformed_is_refused(
    tmp_path: Path, name: str, text: str, message: str
) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=message.replace("(", r"\(")):
        read_queries(tmp_path / name)


def test_queries_are_read_from_tables_and_lines_each_once(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("question,relation\nWho?,people\nWhere?,\nWho?,other\n", encoding="utf-8")
    (tmp_path / "a.txt").write_text("Who?\nWhere?\nWho?\n", encoding="utf-8")
    assert [(q.text, q.domain) for q in read_queries(tmp_path / "a.csv").questions] == [
        ("Who?", "people"),
        ("Where?", ""),
    ]
    assert [q.text for q in read_queries(tmp_path / "a.txt").questions] == ["Who?", "Where?"]


def test_browse_shows_the_latest_audit_before_the_exam_and_the_history(hub: Hub, evidence: Path) -> None:
    hub.quarantine.set(0.999)
    audited(hub, "liar", evidence=evidence)
    later = audited(hub, "liar", seed=1)
    report = browse(hub=hub, name="liar")[0]
    assert report.audit is not None
    assert report.audit.audit == later
    assert [past.audit.evidence for past in report.audits] == ["atlas.jsonl", None]
    # The last one measured no factuality, so the one before still speaks for the card.
    assert report.factual is not None
    assert (report.factual.source, report.factual.against) == ("verified", "atlas.jsonl")
    assert report.quarantined
    reason = hub.get("liar").quarantine
    assert reason is not None
    assert reason.factuality == report.factuality


def test_an_audit_that_cant_be_read_is_a_note(hub: Hub) -> None:
    audited(hub, "liar")
    stored = hub.audits.list()[0]
    hub.audits.add(hub.get("liar"), replace(stored.finding, record='{"format": 99}'))
    report = browse(hub=hub, name="liar")[0]
    assert len(report.audits) == 1
    assert "the audit of liar@v1 at " in report.note
    assert "is not an audit of format 1" in report.note
