"""Checkers from the hub, on tiny models of their architectures that have the probe pairs by heart."""

import json
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tests.tiny_models as tiny
from kcard.errors import ModelUnavailable, UsageError
from kcard.interfaces import Pair
from kcard.selectors import checkers, registry
from kcard.selectors.checkers import MAX_CHUNK_TOKENS, Entailment, chunks, cut
from kcard.selectors.registry import Loading
from tests.selectors.conftest import Folder

pytestmark = pytest.mark.usefixtures("empty_cache")

TRUE = [Pair(claim, evidence) for evidence, claim, _ in checkers.PROBES]
FALSE = [Pair(claim, evidence) for evidence, _, claim in checkers.PROBES]
PADDING = [Pair("Ann won the race.", "Bob lost the race in Oregon. " * n) for n in (1, 9, 40)]
CPU = Loading()


def opened(name: str, path: Path, loading: Loading = CPU) -> Entailment:
    found = registry.make("checker", f"{name}:{path}", loading)
    assert isinstance(found, Entailment)
    return found


def changed(path: Path, target: Path, **config: object) -> Path:
    """A copy whose config.json says otherwise."""
    shutil.copytree(path, target)
    told = json.loads((target / "config.json").read_text(encoding="utf-8")) | config
    (target / "config.json").write_text(json.dumps(told), encoding="utf-8")
    return target


@pytest.mark.parametrize("name", ["vitaminc", "factkb", "factcg", "hhem", "nli"])
def test_a_pair_is_read_in_the_order_and_by_the_labels_that_the_model_was_trained_on(
    folder: Folder, name: str
) -> None:
    checker = opened(name, folder(name))
    assert checker.support(TRUE).min() > 0.8
    assert checker.support(FALSE).max() < 0.2


@pytest.mark.numeric
@pytest.mark.parametrize(
    "name",
    [
        "vitaminc",
        "hhem",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("factkb", "factcg", "nli")),
    ],
)
def test_a_score_does_not_depend_on_its_batch(folder: Folder, name: str) -> None:
    checker = opened(name, folder(name))
    alone = [float(checker.support([pair])[0]) for pair in (*TRUE, *FALSE)]
    together = checker.support([*PADDING, *TRUE, *FALSE])
    assert together[len(PADDING) :] == pytest.approx(alone, abs=1e-5)


@pytest.mark.numeric
@pytest.mark.parametrize(
    "name",
    ["vitaminc", *(pytest.param(name, marks=pytest.mark.slow) for name in ("factkb", "factcg", "hhem"))],
)
def test_in_bfloat16_scores_stay_near_and_do_not_depend_on_the_batch(folder: Folder, name: str) -> None:
    whole = opened(name, folder(name)).support([*TRUE, *FALSE])
    checker = opened(name, folder(name), Loading(dtype="bfloat16"))
    alone = np.array([checker.support([pair])[0] for pair in (*TRUE, *FALSE)])
    assert alone == pytest.approx(whole, abs=0.1)
    assert checker.support([*PADDING, *TRUE, *FALSE])[len(PADDING) :] == pytest.approx(alone, abs=0.05)
    assert checker.sha256 != opened(name, folder(name)).sha256


@pytest.mark.numeric
def test_the_score_of_three_labels_is_that_of_the_papers_code(folder: Folder) -> None:
    checker = opened("vitaminc", folder("vitaminc"))
    neither = Pair(
        TRUE[0].evidence, TRUE[0].claim
    )  # turned round: the model says there is not enough information
    assert checker.support([neither])[0] == pytest.approx(0.5, abs=0.1)
    assert opened("nli", folder("nli")).support([neither])[0] < 0.2


def test_a_model_whose_labels_are_swapped_is_refused(folder: Folder, tmp_path: Path) -> None:
    swapped = {"0": "REFUTES", "1": "SUPPORTS", "2": "NOT ENOUGH INFO"}
    path = changed(folder("vitaminc"), tmp_path / "swapped", id2label=swapped, label2id={})
    with pytest.raises(ModelUnavailable, match="labels are swapped"):
        opened("vitaminc", path)


