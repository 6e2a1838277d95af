"""SKR's classifier with its encoder trained, tried on a tiny BERT that the test makes."""

from pathlib import Path

import numpy as np
import pytest

from kcard.errors import ModelUnavailable, UsageError
from kcard.gates.base import Resources
from kcard.gates.records import Query, Record, digest
from kcard.gates.registry import load, save
from kcard.gates.skr import FineTuned

WORDS = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "who",
    "won",
    "race",
    "capital",
    "of",
    "what",
    "is",
    "?",
]
RECORDS = [
    *(Record(f"what is the capital of {n}?", 1, 1) for n in range(6)),
    *(Record(f"who won the race of {n}?", 0, 1) for n in range(6)),
    Record("neither", 0, 0),
]
ASKED = [Query("what is the capital?"), Query("who won the race?"), Query("?")]


def make(folder: Path, words: list[str] = WORDS, seed: int = 0) -> str:
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    pieces = Tokenizer(models.WordPiece({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    pieces.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=pieces, pad_token="[PAD]", unk_token="[UNK]").save_pretrained(
        folder
    )
    torch.manual_seed(seed)
    config = BertConfig(
        vocab_size=len(words),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
    )
    BertModel(config).save_pretrained(folder)
    return f"hf:{folder}"


def fitted(encoder: str, **settings: object) -> FineTuned:
    return FineTuned.fit(
        RECORDS, {"encoder": encoder, "learning_rate": 0.02, "batch": 4, **settings}, Resources()
    )


def test_the_encoder_learns_to_tell_what_is_known_and_the_same_seed_gives_the_same_gate(
    tmp_path: Path,
) -> None:
    encoder = make(tmp_path / "bert")
    gate = fitted(encoder)
    scores = gate.scores(ASKED)
    assert scores[0] > 0.5 > scores[1]
    assert np.isfinite(scores).all()
    np.testing.assert_array_equal(fitted(encoder).scores(ASKED), scores)
    assert not np.array_equal(fitted(encoder, seed=1).scores(ASKED), scores)
    assert gate.scores([]).shape == (0,)
    np.testing.assert_allclose([gate.scores([query])[0] for query in ASKED], scores, atol=1e-5)


def test_a_saved_gate_scores_as_before_and_keeps_its_own_weights(tmp_path: Path) -> None:
    encoder = make(tmp_path / "bert")
    gate = fitted(encoder)
    save(gate, tmp_path / "gate", digest(RECORDS))
    make(tmp_path / "bert", seed=5)
    again = load(tmp_path / "gate")
    np.testing.assert_array_equal(again.scores(ASKED), gate.scores(ASKED))
    assert again.settings == gate.settings


def test_a_gate_whose_encoder_has_changed_its_words_is_refused_naming_both(tmp_path: Path) -> None:
    encoder = make(tmp_path / "bert")
    save(fitted(encoder, epochs=1), tmp_path / "gate", digest(RECORDS))
    make(tmp_path / "bert", [*WORDS, "more"])
    with pytest.raises(
        UsageError, match=r"fitted on the encoder hf:.* not on the model that now has this name"
    ):
        load(tmp_path / "gate")


def test_what_can_not_be_fitted_is_said(tmp_path: Path) -> None:
    encoder = make(tmp_path / "bert")
    with pytest.raises(UsageError, match="none has a question that was answered better with cards"):
        FineTuned.fit(RECORDS[:6], {"encoder": encoder}, Resources())
    with pytest.raises(UsageError, match="encoder is 'bert', expected minilm or hf:NAME"):
        fitted("bert")
    with pytest.raises(ModelUnavailable, match=r"the encoder hf:.*none can't be loaded"):
        fitted(f"hf:{tmp_path / 'none'}")
    with pytest.raises(UsageError, match="gate skr-fine-tuned: epochs and batch must be at least 1"):
        fitted(encoder, epochs=0)
