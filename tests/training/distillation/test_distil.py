"""Objective distil: a LoRA card learns to answer as its base does with the passage in the prompt."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from kcard.cards.card import Card
from kcard.cards.pool import CardPool
from kcard.errors import TrainingInterrupted, UsageError
from kcard.manifest import file_digest
from kcard.text import passage_digest
from kcard.training.distillation import Distillation, PassageQuestion
from kcard.training.execution import Execution
from kcard.training.finetune import Options, prepare
from kcard.training.progress import Event, Note, TeacherProgress
from kcard.training.study import StudyItem, write_study
from kcard.training.train import estimate, train
from kcard.types import Sampling
from tests.training.distillation.conftest import FACTS

ADAPTER = "adapter_model.safetensors"


@pytest.fixture
def options(reading_base: Path, study: Path) -> dict[str, Any]:
    return {
        "name": "towns", "base": str(reading_base), "objective": "distil", "study": study, "kind": "model",
        "epochs": 40, "learning_rate": 1e-2, "batch_size": 3,
    }  # fmt: skip


def answers(card: Card) -> list[str]:
    questions = [question for _, question, _ in FACTS]
    written = CardPool([card]).write(questions, [card.name], 1, Sampling(temperature=0, tokens=8))
    return [passages[0].text for passages in written]


def notes(events: list[Event]) -> str:
    return "\n".join(getattr(event, "text", "") for event in events)


def test_a_distilled_card_answers_what_its_base_only_reads(corpus: Path, options: Mapping[str, Any]) -> None:
    events: list[Event] = []
    card = train(corpus, report=events.append, teacher_top_k=20, **options)
    assert answers(card) == [f"{question} {answer}" for _, question, answer in FACTS]
    untrained = train(corpus, **{**options, "epochs": 0.5, "learning_rate": 1e-9, "name": "untrained"})
    assert answers(untrained) == [f"{question} unknown" for _, question, _ in FACTS]
    manifest = card.manifest
    assert (manifest.kind, manifest.training.objective) == ("lora", "distil")
    assert manifest.prompt.template == "Question: {question}\nAnswer:"
    recorded = manifest.training.hyperparameters
    assert recorded["teacher_top_k"] == 20
    assert recorded["teacher_temperature"] == 2
    assert (
        recorded["teacher_questions"] == recorded["teacher_answers"] == recorded["study_items"] == len(FACTS)
    )
    assert TeacherProgress(len(FACTS), len(FACTS)) in events
    assert "the teacher's answers to 6 of 6 questions are learned" in notes(events)
    assert "on disk until training ends (20 tokens at each place)" in notes(events)


def test_a_question_is_answered_from_what_a_distilled_card_writes(
    corpus: Path, options: Mapping[str, Any]
) -> None:
    import kcard

    card = train(corpus, **options)
    passage, question, answer = FACTS[2]
    kcard.publish(card.folder)
    found = kcard.ask(question, cards=[card.name], llm="embedded")
    assert found.answer == answer
    assert found.passages[0].text == f"{question} {answer}"
    evidence = found.passages[0].evidence
    assert evidence is not None
    assert evidence.text == passage


def test_a_distilled_prefix_answers_too(corpus: Path, options: Mapping[str, Any]) -> None:
    arguments = {**options, "method": "prefix", "prefix_tokens": 48, "epochs": 200, "learning_rate": 2e-2}
    card = train(corpus, **arguments)
    right = [answer.endswith(expected) for answer, (_, _, expected) in zip(answers(card), FACTS, strict=True)]
    # The base has learned its texts by heart; without a card it answers "unknown" to all six.
    assert sum(right) >= 3
    assert (card.manifest.kind, card.manifest.training.objective) == ("prefix", "distil")


def test_a_card_of_another_objective_has_no_teacher(reading_base: Path, corpus: Path) -> None:
    card = train(corpus, base=str(reading_base), kind="model", epochs=0.2)
    assert not [name for name in card.manifest.training.hyperparameters if name.startswith("teacher")]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"base": "embedded"}, "needs a base that reads a passage in its prompt, which base embedded can't"),
        ({"method": "full"}, "method full: the teacher is the base itself, whose weights must stay; use method lora"),
        ({"study": None}, "asks the questions of study material, and there is none: write some with `kcard study`"),
        ({"teacher_top_k": 0}, "teacher_top_k 0 must be above 0"),
        ({"teacher_temperature": -1.0}, "teacher_temperature -1.0 must be above 0"),
        ({"objective": "recite", "teacher_top_k": 5}, "teacher_top_k 5 is only for objective distil: leave it out"),
        ({"objective": "distil", "block": 64}, "block 64 is only for objective clm"),
    ],
)  # fmt: skip
def test_what_distillation_cannot_do_is_said_before_any_work(
    corpus: Path, options: Mapping[str, Any], changed: Mapping[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        train(corpus, **{**options, **changed})


def test_study_material_without_a_question_about_the_corpus_is_refused(
    corpus: Path, options: Mapping[str, Any], study: Path
) -> None:
    write_study(
        study, [StudyItem("implication", "Red gates are seen from afar.", "", (passage_digest("x"),))]
    )
    with pytest.raises(
        UsageError, match=r"has no question with an answer .* `kcard study --corpus .*towns.jsonl`"
    ):
        train(corpus, **options)


def test_answers_that_are_not_the_study_materials_are_left_out_and_counted(
    corpus: Path, options: Mapping[str, Any], study: Path
) -> None:
    wrong = [
        StudyItem("direct", question, "gate" if number else answer, (passage_digest(passage),))
        for number, (passage, question, answer) in enumerate(FACTS)
    ]
    write_study(study, wrong)
    events: list[Event] = []
    card = train(corpus, report=events.append, **options)
    assert answers(card)[0].endswith(FACTS[0][2])
    assert "learned; left out: 5 with answers other than the study material's" in notes(events)
    assert "the base model answers poorly" in notes(events)
    write_study(study, wrong[1:])
    with pytest.raises(
        UsageError, match=r"the teacher answers none of 5 questions .* choose a base that reads"
    ):
        train(corpus, **options)


def stop_at(condition: Callable[[Event], bool]) -> Callable[[Event], None]:
    """Ctrl-C at the first event of which the condition holds."""
    done: list[Event] = []

    def report(event: Event) -> None:
        if condition(event) and not done:
            done.append(event)
            import signal

            signal.raise_signal(signal.SIGINT)

    return report


@pytest.mark.parametrize(
    "condition",
    [
        lambda event: isinstance(event, TeacherProgress) and event.done == 2,
        lambda event: isinstance(event, Note) and event.text.endswith(" steps"),
    ],
    ids=["teacher", "steps"],
)
def test_an_interrupted_distillation_resumes_to_the_same_adapter(
    corpus: Path, options: Mapping[str, Any], tmp_path: Path, condition: Callable[[Event], bool]
) -> None:
    arguments = {**options, "micro_batch": 2, "epochs": 12}
    whole = train(corpus, output=tmp_path / "whole", **arguments)
    with pytest.raises(TrainingInterrupted, match="stopped after"):
        train(corpus, output=tmp_path / "halves", report=stop_at(condition), **arguments)
    events: list[Event] = []
    halves = train(corpus, output=tmp_path / "halves", resume=True, report=events.append, **arguments)
    assert file_digest(whole.folder / ADAPTER) == file_digest(halves.folder / ADAPTER)
    counts = [event.done for event in events if isinstance(event, TeacherProgress)]
    assert counts in ([4, 6], [])
    assert not (halves.folder / ".checkpoint").exists()


def test_a_resumed_distillation_with_other_settings_is_refused(
    corpus: Path, options: Mapping[str, Any], tmp_path: Path
) -> None:
    report = stop_at(lambda event: isinstance(event, TeacherProgress))
    with pytest.raises(TrainingInterrupted):
        train(corpus, output=tmp_path / "out", report=report, **{**options, "micro_batch": 2})
    with pytest.raises(UsageError, match="other settings"):
        train(corpus, output=tmp_path / "out", resume=True, teacher_top_k=7, **options)


def test_the_estimate_counts_the_teachers_time(corpus: Path, options: Mapping[str, Any]) -> None:
    forecast = estimate(corpus, **options)
    assert forecast.steps == 80
    assert forecast.seconds > 0
    assert forecast.memory is not None


def prepared(base: Path, **execution: Any) -> Any:
    questions = [PassageQuestion(question, answer, passage) for passage, question, answer in FACTS]
    options = Options(str(base), "lora", "distil", batch_size=6)
    return prepare(
        [], options, execution=Execution("cpu", **execution), distillation=Distillation(questions)
    ).job


def test_micro_batches_and_checkpointing_do_not_change_the_gradient(reading_base: Path) -> None:
    def gradient(**execution: Any) -> torch.Tensor:
        job = prepared(reading_base, **execution)
        (batch,) = job.epoch(0)
        for loss, _ in job.losses(batch):
            loss.backward()
        return torch.cat([w.grad.flatten() for w in job.modules["model"].parameters() if w.grad is not None])

    whole = gradient()
    assert whole.abs().max() > 1e-4
    # bf16 products round differently in another batch.
    torch.testing.assert_close(gradient(micro_batch=2), whole, rtol=0.05, atol=2e-3)
    torch.testing.assert_close(gradient(checkpointing=True), whole, rtol=0.05, atol=2e-3)


def test_the_student_that_reads_the_passage_has_no_loss(reading_base: Path) -> None:
    """Its adapter is fresh, so it is its teacher where it gets the teacher's prompt."""
    from dataclasses import replace

    from kcard.cards.models.prompting import prompt_ids
    from kcard.training.base_model import WeightSource, load_tokenizer
    from kcard.training.distillation import PLAIN

    job = prepared(reading_base)
    (batch,) = job.epoch(0)
    tokenizer = load_tokenizer(Options(str(reading_base)), WeightSource())
    prompts = {
        PLAIN.student_prompt(question): tuple(prompt_ids(tokenizer, PLAIN.teacher_prompt(passage, question)))
        for passage, question, _ in FACTS
    }
    reading = [
        replace(example, prompt=prompts[tokenizer.decode(example.prompt, skip_special_tokens=True).strip()])
        for example in batch
    ]
    with torch.no_grad():
        alone = sum(loss.item() for loss, _ in job.losses(batch))
        with_passage = sum(loss.item() for loss, _ in job.losses(reading))
    assert alone > 1
    assert with_passage < 0.02


