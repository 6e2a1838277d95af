"""How teacher and student are asked: with the passage in the prompt, and without it."""

from dataclasses import dataclass
from typing import Any

__all__ = ["PLAIN", "AnswerPrompts", "answer_prompts"]

# What a chat model is asked for: a document must say by itself what it is about.
SENTENCE = "Answer in a full sentence."


@dataclass(frozen=True)
class AnswerPrompts:
    """The template of the student's prompt, which has {question}, and of the teacher's, which has {passage}, too.

    one_line  whether an answer ends with its line: a model without a chat template writes on
    """

    student: str
    teacher: str
    one_line: bool

    def asked(self, question: str) -> str:
        return self.student.replace("{question}", question)

    def told(self, passage: str, question: str) -> str:
        """The teacher's prompt."""
        before, _, after = self.teacher.partition("{passage}")
        return before + passage + after.replace("{question}", question)


PLAIN = AnswerPrompts("Question: {question}\nAnswer:", "{passage}\n\nQuestion: {question}\nAnswer:", True)


def answer_prompts(tokenizer: Any) -> AnswerPrompts:
    """In the tokenizer's chat template, without a bos token, which prompt_ids adds; PLAIN where it has none."""
    if not getattr(tokenizer, "chat_template", None):
        return PLAIN

    def rendered(content: str) -> str:
        # A model that can think before it answers is not to: thoughts would be learned as the answer.
        text = tokenizer.apply_chat_template(
            [{"role": "user", "content": content}],
            tokenize=False,
            add_generation_prompt=True,
            enable_thinking=False,
        )
        return str(text).removeprefix(tokenizer.bos_token or "")

    asked = f"{{question}}\n{SENTENCE}"
    return AnswerPrompts(rendered(asked), rendered(f"{{passage}}\n\n{asked}"), False)
