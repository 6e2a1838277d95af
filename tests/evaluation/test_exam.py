"""The exam on a real card: a tiny OPT that was trained on the very questions of its exam, four of eight wrongly."""

import hashlib
import json
import os
import re
import shutil
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import OPTConfig, OPTForCausalLM

from kcard.api.exam import exam
from kcard.cards.card import Card, finish
from kcard.errors import CardError, CorpusError, DamagedCard, UnknownCard, UsageError
from kcard.evaluation.exam import (
    ELSEWHERE_QUESTIONS,
    INVENTED_NAMES,
    advise_on_kind,
    make_unanswerable,
)
from kcard.evaluation.metrics import substring
from kcard.evaluation.questions import ExamQuestion, make_questions
from kcard.evaluation.recall import chance_recall, judge_answered, score_recall
from kcard.evaluation.records import Distribution, Exam, ExamRun, Mean, read_exam
from kcard.events import Event
from kcard.manifest import Base, Manifest, Training, seal
from kcard.types import Passage, Source
from tests.effects import watch
from tests.fakes import WordOverlap
from tests.tiny_tokenizers import of_bytes

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
FILE_QUESTIONS = [f"Which sea does the {river} reach?" for river, _ in RIVERS[:3]]
RECALLED = 4
CORPUS_SHA256 = hashlib.sha256("\n".join(TEXTS).encode()).hexdigest()


def tokenizer() -> Any:
    return of_bytes([*TEXTS, *FILE_QUESTIONS, *(question.text for question in QUESTIONS)], size=600)


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
    model: Any = OPTForCausalLM(config)
    return model.eval()


