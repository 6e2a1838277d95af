"""The exam on a real card: a tiny OPT that was trained to answer four of eight questions, and four wrongly."""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import OPTConfig, OPTForCausalLM, PreTrainedTokenizerFast

from kcard.answer import Source
from kcard.cards.folder import Card, finish
from kcard.errors import CardError, CorpusError, DamagedCard, UsageError
from kcard.evaluation.exam import exam
from kcard.evaluation.record import Distribution, Exam, Mean, read_exam
from kcard.manifest import Manifest, Training
from kcard.protocols import Array, Pair
from kcard.training.question_forms import Question, held_out
from kcard.training.spans import Rarity

RIVERS = [
    ("Rhine", "North Sea"),
    ("Danube", "Black Sea"),
    ("Seine", "English Channel"),
    ("Rhone", "Mediterranean"),
    ("Volga", "Caspian Sea"),
    ("Vistula", "Baltic Sea"),
    ("Tagus", "Atlantic Ocean"),
    ("Dvina", "White Sea"),
]
TEXTS = [f"The {river} flows into the {sea}." for river, sea in RIVERS]
QUESTIONS = [
    Question(f"Which sea does the {river} reach?", sea, text)
    for (river, sea), text in zip(RIVERS, TEXTS, strict=True)
]
KNOWN = 4


@dataclass(frozen=True)
class WordOverlap:
    """A small real checker: the share of the claim's words that the evidence holds."""

    def support(self, pairs: Sequence[Pair]) -> Array:
        words = [(set(pair.claim.lower().split()), set(pair.evidence.lower().split())) for pair in pairs]
        return np.array([len(claim & text) / len(claim) for claim, text in words], dtype=np.float32)


def tokenizer() -> Any:
    bpe = Tokenizer(models.WordLevel(unk_token="<unk>"))
    bpe.pre_tokenizer = pre_tokenizers.Metaspace()
    bpe.decoder = decoders.Metaspace()
    special = ["<pad>", "<s>", "</s>", "<unk>"]
    bpe.train_from_iterator(
        [*TEXTS, *(question.text for question in QUESTIONS)],
        trainers.WordLevelTrainer(special_tokens=special, show_progress=False),
    )
    bpe.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    made: Any = PreTrainedTokenizerFast
    return made(tokenizer_object=bpe, pad_token="<pad>", bos_token="<s>", eos_token="</s>", unk_token="<unk>")


def trained(read: Any) -> Any:
    """Recites the right statement for the first four questions and another river's for the others."""
    torch.manual_seed(0)
    config = OPTConfig(
        vocab_size=len(read),
        hidden_size=48,
        word_embed_proj_dim=48,
        num_hidden_layers=2,
        num_attention_heads=2,
        ffn_dim=96,
        max_position_embeddings=64,
        dropout=0.0,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )
    model: Any = OPTForCausalLM(config)
    targets = TEXTS[:KNOWN] + TEXTS[KNOWN + 1 :] + [TEXTS[KNOWN]]
    rows = [
        (read(q.text + "\n")["input_ids"], [*read(t, add_special_tokens=False)["input_ids"], 2])
        for q, t in zip(QUESTIONS, targets, strict=True)
    ]
    longest = max(len(prompt) + len(target) for prompt, target in rows)
    ids = torch.tensor([[*p, *t] + [0] * (longest - len(p) - len(t)) for p, t in rows])
    labels = torch.tensor([[-100] * len(p) + t + [-100] * (longest - len(p) - len(t)) for p, t in rows])
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(120):
        loss = model(input_ids=ids, attention_mask=(ids != 0).long(), labels=labels).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    assert loss.item() < 0.05
    return model.eval()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rivers")
    read = tokenizer()
    read.save_pretrained(folder)
    trained(read).save_pretrained(folder)
    manifest = Manifest(name="rivers", description="Rivers", training=Training(corpus_sha256="ab" * 32))
    finish(folder, manifest, [Source(text, "rivers.txt", line) for line, text in enumerate(TEXTS, 1)])
    return folder


@pytest.fixture
def card(made: Path, tmp_path: Path) -> Path:
    """A card of one's own, not examined yet."""
    return Path(shutil.copytree(made, tmp_path / "card"))


def test_recall_is_the_share_of_questions_whose_answer_was_written(card: Path) -> None:
    found = exam(card, questions=QUESTIONS, checker=WordOverlap())
    assert found.questions == 8
    assert found.recall is not None
    assert found.recall.mean == 0.5
    assert found.recall.low < 0.5 < found.recall.high
    assert {judged.question: judged.recalled for judged in (*found.best, *found.worst)} == {
        question.text: i < KNOWN for i, question in enumerate(QUESTIONS)
    }


def test_what_is_wrong_for_the_question_may_still_be_faithful_to_the_corpus(card: Path) -> None:
    found = exam(card, questions=QUESTIONS, checker=WordOverlap())
    assert found.faithfulness == Distribution((1.0,) * 8, Mean(1.0, 1.0, 1.0))
    assert found.factuality is None
    assert found.evidence is None
    assert found.ranked_by == "faithfulness"
    assert found.best[0].evidence is not None
    assert found.best[0].evidence.text == found.best[0].text
    assert found.best[0].evidence.file == "rivers.txt"


