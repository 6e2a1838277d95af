"""The exam on a real card: a tiny OPT that was trained on the very questions of its exam, four of eight wrongly."""

import hashlib
import json
import os
import re
import shutil
import signal
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import OPTConfig, OPTForCausalLM, PreTrainedTokenizerFast

from kcard.api.exam import exam
from kcard.cards.card import Card, finish
from kcard.errors import CardError, CorpusError, DamagedCard, UnknownCard, UsageError
from kcard.evaluation.exam import questions_of, recall
from kcard.evaluation.metrics import substring
from kcard.evaluation.questions import ExamQuestion, digest, make_questions
from kcard.evaluation.recall import StepProgress, chance_recall, score_recall
from kcard.evaluation.records import Distribution, Exam, Mean, read_exam
from kcard.interfaces import Array, Pair
from kcard.manifest import Base, Manifest, Training
from kcard.types import Source
from tests.effects import watch

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
SOURCES = [Source(text, "rivers.txt", line) for line, text in enumerate(TEXTS, 1)]
QUESTIONS = make_questions(SOURCES, 200, 0)
GIVEN = [f"Which sea does the {river} reach?" for river, _ in RIVERS[:3]]
KNOWN = 4
CORPUS_SHA256 = hashlib.sha256("\n".join(TEXTS).encode()).hexdigest()


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
        [*TEXTS, *GIVEN, *(question.text for question in QUESTIONS)],
        trainers.WordLevelTrainer(special_tokens=special, show_progress=False),
    )
    bpe.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    made: Any = PreTrainedTokenizerFast
    return made(tokenizer_object=bpe, pad_token="<pad>", bos_token="<s>", eos_token="</s>", unk_token="<unk>")


def stated(question: ExamQuestion) -> str:
    """The statement that a question of the exam was made of."""
    return next(text for text in TEXTS if substring(text, question.answers) and _fits(text, question))


def _fits(text: str, question: ExamQuestion) -> bool:
    words = set(text.rstrip(".").split()) - set(question.answers[0].split())
    return words <= set(re.findall(r"\w+", question.text))


def untrained(read: Any) -> Any:
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
    made: Any = OPTForCausalLM(config)
    return made.eval()


def trained(read: Any) -> Any:
    """Recites the right statement for the first four questions of its exam, another one's for the others.

    Of the questions of a file it answers the first two rightly.
    """
    model = untrained(read).train()
    right = [stated(question) for question in QUESTIONS]
    targets = [*right[:KNOWN], *right[KNOWN + 1 :], right[KNOWN], TEXTS[0], TEXTS[1], TEXTS[3]]
    prompts = [*(question.text for question in QUESTIONS), *GIVEN]
    rows = [
        (read(prompt + "\n")["input_ids"], [*read(target, add_special_tokens=False)["input_ids"], 2])
        for prompt, target in zip(prompts, targets, strict=True)
    ]
    longest = max(len(prompt) + len(target) for prompt, target in rows)
    ids = torch.tensor([[*p, *t] + [0] * (longest - len(p) - len(t)) for p, t in rows])
    labels = torch.tensor([[-100] * len(p) + t + [-100] * (longest - len(p) - len(t)) for p, t in rows])
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(150):
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
    # No language that the sentence encoder reads, so that looking up is by words alone.
    training = Training(corpus_sha256=CORPUS_SHA256)
    finish(folder, Manifest(name="rivers", description="Rivers", language="xx", training=training), SOURCES)
    return folder


@pytest.fixture
def card(made: Path, tmp_path: Path) -> Path:
    """A card of one's own, not examined yet."""
    return Path(shutil.copytree(made, tmp_path / "card"))


