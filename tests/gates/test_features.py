"""Questions as vectors: the encoder, and hidden states of real, tiny models, whole and as cards."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from sklearn.linear_model import Ridge
from transformers import (
    BertConfig,
    BertModel,
    LlamaConfig,
    LlamaForCausalLM,
    T5Config,
    T5ForConditionalGeneration,
)

from kcard.cards.card import finish
from kcard.embedded import minilm
from kcard.errors import ModelUnavailable, UsageError
from kcard.gates.features import CachedRepresentation, bind, find, finite_vectors
from kcard.gates.heads import RIDGE_PENALTIES, fit_linear
from kcard.interfaces import Array
from kcard.manifest import Manifest
from kcard.types import Source
from tests.tiny_tokenizers import of_words

pytestmark = pytest.mark.numeric

QUESTIONS = ["where is the rhine", "is it", "the rhine where is it the rhine", "rhine"]
WORDS = ["<pad>", "<s>", "</s>", "<unk>", "where", "is", "the", "rhine", "it"]
SIZE: Any = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}


def model(kind: str) -> Any:
    torch.manual_seed(0)
    if kind == "decoder":
        return LlamaForCausalLM(LlamaConfig(vocab_size=9, max_position_embeddings=32, **SIZE))
    if kind == "encoder":
        return BertModel(BertConfig(vocab_size=9, max_position_embeddings=32, **SIZE))
    config = T5Config(
        vocab_size=9, d_model=16, d_kv=8, d_ff=16, num_layers=2, num_heads=2, num_decoder_layers=3
    )
    config.decoder_start_token_id = 0
    return T5ForConditionalGeneration(config)


def folder(tmp_path: Path, kind: str) -> Path:
    where = tmp_path / kind
    model(kind).save_pretrained(where)
    of_words(WORDS).save_pretrained(where)
    return where


def states(kind: str, question: str, layer: int) -> np.ndarray[Any, Any]:
    """The hidden states of one question, without padding, shape (tokens, 16)."""
    inputs = of_words(WORDS)(question, return_tensors="pt")
    inputs.pop("token_type_ids", None)
    with torch.inference_mode():
        if kind == "encoder-decoder":
            out = (
                model(kind)
                .eval()(**inputs, decoder_input_ids=torch.tensor([[0]]), output_hidden_states=True)
                .decoder_hidden_states
            )
        else:
            out = model(kind).eval()(**inputs, output_hidden_states=True).hidden_states
    found: np.ndarray[Any, Any] = out[layer][0].numpy()
    return found


@pytest.mark.parametrize("layer", [-1, 0, 1])
@pytest.mark.parametrize(
    ("kind", "mean"), [("decoder", False), ("encoder", True), ("encoder-decoder", False)]
)
def test_a_decoder_is_read_at_its_last_token_and_an_encoder_on_average(
    kind: str, mean: bool, layer: int, tmp_path: Path
) -> None:
    found = find(f"hf:{folder(tmp_path, kind)},layer={layer}")
    for question, vector in zip(QUESTIONS, found.vectors(QUESTIONS), strict=True):
        expected = states(kind, question, layer)
        np.testing.assert_allclose(vector, expected.mean(0) if mean else expected[-1], atol=1e-5)
    assert found.vectors([]).shape == (0, 16)


def test_pooling_can_be_chosen(tmp_path: Path) -> None:
    where = folder(tmp_path, "decoder")
    mean = find(f"hf:{where},pooling=mean,layer=1").vectors(QUESTIONS)
    np.testing.assert_allclose(mean[2], states("decoder", QUESTIONS[2], 1).mean(0), atol=1e-5)


def test_an_encoder_can_be_read_at_its_first_token_and_through_its_pooler(tmp_path: Path) -> None:
    where = folder(tmp_path, "encoder")
    first = find(f"hf:{where},pooling=cls")
    pooler = find(f"simcse:{where}")
    inputs = of_words(WORDS)(QUESTIONS[2], return_tensors="pt")
    with torch.inference_mode():
        out = model("encoder").eval()(**inputs)
    np.testing.assert_allclose(first.vectors(QUESTIONS)[2], out.last_hidden_state[0, 0], atol=1e-5)
    np.testing.assert_allclose(pooler.vectors(QUESTIONS)[2], out.pooler_output[0], atol=1e-5)
    assert len({first.digest, pooler.digest, find(f"hf:{where}").digest}) == 3
    with pytest.raises(UsageError, match="its pooler reads the last layer only"):
        find(f"hf:{where},pooling=pooler,layer=1")


def test_a_representation_is_found_again_by_its_name_and_known_by_its_digest(tmp_path: Path) -> None:
    where = folder(tmp_path, "decoder")
    found = find(f"hf:{where}")
    assert find(found.name).digest == found.digest
    assert find(f"hf:{where},layer=2,pooling=last").digest == found.digest
    others = [find(f"hf:{where},layer=1"), find(f"hf:{where},pooling=mean")]
    changed = model("decoder")
    with torch.no_grad():
        changed.get_input_embeddings().weight[0, 0] += 1
    changed.save_pretrained(where)
    others.append(find(f"hf:{where}"))
    assert len({found.digest, *(other.digest for other in others)}) == 4


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("hf:DECODER,layer=3", "layer '3': the model has layers 0 to 2, or -1"),
        ("hf:DECODER,layer=-4", "layer '-4'"),
        ("hf:DECODER,layer=x", "layer 'x'"),
        ("hf:DECODER,pooling=max", "pooling 'max': choose one of auto, last, mean"),
        ("hf:DECODER,pooling=cls", "choose one of auto, last, mean"),
        ("hf:DECODER,depth=1", "expected hf:NAME,layer=...,pooling=..."),
        ("hf:DECODER,layer", "expected hf:NAME,layer=...,pooling=..."),
        ("hf:DECODER/none", "the encoder hf:.* can't be loaded"),
        ("bert", "unknown representation 'bert': choose one of card, contriever, hf, minilm, simcse"),
        ("hf", "encoder 'hf': expected hf:NAME"),
        ("minilm:x", "encoder 'minilm:x': expected minilm"),
    ],
)
def test_an_encoder_that_there_is_not_is_refused(spec: str, message: str, tmp_path: Path) -> None:
    spec = spec.replace("DECODER", str(folder(tmp_path, "decoder")))
    with pytest.raises((UsageError, ModelUnavailable), match=message):
        find(spec)


def card(tmp_path: Path, kind: str) -> Path:
    where = tmp_path / "card"
    where.mkdir()
    manifest = Manifest(name="rivers", description="Rivers.", kind=kind)
    if kind == "full":
        model("decoder").save_pretrained(where)
        of_words(WORDS).save_pretrained(where)
    finish(where, manifest, [Source("The Rhine is a river.", "rivers.txt")])
    return where


def test_a_card_is_read_where_it_would_begin_to_write(tmp_path: Path) -> None:
    where = card(tmp_path, "full")
    found = find(f"card:{where},layer=1")
    for question, vector in zip(QUESTIONS, found.vectors(QUESTIONS), strict=True):
        np.testing.assert_allclose(vector, states("decoder", question, 1)[-1], atol=1e-5)
    mean = find(f"card:{where},pooling=mean").vectors(QUESTIONS)
    np.testing.assert_allclose(mean[0], states("decoder", QUESTIONS[0], -1).mean(0), atol=1e-5)
    assert find(found.name).digest == found.digest != find(f"card:{where}").digest
    assert found.vectors([]).shape == (0, 16)


def test_a_card_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        UsageError, match="a card of kind retrieval has no hidden states; name one of kind model or both"
    ):
        find(f"card:{card(tmp_path, 'retrieval')}")


def test_minilm_gives_the_embeddings_of_the_encoder() -> None:
    found = find("minilm")
    np.testing.assert_array_equal(found.vectors(["a", "b"]), minilm.embed(["a", "b"]))
    assert (found.name, found.digest) == ("minilm", minilm.SHA256)


class Counting:
    name, digest = "counting", "3" * 64

    def __init__(self) -> None:
        self.asked: list[str] = []

    def vectors(self, questions: Sequence[str]) -> Array:
        self.asked += questions
        return np.array([[len(q), 1] for q in questions], dtype=np.float32).reshape(-1, 2)


def test_a_cached_representation_embeds_each_question_once() -> None:
    counting = Counting()
    cached = CachedRepresentation(counting)
    assert cached.vectors(["a", "bb", "a"]).tolist() == [[1, 1], [2, 1], [1, 1]]
    assert cached.vectors(["ccc", "bb"]).tolist() == [[3, 1], [2, 1]]
    assert cached.vectors([]).shape == (0, 2)
    assert counting.asked == ["a", "bb", "ccc"]
    assert (cached.name, cached.digest) == ("counting", "3" * 64)


def test_what_is_bound_is_what_was_fitted_on() -> None:
    counting = Counting()
    assert bind("elsewhere", "3" * 64, counting) is counting
    assert bind("minilm", minilm.SHA256).name == "minilm"
    with pytest.raises(UsageError, match="fitted on the encoder minilm"):
        bind("minilm", minilm.SHA256, counting)
    assert finite_vectors(counting, []).shape == (0, 2)


def test_held_out_predictions_of_a_linear_head_are_those_of_fits_without_the_record() -> None:
    random = np.random.default_rng(0)
    vectors = random.normal(size=(24, 6))
    signal = vectors @ random.normal(size=6) + random.normal(size=24)
    head, unseen = fit_linear(vectors, np.column_stack([signal, np.full(24, 7.0)]), np.array([1.0, 0.5]))
    assert np.mean((head.predict(vectors) - signal - 3.5) ** 2) < np.mean((unseen - signal - 3.5) ** 2)

    def left_out(penalty: float) -> npt.NDArray[np.float64]:
        others = [np.arange(24) != i for i in range(24)]
        fits = [Ridge(penalty).fit(vectors[rest], signal[rest]) for rest in others]
        return np.array([fit.predict(vectors[i : i + 1])[0] for i, fit in enumerate(fits)])

    best = min(
        map(left_out, RIDGE_PENALTIES), key=lambda predictions: float(((predictions - signal) ** 2).sum())
    )
    means = (signal.sum() - signal) / 23
    np.testing.assert_allclose(unseen, best - means + signal.mean() + 3.5)


def test_a_linear_head_that_can_tell_nothing_predicts_the_mean() -> None:
    random = np.random.default_rng(0)
    head, unseen = fit_linear(random.normal(size=(500, 5)), random.normal(size=(500, 1)) + 4, np.ones(1))
    assert np.std(unseen) < 0.1
    assert head.predict(np.zeros((1, 5)))[0] == pytest.approx(4, abs=0.2)
    alone, _ = fit_linear(np.ones((1, 2)), np.array([[0.5]]), np.ones(1))
    assert alone.predict(np.ones((2, 2))).tolist() == [0.5, 0.5]
