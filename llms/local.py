"""A language model of transformers as the LLM, in this process: a causal one, with its chat template if it has one, or
a sequence-to-sequence one, such as T5 or UnifiedQA."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from threading import Thread
from typing import TYPE_CHECKING, Any

from kcard.errors import LLMError, RequestRefused, UsageError
from kcard.llms.generation import Continuation, Draw, generate
from kcard.llms.option_scores import option_scores, probabilities
from kcard.llms.prompt_tokens import PromptTokens
from kcard.llms.shared_prefix import LEAST, SharedPrefix
from kcard.llms.streamed_lines import first_line, spaced
from kcard.llms.token_scores import DRAFT_TOKENS, from_logits
from kcard.llms.wordings import NEED
from kcard.llms.yes_no import from_probabilities, from_text
from kcard.quiet import loading
from kcard.request import Reply, Request
from kcard.sampling import derive_seed

if TYPE_CHECKING:
    import torch

__all__ = ["LocalLLM"]

TOP_TOKENS = 50
NEED_TOKENS = 4
STUDY_TOKENS = 1024
GPU_BATCH = 8  # prompts at a time on a GPU, unless --concurrency says otherwise


class LocalLLM:
    """`model`: a folder or a Hugging Face name. Temperature 0 is greedy; the same seed gives the same replies.

    An option of a multiple-choice question is chosen by its probability: that of its letter; in UnifiedQA's form, that
    of its text a token. `unified_qa`: whether to prompt in that form; None: where the model's name says so.

    Raises ModelUnavailable where it can't be loaded. It runs on a CUDA device where there is one.
    """

    deterministic = True

    def __init__(
        self,
        model: str,
        temperature: float = 0.1,
        max_tokens: int = 128,
        seed: int = 0,
        unified_qa: bool | None = None,
    ) -> None:
        if temperature < 0:
            raise UsageError(f"temperature {temperature} must be 0 or more")
        self.name, self.temperature, self.max_tokens, self.seed = model, temperature, max_tokens, seed
        self._model, self._tokenizer = _load(model)
        named = "unifiedqa" in model.lower()
        self._prompts = PromptTokens(
            self._tokenizer,
            seq2seq=bool(self._model.config.is_encoder_decoder),
            unified_qa=named if unified_qa is None else unified_qa,
        )
        self._prefix = SharedPrefix(self._model)
        self.concurrency = GPU_BATCH if self._model.device.type == "cuda" else 1

    @property
    def window(self) -> int | None:
        """Tokens that a prompt may take; None where the model has no limit."""
        if self._prompts.seq2seq:
            return self._prompts.longest
        positions = getattr(self._model.config, "max_position_embeddings", None)
        return None if not positions else positions - self.max_tokens

    def count(self, request: Request) -> int:
        return len(self._prompts.encoded(request))

    def prompt(self, request: Request) -> str:
        """What the model reads."""
        return self._prompts.text(request)

    @property
    def announcement(self) -> str:
        """What answers, for the user."""
        return f"LLM: {self.name}, a local transformers model"

    def reply(self, request: Request) -> Reply:
        """Raises LLMError where the prompt does not fit into the model."""
        (reply,) = self.reply_all([request])
        if isinstance(reply, LLMError):
            raise reply
        return reply

    def reply_all(self, requests: Sequence[Request]) -> Iterator[Reply | LLMError]:
        """One reply a request, or the error that reply would raise; those of the same kind in one batch."""
        found: dict[int, Reply | LLMError] = {}
        groups: dict[str, list[tuple[int, Request, list[int]]]] = {}
        for i, request in enumerate(requests):
            try:
                row = self._row(request)
                groups.setdefault(_group(request), []).append((i, request, row))
            except LLMError as error:
                found[i] = error
        answers = {
            "study": self._studies,
            "draft": self._drafts,
            "need": self._needs,
            "option": self._options,
        }
        for name, members in groups.items():
            numbers, asked, rows = zip(*members, strict=True)
            found.update(zip(numbers, answers.get(name, self._texts)(asked, rows), strict=True))
        yield from (found[i] for i in range(len(requests)))

    def stream(self, request: Request) -> Iterator[str | Reply]:
        """The answer as it is generated, in a thread of its own."""
        from transformers import TextIteratorStreamer

        row = self._row(request)
        streamer = TextIteratorStreamer(self._tokenizer, skip_prompt=True, skip_special_tokens=True)
        ended: list[Any] = []

        def run() -> None:
            try:
                ended.extend(self._generated([request], [row], self.max_tokens, streamer=streamer))
            except Exception as error:  # noqa: BLE001 - whoever reads the stream raises it, else they would wait for ever
                ended.append(error)
                streamer.end()

        thread = Thread(target=run, daemon=True)
        thread.start()
        pieces = first_line(streamer) if self._prompts.continued else spaced(streamer)
        yield from (piece for piece in pieces if piece)
        thread.join()
        if isinstance(ended[0], Exception):
            raise ended[0]
        yield self._reply(row, ended[0].tokens)

    def _texts(self, requests: Sequence[Request], rows: Sequence[list[int]]) -> list[Reply]:
        new = self._generated(requests, rows, self.max_tokens)
        return [self._reply(row, found.tokens) for row, found in zip(rows, new, strict=True)]

    def _studies(self, requests: Sequence[Request], rows: Sequence[list[int]]) -> list[Reply]:
        """Long replies, as far as the model's positions allow, line by line."""
        left = STUDY_TOKENS
        if self.window is not None and not self._prompts.seq2seq:
            left = min(left, self.window + self.max_tokens - max(map(len, rows)))
        new = self._generated(requests, rows, left)
        return [
            replace(self._reply(row, found.tokens, "\n"), cut=len(found.tokens) == left)
            for row, found in zip(rows, new, strict=True)
        ]

    def _needs(self, requests: Sequence[Request], rows: Sequence[list[int]]) -> list[Reply]:
        """Yes or no by the probabilities of the first token, else by the text."""
        replies = []
        new = self._generated(requests, rows, NEED_TOKENS, logits=True)
        for request, row, found in zip(requests, rows, new, strict=True):
            reply = self._reply(row, found.tokens)
            assert found.logits is not None
            yes = from_probabilities(self._likeliest(found.logits[0]))
            yes = from_text(reply.text) if yes is None else yes
            replies.append(replace(reply, yes=NEED[request.template].needed(yes)))
        return replies

    def _drafts(self, requests: Sequence[Request], rows: Sequence[list[int]]) -> list[Reply]:
        """The likeliest first words of an answer and the scores of their tokens."""
        greedy = [replace(request, temperature=0.0) for request in requests]
        replies = []
        for row, found in zip(
            rows,
            self._generated(greedy, rows, min(DRAFT_TOKENS, self.max_tokens), logits=True),
            strict=True,
        ):
            new = found.tokens[: self._said(found.tokens)]
            assert found.logits is not None
            replies.append(
                replace(
                    self._reply(row, new), tokens=from_logits(found.logits[: len(new)].float().cpu(), new)
                )
            )
        return replies

    def _options(self, requests: Sequence[Request], rows: Sequence[list[int]]) -> list[Reply]:
        """The likeliest option of each question."""
        scores = option_scores(self._model, self._prompts, requests, rows, self._following)
        return [
            self._chosen(request, row, probabilities(found))
            for request, row, found in zip(requests, rows, scores, strict=True)
        ]

    def _chosen(self, request: Request, row: list[int], shares: Sequence[float]) -> Reply:
        best = max(range(len(shares)), key=shares.__getitem__)
        letter = request.choices[best].name
        return Reply(letter, None, len(row), 1, confidence=shares[best], choice=letter)

    def _said(self, new: Sequence[int]) -> int:
        """How many of the tokens belong to the reply."""
        if not self._prompts.continued:
            return len(new)
        texts = (self._tokenizer.decode(new[:n], skip_special_tokens=True) for n in range(1, len(new)))
        return next((n for n, text in enumerate(texts, 1) if "\n" in text.lstrip()), len(new))

    def _reply(self, row: Sequence[int], new: Sequence[int], joint: str = " ") -> Reply:
        """A reply of the new tokens: all lines, or the first of a model that only continues a text."""
        text: str = self._tokenizer.decode(new, skip_special_tokens=True)
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        said = joint.join(lines[:1] if self._prompts.continued else lines)
        return Reply(said, None, len(row), len(new))

    def _row(self, request: Request) -> list[int]:
        """The prompt's tokens; LLMError where they do not fit."""
        row = self._prompts.encoded(request)
        if self.window is not None and len(row) > self.window:
            raise RequestRefused(
                f"the prompt has {len(row)} tokens, {self.name} takes {self.window} and writes {self.max_tokens}: "
                "give fewer or shorter documents (--n3, --card-tokens)"
            )
        return row

    def _likeliest(self, logits: "torch.Tensor") -> list[tuple[str, float]]:
        """(token, log-probability) of the likeliest tokens, from logits of shape (vocabulary,)."""
        values, tokens = logits.float().log_softmax(-1).topk(min(TOP_TOKENS, len(logits)))
        return [
            (self._tokenizer.decode([t]), v) for t, v in zip(tokens.tolist(), values.tolist(), strict=True)
        ]

    def _generated(
        self,
        requests: Sequence[Request],
        rows: Sequence[list[int]],
        most: int,
        logits: bool = False,
        streamer: Any = None,
    ) -> list[Continuation]:
        """In batches of rows that share their beginning, or share none that is worth keeping."""
        groups: dict[tuple[int, ...], list[int]] = {}
        for i, (request, row) in enumerate(zip(requests, rows, strict=True)):
            shared = self._prompts.shared(request, row)
            groups.setdefault(tuple(row[:shared]) if shared >= LEAST else (), []).append(i)
        found: dict[int, Continuation] = {}
        for prefix, members in groups.items():
            cache = self._prefix.cache(prefix, len(members))
            new = generate(
                self._model,
                [rows[i] for i in members],
                most,
                [self._draw(requests[i]) for i in members],
                padding=self._prompts.padding(),
                logits=logits,
                streamer=streamer,
                shared=0 if cache is None else len(prefix),
                cache=cache,
            )
            found.update(zip(members, new, strict=True))
        return [found[i] for i in range(len(rows))]

    def _following(self, requests: Sequence[Request], rows: Sequence[list[int]]) -> "list[torch.Tensor]":
        """Logits of the token after each row, shape (vocabulary,)."""
        found = [one.logits for one in self._generated(requests, rows, 1, logits=True)]
        return [logits[0] for logits in found if logits is not None]

    def _draw(self, request: Request) -> Draw:
        temperature = self.temperature if request.temperature is None else request.temperature
        return Draw(temperature, derive_seed(self.seed, request.question, request.sample))


def _group(request: Request) -> str:
    """Requests of one group are replied to in the same way."""
    if request.draft:
        return "draft"
    if request.kind in {"need", "study"}:
        return request.kind
    return "option" if request.kind == "answer" and request.choices else "text"


def _load(name: str) -> tuple[Any, Any]:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSeq2SeqLM, AutoTokenizer

    with loading(f"the model {name!r}"):
        config = AutoConfig.from_pretrained(name, trust_remote_code=False)
        made = AutoModelForSeq2SeqLM if config.is_encoder_decoder else AutoModelForCausalLM
        tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=False)
        model = made.from_pretrained(name, dtype="auto", trust_remote_code=False)
    return model.eval().to("cuda" if torch.cuda.is_available() else "cpu"), tokenizer
