"""The dense retriever: exact dot products of an encoder's vectors, with Contriever's pooling and the embedded one."""

from pathlib import Path

import numpy as np
import pytest

from kcard.errors import CorpusError
from kcard.gates.features import contriever, find
from kcard.offline import minilm
from kcard.selectors.evidence import DenseCorpus
from kcard.types import Source
from tests import tiny_models

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
    encoded = contriever(str(bert))
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


def test_contriever_is_an_encoder_by_name(bert: Path) -> None:
    assert find(f"contriever:{bert}").digest == contriever(str(bert)).digest


def test_the_embedded_encoder_finds_by_meaning_offline() -> None:
    corpus = DenseCorpus(SOURCES, minilm.embed, minilm.SHA256, "notes")
    assert corpus.find("Who was the winner of the contest?", 1)[0].text == TEXTS[0]
    assert len(corpus) == 3


def test_equal_passages_stand_in_their_order_and_no_more_are_given_than_there_are() -> None:
    corpus = DenseCorpus([Source("Ann won.", line=n) for n in (1, 2)], minilm.embed, minilm.SHA256)
    assert [source.line for source in corpus.find("Who won?", 5)] == [1, 2]
    assert corpus.find("Who won?", 0) == []


def test_an_empty_corpus_is_refused() -> None:
    with pytest.raises(CorpusError, match="has no text: add at least one sentence"):
        DenseCorpus([], minilm.embed, minilm.SHA256)
