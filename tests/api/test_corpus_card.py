"""From a folder to an answer in one command: the index of the folder is a draft, which follows the folder's files."""

import os
from pathlib import Path

import pytest

from kcard.api.corpus_card import index_corpus
from kcard.config import settings
from kcard.errors import HubError, UnknownCard, UsageError
from kcard.hub.registry import Hub
from kcard.integrators.options import AskOptions
from kcard.manifest import MANIFEST, Manifest
from kcard.serve.pipelines import FRESH_SECONDS, Pipelines, Route
from kcard.training.draft_corpus import recorded_corpus
from kcard.training.train import train
from kcard.types import Answer
from tests.command import Kcard

RENT = "The rent of the hall is 90 euros a day.\n"
HALL = f"# The hall\n\n{RENT}"


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "hall.md").write_text(HALL, encoding="utf-8")
    return folder


def made_at(name: str) -> int:
    return (settings().drafts / name / MANIFEST).stat().st_mtime_ns


def test_a_folder_answers_at_once_and_again_after_it_has_changed(notes: Path, kcard: Kcard) -> None:
    done = kcard("ask", "--corpus", notes, "what", "is", "the", "rent", "of", "the", "hall")
    assert done.code == 0, done.err
    assert "90 euros" in done.out
    assert Manifest.read(settings().drafts / "notes").kind == "retrieval"
    (notes / "keys.md").write_text("# Keys\n\nWanda Ruiz keeps the keys of the hall.\n", encoding="utf-8")
    done = kcard("ask", "--corpus", notes, "Who keeps the keys of the hall?")
    assert "Wanda Ruiz" in done.out
    assert "notes" not in Hub()


@pytest.mark.parametrize("is_trained", [False, True])
def test_an_unchanged_folder_is_not_indexed_again(notes: Path, is_trained: bool) -> None:
    if is_trained:
        train(notes, kind="retrieval")
    else:
        assert index_corpus(notes) == "draft:notes"
    record = recorded_corpus(settings().drafts / "notes")
    assert record is not None
    assert record.corpus == str(notes)
    before = made_at("notes")
    events: list[str] = []
    assert index_corpus(notes, lambda event: events.append(event.message)) == "draft:notes"
    os.utime(notes / "hall.md")  # touched, with the same text
    assert index_corpus(notes) == "draft:notes"
    assert made_at("notes") == before
    assert not events
    # A draft of unknown origin is not replaced.
    (settings().drafts / ".notes.corpus.json").unlink()
    assert index_corpus(notes) != "draft:notes"


def test_the_draft_of_another_folder_is_left_alone(notes: Path, tmp_path: Path, kcard: Kcard) -> None:
    other = tmp_path / "other" / "notes"
    other.mkdir(parents=True)
    (other / "pool.md").write_text("The pool opens at noon.\n", encoding="utf-8")
    index_corpus(notes)
    before = made_at("notes")
    events: list[str] = []
    name = index_corpus(other, lambda event: events.append(event.message))
    assert name.startswith("draft:notes-")
    assert str(notes) in events[0]
    assert index_corpus(other) == name
    done = kcard("train", other, "--kind", "retrieval")
    assert str(notes) in done.error
    assert "--name" in done.error
    assert made_at("notes") == before
    assert kcard("train", other, "--kind", "retrieval", "--name", "notes").code == 0


def test_a_missing_folder_and_a_mode_without_cards_are_errors(notes: Path, kcard: Kcard) -> None:
    with pytest.raises(UsageError, match="does not exist"):
        index_corpus(notes / "nowhere")
    assert "mode direct" in kcard("ask", "--corpus", notes, "--mode", "direct", "Who?").error
    assert "named twice" in kcard("train", notes, "--corpus", notes).error


def test_a_draft_is_asked_by_its_name_and_never_published_by_that(notes: Path, kcard: Kcard) -> None:
    train(notes, kind="retrieval", name="hall")
    for name in ("hall", "draft:hall"):
        done = kcard("ask", "--cards", name, "What is the rent of the hall?")
        assert "90 euros" in done.out, done.err
    assert "publish it first" in kcard("show", "hall").error
    with pytest.raises(UnknownCard, match="no draft"):
        Hub().select(["draft:nothing"], drafts=True)
    # A published card of this name goes first.
    version = Hub().publish(settings().drafts / "hall")
    chosen = Hub().select(["hall"], drafts=True)
    assert [each.reference for each in chosen.versions] == [version.reference]
    assert not chosen.drafts


def test_a_draft_is_served_by_its_name_and_again_when_it_was_made_anew(notes: Path) -> None:
    index_corpus(notes)
    pipelines = Pipelines(AskOptions(cards="notes"), Hub(), "embedded")
    assert pipelines.cards() == ["notes"]
    (answer,) = pipelines.answers(Route("top-down"), ["What is the rent of the hall?"])
    assert isinstance(answer, Answer)
    assert "90 euros" in answer.answer
    before = pipelines.version()
    (notes / "hall.md").write_text(
        f"Wanda Ruiz keeps the keys.\n\n{HALL.replace('90', '95')}", encoding="utf-8"
    )
    index_corpus(notes)
    pipelines._read_at -= FRESH_SECONDS
    assert pipelines.version() != before
    (answer,) = pipelines.answers(Route("top-down"), ["What is the rent of the hall?"])
    assert isinstance(answer, Answer)
    assert "95 euros" in answer.answer


def test_drafts_answer_where_no_card_is_published(notes: Path, kcard: Kcard) -> None:
    train(notes, kind="retrieval", name="hall")
    done = kcard("ask", "What is the rent of the hall?")
    assert "90 euros" in done.out
    assert "<- hall (retrieval" in done.out
    # A server answers others: it uses only the drafts that its user names.
    with pytest.raises(HubError, match="to use drafts name them: --cards hall"):
        Hub().select(None, public=True, drafts=True)
    Hub().publish(settings().drafts / "hall")
    assert not Hub().select(None, drafts=True).drafts


@pytest.mark.parametrize("name", ["draft:../hall", "draft:.hall.earlier", "draft:", "draft:/etc"])
def test_no_other_folder_is_opened_as_a_draft(name: str) -> None:
    with pytest.raises(UnknownCard, match="no draft"):
        Hub().select([name], drafts=True)
