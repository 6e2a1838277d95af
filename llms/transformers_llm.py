"""Local LLMs, run by transformers."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from threading import Thread
from typing import TYPE_CHECKING, Any

from kcard.errors import LLMError, RequestRefused, UsageError
from kcard.interfaces import LLM
from kcard.llms.generation import (
    MIN_SHARED_TOKENS,
    Continuation,
    PromptTokens,
    SharedPrefix,
    generate,
    option_scores,
    probabilities,
)
from kcard.llms.parsing import (
    DRAFT_TOKENS,
    first_line,
    from_logits,
    from_probabilities,
    from_text,
    on_one_line,
    spoken_pieces,
    without_thoughts,
)
from kcard.llms.prompts import NEED, is_grounded
from kcard.system import loading
from kcard.types import Reply, Request, derive_seed

if TYPE_CHECKING:
    import torch

TOP_TOKENS = 50
MAX_NEED_TOKENS = 4
GPU_BATCH = 8  # prompts at a time on a GPU, unless --concurrency says otherwise


class LocalLLM(LLM):
    """A local model, on a CUDA device if there is one. Temperature 0 is greedy; equal seeds give equal replies.

    model       a folder or a Hugging Face name; as an attribute, the model of transformers
    unified_qa  whether to prompt in UnifiedQA's form; None: if the model's name says so
    prompts     encodes requests for the model

    An option of a multiple-choice question is chosen by the probability of its letter; in UnifiedQA's form, by that of
    its text per token. Raises ModelUnavailable if the model can't be loaded.
    """

    is_deterministic = True

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
        import torch
        from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSeq2SeqLM, AutoTokenizer

        # Load the model onto the GPU, if there is one.
        with loading(f"the model {model!r}"):
            config = AutoConfig.from_pretrained(model, trust_remote_code=False)
            tokenizer: Any = AutoTokenizer.from_pretrained(model, trust_remote_code=False)
            factory: Any = AutoModelForCausalLM
            if config.is_encoder_decoder:
                factory = AutoModelForSeq2SeqLM
            loaded = factory.from_pretrained(model, dtype="auto", trust_remote_code=False)
        self.concurrency, device = 1, "cpu"
        if torch.cuda.is_available():
            self.concurrency, device = GPU_BATCH, "cuda"
        self.model = loaded.eval().to(device)
        if unified_qa is None:
            unified_qa = "unifiedqa" in model.lower()
        self.prompts = PromptTokens(
            tokenizer, seq2seq=bool(self.model.config.is_encoder_decoder), unified_qa=unified_qa
        )
        self._prefix = SharedPrefix(self.model)
        # The longest prompt, in tokens.
        self.window = None
        positions = getattr(self.model.config, "max_position_embeddings", None)
        if self.prompts.seq2seq:
            self.window = self.prompts.longest
        elif positions:
            self.window = positions - self.max_tokens
        self.announcement = f"LLM: {self.name}, a local transformers model"

    def count(self, request: Request) -> int:
        return len(self.prompts.encoded(request))

    def prompt(self, request: Request) -> str:
        """Return the text that the model reads."""
        return self.prompts.text(request)

    def reply(self, request: Request) -> Reply:
        """Return the reply. Raises LLMError if the prompt does not fit into the model."""
        (reply,) = self.reply_all([request])
        if isinstance(reply, LLMError):
            raise reply
        return reply

    def reply_all(self, requests: Sequence[Request]) -> Iterator[Reply | LLMError]:
        """Yield each reply, or the error that `reply` would raise; requests of the same kind form one batch."""
        outcomes: dict[int, Reply | LLMError] = {}
        groups: dict[str, list[tuple[int, Request, list[int]]]] = {}
        for i, request in enumerate(requests):
            try:
                row = self._row(request)
            except LLMError as error:
                outcomes[i] = error
                continue
            group = "text"
            if request.draft:
                group = "draft"
            elif request.kind == "need":
                group = "need"
            elif request.kind == "answer" and request.choices:
                group = "option"
            groups.setdefault(group, []).append((i, request, row))
        answers = {
            "draft": self._generate_drafts,
            "need": self._read_needs,
            "option": self._choose_options,
        }
        for name, members in groups.items():
            numbers, batch, rows = zip(*members, strict=True)
            outcomes.update(zip(numbers, answers.get(name, self._generate_texts)(batch, rows), strict=True))
        for i in range(len(requests)):
            yield outcomes[i]

    def stream(self, request: Request) -> Iterator[str | Reply]:
        """Yield the answer as it is generated, in a thread of its own."""
        from transformers import TextIteratorStreamer

        row = self._row(request)
        streamer = TextIteratorStreamer(self.prompts.tokenizer, skip_prompt=True, skip_special_tokens=True)
        ended: list[Any] = []

        def run() -> None:
            try:
                ended.extend(self._generate([request], [row], self.max_tokens, streamer=streamer))
            except Exception as error:  # noqa: BLE001 - whoever reads the stream raises it, else they would wait for ever
                ended.append(error)
                streamer.end()

        thread = Thread(target=run, daemon=True)
        thread.start()
        pieces: Iterator[str] = spoken_pieces(streamer)
        if not is_grounded(request) and self.prompts.continued:
            pieces = first_line(pieces)
        elif not is_grounded(request):
            pieces = on_one_line(pieces)
        yield from filter(None, pieces)
        thread.join()
        if isinstance(ended[0], Exception):
            raise ended[0]
        yield self._reply(row, ended[0].tokens, request)

    def _generate_texts(self, requests: Sequence[Request], rows: Sequence[list[int]]) -> list[Reply]:
        replies = []
        continuations = self._generate(requests, rows, self.max_tokens)
        for request, row, continuation in zip(requests, rows, continuations, strict=True):
            replies.append(self._reply(row, continuation.tokens, request))
        return replies

    def _read_needs(self, requests: Sequence[Request], rows: Sequence[list[int]]) -> list[Reply]:
        """Return yes or no by the probabilities of the first token, else by the text."""
        replies = []
        new = self._generate(requests, rows, MAX_NEED_TOKENS, logits=True)
        for request, row, continuation in zip(requests, rows, new, strict=True):
            reply = self._reply(row, continuation.tokens, request)
            assert continuation.logits is not None
            first = continuation.logits[0]
            values, tokens = first.float().log_softmax(-1).topk(min(TOP_TOKENS, len(first)))
            texts = [self.prompts.tokenizer.decode([token]) for token in tokens.tolist()]
            yes = from_probabilities(zip(texts, values.tolist(), strict=True))
            if yes is None:
                yes = from_text(reply.text)
            replies.append(replace(reply, yes=NEED[request.template].needed(yes)))
        return replies

    def _generate_drafts(self, requests: Sequence[Request], rows: Sequence[list[int]]) -> list[Reply]:
        """Generate the most likely first words of an answer, with the scores of their tokens."""
        greedy = [replace(request, temperature=0.0) for request in requests]
        replies = []
        drafts = self._generate(greedy, rows, min(DRAFT_TOKENS, self.max_tokens), logits=True)
        for request, row, continuation in zip(requests, rows, drafts, strict=True):
            new = continuation.tokens[: self._reply_length(continuation.tokens)]
            assert continuation.logits is not None
            scores = from_logits(continuation.logits[: len(new)].float().cpu(), new)
            replies.append(replace(self._reply(row, new, request), tokens=scores))
        return replies

    def _choose_options(self, requests: Sequence[Request], rows: Sequence[list[int]]) -> list[Reply]:
        """Choose the most likely option of each question."""
        scores = option_scores(self.model, self.prompts, requests, rows, self._next_logits)
        chosen = []
        for request, row, option_logs in zip(requests, rows, scores, strict=True):
            shares = probabilities(option_logs)
            best = max(range(len(shares)), key=shares.__getitem__)
            letter = request.choices[best].name
            reply = Reply(letter, None, len(row), 1, confidence=shares[best], choice=letter)
            chosen.append(replace(reply, shares=tuple(shares)))
        return chosen

    def _reply_length(self, new: Sequence[int]) -> int:
        """Return how many of the tokens belong to the reply."""
        if not self.prompts.continued:
            return len(new)
        for length in range(1, len(new)):
            text = self.prompts.tokenizer.decode(new[:length], skip_special_tokens=True)
            if "\n" in text.lstrip():
                return length
        return len(new)

    def _reply(self, row: Sequence[int], new: Sequence[int], request: Request) -> Reply:
        """Make a reply of the new tokens. It keeps its lines where these say something; a model that only continues a
        text would go on after the first line, or after the first blank one where the answer may be a list."""
        text = without_thoughts(self.prompts.tokenizer.decode(new, skip_special_tokens=True)).strip()
        end, separator = "\n", " "
        if is_grounded(request):
            end, separator = "\n\n", "\n"
        if self.prompts.continued:
            text = text.partition(end)[0]
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        return Reply(separator.join(lines), None, len(row), len(new))

    def _row(self, request: Request) -> list[int]:
        """Return the prompt's tokens; raise LLMError if they do not fit."""
        row = self.prompts.encoded(request)
        if self.window is not None and len(row) > self.window:
            raise RequestRefused(
                f"the prompt has {len(row)} tokens, {self.name} takes {self.window} and writes {self.max_tokens}: "
                "give fewer or shorter documents (--n3, --card-tokens)"
            )
        return row

    def _generate(
        self,
        requests: Sequence[Request],
        rows: Sequence[list[int]],
        most: int,
        logits: bool = False,
        streamer: Any = None,
    ) -> list[Continuation]:
        """Generate in batches of rows that share a prefix, or that share none worth caching, and a temperature."""
        groups: dict[tuple[float, tuple[int, ...]], list[int]] = {}
        seeds = []
        for i, (request, row) in enumerate(zip(requests, rows, strict=True)):
            temperature = request.temperature
            if temperature is None:
                temperature = self.temperature
            seeds.append(derive_seed(self.seed, request.question, request.sample))
            prefix = tuple(row[: self.prompts.shared(request, row)])
            if len(prefix) < MIN_SHARED_TOKENS:
                prefix = ()
            groups.setdefault((temperature, prefix), []).append(i)
        continuations: dict[int, Continuation] = {}
        for (temperature, prefix), members in groups.items():
            cache, shared = self._prefix.cache(prefix, len(members)), 0
            if cache is not None:
                shared = len(prefix)
            new = generate(
                self.model,
                [rows[i] for i in members],
                most,
                temperature,
                [seeds[i] for i in members],
                padding=self.prompts.padding(),
                logits=logits,
                streamer=streamer,
                shared=shared,
                cache=cache,
            )
            continuations.update(zip(members, new, strict=True))
        return [continuations[i] for i in range(len(rows))]

    def _next_logits(self, requests: Sequence[Request], rows: Sequence[list[int]]) -> "list[torch.Tensor]":
        """Return the logits of the token after each row, shape (vocabulary,)."""
        first = []
        for continuation in self._generate(requests, rows, 1, logits=True):
            assert continuation.logits is not None
            first.append(continuation.logits[0])
        return first
