"""The tokens of prompts for a model of transformers: its chat template, a plain text, or UnifiedQA's form."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from kcard.llms.prompts import messages, render, unified_qa, without_control
from kcard.request import Request

__all__ = ["PromptTokens"]

NO_LIMIT = 10**6  # a tokenizer that knows no longest input says a number beyond this


@dataclass(frozen=True, eq=False)
class PromptTokens:
    """`tokenizer`: of transformers. `seq2seq`: for an encoder-decoder. `unified_qa`: in UnifiedQA's form."""

    tokenizer: Any
    seq2seq: bool = False
    unified_qa: bool = False

    @property
    def templated(self) -> bool:
        return bool(self.tokenizer.chat_template) and not self.seq2seq

    @property
    def continued(self) -> bool:
        """Whether the model only continues the text, so that what follows the first line is no longer the reply."""
        return not self.seq2seq and not self.templated

    @property
    def longest(self) -> int | None:
        """The longest input that the tokenizer knows of; None: no limit."""
        longest = int(self.tokenizer.model_max_length)
        return None if longest > NO_LIMIT else longest

    def text(self, request: Request) -> str:
        """The prompt; only the template may speak in control tokens."""
        if not self.templated:
            return without_control(unified_qa(request) if self.unified_qa else render(request), self._control)
        turns = [
            {"role": turn["role"], "content": without_control(turn["content"], self._control)}
            for turn in messages(request)
        ]
        return str(self.tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True))

    def encoded(self, request: Request, reply: str = "") -> list[int]:
        """The tokens of the prompt, and of a reply after it."""
        text = self.text(request)
        if self.templated:
            return list(self.tokenizer(text + reply, add_special_tokens=False, verbose=False).input_ids)
        return list(self.tokenizer(text + (f" {reply}" if reply else ""), verbose=False).input_ids)

    def shared(self, request: Request, row: Sequence[int]) -> int:
        """How many first tokens of its prompt the request shares with others of its kind and examples."""
        if self.seq2seq or not request.shots:
            return 0
        bare = replace(request, question="", knowledge=(), choices=(), turns=())
        others = [self.encoded(bare), self.encoded(replace(bare, knowledge=("",)))]
        most = min(*map(len, others), len(row) - 1)
        return next((n for n in range(most) if any(other[n] != row[n] for other in others)), most)

    def targets(self, request: Request) -> list[list[int]]:
        """What a sequence-to-sequence model would say for each option: its letter or, in UnifiedQA's form, its text,
        which is followed by the end of the text."""
        if self.unified_qa:
            texts = [option.description.lower() for option in request.choices]
            return [list(self.tokenizer(text_target=text).input_ids) for text in texts]
        names = [option.name for option in request.choices]
        return [list(self.tokenizer(text_target=name, add_special_tokens=False).input_ids) for name in names]

    def padding(self) -> int:
        for token in (self.tokenizer.pad_token_id, self.tokenizer.eos_token_id):
            if token is not None:
                return int(token)
        return 0

    @cached_property
    def _control(self) -> list[str]:
        """Words that the tokenizer reads as one token with a meaning of its own, such as the end of a turn."""
        added = self.tokenizer.added_tokens_decoder.values()
        return sorted(
            {t.content for t in added if len(t.content) > 2 and (t.special or t.content[0] in "<[")},
            key=len,
            reverse=True,
        )