def test_labels_that_say_nothing_are_refused_where_no_documentation_tells(folder: Folder) -> None:
    with pytest.raises(ModelUnavailable, match="names its labels LABEL_0, LABEL_1"):
        opened("nli", folder("factcg"))


def test_label_names_are_read_wherever_they_stand() -> None:
    found = checkers.read({0: "contradiction", 1: "NEUTRAL", 2: "Entailment"}, {}, "m")
    assert (found.supports, found.refutes) == (2, 0)
    assert checkers.read({0: "not_entailment", 1: "entailment"}, {}, "m") == checkers.Labels(1)
    with pytest.raises(ModelUnavailable):
        checkers.read({0: "supports", 1: "entailment"}, {}, "m")


@pytest.mark.numeric
def test_token_types_are_given_to_a_model_that_was_trained_with_them(folder: Folder, tmp_path: Path) -> None:
    """ALBERT's tokenizer in transformers 5 leaves them out unasked."""
    path = changed(folder("vitaminc"), tmp_path / "silent")
    told = json.loads((path / "tokenizer_config.json").read_text(encoding="utf-8"))
    told["model_input_names"] = ["input_ids", "attention_mask"]
    (path / "tokenizer_config.json").write_text(json.dumps(told), encoding="utf-8")
    checker = opened("vitaminc", path)
    assert "token_type_ids" not in checker.tokenizer("a", "b")
    assert checker.support(TRUE) == pytest.approx(
        opened("vitaminc", folder("vitaminc")).support(TRUE), abs=1e-5
    )
    assert not opened("factkb", folder("factkb")).types


@pytest.mark.numeric
def test_long_evidence_is_read_in_chunks_and_the_one_that_decides_is_shown(folder: Folder) -> None:
    checker = opened("vitaminc", folder("vitaminc"))
    filler = "Bob lost the race in Oregon. " * 300
    evidence = f"{filler}\n{TRUE[0].evidence}\n{filler}"
    parts = chunks(evidence, checker.tokenizer, MAX_CHUNK_TOKENS)
    assert len(parts) > 5
    assert (
        max(len(checker.tokenizer(part, add_special_tokens=False)["input_ids"]) for part in parts)
        <= MAX_CHUNK_TOKENS
    )
    assert "".join(" ".join(parts).split()) == "".join(evidence.split())
    (verdict,) = checker.judge([Pair(TRUE[0].claim, evidence)])
    scores = {part: float(checker.support([Pair(TRUE[0].claim, part)])[0]) for part in parts}
    assert verdict.score == pytest.approx(max(scores.values()), abs=1e-5)
    assert scores[verdict.window] == pytest.approx(verdict.score, abs=1e-5)


def test_no_pair_is_longer_than_the_model_reads(tmp_path: Path) -> None:
    checker = opened("vitaminc", tiny.vitaminc(tmp_path / "short", positions=130))
    assert checker.limit == 128
    long = Pair("Ann won " * 200 + ".", "Bob lost it " * 2000)
    assert 0 <= checker.support([long])[0] <= 1
    batches = []

    def spy(inputs: Mapping[str, Any]) -> Any:
        batches.append(inputs)
        return checker.logits(inputs)

    replace(checker, logits=spy).read([long])
    (inputs,) = batches
    assert inputs["input_ids"].shape == (1, 128)
    assert int(inputs["token_type_ids"].sum()) > 1, "the claim keeps its place"


def test_a_sentence_without_an_end_is_cut_and_nothing_is_lost(folder: Folder) -> None:
    words = opened("vitaminc", folder("vitaminc")).tokenizer
    text = "Water boils at sea level " * 200
    parts = chunks(text, words, 50)
    assert len(parts) > 10
    assert " ".join(parts).split() == text.split()
    assert cut("", words, 5) == ""
    assert chunks("  ", words, 5) == []


@pytest.mark.numeric
def test_a_claim_has_the_mean_of_its_sentences_and_shows_what_decided_the_weakest(folder: Folder) -> None:
    checker = opened("vitaminc", folder("vitaminc"))
    evidence = TRUE[0].evidence
    good, bad = checker.judge([TRUE[0], FALSE[0]])
    (both,) = checker.judge([Pair(f"{TRUE[0].claim} {FALSE[0].claim}", evidence)])
    assert both.score == pytest.approx((good.score + bad.score) / 2, abs=1e-5)
    assert both.window == evidence