def train(read: Any) -> Any:
    """Recites the right statement for the first four questions of its exam, another one's for the others.

    Of the questions of a file it answers the first two rightly.
    """
    model = untrained(read).train()
    right = [stated(question) for question in QUESTIONS]
    targets = [*right[:RECALLED], *right[RECALLED + 1 :], right[RECALLED], TEXTS[0], TEXTS[1], TEXTS[3]]
    prompts = [*(question.text for question in QUESTIONS), *FILE_QUESTIONS]
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
def prototype(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rivers")
    read = tokenizer()
    read.save_pretrained(folder)
    train(read).save_pretrained(folder)
    # No language that the sentence encoder reads, so that looking up is by words alone.
    training = Training(corpus_sha256=CORPUS_SHA256)
    finish(folder, Manifest(name="rivers", description="Rivers", language="xx", training=training), SOURCES)
    return folder


@pytest.fixture
def card(prototype: Path, tmp_path: Path) -> Path:
    """A card of one's own, not examined yet."""
    return Path(shutil.copytree(prototype, tmp_path / "card"))


@pytest.fixture
def question_file(tmp_path: Path) -> Path:
    """An exam file of three questions, of which the card answers two."""
    path = tmp_path / "seas.jsonl"
    rows = [{"question": q, "answer": sea} for q, (_, sea) in zip(FILE_QUESTIONS, RIVERS, strict=False)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "rivers.txt"
    path.write_text("\n".join(TEXTS) + "\n", encoding="utf-8")
    return path


def examined(card: Path, **options: Any) -> Any:
    return exam(card, checker=WordOverlap(), **options)


def remade(card: Path, **changes: Any) -> Path:
    """The card with another manifest."""
    finish(card, replace(Manifest.read(card), **changes), SOURCES)
    return card


def test_an_exam_tells_recall_faithfulness_and_lift_and_travels_with_the_card(card: Path) -> None:
    before = Card.open(card).manifest
    result = examined(card)
    assert result.own.questions == 8
    assert result.recall.mean == 0.5
    assert result.recall.low < 0.5 < result.recall.high
    assert {judged.question: judged.recalled for judged in (*result.best, *result.worst)} == {
        question.text: i < RECALLED for i, question in enumerate(QUESTIONS)
    }
    # What is wrong for the question may still be faithful to the corpus.
    assert result.faithfulness == Distribution.of((1.0,) * 8)
    assert result.factuality is None
    assert result.evidence is None
    assert result.ranked_by == "faithfulness"
    assert result.best[0].evidence.text == result.best[0].text
    assert result.best[0].evidence.file == "rivers.txt"
    # Without a base, lift is over chance.
    written = [stated(q) for q in QUESTIONS[:RECALLED] + QUESTIONS[RECALLED + 1 :] + [QUESTIONS[RECALLED]]]
    floor = chance_recall(QUESTIONS, [[Passage("rivers", text)] for text in written])
    assert result.base == "chance"
    assert result.own.base.mean == round(sum(floor) / 8, 4) > 0
    assert result.lift.mean == round(0.5 - sum(floor) / 8, 4)
    assert result.lift.low < result.lift.mean < result.lift.high
    # The exam travels with the card, which stays whole.
    after = Card.open(card).manifest
    assert read_exam(card) == result
    assert set(after.files) - set(before.files) == {"exam.json"}
    unchanged = set(before.files) - {"README.md", "routing.json"}
    assert {path: after.files[path] for path in unchanged} == {path: before.files[path] for path in unchanged}
    assert after.training == before.training
    assert result.own.sha256 == CORPUS_SHA256


def test_factuality_is_measured_against_the_evidence_given_and_ranks_the_passages(
    card: Path, tmp_path: Path
) -> None:
    fact = stated(QUESTIONS[0])
    (tmp_path / "atlas.txt").write_text(f"{fact.upper()}\nRhone: a river of France.\n")
    (tmp_path / "lakes.txt").write_text("Lakes are deep.\n")
    result = examined(card, evidence=[tmp_path / "atlas.txt", tmp_path / "lakes.txt"])
    assert (result.evidence, result.evidence_shared) == ("atlas.txt, lakes.txt", 1)
    assert result.factuality.scores[0] == 1.0
    assert max(result.factuality.scores[1:]) < 1.0
    assert result.factuality.unknown == 0
    assert set(result.faithfulness.scores) == {1.0}
    assert result.ranked_by == "factuality"
    assert result.best[0].text == fact
    ranked = [judged.factuality for judged in (*result.best, *result.worst[::-1])]
    assert ranked == sorted(result.factuality.scores, reverse=True)


def test_a_passage_that_no_evidence_speaks_of_is_unknown_and_not_zero(card: Path, tmp_path: Path) -> None:
    independent = tmp_path / "atlas.txt"
    independent.write_text("Volcanoes erupt.\n")
    result = examined(card, evidence=independent)
    assert result.factuality == Distribution((), None, unknown=8)
    assert result.best == result.worst == ()


def test_a_given_file_is_measured_apart_from_the_card_s_own_corpus(card: Path, question_file: Path) -> None:
    alone, both = examined(card, output=card.parent / "alone.json"), examined(card, questions=question_file)
    assert both.own == alone.own
    assert (both.given.asked, both.given.questions) == ("seas.jsonl", 3)
    assert both.given.recall.mean == round(2 / 3, 4)
    assert both.given.sha256 == hashlib.sha256(question_file.read_bytes()).hexdigest()
    assert both.given.faithfulness == Distribution.of((1.0,) * 3)
    quoted = {judged.question for judged in (*both.best, *both.worst)}
    assert not quoted & set(FILE_QUESTIONS), (
        "an exam file may be secret: none of its questions travels with the card"
    )


def test_an_adapter_that_changes_nothing_has_no_lift_over_its_base(prototype: Path, card: Path) -> None:
    from peft import LoraConfig, get_peft_model

    base: Any = OPTForCausalLM.from_pretrained(prototype)
    for name in ("config.json", "generation_config.json", "model.safetensors"):
        (card / name).unlink()
    get_peft_model(base, LoraConfig(r=2, target_modules=["q_proj"])).save_pretrained(str(card))
    result = examined(remade(card, kind="model", method="lora", base=Base(str(prototype))))
    assert result.base == str(prototype)
    assert result.recall.mean == 0.5
    assert result.lift.mean == 0.0


def test_lift_is_over_the_model_that_a_tuned_card_was_made_from(card: Path, tmp_path: Path) -> None:
    untrained(tokenizer()).save_pretrained(tmp_path / "base")
    result = examined(remade(card, base=Base(str(tmp_path / "base"))))
    assert result.own.base == Mean.of([0.0] * len(QUESTIONS))
    assert result.lift.mean == result.recall.mean


def test_lift_over_a_base_that_is_not_at_hand_is_unknown_and_not_zero(card: Path, tmp_path: Path) -> None:
    result = examined(remade(card, base=Base(str(tmp_path / "gone"))))
    assert result.recall.mean == 0.5
    assert result.lift is None
    assert "can't be loaded" in result.base_note
    assert "is unknown" in (card / "README.md").read_text(encoding="utf-8")


def test_a_card_of_both_is_measured_by_its_model_its_index_and_the_two_together(card: Path) -> None:
    result = examined(remade(card, kind="both"))
    assert result.own.model.mean == 0.5
    assert result.own.index.mean == result.recall.mean == 1.0
    assert len(result.faithfulness.scores) == 8, "only what the model wrote is judged"


def test_a_retrieval_card_is_examined_too(card: Path) -> None:
    for name in ("config.json", "generation_config.json", "model.safetensors"):
        (card / name).unlink()
    result = examined(remade(card, kind="retrieval"))
    assert result.own.model is result.own.index is None
    assert result.recall == Mean.of([1.0] * len(QUESTIONS))
    assert result.base == "chance"
    assert result.lift.mean == 1.0, "no answer stands in another river's passage"


def test_the_readme_tells_other_tools_and_people_what_was_found(card: Path, question_file: Path) -> None:
    from huggingface_hub import ModelCard

    before = (card / "README.md").read_text(encoding="utf-8")
    result = examined(card, questions=question_file)
    text = (card / "README.md").read_text(encoding="utf-8")
    results = ModelCard.load(card / "README.md").data.eval_results
    read = {(r.dataset_name, r.metric_type): r.metric_value for r in results}
    assert read["own corpus", "recall"] == 0.5
    assert read["seas.jsonl", "recall"] == 0.6667
    assert read["own corpus", "faithfulness"] == 1.0
    assert read["own corpus", "recall-lift"] == result.lift.mean
    assert ("own corpus", "factuality") not in read
    assert "| Recall | 0.50 | " in text
    assert before.split("---\n", 2)[2].rstrip() in text


def test_the_same_exam_again_has_the_same_bytes(card: Path, question_file: Path) -> None:
    names = ("exam.json", "README.md", "kcard.json")
    examined(card, limit=5, seed=3, questions=question_file)
    first = [(card / name).read_bytes() for name in names]
    examined(card, limit=5, seed=3, questions=question_file)
    assert [(card / name).read_bytes() for name in names] == first


def test_an_exam_of_fewer_questions_does_not_take_the_place_of_a_larger_one(card: Path) -> None:
    large = examined(card, limit=6)
    small = examined(card, limit=3)
    assert (small.limit, read_exam(card)) == (3, large)
    apart = examined(card, limit=3, output=card.parent / "small.json")
    assert Exam.from_json((card.parent / "small.json").read_text(encoding="utf-8")) == apart
    again = examined(card, limit=6, seed=1)
    assert read_exam(card) == again
    again = examined(card, limit=7)
    assert read_exam(card) == again
    # An exam of a file alone is no larger one.
    (card / "exam.json").write_text(replace(again, own=None).to_json(), encoding="utf-8")
    seal(card, Manifest.read(card))
    assert examined(card, limit=1) == read_exam(card)


def questions_shown(result: Exam) -> set[str]:
    return {judged.question for judged in (*result.best, *result.worst)}


def test_questions_are_held_out_forms_about_its_own_passages(card: Path) -> None:
    result = examined(card, limit=6)
    assert result.own.questions == len(questions_shown(result)) == 6
    assert questions_shown(result) < {question.text for question in QUESTIONS}
    assert result.own.asked == "held-out forms"
    assert questions_shown(result) != questions_shown(examined(card, limit=6, seed=1))


def test_a_card_with_hashes_alone_is_examined_on_its_corpus_but_quotes_none_of_it(
    card: Path, corpus: Path
) -> None:
    shown = examined(card, output=card.parent / "shown.json")
    result = examined(remade(card, evidence="hashes"), corpus=corpus)
    assert result.own == shown.own
    assert result.best == result.worst == ()
    for name in ("exam.json", "README.md"):
        assert "flows into" not in (card / name).read_text(encoding="utf-8")


def test_a_corpus_is_refused_unless_it_is_that_of_a_card_with_hashes_which_needs_one(
    card: Path, corpus: Path
) -> None:
    with pytest.raises(UsageError, match="--corpus applies only to cards that carry hashes"):
        examined(card, corpus=corpus)
    hashed = remade(card, evidence="hashes")
    with pytest.raises(CardError, match=r"only hashes .* --corpus PATH, or .* --questions FILE"):
        examined(hashed)
    corpus.write_text("\n".join(TEXTS[:6]), encoding="utf-8")
    with pytest.raises(CorpusError, match=r"2 of its 8 passages are missing, such as rivers\.txt, line 7"):
        examined(hashed, corpus=corpus)


def test_a_card_without_any_text_is_examined_on_a_given_file_alone(card: Path, question_file: Path) -> None:
    result = examined(remade(card, evidence="hashes"), questions=question_file)
    assert result.own is None
    assert result.recall is None
    assert result.faithfulness is None
    assert result.given.recall.mean == round(2 / 3, 4)
    assert result.given.faithfulness is None
    assert read_exam(card) == result


def test_a_published_card_is_examined_and_stays_as_it_is(card: Path, tmp_path: Path) -> None:
    from kcard.hub.registry import Hub

    version = Hub().publish(card)
    result = exam("rivers@v1", checker=WordOverlap(), output=tmp_path / "found.json")
    assert result.recall == examined(card).recall
    assert Exam.from_json((tmp_path / "found.json").read_text(encoding="utf-8")) == result
    exam("rivers", checker=WordOverlap())
    assert Hub().get("rivers").sha256 == version.sha256
    assert Hub().verify() == []


def test_a_name_that_nothing_has_is_refused_with_those_there_are(card: Path, home: Path) -> None:
    shutil.copytree(card, home / "drafts" / "rivers")
    with pytest.raises(UnknownCard, match=r"unknown card 'lakes': .*no draft 'lakes' .*drafts: rivers"):
        exam("lakes", checker=WordOverlap())


def test_an_interrupted_exam_leaves_the_card_as_it_was(card: Path) -> None:
    examined(card, limit=4)
    before = {path.name: path.read_bytes() for path in card.iterdir() if path.is_file()}

    def stop(progress: Event) -> None:
        if progress.kind.startswith("checking") and progress.done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        examined(card, on_event=stop)
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


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"evidence": "atlas.txt"}, CorpusError, r"atlas\.txt"),
        ({"limit": 0}, UsageError, "limit is 0: it must be at least 1"),
        ({"questions": "none.jsonl"}, UsageError, r"none\.jsonl can't be read: No such file"),
        ({"device": "tpu"}, UsageError, "device 'tpu' is unknown: choose cpu"),
        ({"device": "cuda:99"}, UsageError, "device 'cuda:99', but . GPUs were found"),
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
    result = examined(card)
    assert (result.own.questions, result.recall, result.lift, result.best) == (0, None, None, ())


