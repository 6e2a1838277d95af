"""How the reader is measured and calibrated, and what its weights lose where they are saved."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from recipes.reader import train as training
from recipes.reader.calibrate import Case, fitted, report
from recipes.reader.calibrate import _right as is_right
from recipes.reader.example import Reading
from recipes.reader.network import save, untrained
from recipes.reader.relevance import balanced, refit
from recipes.reader.score import figures
from recipes.reader.train import loss

from kcard.embedded.reader import READER_WEIGHTS, PassageReading, encode, load_reader, read, shared_reader
from kcard.llms.extraction.extract import Extract

pytestmark = pytest.mark.numeric

TOWER = "Halden & Co built the lighthouse of Port Callow. Nobody lives there."
FIRST, SECOND = ((0, 48),), ((49, 68),)
QUESTION = "Who built the lighthouse of Port Callow?"
NEAR = (("", "Trout live in cold brooks."),)
RIGHT = Reading(QUESTION, "Towers", TOWER, True, ((0, 11),), FIRST, near=NEAR)
WRONG = Reading(QUESTION, "", "", False, near=(("", "Oaks stand for long."),))


def test_figures_are_those_of_right_and_wrong_answers() -> None:
    scored = figures(shared_reader(), [RIGHT, WRONG])
    assert (scored.questions, scored.exact, scored.f1, scored.auroc) == (2, 1.0, 1.0, 1.0)
    lives = Reading(RIGHT.question, "", TOWER, True, ((TOWER.index("there"), TOWER.index("there") + 5),))
    scored = figures(shared_reader(), [RIGHT, lives])
    assert (scored.exact, scored.f1) == (0.5, 0.5)
    turned = Reading(RIGHT.question, "", "Oaks stand for long.", True, near=(("", TOWER),))
    assert figures(shared_reader(), [turned]).auroc == 0.0
    assert figures(shared_reader(), []).exact is None


def test_the_sentence_counts_that_is_held_to_be_the_likeliest() -> None:
    text = f"{RIGHT.section}: {TOWER}"
    (reading,) = read(QUESTION, [text], shared_reader())
    best = max(reading.sentences, key=lambda sentence: sentence.evidence)
    for place in (FIRST, SECOND):
        (span,) = place
        right = TOWER[slice(*span)] in text[best.start : best.end]
        assert figures(shared_reader(), [replace(RIGHT, evidence=place)]).sentence == float(right)


def are_alike(one: PassageReading, other: PassageReading, tolerance: float) -> bool:
    """Whether two networks read a passage alike but for rounding."""
    evidence = [sentence.evidence for sentence in other.sentences]
    return (
        one.relevance == pytest.approx(other.relevance, abs=tolerance)
        and [answer.text for answer in one.answers[:1]] == [answer.text for answer in other.answers[:1]]
        and [sentence.evidence for sentence in one.sentences] == pytest.approx(evidence, abs=0.5)
    )


def test_the_shipped_network_reads_as_the_trained_one_does_but_for_rounding() -> None:
    network = untrained(READER_WEIGHTS, dropout=0.0)
    network.model.eval()
    texts = [TOWER, "Nobody knows.", f"{TOWER} " * 20]
    for ours, theirs in zip(read(QUESTION, texts), read(QUESTION, texts, network.read), strict=True):
        assert are_alike(ours, theirs, 0.3)


def test_relevance_is_refitted_to_texts_of_which_half_answer_and_spans_stay() -> None:
    network = untrained(READER_WEIGHTS, dropout=0.0)
    pairs = encode([(RIGHT.question, TOWER), (RIGHT.question, "Nobody knows.")])
    network.model.eval()
    before = network.read(pairs)
    # Turned round: what answers is said not to.
    answering = [replace(RIGHT, answered=False)] * 32 + [Reading(RIGHT.question, "", "Nobody knows.")] * 64
    texts = balanced(answering, seed=0)
    assert sum(reading.answered for reading in texts) == len(texts) / 2 == 32
    refit(network, texts, seed=0)
    after = network.read(pairs)
    assert after[0].relevance < before[0].relevance
    assert after[1].relevance > before[1].relevance
    assert np.array_equal(before[0].starts, after[0].starts)


def test_a_reader_learns_its_examples_and_reads_the_same_once_it_is_saved(tmp_path: Path) -> None:
    torch.manual_seed(0)
    network = untrained(None, dropout=0.0)
    for weight in network.model.requires_grad_(False).encoder.parameters():
        weight += 1e-3 * torch.randn_like(weight)
    batch = [replace(RIGHT, section=""), Reading(RIGHT.question, "", "Osric & Sons built the mill.", False)]
    optimizer = torch.optim.AdamW(network.heads.values(), lr=1e-2)
    losses = []
    for _ in range(12):
        value = loss(network, batch)
        losses.append(value.item())
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
    assert losses[-1] < losses[0] / 2
    save(network, tmp_path)
    texts = [reading.text for reading in batch]
    before, after = (read(QUESTION, texts, reader) for reader in (network.read, load_reader(tmp_path)))
    assert before[0].relevance > before[1].relevance
    assert before[0].answers[0].text == "Halden & Co"
    for one, other in zip(before, after, strict=True):
        assert are_alike(one, other, 0.5)
    assert (tmp_path / "reader.safetensors").stat().st_size < 16_000_000


def case(manual: str, relevance: float, right: bool, answerable: bool = True) -> Case:
    features = {"bias": 1.0, "relevance": relevance}
    return Case(manual, "Who?", features, Extract("a", "a", 0, 0.5), answerable, right)


def test_a_calibration_finds_the_weights_that_made_the_outcomes() -> None:
    rng = np.random.default_rng(0)
    cases = []
    for number in range(300):
        relevance = float(rng.normal())
        right = bool(rng.random() < 1 / (1 + np.exp(-3 * relevance)))
        cases.append(case("abc"[number % 3], relevance, right, answerable=right or number % 2 == 0))
    weights = fitted(cases, ["bias", "relevance"])
    assert weights["relevance"] == pytest.approx(3, abs=1)
    assert weights["bias"] == pytest.approx(0, abs=0.5)


def test_the_report_shares_out_right_wrong_and_unknown() -> None:
    outcomes = [(True, True), (False, True), (True, True), (False, False)]
    scored = [case("a", 0, right, answerable) for right, answerable in outcomes]
    rows = report(scored, [0.9, 0.65, 0.35, 0.55]).splitlines()[2:]
    assert rows[0] == "| 0.25 | 0.667 | 0.333 | 0.000 | 0.000 |"
    assert rows[-1] == "| 0.7 | 0.333 | 0.000 | 0.667 | 1.000 |"


GOLD = ["halden", "co", "built", "the", "lighthouse"]


BUILT, OAKS = "Halden & Co built the lighthouse.", "Oaks stand for long."


@pytest.mark.parametrize(
    ("kind", "answer", "text", "quote", "right"),
    [
        ("fact", "Halden & Co", "Halden & Co", "", True),
        ("fact", "Halden & Co", "Osric", BUILT, False),
        ("fact", "Halden", BUILT, BUILT, True),
        ("fact", "Halden", "Halden of Upper Tarn sold a mill.", "Halden sold a mill.", False),
        ("yes/no", "yes", f"Yes: {BUILT}", BUILT, True),
        ("yes/no", "no", f"Yes: {BUILT}", BUILT, False),
        ("yes/no", "no", BUILT, BUILT, True),
        ("yes/no", "no", f"No: {OAKS}", OAKS, True),
        ("yes/no", "no", OAKS, OAKS, False),
        ("how", "-", "anything", BUILT, True),
        ("list", "-", "anything", OAKS, False),
    ],
)
def test_an_extract_is_right_by_its_words_or_by_what_it_quotes(
    kind: str, answer: str, text: str, quote: str, right: bool
) -> None:
    row: dict[str, Any] = {"type": kind, "answer": answer}
    assert is_right(row, Extract(text, quote, 0, 0.5), GOLD) == right


def test_a_run_that_was_ended_goes_on_to_the_weights_of_one_that_was_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "SAVED", 0.0)
    plan = [[RIGHT], [replace(RIGHT, section="")], [RIGHT], [RIGHT]]

    def trained(checkpoint: Path | None) -> torch.Tensor:
        torch.manual_seed(0)
        network = untrained(None, dropout=0.1)
        training.train(network, plan, checkpoint=checkpoint)
        return network.heads["tokens.weight"].detach()

    whole = trained(None)
    right, calls = training.loss, iter((False, False, True))

    def ended(*parts: Any) -> torch.Tensor:
        if next(calls):
            raise KeyboardInterrupt
        return right(*parts)

    checkpoint = tmp_path / "checkpoint.pt"
    monkeypatch.setattr(training, "loss", ended)
    with pytest.raises(KeyboardInterrupt):
        trained(checkpoint)
    monkeypatch.setattr(training, "loss", right)
    assert torch.equal(trained(checkpoint), whole)
    with pytest.raises(SystemExit, match="is of a run of 4 steps, this one has 1"):
        training.train(untrained(None, dropout=0.1), plan[:1], checkpoint=checkpoint)
