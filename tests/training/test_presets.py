"""Presets of training: the paper's numbers and corpora, and what a user gives in their place."""

from pathlib import Path

import pytest

from kcard.cards.hugging_face import PUBLISHED
from kcard.errors import UsageError
from kcard.training.options import CORPORA, TrainOptions, with_preset
from kcard.training.readers.tables import repository
from kcard.training.train import train
from tests.command import Kcard
from tests.training.bases import make_base

PAPER = {
    "base": "facebook/opt-1.3b",
    "method": "full",
    "objective": "clm",
    "learning_rate": 2e-5,
    "epochs": 10,
}


def test_the_preset_has_the_numbers_of_table_6_and_the_optimizer_the_rest() -> None:
    corpus, options = with_preset("notes/", TrainOptions(preset="knowledge-card"))
    assert corpus == "notes/"
    assert {name: getattr(options, name) for name in PAPER} == PAPER
    assert (options.batch_size, options.block, options.kind) == (32, 128, "model")


def test_what_is_given_stands() -> None:
    arguments = TrainOptions(
        preset="knowledge-card", method="lora", objective="recite", epochs=1, kind="both"
    )
    _, options = with_preset("notes/", arguments)
    assert (options.method, options.objective, options.epochs, options.kind) == ("lora", "recite", 1, "both")


def test_a_corpus_of_the_paper_brings_its_data_set_and_the_published_cards_description() -> None:
    corpus, options = with_preset(None, TrainOptions(preset="knowledge-card:pubmed"))
    assert (corpus, options.field) == ("hf:MedRAG/pubmed", "content")
    assert (options.name, options.description, options.domain) == (
        "pubmed",
        "medical literature",
        "biomedical",
    )
    corpus, options = with_preset("mine.txt", TrainOptions(preset="knowledge-card:PubMed", name="mine"))
    assert (corpus, options.field, options.name) == ("mine.txt", None, "mine")


def test_every_published_card_has_its_corpus_in_the_table() -> None:
    published = {card.suffix.lower().rstrip("1234") if "news" in card.suffix or "wikipedia" in card.suffix else
                 card.suffix.lower(): card for card in PUBLISHED}  # fmt: skip
    assert published.keys() == CORPORA.keys()
    for name, card in published.items():
        assert CORPORA[name].domain == card.domain
        assert card.description.startswith(CORPORA[name].description)
    assert all(row.note for row in CORPORA.values())
    assert all(repository(row.data) for row in CORPORA.values() if row.data)


@pytest.mark.parametrize(
    ("preset", "options", "message"),
    [
        (
            "thrust",
            {},
            r"preset 'thrust' is unknown: use knowledge-card, or knowledge-card:CORPUS with one of 1b",
        ),
        ("knowledge-card:sports", {}, "preset 'knowledge-card:sports' is unknown"),
        ("knowledge-card", {}, "--corpus is missing: the preset knowledge-card is for one of yours"),
        (
            "knowledge-card:kgap",
            {},
            r"--corpus is missing: that of the preset knowledge-card:kgap is not on the",
        ),
        ("knowledge-card", {"update": "towns"}, "an update is trained as its card was"),
        ("knowledge-card", {"base": "embedded"}, "leave out --base embedded"),
    ],
)
def test_what_a_preset_can_not_do_is_told_before_any_work(
    preset: str, options: dict[str, str], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        with_preset(None, TrainOptions(preset=preset, **options))  # type: ignore[arg-type]


def test_a_card_is_trained_as_in_the_paper(tmp_path: Path, kcard: Kcard) -> None:
    base = make_base(tmp_path, "opt")
    corpus = tmp_path / "towns.txt"
    corpus.write_text("".join(f"The gate of town {n} is red.\n" for n in range(40)), encoding="utf-8")
    done = kcard(
        "train", "--preset", "knowledge-card", "--corpus", corpus, "--base", base, "--output", tmp_path / "card",
        "--no-exam", "--json",
    )  # fmt: skip
    assert done.code == 0, done.err
    manifest = train(corpus, preset="knowledge-card", base=str(base), output=tmp_path / "again").manifest
    numbers = manifest.training.hyperparameters
    assert {name: numbers[name] for name in PAPER if name != "base"} == {
        name: value for name, value in PAPER.items() if name != "base"
    }
    assert (numbers["decay"], numbers["epsilon"], numbers["warm"]) == (1e-5, 1e-6, 0.06)
    assert list(numbers["betas"]) == [0.9, 0.98]
    assert (numbers["batch_size"], numbers["block"]) == (32, 128)
    assert (manifest.kind, manifest.index, manifest.prompt.template) == ("full", False, "{question}")


def test_without_preset_and_corpus_the_command_says_what_is_missing(kcard: Kcard) -> None:
    done = kcard("train")
    assert (done.code, "--corpus is missing: name a file or folder" in done.err) == (2, True)
