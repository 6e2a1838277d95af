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
from kcard.llms.prompts import NEED_WORDINGS, is_grounded
from kcard.system import loading
from kcard.types import Reply, Request, derive_seed

if TYPE_CHECKING:
    import torch

TOP_TOKENS = 50  # the likeliest first tokens, among which a yes or no is looked for
MAX_NEED_TOKENS = 4  # of a reply of yes or no
GPU_BATCH = 8  # prompts at a time on a GPU, unless --concurrency says otherwise


class LocalLLM(LLM):
    """A local model, on a CUDA device if there is one. Temperature 0 is greedy; equal seeds give equal replies.

    model       a folder or a Hugging Face name; as an attribute, the loaded model
    unified_qa  whether to prompt in UnifiedQA's form; None: if "unifiedqa" is in the model's name
    prompts     encodes requests for the model
    window      the longest prompt in tokens; None if it is unknown

    An option of a multiple-choice question is chosen by the probability of its letter or, in UnifiedQA's form, of its
    text per token. Raises ModelUnavailable if the model can't be loaded.
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
        import torch
        from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSeq2SeqLM, AutoTokenizer

        self.name = model
        self.temperature = temperature
        self.max_tokens = max_tokens
        self.seed = seed
        # Load the model onto the GPU, if there is one.
        with loading(f"the model {model!r}"):
            config = AutoConfig.from_pretrained(model, trust_remote_code=False)
            tokenizer: Any = AutoTokenizer.from_pretrained(model, trust_remote_code=False)
            factory: Any = AutoModelForCausalLM
            if config.is_encoder_decoder:
                factory = AutoModelForSeq2SeqLM
            loaded = factory.from_pretrained(model, dtype="auto", trust_remote_code=False)
        self.concurrency = 1
        device = "cpu"
        if torch.cuda.is_available():
            self.concurrency = GPU_BATCH
            device = "cuda"
        self.model = loaded.eval().to(device)
        if unified_qa is None:
            unified_qa = "unifiedqa" in model.lower()
        self.prompts = PromptTokens(
            tokenizer, seq2seq=bool(self.model.config.is_encoder_decoder), unified_qa=unified_qa
        )
        self._prefix = SharedPrefix(self.model)
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
        reply_methods = {
            "text": self._generate_texts,
            "draft": self._generate_drafts,
            "need": self._read_needs,
            "option": self._choose_options,
        }
        for group, members in groups.items():
            numbers, batch, rows = zip(*members, strict=True)
            replies = reply_methods[group](batch, rows)
            outcomes.update(zip(numbers, replies, strict=True))
        for i in range(len(requests)):
            yield outcomes[i]

    def stream(self, request: Request) -> Iterator[str | Reply]:
        """Yield the answer's text as a thread generates it, then the reply."""
        from transformers import TextIteratorStreamer

        row = self._row(request)
        streamer = TextIteratorStreamer(self.prompts.tokenizer, skip_prompt=True, skip_special_tokens=True)
        results: list[Continuation | Exception] = []

        def run() -> None:
            try:
                results.extend(self._generate([request], [row], self.max_tokens, streamer=streamer))
            except Exception as error:  # noqa: BLE001 - the reader of the stream raises it
                results.append(error)
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
        (result,) = results
        if isinstance(result, Exception):
            raise result
        yield self._reply(row, result.tokens, request)

    def _generate_texts(self, requests: Sequence[Request], rows: Sequence[list[int]]) -> list[Reply]:
        replies = []
        continuations = self._generate(requests, rows, self.max_tokens)
        for request, row, continuation in zip(requests, rows, continuations, strict=True):
            replies.append(self._reply(row, continuation.tokens, request))
        return replies

    def _read_needs(self, requests: Sequence[Request], rows: Sequence[list[int]]) -> list[Reply]:
        """Return yes or no by the probabilities of the first token, or else by the text."""
        replies = []
        continuations = self._generate(requests, rows, MAX_NEED_TOKENS, logits=True)
        for request, row, continuation in zip(requests, rows, continuations, strict=True):
            reply = self._reply(row, continuation.tokens, request)
            assert continuation.logits is not None
            logits = continuation.logits[0]
            logs, tokens = logits.float().log_softmax(-1).topk(min(TOP_TOKENS, len(logits)))
            texts = [self.prompts.tokenizer.decode([token]) for token in tokens.tolist()]
            yes = from_probabilities(zip(texts, logs.tolist(), strict=True))
            if yes is None:
                yes = from_text(reply.text)
            replies.append(replace(reply, yes=NEED_WORDINGS[request.template].needed(yes)))
        return replies

    def _generate_drafts(self, requests: Sequence[Request], rows: Sequence[list[int]]) -> list[Reply]:
        """Generate the most likely first words of an answer, with the scores of their tokens."""
        greedy = [replace(request, temperature=0.0) for request in requests]
        replies = []
        drafts = self._generate(greedy, rows, min(DRAFT_TOKENS, self.max_tokens), logits=True)
        for request, row, continuation in zip(requests, rows, drafts, strict=True):
            tokens = continuation.tokens[: self._reply_length(continuation.tokens)]
            assert continuation.logits is not None
            scores = from_logits(continuation.logits[: len(tokens)].float().cpu(), tokens)
            replies.append(replace(self._reply(row, tokens, request), tokens=scores))
        return replies

    def _choose_options(self, requests: Sequence[Request], rows: Sequence[list[int]]) -> list[Reply]:
        """Choose the most likely option of each question."""
        scores = option_scores(self.model, self.prompts, requests, rows, self._next_logits)
        replies = []
        for request, row, option_logs in zip(requests, rows, scores, strict=True):
            shares = tuple(probabilities(option_logs))
            confidence = max(shares)
            letter = request.choices[shares.index(confidence)].name
            replies.append(
                Reply(
                    letter,
                    tokens_in=len(row),
                    tokens_out=1,
                    confidence=confidence,
                    choice=letter,
                    shares=shares,
                )
            )
        return replies

    def _reply_length(self, tokens: Sequence[int]) -> int:
        """Return how many of the new tokens belong to the reply: those of the first line if the model only continues a
        text."""
        if not self.prompts.continued:
            return len(tokens)
        for length in range(1, len(tokens)):
            text = self.prompts.tokenizer.decode(tokens[:length], skip_special_tokens=True)
            if "\n" in text.lstrip():
                return length
        return len(tokens)

    def _reply(self, row: Sequence[int], tokens: Sequence[int], request: Request) -> Reply:
        """Make a reply of the new tokens. A grounded answer may be a list, so it keeps its lines; others become one
        line. What a model that only continues a text writes after the reply is cut off."""
        text = without_thoughts(self.prompts.tokenizer.decode(tokens, skip_special_tokens=True)).strip()
        end, separator = "\n", " "
        if is_grounded(request):
            end, separator = "\n\n", "\n"
        if self.prompts.continued:
            text = text.partition(end)[0]
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        return Reply(separator.join(lines), tokens_in=len(row), tokens_out=len(tokens))

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
        max_tokens: int,
        logits: bool = False,
        streamer: Any = None,
    ) -> list[Continuation]:
        """Generate up to `max_tokens` tokens after each row. Rows of equal temperature and equal prefix form a batch,
        and so do rows without a prefix worth caching."""
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
            shared = 0
            cache = self._prefix.cache(prefix, len(members))
            if cache is not None:
                shared = len(prefix)
            generated = generate(
                self.model,
                [rows[i] for i in members],
                max_tokens,
                temperature,
                [seeds[i] for i in members],
                padding=self.prompts.padding(),
                logits=logits,
                streamer=streamer,
                shared=shared,
                cache=cache,
            )
            continuations.update(zip(members, generated, strict=True))
        return [continuations[i] for i in range(len(rows))]

    def _next_logits(self, requests: Sequence[Request], rows: Sequence[list[int]]) -> "list[torch.Tensor]":
        """Return the logits of the token after each row, shape (vocabulary,)."""
        next_logits = []
        for continuation in self._generate(requests, rows, 1, logits=True):
            assert continuation.logits is not None
            next_logits.append(continuation.logits[0])
        return next_logits
