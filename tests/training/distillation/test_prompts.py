"""How teacher and student are asked."""

from kcard.cards.models.prompting import prompt_ids
from kcard.offline.recipe import BOS, train_tokenizer
from kcard.training.distillation import PLAIN, SENTENCE, answer_prompts

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