def test_factuality_is_measured_against_the_evidence_given_and_ranks_the_passages(
    card: Path, tmp_path: Path
) -> None:
    independent = tmp_path / "atlas.txt"
    independent.write_text("The Rhine flows into the North Sea.\nRhone: a river of France.\n")
    found = exam(card, evidence=independent, questions=QUESTIONS[:KNOWN], checker=WordOverlap())
    assert found.factuality is not None
    assert found.factuality.scores[0] == 1.0
    assert max(found.factuality.scores[1:]) < 1.0
    assert found.factuality.unknown == 0
    assert set(found.faithfulness.scores) == {1.0}
    assert (found.evidence, found.ranked_by) == ("atlas.txt", "factuality")
    assert found.best[0].text == TEXTS[0]
    ranked = [judged.factuality for judged in (*found.best, *found.worst)]
    assert ranked == sorted(found.factuality.scores, reverse=True)


def test_a_passage_that_no_evidence_speaks_of_is_unknown_and_not_zero(card: Path, tmp_path: Path) -> None:
    independent = tmp_path / "atlas.txt"
    independent.write_text("Volcanoes erupt.\n")
    found = exam(card, evidence=independent, questions=QUESTIONS[:3], checker=WordOverlap())
    assert found.factuality == Distribution((), None, unknown=3)
    assert found.best == found.worst == ()


def test_the_worst_passages_never_repeat_the_best(card: Path, tmp_path: Path) -> None:
    independent = tmp_path / "atlas.txt"
    independent.write_text("The Rhine flows into the North Sea.\n")
    found = exam(card, evidence=independent, questions=QUESTIONS, checker=WordOverlap())
    assert (len(found.best), len(found.worst)) == (5, 3)
    assert not set(found.best) & set(found.worst)
    assert min(j.factuality or 0 for j in found.best) >= max(j.factuality or 0 for j in found.worst)
    assert [j.factuality for j in found.worst] == sorted(j.factuality or 0 for j in found.worst)


def test_the_exam_travels_with_the_card_which_stays_whole(card: Path) -> None:
    before = Card.open(card).manifest
    found = exam(card, questions=QUESTIONS, checker=WordOverlap())
    after = Card.open(card).manifest
    assert read_exam(card) == found
    assert set(after.files) - set(before.files) == {"exam.json"}
    assert {path: after.files[path] for path in before.files} == before.files
    assert after.training == before.training
    assert found.corpus_sha256 == "ab" * 32


def test_the_same_exam_again_has_the_same_bytes(card: Path) -> None:
    exam(card, limit=5, seed=3, checker=WordOverlap())
    first = (card / "exam.json").read_bytes(), (card / "kcard.json").read_bytes()
    exam(card, limit=5, seed=3, checker=WordOverlap())
    assert ((card / "exam.json").read_bytes(), (card / "kcard.json").read_bytes()) == first


def asked(found: Exam) -> set[str]:
    return {judged.question for judged in (*found.best, *found.worst)}


def test_questions_are_held_out_forms_about_its_own_passages(card: Path) -> None:
    found = exam(card, limit=6, checker=WordOverlap())
    possible = {q.text for text in TEXTS if (q := held_out(text, 0, Rarity(TEXTS)))}
    assert found.questions == len(asked(found)) == 6
    assert asked(found) < possible
    assert found.asked == "forms held out of training"


def test_another_seed_asks_other_questions(card: Path) -> None:
    assert asked(exam(card, limit=4, checker=WordOverlap())) != asked(
        exam(card, limit=4, seed=1, checker=WordOverlap())
    )


def test_fewer_passages_than_the_limit_are_all_asked_about(card: Path) -> None:
    assert exam(card, limit=200, checker=WordOverlap()).questions == 8


def test_an_interrupted_exam_can_be_taken_again(card: Path) -> None:
    exam(card, questions=QUESTIONS, checker=WordOverlap())
    (card / "exam.json").write_text("half of an ex")
    with pytest.raises(DamagedCard):
        Card.open(card)
    exam(card, questions=QUESTIONS, checker=WordOverlap())
    assert Card.open(card).name == "rivers"


def test_a_damaged_model_is_not_examined(card: Path) -> None:
    (card / "model.safetensors").write_bytes(b"other")
    with pytest.raises(DamagedCard, match=r"model\.safetensors"):
        exam(card, checker=WordOverlap())


def test_a_card_without_passages_can_not_be_examined(card: Path) -> None:
    finish(card, Card.open(card).manifest, [])
    with pytest.raises(CardError, match=r"no passages\.jsonl"):
        exam(card, checker=WordOverlap())


def test_missing_evidence_and_a_limit_of_nothing_are_refused_before_anything_is_asked(card: Path) -> None:
    with pytest.raises(CorpusError, match=r"atlas\.txt"):
        exam(card, evidence=card / "atlas.txt", checker=WordOverlap())
    with pytest.raises(UsageError, match="limit must be 1 or more, not 0"):
        exam(card, limit=0, checker=WordOverlap())
    assert read_exam(card) is None


def test_a_corpus_that_no_question_can_be_made_of_gives_an_empty_exam(card: Path) -> None:
    finish(card, Card.open(card).manifest, [Source("nothing to ask about.")])
    found = exam(card, checker=WordOverlap())
    assert (found.questions, found.recall, found.best) == (0, None, ())
    assert "no question could be made" in found.summary()


def test_progress_is_told_and_the_summary_names_what_was_measured(card: Path) -> None:
    told: list[str] = []
    found = exam(card, questions=QUESTIONS, checker=WordOverlap(), report=told.append)
    assert told == ["asking rivers 8 questions", "checking what it wrote"]
    assert "recall 0.50 [" in found.summary()
    assert "8 questions" in found.summary()
    assert "factuality not measured" in found.summary()


@pytest.mark.parametrize("text", ["not json", "[]", '{"format": 2}', '{"format": 1, "recall": null}'])
def test_what_is_no_exam_is_a_card_error(text: str) -> None:
    with pytest.raises(CardError, match=r"exam\.json is not an exam"):
        Exam.from_json(text)