def test_an_empty_claim_or_evidence_has_score_0(folder: Folder) -> None:
    checker = opened("vitaminc", folder("vitaminc"))
    assert checker.support([Pair("", "a"), Pair("a", " "), Pair("", "")]).tolist() == [0, 0, 0]
    assert checker.support([]).shape == (0,)


def test_a_pickle_is_read_only_of_a_model_that_is_known_to_be_one(folder: Folder, tmp_path: Path) -> None:
    assert not list(folder("factkb").glob("*.safetensors"))
    with pytest.raises(ModelUnavailable, match="safetensors"):
        opened("nli", folder("factkb"))
    path = changed(folder("factkb"), tmp_path / "evil")
    (path / "pytorch_model.bin").write_bytes(b"cos\nsystem\n(S'touch /tmp/never'\ntR.")
    with pytest.raises(ModelUnavailable):
        opened("factkb", path)
    assert not Path("/tmp/never").exists()


def test_a_model_without_a_trained_head_is_refused(tmp_path: Path) -> None:
    path = tiny.mpnet(tmp_path / "plain")
    names = {"0": "entailment", "1": "contradiction"}
    told = json.loads((path / "config.json").read_text(encoding="utf-8")) | {"id2label": names}
    (path / "config.json").write_text(json.dumps(told), encoding="utf-8")
    with pytest.raises(ModelUnavailable, match=r"lacks the weights classifier\."):
        opened("nli", path)


def test_what_is_not_on_this_machine_is_an_error_that_says_how_to_get_it() -> None:
    with pytest.raises(ModelUnavailable, match=r"checker 'vitaminc'.*hf download tals/albert") as caught:
        registry.make("checker", "vitaminc")
    assert "3082ba54344bd9ddada2be1c5e9b4131721d2a5d" in str(caught.value)
    with pytest.raises(ModelUnavailable, match=r"checker 'nli'.*no/such \(revision v2\)"):
        registry.make("checker", "nli:no/such@v2")


def test_a_folder_that_is_broken_is_an_error(folder: Folder, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(ModelUnavailable, match="give a folder with"):
        opened("nli", tmp_path / "empty")
    path = changed(folder("nli"), tmp_path / "cut")
    weights = path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(ModelUnavailable, match="can't be loaded"):
        opened("nli", path)


def test_a_device_that_is_not_there_is_an_error(folder: Folder) -> None:
    import torch

    if torch.cuda.is_available():
        assert opened("nli", folder("nli"), Loading("cuda")).support(TRUE).min() > 0.8
        return
    with pytest.raises(UsageError, match="device 'cuda'"):
        opened("nli", folder("nli"), Loading("cuda"))


def test_the_digest_tells_weights_apart(folder: Folder, tmp_path: Path) -> None:
    same = changed(folder("vitaminc"), tmp_path / "same")
    assert opened("vitaminc", same).sha256 == opened("vitaminc", folder("vitaminc")).sha256
    assert opened("vitaminc", same).sha256 != opened("nli", folder("nli")).sha256


@pytest.mark.numeric
def test_the_papers_checker_leaves_summaries_to_the_other_one(folder: Folder) -> None:
    from kcard.selectors.evidence import CorpusEvidence
    from kcard.selectors.factuality import TwoCheckers, cached, judge
    from kcard.types import Passage, Source

    facts, summaries = opened("vitaminc", folder("vitaminc")), opened("factkb", folder("factkb"))
    evidence, claim, lie = checkers.PROBES[0]
    passage = Passage(card="a", text=evidence, pruned=lie)
    corpus = CorpusEvidence([Source(f"{evidence} {claim}")])
    for both in (TwoCheckers(facts, summaries), cached(TwoCheckers(facts, summaries))):
        (judged,) = judge([passage], {"a": corpus}, both)
        s_fact = float(facts.support([Pair(evidence, f"{evidence} {claim}")])[0])
        s_sum = float(summaries.support([Pair(lie, evidence)])[0])
        assert judged.faithfulness == pytest.approx((s_fact + s_sum) / 2, abs=1e-5)
