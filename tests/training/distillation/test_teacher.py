"""What the teacher gives for a question, and which questions it leaves out."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kcard.offline.recipe import EOS
from kcard.training.base_model import WeightSource, load_model, load_tokenizer
from kcard.training.distillation import ANSWER, PLAIN, REASONS, DistilledExample, PassageQuestion, Teacher
from kcard.training.execution import Execution
from kcard.training.finetune import Options
from tests.training.distillation.conftest import FACTS

QUESTIONS = [PassageQuestion(question, answer, passage) for passage, question, answer in FACTS]


@pytest.fixture(scope="module")
def teacher(reading_base: Path) -> Teacher:
    options = Options(str(reading_base))
    model = load_model(options, Execution("cpu"), WeightSource(), "cpu")
    return Teacher(model, load_tokenizer(options, WeightSource()), PLAIN, 256, k=10)


def reason(result: Any) -> str:
    return REASONS[result]


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
    monkeypatch.setattr("kcard.training.distillation.ANSWER", 1)
    (example,) = teacher.examples(QUESTIONS[:1])
    assert reason(example) == "answers without an end"


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
    assert teacher.room > ANSWER