def test_an_update_asks_about_old_and_new_passages_and_keeps_the_objective(
    corpus: Path, options: Mapping[str, Any], study: Path, tmp_path: Path
) -> None:
    lines = corpus.read_text(encoding="utf-8").splitlines(keepends=True)
    first, second = tmp_path / "first.jsonl", tmp_path / "second.jsonl"
    first.write_text("".join(lines[:3]), encoding="utf-8")
    second.write_text("".join(lines[3:]), encoding="utf-8")
    one = train(first, **options)
    assert one.manifest.training.hyperparameters["study_items"] == 3
    two = train(second, update=one.folder, study=study, output=tmp_path / "two")
    assert two.manifest.training.objective == "distil"
    assert two.manifest.training.hyperparameters["study_items"] == 6
    assert two.manifest.training.hyperparameters["learning_rate"] == 1e-2
    assert answers(two) == [f"{question} {answer}" for _, question, answer in FACTS]
    passage, question, answer = FACTS[0]
    write_study(study, [StudyItem("direct", question, answer, (passage_digest(passage),))])
    with pytest.raises(UsageError, match="has no question with an answer about a new passage"):
        train(second, update=one.folder, study=study, output=tmp_path / "three")


@pytest.mark.slow
def test_two_processes_learn_what_one_does(corpus: Path, options: Mapping[str, Any], tmp_path: Path) -> None:
    arguments = {**options, "device": "cpu"}
    one = train(corpus, output=tmp_path / "one", **arguments)
    two = train(corpus, output=tmp_path / "two", processes=2, **arguments)
    assert answers(two) == answers(one) == [f"{question} {answer}" for _, question, answer in FACTS]
    assert two.manifest.training.tokens == one.manifest.training.tokens