@pytest.fixture
def given(tmp_path: Path) -> Path:
    """An exam file of three questions, of which the card answers two."""
    path = tmp_path / "seas.jsonl"
    rows = [{"question": q, "answer": sea} for q, (_, sea) in zip(GIVEN, RIVERS, strict=False)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "rivers.txt"
    path.write_text("\n".join(TEXTS) + "\n", encoding="utf-8")
    return path


def examined(card: Path, **options: Any) -> Exam:
    return exam(card, checker=WordOverlap(), **options)


def remade(card: Path, **changes: Any) -> Path:
    """The card with another manifest."""
    finish(card, replace(Manifest.read(card), **changes), SOURCES)
    return card


def test_recall_is_the_share_of_questions_whose_answer_was_written(card: Path) -> None:
    found = examined(card)
    assert found.own is not None
    assert found.own.questions == 8
    assert found.recall is not None
    assert found.recall.mean == 0.5
    assert found.recall.low < 0.5 < found.recall.high
    assert {judged.question: judged.recalled for judged in (*found.best, *found.worst)} == {
        question.text: i < KNOWN for i, question in enumerate(QUESTIONS)
    }


def test_what_is_wrong_for_the_question_may_still_be_faithful_to_the_corpus(card: Path) -> None:
    found = examined(card)
    assert found.faithfulness == Distribution.of((1.0,) * 8)
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
    known = stated(QUESTIONS[0])
    independent.write_text(f"{known}\nRhone: a river of France.\n")
    found = examined(card, evidence=independent)
    assert found.factuality is not None
    assert found.factuality.scores[0] == 1.0
    assert max(found.factuality.scores[1:]) < 1.0
    assert found.factuality.unknown == 0
    assert found.faithfulness is not None
    assert set(found.faithfulness.scores) == {1.0}
    assert (found.evidence, found.ranked_by) == ("atlas.txt", "factuality")
    assert found.best[0].text == known
    ranked = [judged.factuality for judged in (*found.best, *found.worst[::-1])]
    assert ranked == sorted(found.factuality.scores, reverse=True)


def test_several_evidences_are_one_and_what_they_share_with_the_corpus_is_counted(
    card: Path, tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_text(f"Volcanoes erupt.\n{TEXTS[2].upper()}\n")
    (tmp_path / "b.txt").write_text("Lakes are deep.\n")
    found = examined(card, evidence=[tmp_path / "a.txt", tmp_path / "b.txt"])
    assert (found.evidence, found.evidence_shared) == ("a.txt, b.txt", 1)
    assert found.evidence_sha256 != examined(card, evidence=[tmp_path / "a.txt"]).evidence_sha256


def test_the_card_s_own_corpus_is_no_independent_evidence(card: Path, corpus: Path) -> None:
    with pytest.raises(
        UsageError, match=r"rivers\.txt: every text in it is a passage of the card's own corpus"
    ):
        examined(card, evidence=corpus)
    assert read_exam(card) is None


def test_a_passage_that_no_evidence_speaks_of_is_unknown_and_not_zero(card: Path, tmp_path: Path) -> None:
    independent = tmp_path / "atlas.txt"
    independent.write_text("Volcanoes erupt.\n")
    found = examined(card, evidence=independent)
    assert found.factuality == Distribution((), None, unknown=8)
    assert found.best == found.worst == ()


def test_the_worst_passages_never_repeat_the_best(card: Path, tmp_path: Path) -> None:
    independent = tmp_path / "atlas.txt"
    independent.write_text("The Rhine flows into the North Sea.\nWater.\n")
    found = examined(card, evidence=independent)
    assert (len(found.best), len(found.worst)) == (5, 3)
    assert not set(found.best) & set(found.worst)
    assert min(j.factuality or 0 for j in found.best) >= max(j.factuality or 0 for j in found.worst)
    assert [j.factuality for j in found.worst] == sorted(j.factuality or 0 for j in found.worst)


def test_a_given_file_is_measured_apart_from_the_card_s_own_corpus(card: Path, given: Path) -> None:
    alone, found = examined(card, output=card.parent / "alone.json"), examined(card, questions=given)
    assert found.own == alone.own
    assert found.given is not None
    assert (found.given.asked, found.given.questions) == ("seas.jsonl", 3)
    assert found.given.recall is not None
    assert found.given.recall.mean == round(2 / 3, 4)
    assert found.given.sha256 == hashlib.sha256(given.read_bytes()).hexdigest()
    assert found.given.faithfulness == Distribution.of((1.0,) * 3)
    quoted = {judged.question for judged in (*found.best, *found.worst)}
    assert not quoted & set(GIVEN), "an exam file may be secret: none of its questions travels with the card"


def test_without_a_base_lift_is_over_chance(card: Path) -> None:
    found = examined(card)
    assert found.base == "chance"
    assert found.own is not None
    assert found.own.base is not None
    assert found.recall is not None
    assert found.lift is not None
    written = [stated(q) for q in QUESTIONS[:KNOWN] + QUESTIONS[KNOWN + 1 :] + [QUESTIONS[KNOWN]]]
    floor = chance_recall(QUESTIONS, [[text] for text in written])
    assert found.own.base.mean == round(sum(floor) / 8, 4) > 0
    assert found.lift.mean == round(0.5 - sum(floor) / 8, 4)
    assert found.lift.low < found.lift.mean < found.lift.high


def test_an_adapter_that_changes_nothing_has_no_lift_over_its_base(made: Path, card: Path) -> None:
    from peft import LoraConfig, get_peft_model

    base: Any = OPTForCausalLM.from_pretrained(made)
    for name in ("config.json", "generation_config.json", "model.safetensors"):
        (card / name).unlink()
    get_peft_model(base, LoraConfig(r=2, target_modules=["q_proj"])).save_pretrained(str(card))
    found = examined(remade(card, kind="lora", base=Base(str(made))))
    assert found.base == str(made)
    assert found.recall is not None
    assert found.recall.mean == 0.5
    assert found.lift is not None
    assert found.lift.mean == 0.0


def test_lift_is_over_the_model_that_a_tuned_card_was_made_from(card: Path, tmp_path: Path) -> None:
    untrained(tokenizer()).save_pretrained(tmp_path / "base")
    found = examined(remade(card, base=Base(str(tmp_path / "base"))))
    assert found.own is not None
    assert found.own.base == Mean.of([0.0] * len(QUESTIONS))
    assert found.lift is not None
    assert found.recall is not None
    assert found.lift.mean == found.recall.mean


def test_lift_over_a_base_that_is_not_at_hand_is_unknown_and_not_zero(card: Path, tmp_path: Path) -> None:
    found = examined(remade(card, base=Base(str(tmp_path / "gone"))))
    assert found.recall is not None
    assert found.recall.mean == 0.5
    assert found.lift is None
    assert "can't be loaded" in found.base_note
    assert "is not known" in (card / "README.md").read_text(encoding="utf-8")


def test_a_card_of_both_is_measured_by_its_model_its_index_and_the_two_together(card: Path) -> None:
    found = examined(remade(card, index=True))
    assert found.own is not None
    assert found.own.model is not None
    assert found.own.index is not None
    assert found.recall is not None
    assert found.own.model.mean == 0.5
    assert found.own.index.mean == found.recall.mean == 1.0
    assert found.faithfulness is not None
    assert len(found.faithfulness.scores) == 8, "only what the model wrote is judged"


def test_a_retrieval_card_is_examined_too(card: Path) -> None:
    for name in ("config.json", "generation_config.json", "model.safetensors"):
        (card / name).unlink()
    found = examined(remade(card, kind="retrieval"))
    assert found.own is not None
    assert found.own.model is found.own.index is None
    assert found.recall == Mean.of([1.0] * len(QUESTIONS))
    assert found.base == "chance"
    assert found.lift is not None
    assert found.lift.mean == 1.0, "no answer stands in another river's passage"


def test_the_exam_travels_with_the_card_which_stays_whole(card: Path) -> None:
    before = Card.open(card).manifest
    found = examined(card)
    after = Card.open(card).manifest
    assert read_exam(card) == found
    assert set(after.files) - set(before.files) == {"exam.json"}
    kept = set(before.files) - {"README.md", "routing.json"}
    assert {path: after.files[path] for path in kept} == {path: before.files[path] for path in kept}
    assert after.training == before.training
    assert found.own is not None
    assert found.own.sha256 == CORPUS_SHA256


def test_the_readme_tells_other_tools_and_people_what_was_found(card: Path, given: Path) -> None:
    from huggingface_hub import ModelCard

    before = (card / "README.md").read_text(encoding="utf-8")
    found = examined(card, questions=given)
    text = (card / "README.md").read_text(encoding="utf-8")
    results = ModelCard.load(card / "README.md").data.eval_results
    read = {(r.dataset_name, r.metric_type): r.metric_value for r in results}
    assert read["own corpus", "recall"] == 0.5
    assert read["seas.jsonl", "recall"] == 0.6667
    assert read["own corpus", "faithfulness"] == 1.0
    assert found.lift is not None
    assert read["own corpus", "recall-lift"] == found.lift.mean
    assert ("own corpus", "factuality") not in read
    assert "| Recall | 0.50 | " in text
    assert before.split("---\n", 2)[2].rstrip() in text


def test_the_same_exam_again_has_the_same_bytes(card: Path, given: Path) -> None:
    names = ("exam.json", "README.md", "kcard.json")
    examined(card, limit=5, seed=3, questions=given)
    first = [(card / name).read_bytes() for name in names]
    examined(card, limit=5, seed=3, questions=given)
    assert [(card / name).read_bytes() for name in names] == first


def asked(found: Exam) -> set[str]:
    return {judged.question for judged in (*found.best, *found.worst)}


def test_questions_are_held_out_forms_about_its_own_passages(card: Path) -> None:
    found = examined(card, limit=6)
    assert found.own is not None
    assert found.own.questions == len(asked(found)) == 6
    assert asked(found) < {question.text for question in QUESTIONS}
    assert found.own.asked == "held-out forms"


def test_another_seed_asks_other_questions(card: Path) -> None:
    assert asked(examined(card, limit=4)) != asked(examined(card, limit=4, seed=1))


def test_an_old_exam_can_be_asked_again_of_another_card(card: Path, tmp_path: Path) -> None:
    other = Path(shutil.copytree(card, tmp_path / "other"))
    untrained(tokenizer()).save_pretrained(other)
    remade(other)
    assert questions_of(card) == QUESTIONS, "without an exam: those that it would be asked"
    found = examined(card, limit=5, seed=2)
    again = questions_of(card)
    assert found.own is not None
    assert digest(again) == found.own.questions_sha256
    assert recall(card, again) == found.recall
    assert recall(other, again) == Mean.of([0.0] * len(again))
    assert recall(other, []) is None


def test_questions_that_are_not_those_of_the_exam_are_not_passed_off_as_them(card: Path) -> None:
    examined(card)
    taken = json.loads((card / "exam.json").read_text(encoding="utf-8"))
    taken["own"]["questions_sha256"] = "0" * 64
    (card / "exam.json").write_text(json.dumps(taken), encoding="utf-8")
    with pytest.raises(CardError, match="whose questions differ: examine the card again"):
        questions_of(card)


def test_a_card_with_hashes_alone_says_how_it_can_be_examined(card: Path) -> None:
    with pytest.raises(CardError, match=r"only hashes .* --corpus PATH, or .* --questions FILE"):
        examined(remade(card, evidence="hashes"))


def test_a_card_with_hashes_alone_is_examined_on_its_corpus_but_quotes_none_of_it(
    card: Path, corpus: Path
) -> None:
    shown = examined(card, output=card.parent / "shown.json")
    found = examined(remade(card, evidence="hashes"), corpus=corpus)
    assert found.own == shown.own
    assert found.best == found.worst == ()
    for name in ("exam.json", "README.md"):
        assert "flows into" not in (card / name).read_text(encoding="utf-8")
    assert questions_of(card, corpus) == QUESTIONS


def test_another_corpus_is_not_taken_for_the_card_s(card: Path, corpus: Path) -> None:
    corpus.write_text("\n".join(TEXTS[:6]), encoding="utf-8")
    with pytest.raises(CorpusError, match=r"2 of its 8 passages are not there, such as rivers\.txt, line 7"):
        examined(remade(card, evidence="hashes"), corpus=corpus)


def test_a_corpus_is_not_taken_for_a_card_that_carries_its_text(card: Path, corpus: Path) -> None:
    with pytest.raises(UsageError, match="--corpus is for cards with hashes alone"):
        examined(card, corpus=corpus)


def test_a_card_without_any_text_is_examined_on_a_given_file_alone(card: Path, given: Path) -> None:
    found = examined(remade(card, evidence="hashes"), questions=given)
    assert found.own is None
    assert found.recall is None
    assert found.faithfulness is None
    assert found.given is not None
    assert found.given.recall is not None
    assert found.given.recall.mean == round(2 / 3, 4)
    assert found.given.faithfulness is None
    assert read_exam(card) == found


def test_a_published_card_is_examined_and_stays_as_it_is(card: Path, tmp_path: Path) -> None:
    from kcard.hub.registry import Hub

    version = Hub().publish(card)
    found = exam("rivers@v1", checker=WordOverlap(), output=tmp_path / "found.json")
    assert found.recall == examined(card).recall
    assert Exam.from_json((tmp_path / "found.json").read_text(encoding="utf-8")) == found
    exam("rivers", checker=WordOverlap())
    assert Hub().get("rivers").sha256 == version.sha256
    assert Hub().verify() == []


def test_a_draft_goes_before_a_published_card_of_its_name(card: Path, home: Path) -> None:
    from kcard.hub.registry import Hub

    Hub().publish(card)
    shutil.copytree(card, home / "drafts" / "rivers")
    exam("rivers", checker=WordOverlap())
    assert read_exam(home / "drafts" / "rivers") is not None


def test_a_name_that_nothing_has_is_refused_with_those_there_are(card: Path, home: Path) -> None:
    shutil.copytree(card, home / "drafts" / "rivers")
    with pytest.raises(UnknownCard, match=r"no draft 'lakes' .*drafts: rivers.* none is published"):
        exam("lakes", checker=WordOverlap())


def test_an_interrupted_exam_leaves_the_card_as_it_was(card: Path) -> None:
    examined(card, limit=4)
    before = {path.name: path.read_bytes() for path in card.iterdir() if path.is_file()}

    def stop(progress: StepProgress) -> None:
        if progress.what.startswith("checking") and progress.done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        examined(card, report=stop)
    assert {path.name: path.read_bytes() for path in card.iterdir() if path.is_file()} == before


def test_ctrl_c_while_the_card_is_sealed_again_is_heard_after_it(
    card: Path,
) -> None:
    def interrupt(point: str) -> None:
        if point == "replace kcard.json":
            os.kill(os.getpid(), signal.SIGINT)

    end = watch(interrupt)
    with pytest.raises(KeyboardInterrupt):
        examined(card)
    end()
    assert Card.open(card).name == "rivers"
    assert read_exam(card) is not None


def test_an_exam_that_was_killed_midway_can_be_taken_again(card: Path) -> None:
    examined(card)
    whole = (card / "README.md").read_bytes()
    (card / "exam.json").write_text("half of an ex")
    (card / "README.md").write_text("half of a pa")
    with pytest.raises(DamagedCard):
        Card.open(card)
    examined(card)
    assert Card.open(card).name == "rivers"
    assert (card / "README.md").read_bytes() == whole


def test_a_damaged_model_is_not_examined(card: Path) -> None:
    (card / "model.safetensors").write_bytes(b"other")
    with pytest.raises(DamagedCard, match=r"model\.safetensors"):
        examined(card)


def test_a_card_without_passages_can_not_be_examined(card: Path) -> None:
    finish(card, Card.open(card).manifest, [])
    with pytest.raises(CardError, match=r"carries no passages.*--questions FILE"):
        examined(card)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"evidence": "atlas.txt"}, CorpusError, r"atlas\.txt"),
        ({"limit": 0}, UsageError, "limit is 0: it must be at least 1"),
        ({"questions": "none.jsonl"}, UsageError, r"none\.jsonl can't be read: No such file"),
        ({"device": "tpu"}, UsageError, "device 'tpu' is unknown: choose cpu"),
        ({"device": "cuda:99"}, UsageError, "device 'cuda:99': there are"),
        ({"checker": "oracle"}, UsageError, "unknown checker 'oracle': choose one of .*minilm"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_is_asked(
    card: Path, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        exam(card, **options)
    assert read_exam(card) is None


def test_a_corpus_that_no_question_can_be_made_of_gives_an_empty_exam(card: Path) -> None:
    finish(card, Card.open(card).manifest, [Source("nothing to ask about.")])
    found = examined(card)
    assert found.own is not None
    assert (found.own.questions, found.recall, found.lift, found.best) == (0, None, None, ())


def test_progress_is_told_by_steps(card: Path, given: Path) -> None:
    told: list[StepProgress] = []
    examined(card, questions=given, report=told.append)
    asking = [progress for progress in told if progress.what == "asking rivers"]
    assert (asking[0].done, asking[-1]) == (0, StepProgress("asking rivers", 11, 11))
    assert told[-1] == StepProgress("checking against its own corpus", 3, 3)


def test_the_checker_is_named_with_the_digest_of_its_weights(card: Path) -> None:
    assert examined(card).checker.endswith("WordOverlap")
    found = exam(card, limit=1)
    assert found.checker == "minilm"
    assert re.fullmatch("[0-9a-f]{64}", found.checker_sha256 or "")


def test_chance_is_how_often_an_answer_stands_in_what_was_written_for_others() -> None:
    questions = [
        ExamQuestion("a?", ("red",)),
        ExamQuestion("b?", ("blue",)),
        ExamQuestion("c?", ("green", "red")),
    ]
    written = [["red"], ["blue and red"], ["green"]]
    assert score_recall(questions, written) == [1.0, 1.0, 1.0]
    assert chance_recall(questions, written) == [0.5, 0.0, 1.0]
    assert chance_recall(questions[:1], written[:1]) == []


def test_chance_over_many_questions_is_estimated_from_some() -> None:
    questions = [ExamQuestion(f"{i}?", ("red",)) for i in range(1000)]
    written = [["red" if i % 2 else "blue"] for i in range(1000)]
    assert np.mean(chance_recall(questions, written)) == pytest.approx(0.5, abs=0.01)


def test_every_passage_that_fills_the_same_gap_gives_an_accepted_answer() -> None:
    corpus = [Source(f"{moon} is a moon of Mars.") for moon in ("Phobos", "Deimos")]
    corpus += [Source("Titan is a moon of Saturn."), Source("Deimos  is a moon of Mars!")]
    found = {q.text: q.answers for seed in range(20) for q in make_questions(corpus, 10, seed)}
    of_mars = {answers for text, answers in found.items() if "Mars" in text and "os" not in text}
    assert {frozenset(answers) for answers in of_mars} == {frozenset(("Phobos", "Deimos"))}


def test_what_is_asked_does_not_depend_on_the_order_of_the_corpus() -> None:
    assert make_questions(SOURCES[::-1], 5, 1) == make_questions(SOURCES, 5, 1)
    assert make_questions(SOURCES, 3, 1) == make_questions(SOURCES, 5, 1)[:3]


@pytest.mark.parametrize("text", ["not json", "[]", '{"format": 1}', '{"format": 2, "own": {"recall": 1}}'])
def test_what_is_no_exam_is_a_card_error(text: str) -> None:
    with pytest.raises(CardError, match=r"exam\.json is not an exam.*examine the card again"):
        Exam.from_json(text)
