"""Evidence: BM25 over texts; silent, repeatable and honest about nothing found."""

from pathlib import Path

import numpy as np
import pytest

from kcard.embedded import minilm
from kcard.errors import CorpusError
from kcard.gates.features import find
from kcard.index import Index
from kcard.selectors.dense import DenseCorpus
from kcard.selectors.evidence import CorpusEvidence, Hashes, Union
from kcard.text import passage_digest
from kcard.types import Source
from tests import tiny_models

FACTS = [
    "Ron Wyden won the 2022 senate race in Oregon.",
    "Patty Murray won the 2022 senate race in Washington.",
    "The 7th district of Virginia elected Abigail Spanberger.",
    "The 8th district of Virginia elected Don Beyer.",
    "Helium has the atomic number 2.",
]


@pytest.fixture
def corpus() -> CorpusEvidence:
    return CorpusEvidence([Source(text, "facts.txt", i) for i, text in enumerate(FACTS, start=1)])


def test_the_best_text_comes_first_with_its_place_and_score(corpus: CorpusEvidence) -> None:
    found = corpus.find("Who won the senate race in Oregon?", 2)
    assert [(s.text, s.file, s.line) for s in found] == [
        (FACTS[0], "facts.txt", 1),
        (FACTS[1], "facts.txt", 2),
    ]
    assert found[0].score > found[1].score > 0
    assert corpus.find("senate", 0) == []
    assert len(corpus.find("Helium", 9)) == 1


def test_figures_and_ordinals_count_as_words(corpus: CorpusEvidence) -> None:
    assert corpus.find("7th district of Virginia", 1)[0].text == FACTS[2]
    assert corpus.find("8TH DISTRICT OF VIRGINIA", 1)[0].text == FACTS[3]


@pytest.mark.parametrize("claim", ["", "?!", "Zanzibar qwertz", "zebra"])
def test_nothing_is_found_where_no_word_is_shared(corpus: CorpusEvidence, claim: str) -> None:
    assert corpus.find(claim, 3) == []


def test_equal_texts_stand_in_their_order_and_nothing_is_printed(capfd: pytest.CaptureFixture[str]) -> None:
    twins = CorpusEvidence([Source("the same words", f"{i}.txt", 1) for i in range(5)])
    assert [s.file for s in twins.find("same words", 3)] == ["0.txt", "1.txt", "2.txt"]
    assert capfd.readouterr() == ("", "")


def test_a_corpus_without_a_word_is_refused() -> None:
    with pytest.raises(CorpusError, match="'signs' has no text"):
        CorpusEvidence([Source("?!"), Source("")], "signs")


def test_several_evidences_alternate_by_rank_and_a_text_comes_once(corpus: CorpusEvidence) -> None:
    other = CorpusEvidence(
        [Source("Ron Wyden of Oregon sits in the senate."), Source(FACTS[0], "copy.txt", 1)]
    )
    claim = "Ron Wyden won the senate race in Oregon"
    first, second = corpus.find(claim, 2)
    best, last = other.find(claim, 2)
    assert (first.text, best.text) == (FACTS[0], FACTS[0])
    assert Union((corpus, other)).find(claim, 9)[:3] == [first, second, last]
    assert Union((other, corpus)).find(claim, 2) == [best, last]
    assert Union(()).find(claim, 3) == []


def test_an_index_that_exists_is_used_instead_of_a_new_one(corpus: CorpusEvidence) -> None:
    sources = [Source(text, "facts.txt", i) for i, text in enumerate(FACTS, start=1)]
    given = CorpusEvidence(sources, index=Index.build(FACTS))
    assert given.find("senate Oregon", 3) == corpus.find("senate Oregon", 3)


def test_hashes_know_a_claim_that_is_a_passage_word_for_word_and_nothing_else() -> None:
    known = Hashes(
        {passage_digest(text): Source("", "facts.txt", i) for i, text in enumerate(FACTS, start=1)}
    )
    assert known.find(FACTS[1].upper(), 3) == [Source(FACTS[1].upper(), "facts.txt", 2, 1.0)]
    assert known.find("Ron Wyden won the senate race in Oregon.", 3) == []
    assert known.find(FACTS[1], 0) == known.find("", 3) == []
    claim = f"{FACTS[0]} Nobody knows why. {FACTS[4]}"
    assert [(s.text, s.line) for s in known.find(claim, 3)] == [(FACTS[0], 1), (FACTS[4], 5)]


# The dense retriever: exact dot products of an encoder's vectors, with Contriever's pooling and the embedded one.

TEXTS = ("Ann won the race in Oregon.", "Bob lost it.", "The premise is true given the paragraph above.")
SOURCES = tuple(Source(text, "notes.txt", line, section="Races") for line, text in enumerate(TEXTS, 1))


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny BERT in Contriever's layout."""
    import torch
    from transformers import BertConfig, BertModel

    folder = tmp_path_factory.mktemp("contriever")
    words = tiny_models.tokenizer(folder, "bert")
    torch.manual_seed(0)
    sizes = {k: v for k, v in tiny_models.SIZES.items() if k != "classifier_dropout_prob"}
    model = BertModel(BertConfig(vocab_size=len(words), pad_token_id=words.pad_token_id, **sizes))
    model.save_pretrained(folder)
    return folder


def test_contrievers_score_is_the_dot_product_of_means_over_tokens(bert: Path) -> None:
    import torch
    from transformers import AutoModel, AutoTokenizer

    question = "Who won the race?"
    encoded = find(f"contriever:{bert}")
    found = DenseCorpus(SOURCES, encoded.vectors, encoded.digest).find(question, 3)

    model, words = AutoModel.from_pretrained(bert).eval(), AutoTokenizer.from_pretrained(bert)
    inputs = words([question, *(f"Races: {text}" for text in TEXTS)], padding=True, return_tensors="pt")
    with torch.inference_mode():
        states = model(**inputs).last_hidden_state
    mask = inputs["attention_mask"].unsqueeze(-1)
    vectors = ((states * mask).sum(1) / mask.sum(1)).numpy()
    expected = vectors[1:] @ vectors[0]
    assert [source.text for source in found] == [TEXTS[i] for i in np.argsort(-expected)]
    assert [source.score for source in found] == pytest.approx(sorted(expected, reverse=True), rel=1e-4)


def test_the_embedded_encoder_finds_by_meaning_offline() -> None:
    corpus = DenseCorpus(SOURCES, minilm.embed, minilm.SHA256, "notes")
    assert corpus.find("Who was the winner of the contest?", 1)[0].text == TEXTS[0]
    assert len(corpus) == 3


def test_an_empty_corpus_is_refused() -> None:
    with pytest.raises(CorpusError, match="has no text: add at least one sentence"):
        DenseCorpus([], minilm.embed, minilm.SHA256)
