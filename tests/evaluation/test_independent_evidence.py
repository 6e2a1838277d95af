"""Independent evidence by name: what it is called, what names its content, and that it is not the card's own text."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kcard
from kcard.cli.options import option, value_of
from kcard.config_file import Setting, SettingOrigin
from kcard.errors import CorpusError, UsageError
from kcard.evaluation.independent_evidence import IndependentEvidence, read_independent
from kcard.text import passage_digest
from kcard.training.train import train
from kcard.types import Source
from tests.fakes import notes_to
from tests.selectors.mediawiki_server import Wiki, serving

FACTS = ["Oslo is the capital of Norway.", "Lima is the capital of Peru."]


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    path = tmp_path / "facts.txt"
    path.write_text("\n".join(FACTS) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def wiki(monkeypatch: pytest.MonkeyPatch) -> Iterator[Wiki]:
    monkeypatch.delenv("HF_HUB_OFFLINE")
    with serving({"Oslo": "Oslo is the capital of Norway.\nIt lies at a fjord."}) as server:
        yield server


def own(*texts: str) -> list[str]:
    return [passage_digest(text) for text in texts]


def opened(*arguments: Any) -> IndependentEvidence:
    evidence = read_independent(*arguments)
    assert evidence is not None
    return evidence


def test_none_is_none_and_one_keeps_its_name_and_digest(texts: Path) -> None:
    assert read_independent((), own(*FACTS)) is None
    evidence = opened([texts], own("Something else."))
    assert (evidence.name, evidence.shared, len(evidence.sha256)) == ("facts.txt", 0, 64)
    assert evidence.evidence.find("Lima", 1)[0].text == FACTS[1]


def test_the_card_s_own_text_is_refused_and_a_part_of_it_is_counted(texts: Path) -> None:
    with pytest.raises(UsageError, match="every text in it is a passage of the card's own corpus"):
        read_independent([texts], own(*FACTS, "More."))
    evidence = opened([texts], own(FACTS[0]))
    assert evidence.shared == 1


LONG = "The harbour of Oslo was built in the year that the king gave the town its rights, and it grew with trade."


def test_runs_of_words_tell_a_corpus_in_other_passages(texts: Path) -> None:
    corpus = [
        Source(LONG),
        Source("Lima lies at the river Rimac, not far from the sea, and has a large port nearby."),
    ]
    texts.write_text(f"{FACTS[1]}\nAs is told: {LONG.lower()}\n", encoding="utf-8")
    evidence = opened([texts], own(*(source.text for source in corpus)), corpus)
    assert (evidence.shared, evidence.overlap) == (1, 0.5)
    texts.write_text("The harbour of Oslo is old.\nThe king gave the town its rights.\n", encoding="utf-8")
    other = opened([texts], own(*(source.text for source in corpus)), corpus)
    assert (other.shared, other.overlap) == (0, 0.0)


def test_several_are_one_and_texts_elsewhere_are_not_compared(texts: Path, wiki: Wiki) -> None:
    evidence = opened([texts, f"wikipedia:{wiki.api}"], own(*FACTS))
    assert (evidence.name, evidence.shared) == ("facts.txt, wikipedia:127.0.0.1", 2)
    assert evidence.sha256 != opened([texts], ()).sha256
    files = {source.file for source in evidence.evidence.find("Oslo is the capital of Norway", 4)}
    assert "facts.txt" in files
    assert any("are sent to 127.0.0.1" in note for note in evidence.notes)
    assert wiki.requests


def test_what_is_missing_or_changed_while_it_is_used_is_said(texts: Path) -> None:
    with pytest.raises(CorpusError, match="no-such-file"):
        read_independent([texts.with_name("no-such-file")], ())
    kcard.publish(train(texts, kind="retrieval", description="capitals").folder)
    messages: list[str] = []
    other = texts.with_name("other")
    other.mkdir()
    (other / "a.txt").write_text(FACTS[0] + "\n", encoding="utf-8")
    (other / "latin.txt").write_bytes(b"caf\xe9")
    pipeline = kcard.Pipeline(gate="always", evidence=["own", other], on_event=notes_to(messages))
    assert any("latin.txt is left out" in note for note in messages)
    (other / "a.txt").write_text("Oslo is somewhere else now.\n", encoding="utf-8")
    first, second = pipeline(["What is the capital of Norway?", "Where is Oslo, the capital?"])
    assert [note for note in first.notes if "changed" in note] == [
        "evidence other: a.txt changed; its earlier version was used"
    ]
    assert not [note for note in second.notes if "changed" in note]


@pytest.mark.parametrize("key", ["ask.evidence", "exam.evidence"])
def test_a_name_is_a_name_in_one_s_own_config_and_a_path_in_a_project_s(key: str, tmp_path: Path) -> None:
    def read(kind: str) -> object:
        origin = SettingOrigin(kind, "kcard.toml:1", tmp_path)  # type: ignore[arg-type]
        return value_of(Setting(key, ["wikipedia:de", "facts"], origin), option(key))

    assert read("user") == ["wikipedia:de", str(tmp_path / "facts")]
    assert read("project") == [str(tmp_path / "wikipedia:de"), str(tmp_path / "facts")]
    with pytest.raises(CorpusError, match="a project file can't choose wikipedia:de"):
        read_independent([tmp_path / "wikipedia:de"], ())