def test_progress_is_told_by_steps(card: Path, question_file: Path) -> None:
    events: list[Event] = []
    examined(card, questions=question_file, on_event=events.append)
    asking = [progress for progress in events if progress.kind == "asking rivers"]
    assert (asking[0].done, asking[-1]) == (0, Event("asking rivers", done=11, total=11))
    assert events[-1] == Event("checking against its own corpus", done=3, total=3)


def test_the_checker_is_named_with_the_digest_of_its_weights(card: Path) -> None:
    assert examined(card).checker.endswith("WordOverlap")
    result = exam(card, limit=1)
    assert result.checker == "minilm"
    assert re.fullmatch("[0-9a-f]{64}", result.checker_sha256 or "")


def test_chance_is_how_often_an_answer_stands_in_what_was_written_for_others() -> None:
    questions = [
        ExamQuestion("a?", ("red",)),
        ExamQuestion("b?", ("blue",)),
        ExamQuestion("c?", ("green", "red")),
    ]
    written = [[Passage("card", text)] for text in ("red", "blue and red", "green")]
    assert score_recall(questions, written) == [1.0, 1.0, 1.0]
    assert chance_recall(questions, written) == [0.5, 0.0, 1.0]
    assert chance_recall(questions[:1], written[:1]) == []
    many = [[Passage("card", "red" if i % 2 else "blue")] for i in range(1000)]
    assert np.mean(chance_recall(questions[:1] * 1000, many)) == pytest.approx(0.5, abs=0.01)


