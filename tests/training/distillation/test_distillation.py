"""Objective distil: a LoRA card learns to answer as its base does with the passage in the prompt."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import kcard
import kcard as library
from kcard.cards.card import Card
from kcard.cards.models.prompting import prompt_ids
from kcard.cards.pool import CardPool
from kcard.errors import TrainingInterrupted, UsageError
from kcard.evaluation.questions import ExamQuestion
from kcard.evaluation.recall import ask_card
from kcard.events import Event, ignore
from kcard.manifest import file_digest
from kcard.text import passage_digest, words
from kcard.training.base_model import WeightSource, load_model, load_tokenizer
from kcard.training.base_trainer import CardTrainer
from kcard.training.distillation import (
    ANSWER_TOKENS,
    PLAIN,
    REASONS,
    SENTENCE,
    Distillation,
    DistilledExample,
    PassageQuestion,
    Teacher,
    TeacherAnswer,
    TeacherAnswers,
    answer_prompts,
    passage_questions,
)
from kcard.training.embedded.pseudo_queries import held_out_wording, trained_wording
from kcard.training.embedded.recipe import BOS, EOS, train_tokenizer
from kcard.training.execution import Execution
from kcard.training.finetune import Options, prepare
from kcard.training.losses import TopTokens, divergence, top_tokens
from kcard.training.study import StudyItem, write_study
from kcard.training.train import estimate, train
from kcard.training.trainer import Examples, Watch
from kcard.types import Sampling, Source
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
    written = CardPool([card]).generate(
        questions, [[card.name]] * len(questions), 1, Sampling(temperature=0, tokens=8)
    )
    return [passages[0].text for passages in written]


def notes(events: list[Event]) -> str:
    return "\n".join(event.message for event in events if event.is_note)


def test_a_distilled_card_answers_what_its_base_only_reads(corpus: Path, options: Mapping[str, Any]) -> None:
    events: list[Event] = []
    card = train(corpus, on_event=events.append, teacher_top_k=20, **options)
    assert answers(card) == [f"{question} {answer}" for _, question, answer in FACTS]
    # A question is answered from what the card generates, with the passage as evidence.
    passage, question, answer = FACTS[2]
    kcard.publish(card.folder)
    found = kcard.ask(question, cards=[card.name], llm="embedded")
    assert found.answer == answer
    assert found.passages[0].evidence is not None
    assert found.passages[0].evidence.text == passage
    untrained = train(corpus, **{**options, "epochs": 0.5, "learning_rate": 1e-9, "name": "untrained"})
    assert answers(untrained) == [f"{question} unknown" for _, question, _ in FACTS]
    manifest = card.manifest
    assert (manifest.method, manifest.training.objective) == ("lora", "distil")
    assert manifest.prompt.template == "Question: {question}\nAnswer:"
    recorded = manifest.training.hyperparameters
    assert recorded["teacher_top_k"] == 20
    assert recorded["teacher_temperature"] == 2
    assert (
        recorded["teacher_questions"] == recorded["teacher_answers"] == recorded["study_items"] == len(FACTS)
    )
    assert Event("teacher", "questions answered", len(FACTS), len(FACTS)) in events
    assert "the teacher's answers to 6 of 6 questions are learned" in notes(events)
    assert "on disk until training ends (20 tokens at each place)" in notes(events)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"base": "embedded"}, "needs a base that reads a passage in its prompt, which base embedded can't"),
        ({"method": "full"}, "the teacher is the base itself, whose weights must not change; use method lora"),
        ({"study": None}, "needs questions from study material: write some with `kcard study`"),
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
    card = train(corpus, on_event=events.append, **options)
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


def test_an_interrupted_distillation_resumes_to_the_same_adapter(
    corpus: Path, options: Mapping[str, Any], tmp_path: Path
) -> None:
    """Interrupted while the teacher answers, and while the student learns."""
    arguments = {**options, "micro_batch": 2, "epochs": 12}
    whole = train(corpus, output=tmp_path / "whole", **arguments)
    for condition, answered in (
        (lambda event: event.kind == "teacher" and event.done == 2, [4, 6]),
        (lambda event: event.is_note and event.message.endswith(" steps"), []),
    ):
        with pytest.raises(TrainingInterrupted, match="stopped after"):
            train(corpus, output=tmp_path / "halves", on_event=stop_at(condition), **arguments)
        events: list[Event] = []
        halves = train(corpus, output=tmp_path / "halves", resume=True, on_event=events.append, **arguments)
        assert file_digest(whole.folder / ADAPTER) == file_digest(halves.folder / ADAPTER)
        assert [event.done for event in events if event.kind == "teacher"] == answered
        assert not (halves.folder / ".checkpoint").exists()


def test_a_resumed_distillation_with_other_settings_is_refused(
    corpus: Path, options: Mapping[str, Any], tmp_path: Path
) -> None:
    report = stop_at(lambda event: event.kind == "teacher")
    with pytest.raises(TrainingInterrupted):
        train(corpus, output=tmp_path / "out", on_event=report, **{**options, "micro_batch": 2})
    with pytest.raises(UsageError, match="other settings"):
        train(corpus, output=tmp_path / "out", resume=True, teacher_top_k=7, **options)


def test_the_estimate_counts_the_teachers_time(corpus: Path, options: Mapping[str, Any]) -> None:
    forecast = estimate(corpus, **options)
    assert forecast.steps == 80
    assert forecast.seconds > 0
    assert forecast.memory is not None


def prepared(base: Path) -> Any:
    questions = [PassageQuestion(question, answer, passage) for passage, question, answer in FACTS]
    options = Options(str(base), "lora", "distil", batch_size=6)
    return prepare([], options, execution=Execution("cpu"), distillation=Distillation(questions)).job


@pytest.mark.numeric
def test_the_student_that_reads_the_passage_has_no_loss(reading_base: Path) -> None:
    """Its adapter is fresh, so it is its teacher where it gets the teacher's prompt."""
    tuning = prepared(reading_base)
    trainer = CardTrainer(tuning.model, tuning.setup, Examples(tuning.epochs, 6), [], Watch(None))
    batch = tuning.epochs(0)
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
        alone, with_passage = (
            trainer.compute_loss(tuning.model, trainer.collate(examples)) for examples in (batch, reading)
        )
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


# The divergence over the teacher's most probable tokens, against torch's over the whole vocabulary.

PLACES, VOCABULARY = 5, 40


def logits(seed: int) -> torch.Tensor:
    return 3 * torch.randn(PLACES, VOCABULARY, generator=torch.Generator().manual_seed(seed))


def whole(student: torch.Tensor, teacher: torch.Tensor, temperature: float) -> torch.Tensor:
    """The full divergence, by torch."""
    own = torch.log_softmax(student / temperature, -1)
    target = torch.log_softmax(teacher / temperature, -1)
    return torch.nn.functional.kl_div(own, target, log_target=True, reduction="sum") * temperature**2


def bucketed(student: torch.Tensor, teacher: torch.Tensor, temperature: float, k: int) -> torch.Tensor:
    """The divergence of the distributions over k tokens and all others, by torch, of probabilities."""
    order = teacher.argsort(dim=1, descending=True)

    def shares(values: torch.Tensor) -> torch.Tensor:
        ordered = torch.softmax(values, -1).gather(1, order)
        events = torch.cat([ordered[:, :k], ordered[:, k:].sum(1, keepdim=True)], 1) ** (1 / temperature)
        return events / events.sum(1, keepdim=True)

    own, target = shares(student).log(), shares(teacher)
    return torch.nn.functional.kl_div(own, target, reduction="sum") * temperature**2