def test_every_passage_that_fills_the_same_gap_gives_an_accepted_answer() -> None:
    corpus = [Source(f"{moon} is a moon of Mars.") for moon in ("Phobos", "Deimos")]
    corpus += [Source("Titan is a moon of Saturn."), Source("Deimos  is a moon of Mars!")]
    accepted = {q.text: q.answers for seed in range(20) for q in make_questions(corpus, 10, seed)}
    of_mars = {answers for text, answers in accepted.items() if "Mars" in text and "os" not in text}
    assert {frozenset(answers) for answers in of_mars} == {frozenset(("Phobos", "Deimos"))}


def test_what_is_asked_does_not_depend_on_the_order_of_the_corpus() -> None:
    assert make_questions(SOURCES[::-1], 5, 1) == make_questions(SOURCES, 5, 1)
    assert make_questions(SOURCES, 3, 1) == make_questions(SOURCES, 5, 1)[:3]


@pytest.mark.parametrize("text", ["not json", "[]", '{"format": 1}', '{"format": 2, "own": {"recall": 1}}'])
def test_what_is_no_exam_is_a_card_error(text: str) -> None:
    with pytest.raises(CardError, match=r"exam\.json is not an exam.*examine the card again"):
        Exam.from_json(text)


# Questions that a corpus does not answer, and whether a card's documents are held to answer a question.