def graded(loss: Callable[[torch.Tensor], torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    student = logits(1).requires_grad_()
    result = loss(student)
    result.backward()
    assert student.grad is not None
    return result.detach(), student.grad


@pytest.mark.numeric
@pytest.mark.parametrize("temperature", [1.0, 2.0])
def test_with_the_whole_vocabulary_it_is_the_full_divergence_with_its_gradient(temperature: float) -> None:
    teacher = logits(0)
    top = top_tokens(teacher, VOCABULARY)
    loss = graded(lambda student: divergence(student, *top, temperature))
    expected = graded(lambda student: whole(student, teacher, temperature))
    torch.testing.assert_close(loss, expected)
    assert top[0].shape == (PLACES, VOCABULARY)


@pytest.mark.numeric
@pytest.mark.parametrize("temperature", [1.0, 2.0])
@pytest.mark.parametrize("k", [1, 3, 10])
def test_with_fewer_tokens_it_is_the_divergence_over_them_and_a_bucket(k: int, temperature: float) -> None:
    teacher = logits(0)
    top = top_tokens(teacher, k)
    loss = graded(lambda student: divergence(student, *top, temperature))
    torch.testing.assert_close(loss, graded(lambda student: bucketed(student, teacher, temperature, k)))
    if temperature == 1:
        assert loss[0] < whole(logits(1), teacher, temperature)


@pytest.mark.numeric
@pytest.mark.parametrize("k", [1, 7, VOCABULARY, 10 * VOCABULARY])
def test_a_student_like_its_teacher_has_no_loss_and_no_gradient(k: int) -> None:
    top = top_tokens(logits(1), k)
    loss, gradient = graded(lambda student: divergence(student, *top, 2.0))
    assert abs(loss) < 1e-5
    assert gradient.abs().max() < 1e-5


@pytest.mark.numeric
def test_logits_in_bfloat16_give_the_divergence_in_float32() -> None:
    top = top_tokens(logits(0), 8)
    loss = divergence(logits(1).bfloat16(), *top, 2.0)
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, divergence(logits(1), *top, 2.0), rtol=0.02, atol=0.02)


@pytest.mark.numeric
def test_teacher_and_student_are_compared_where_the_targets_stand(reading_base: Path) -> None:
    """Two rows: targets of two tokens and of one, at other places."""

    class Student(torch.nn.Module):
        def forward(self, **_: Any) -> Any:
            return SimpleNamespace(logits=rows)

    teacher, student = logits(0), logits(1)
    ids, logs = (tensor.numpy() for tensor in top_tokens(teacher[:3], 6))
    part = [
        DistilledExample((1,), (2, 3), teacher=TopTokens(ids[:2].astype(np.uint32), logs[:2])),
        DistilledExample((1, 1), (2,), teacher=TopTokens(ids[2:].astype(np.uint32), logs[2:])),
    ]
    rows = torch.full((2, 3, VOCABULARY), 9.0)
    rows[0, :2], rows[1, 1] = student[:2], student[2]
    tuning = prepared(reading_base)
    trainer = CardTrainer(tuning.model, tuning.setup, Examples(tuning.epochs, 6), [], Watch(None))
    loss = trainer.compute_loss(Student(), trainer.collate(part), num_items_in_batch=torch.tensor(4))
    torch.testing.assert_close(loss, bucketed(student[:3], teacher[:3], 2.0, 6) / 4)


# How teacher and student are asked.

CHAT = (
    "{{ bos_token }}{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% if not enable_thinking %}<no thoughts>{% endif %}{% endif %}"
)


def test_a_base_without_a_chat_template_is_asked_in_lines() -> None:
    prompts = answer_prompts(train_tokenizer(["words"], 300))
    assert prompts == PLAIN
    assert prompts.one_line
    assert prompts.student_prompt("Who?") == "Question: Who?\nAnswer:"
    assert prompts.teacher_prompt("It was Ann.", "Who?") == "It was Ann.\n\nQuestion: Who?\nAnswer:"


def test_a_chat_model_is_asked_in_its_template_for_a_sentence_and_without_thoughts() -> None:
    tokenizer = train_tokenizer(["words"], 300)
    tokenizer.chat_template = CHAT
    prompts = answer_prompts(tokenizer)
    assert not prompts.one_line
    assert prompts.student_prompt("Who?") == f"<user>Who?\n{SENTENCE}<assistant><no thoughts>"
    assert (
        prompts.teacher_prompt("It was Ann.", "Who?")
        == f"<user>It was Ann.\n\nWho?\n{SENTENCE}<assistant><no thoughts>"
    )
    assert prompt_ids(tokenizer, prompts.student_prompt("Who?")).count(BOS) == 1


def test_braces_in_passages_and_questions_stay_as_they_are() -> None:
    assert PLAIN.teacher_prompt("Sets: {question}, {passage}.", "What is {x}?").startswith(
        "Sets: {question}, {passage}.\n"
    )
    assert "What is {x}?" in PLAIN.teacher_prompt("Sets.", "What is {x}?")


# The teacher's answers on disk.


def target(seed: int, length: int = 3, k: int = 4) -> DistilledExample:
    rng = np.random.default_rng(seed)
    top = TopTokens(
        rng.integers(0, 60_000, (length, k), np.uint32), rng.normal(size=(length, k + 1)).astype(np.float32)
    )
    return DistilledExample((1, 2), tuple(range(length)), teacher=top)


def same(one: TeacherAnswer, other: TeacherAnswer) -> bool:
    if isinstance(one, int) or isinstance(other, int):
        return one == other
    mine, theirs = one.teacher, other.teacher
    assert mine is not None
    assert theirs is not None
    return (
        (one.prompt, one.target) == (other.prompt, other.target)
        and np.array_equal(mine.ids, theirs.ids)
        and np.array_equal(mine.logs, theirs.logs)
    )


WRITTEN: list[TeacherAnswer] = [target(0), 2, target(2, length=1, k=1), target(3, length=40)]


@pytest.mark.parametrize("is_resumed", [True, False])
def test_what_is_written_is_read(tmp_path: Path, *, is_resumed: bool) -> None:
    targets = TeacherAnswers(tmp_path / "deep" / "t.bin" if is_resumed else None)
    for each in WRITTEN:
        targets.append(each)
    assert len(targets) == 4
    assert all(same(found, each) for found, each in zip(targets, WRITTEN, strict=True))
    assert same(targets[2], WRITTEN[2])


def test_a_resumed_file_goes_on_after_its_last_whole_record(tmp_path: Path) -> None:
    path = tmp_path / "t.bin"
    first = TeacherAnswers(path, "run")
    for each in WRITTEN[:3]:
        first.append(each)
    first.flush()
    path.write_bytes(path.read_bytes()[:-5])
    again = TeacherAnswers(path, "run", resume=True)
    assert len(again) == 2
    for each in WRITTEN[2:]:
        again.append(each)
    again.flush()
    assert all(
        same(result, each)
        for result, each in zip(TeacherAnswers(path, "run", resume=True), WRITTEN, strict=True)
    )


def test_a_new_run_begins_anew_and_another_runs_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.bin"
    first = TeacherAnswers(path, "run")
    first.append(WRITTEN[0])
    first.flush()
    with pytest.raises(UsageError, match=r"another corpus or other settings: .* train without resume"):
        TeacherAnswers(path, "other run", resume=True)
    assert len(TeacherAnswers(path, "other run")) == 0


# What the teacher gives for a question, and which questions it leaves out.

QUESTIONS = [PassageQuestion(question, answer, passage) for passage, question, answer in FACTS]


@pytest.fixture(scope="module")
def teacher(reading_base: Path) -> Teacher:
    options = Options(str(reading_base))
    model = load_model(options, Execution("cpu"), WeightSource(), "cpu")
    return Teacher(model, load_tokenizer(options, WeightSource()), PLAIN, 256, k=10)


def reason(result: Any) -> str:
    return REASONS[result]


@pytest.mark.numeric
def test_a_student_learns_the_teachers_answer_to_the_question_alone(teacher: Teacher) -> None:
    for question, example in zip(QUESTIONS, teacher.examples(QUESTIONS), strict=True):
        assert isinstance(example, DistilledExample)
        prompt = teacher.tokenizer.decode(example.prompt, skip_special_tokens=True)
        assert prompt.strip() == PLAIN.student_prompt(question.text)
        assert teacher.tokenizer.decode(example.target[:-1]).strip() == question.answer
        assert example.target[-1] == EOS
        assert example.teacher is not None
        assert example.teacher.ids.shape == (len(example.target), 10)
        assert example.teacher.logs.shape == (len(example.target), 11)
        np.testing.assert_allclose(np.exp(example.teacher.logs).sum(1), 1, atol=1e-4)
        assert example.teacher.ids[:, 0].tolist() == list(example.target)


def test_the_answers_do_not_depend_on_the_batch(teacher: Teacher) -> None:
    together = teacher.examples(QUESTIONS)
    alone = [teacher.examples([question])[0] for question in QUESTIONS]
    assert [one.target for one in together] == [one.target for one in alone]  # type: ignore[union-attr]


@pytest.mark.numeric
def test_the_adapter_is_off_while_the_teacher_answers_and_on_again(teacher: Teacher) -> None:
    import torch

    teacher.model.train()
    before = teacher.examples(QUESTIONS[:1])[0]
    weights = [weight for name, weight in teacher.model.named_parameters() if "lora_B" in name]
    with torch.no_grad():
        for weight in weights:
            weight.fill_(3.0)
        after = teacher.examples(QUESTIONS[:1])[0]
        logits = teacher.model(input_ids=torch.tensor([[1, 2, 3]])).logits
        with teacher.model.disable_adapter():
            assert not torch.allclose(teacher.model(input_ids=torch.tensor([[1, 2, 3]])).logits, logits)
        for weight in weights:
            weight.zero_()
    assert before.target == after.target  # type: ignore[union-attr]
    np.testing.assert_array_equal(before.teacher.logs, after.teacher.logs)  # type: ignore[union-attr]
    assert teacher.model.training


def test_questions_that_teach_nothing_are_left_out_with_the_reason(teacher: Teacher) -> None:
    long = replace(QUESTIONS[0], passage="red " * 256)
    other = replace(QUESTIONS[1], answer="purple")
    results = teacher.examples([QUESTIONS[2], long, other])
    assert isinstance(results[0], DistilledExample)
    assert reason(results[1]) == "prompts longer than the base reads"
    assert reason(results[2]) == "answers other than the study material's"


def test_an_answer_without_an_end_is_left_out(teacher: Teacher, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kcard.training.distillation.ANSWER_TOKENS", 1)
    (example,) = teacher.examples(QUESTIONS[:1])
    assert reason(example) == "answers without an end"


@pytest.mark.numeric
def test_a_base_that_ends_its_line_teaches_the_end_of_the_text(teacher: Teacher) -> None:
    """Its line ends are among what ends an answer, and their probability is that of the end of the text."""
    import torch

    ends = teacher.ends
    line = teacher.tokenizer("\n", add_special_tokens=False)["input_ids"][-1]
    assert {line, EOS} <= ends
    logits = torch.zeros(1, len(teacher.tokenizer))
    logits[0, line], logits[0, EOS] = 5.0, 4.0
    joined = torch.softmax(teacher.merge_ends(logits), -1)[0]
    whole = torch.softmax(logits, -1)[0]
    torch.testing.assert_close(joined[EOS], whole[sorted(ends)].sum())
    assert joined[line] == 0
    assert teacher.room > ANSWER_TOKENS


# Which items of study material a student is asked.

GATE, WELL = "The gate of Arden is red.", "The well of Arden is deep."
PASSAGES = [Source(GATE, "a.txt"), Source(WELL, "a.txt")]
ON_GATE, ON_WELL = (passage_digest(text) for text in (GATE, WELL))


def test_questions_with_an_answer_come_with_the_text_of_their_passages() -> None:
    items = [
        StudyItem("direct", "What colour is the gate?", "red", (ON_GATE,)),
        StudyItem("link", "What is red beside a deep well?", "gate", (ON_GATE, ON_WELL)),
    ]
    assert passage_questions(items, PASSAGES) == [
        PassageQuestion(trained_wording("What colour is the gate?"), "red", GATE),
        PassageQuestion(trained_wording("What is red beside a deep well?"), "gate", f"{GATE}\n\n{WELL}"),
    ]


def test_a_student_is_asked_no_question_of_any_exam_whatever_its_case_or_punctuation() -> None:
    """Of a hundred questions of the same words an exam asks about half, and a student the others or other words."""
    questions = [f"What colour is gate {number}?" for number in range(100)]
    items = [StudyItem("direct", question, "red", (ON_GATE,)) for question in questions]
    learned = {" ".join(words(found.text)) for found in passage_questions(items, PASSAGES)}
    exams = {" ".join(words(text.upper())) for question in questions if (text := held_out_wording(question))}
    assert len(learned) == len(exams) == 100
    assert not learned & exams
    assert len(learned & {" ".join(words(question)) for question in questions}) > 30


def test_statements_open_questions_other_passages_and_repetitions_are_left_out() -> None:
    item = StudyItem("direct", "What colour is the gate?", "red", (ON_GATE,))
    items = [
        item,
        item,
        StudyItem("unanswerable", "Who built the gate?", "", (ON_GATE,)),
        StudyItem("implication", "The gate is not blue.", "", (ON_GATE,)),
        StudyItem("direct", "How deep is it?", "very", (passage_digest("Another text."),)),
        StudyItem("link", "What is both?", "red", (ON_GATE, passage_digest("Another text."))),
        StudyItem("direct", "About nothing?", "red"),
    ]
    assert [found.text for found in passage_questions(items, PASSAGES)] == [trained_wording(item.text)]


def test_a_question_is_known_where_all_of_its_passages_are() -> None:
    items = [
        StudyItem("direct", "old?", "red", (ON_GATE,)),
        StudyItem("direct", "new?", "deep", (ON_WELL,)),
        StudyItem("link", "both?", "red", (ON_GATE, ON_WELL)),
    ]
    assert [question.is_old for question in passage_questions(items, PASSAGES, old_count=1)] == [
        True,
        False,
        False,
    ]


# A card that was distilled is distilled anew, also by material that still asks about what was removed.


def test_a_sync_without_a_fact_does_not_answer_its_question_by_old_material(
    tmp_path: Path, home: Path, reading_base: Path, study: Path
) -> None:
    card = home / "drafts" / "gates"
    notes = tmp_path / "gates.jsonl"
    notes.write_text("".join(f'{{"text": "{text}"}}\n' for text, _, _ in FACTS), encoding="utf-8")

    def answers() -> list[str]:
        questions = [ExamQuestion(question, ()) for _, question, _ in FACTS]
        rows = ask_card(Card.open(card), questions, 0, "cpu", ignore)
        return [row[0].text.rpartition(" ")[2] for row in rows]

    library.train(
        notes, base=str(reading_base), objective="distil", study=study, name="gates", description="Gates",
        kind="model", exam=False, epochs=60, batch_size=6, learning_rate=5e-3,
    )  # fmt: skip
    colours = [colour for _, _, colour in FACTS]
    assert answers() == colours
    notes.write_text("".join(f'{{"text": "{text}"}}\n' for text, _, _ in FACTS[1:]), encoding="utf-8")
    record = library.sync(notes, "gates", study=study, publish=False).record
    assert record is not None
    assert record.way == "trained"
    assert answers()[1:] == colours[1:]
    assert answers()[0] != colours[0]