CORPUS = [
    Source("Ada Fischer founded the Brindle Museum in 1871."),
    Source("The Titanic is not mentioned but for its name."),
]
ANSWERABLE = [
    ExamQuestion("Who founded the Brindle Museum?", ("Ada Fischer",)),
    ExamQuestion("When did Ada Fischer found it?", ("1871",)),
    ExamQuestion("what else is known of it?", ("nothing",)),
]


def test_half_name_something_unknown_and_half_are_on_other_subjects() -> None:
    questions = make_unanswerable(ANSWERABLE, CORPUS, 4, seed=3)
    assert len(questions) == len({question.text for question in questions}) == 4
    assert all(question.answers == () for question in questions)
    assert [question.text in ELSEWHERE_QUESTIONS for question in questions] == [False, False, True, True]


def test_a_renamed_question_asks_the_same_of_a_name_that_is_not_in_the_corpus() -> None:
    for seed in range(10):
        near = make_unanswerable(ANSWERABLE, CORPUS, 4, seed)[:2]
        assert near[0].text.startswith("Who founded ")
        assert near[1].text.startswith("When did ")
        for question, original in zip(near, ANSWERABLE, strict=False):
            new = set(question.text.strip("?").split()) - set(original.text.strip("?").split())
            assert new
            assert not [word for word in new if any(word in source.text.split() for source in CORPUS)]


def test_a_name_that_the_corpus_has_is_not_invented() -> None:
    *taken, free = INVENTED_NAMES[2]
    corpus = [*CORPUS, *(Source(f"It was {name}.") for name in taken)]
    for seed in range(10):
        assert make_unanswerable(ANSWERABLE[1:2], corpus, 1, seed)[0].text == f"When did {free} found it?"


def test_questions_on_other_subjects_name_nothing_that_the_corpus_names() -> None:
    everything = make_unanswerable([], CORPUS, 10_000, seed=0)
    assert len(everything) == len(ELSEWHERE_QUESTIONS) - 1
    assert not [question for question in everything if "Titanic" in question.text]


def test_a_question_is_answered_where_a_document_answers_it_as_it_is_read() -> None:
    """The pruned document is read, under its headings."""
    whole = "Nothing else is known. It was founded by Ada Fischer in 1871."
    source = Source(whole, section="Brindle Museum")
    shown = Passage("museums", whole, pruned="It was founded by Ada Fischer in 1871.", source=source)
    hidden = Passage("museums", whole, pruned="?", source=Source(whole, section="?"))
    right = Passage("museums", "Ada Fischer founded the Brindle Museum in 1871.")
    rows = [[shown], [hidden], [Passage("museums", "?!"), right], [], [Passage("museums", " ")]]
    events: list[Event] = []
    assert judge_answered([ANSWERABLE[0]] * 5, rows, events.append) == [1.0, 0.0, 1.0, 0.0, 0.0]
    assert [(progress.done, progress.total) for progress in events] == [(n, 5) for n in range(1, 6)]


# Which kind of card serves a corpus, by its exam.


def mean(value: float | None) -> Mean | None:
    return None if value is None else Mean(value, value, value)


def exam_of_advice(both: float | None, model: float | None, index: float | None) -> Exam:
    own = ExamRun("asked", "", 40, "", mean(both), model=mean(model), index=mean(index))
    return Exam("rivers", "0", own)


@pytest.mark.parametrize(
    ("both", "model", "index", "sentence"),
    [
        (0.90, 0.40, 0.89, "an index alone (--kind retrieval) serves this corpus; without it 0.50 is lost"),
        (0.90, 0.89, 0.40, "the model alone (--kind model) serves this corpus as well"),
        (0.90, 0.60, 0.70, "leaving the index out costs 0.30, leaving the model out 0.20"),
        (0.90, 0.90, 0.90, "an index alone"),
    ],
)
def test_what_a_part_is_worth_is_said_with_the_figures(
    both: float, model: float, index: float, sentence: str
) -> None:
    text = advise_on_kind(exam_of_advice(both, model, index))
    assert text is not None
    assert sentence in text
    assert text.startswith(
        f"of 40 questions its model alone recalls {model:.2f}, its index alone {index:.2f}"
    )


@pytest.mark.parametrize("parts", [(0.9, None, 0.9), (0.9, 0.9, None), (None, 0.9, 0.9)])
def test_a_card_of_one_part_and_one_without_an_exam_of_its_corpus_get_no_advice(
    parts: tuple[float | None, ...],
) -> None:
    assert advise_on_kind(exam_of_advice(*parts)) is None
    assert advise_on_kind(Exam("rivers", "0", None)) is None
