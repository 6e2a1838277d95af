"""Local LLMs, run by transformers."""

import copy
import inspect
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property
from threading import Thread
from typing import TYPE_CHECKING, Any

from kcard.errors import LLMError, RequestRefused, UsageError
from kcard.llms.parsing import (
    DRAFT_TOKENS,
    first_line,
    from_logits,
    from_probabilities,
    from_text,
    on_one_line,
)
from kcard.llms.prompts import NEED, messages, render, unified_qa, without_control
from kcard.system import loading
from kcard.types import Reply, Request, derive_seed

if TYPE_CHECKING:
    import torch

__all__ = [
    "LEAST",
    "Continuation",
    "Draw",
    "LocalLLM",
    "PromptTokens",
    "SharedPrefix",
    "causal_scores",
    "common_prefix",
    "generate",
    "option_scores",
    "padded_rows",
    "probabilities",
    "seq2seq_scores",
]


NO_LIMIT = 10**6  # a tokenizer without a longest input gives a number beyond this


@dataclass(frozen=True, eq=False)
class PromptTokens:
    """Encodes prompts by the model's chat template, as a plain text, or in UnifiedQA's form.

    tokenizer   of transformers
    seq2seq     whether the model is an encoder-decoder
    unified_qa  whether to use UnifiedQA's form
    """

    tokenizer: Any
    seq2seq: bool = False
    unified_qa: bool = False

    @property
    def templated(self) -> bool:
        return bool(self.tokenizer.chat_template) and not self.seq2seq

    @property
    def continued(self) -> bool:
        """Whether the model only continues the text, so that only the first line is the reply."""
        return not self.seq2seq and not self.templated

    @property
    def longest(self) -> int | None:
        """Return the tokenizer's longest input; None: no limit."""
        longest = int(self.tokenizer.model_max_length)
        return None if longest > NO_LIMIT else longest

    def text(self, request: Request) -> str:
        """Return the prompt; only the template may contain control tokens."""
        if not self.templated:
            return without_control(unified_qa(request) if self.unified_qa else render(request), self._control)
        turns = [
            {"role": turn["role"], "content": without_control(turn["content"], self._control)}
            for turn in messages(request)
        ]
        return str(self.tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True))

    def encoded(self, request: Request, reply: str = "") -> list[int]:
        """Return the tokens of the prompt and of a reply after it."""
        text = self.text(request)
        if self.templated:
            return list(self.tokenizer(text + reply, add_special_tokens=False, verbose=False).input_ids)
        return list(self.tokenizer(text + (f" {reply}" if reply else ""), verbose=False).input_ids)

    def shared(self, request: Request, row: Sequence[int]) -> int:
        """Return the length of the prefix that the prompt shares with others of its kind and examples."""
        if self.seq2seq or not request.shots:
            return 0
        bare = replace(request, question="", knowledge=(), choices=(), turns=())
        others = [self.encoded(bare), self.encoded(replace(bare, knowledge=("",)))]
        most = min(*map(len, others), len(row) - 1)
        return next((n for n in range(most) if any(other[n] != row[n] for other in others)), most)

    def targets(self, request: Request) -> list[list[int]]:
        """Return the tokens that a sequence-to-sequence model would reply for each option: its letter or, in
        UnifiedQA's form, its text and the end of the text."""
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
        """Return the tokenizer's control tokens, such as the end of a turn, longest first."""
        added = self.tokenizer.added_tokens_decoder.values()
        return sorted(
            {t.content for t in added if len(t.content) > 2 and (t.special or t.content[0] in "<[")},
            key=len,
            reverse=True,
        )


# The common prefix of a causal model's prompts, such as their examples, is read once; its keys and values are cached.

LEAST = 64  # tokens, below which reading them again is cheaper than the bookkeeping


class SharedPrefix:
    """Caches the keys and values of the last prefix, for models that take positions and keep all keys."""

    def __init__(self, model: Any) -> None:
        self._model = model
        takes = inspect.signature(model.forward).parameters.keys()
        self._able = not model.config.is_encoder_decoder and takes >= {"position_ids", "logits_to_keep"}
        self._tokens: tuple[int, ...] = ()
        self._kept: Any = None

    def cache(self, tokens: Sequence[int], rows: int) -> Any:
        """Return a copy of the keys and values of these tokens, for so many rows; None if the tokens are too few or the
        model is of another kind."""
        if not self._able or len(tokens) < LEAST:
            return None
        if tuple(tokens) != self._tokens:
            # Read the tokens and keep what the layers remember of them.
            import torch
            from transformers import DynamicCache

            ids = torch.tensor([list(tokens)], device=self._model.device)
            with torch.inference_mode():
                read = self._model(input_ids=ids, use_cache=True, logits_to_keep=1).past_key_values
            # Layers of another kind, such as those with a sliding window, forget keys.
            plain = type(read) is DynamicCache and {type(layer).__name__ for layer in read.layers} == {
                "DynamicLayer"
            }
            self._tokens, self._kept = tuple(tokens), read if plain else None
        if self._kept is None:
            return None
        cache = copy.deepcopy(self._kept)
        if rows > 1:
            cache.batch_repeat_interleave(rows)
        return cache


# Batched generation, with each row as if it were alone.
#
# Rows are padded on the side where the model does not continue them. Each row samples with a generator of its own, so
# that a reply does not depend on its batch, except for rounding, which in float32 hardly ever shows.


@dataclass(frozen=True)
class Draw:
    """How a row's tokens are sampled: at a temperature of at least 0 (greedy), with a seed."""

    temperature: float = 0.0
    seed: int = 0


@dataclass(frozen=True, eq=False)
class Continuation:
    """New tokens, including the end of the text; `logits`, shape (n, vocabulary), are those before each token."""

    tokens: list[int]
    logits: "torch.Tensor | None" = None


def generate(
    model: Any,
    rows: Sequence[Sequence[int]],
    most: int,
    draws: Sequence[Draw],
    *,
    padding: int,
    logits: bool = False,
    streamer: Any = None,
    shared: int = 0,
    cache: Any = None,
    ends: Set[int] | None = None,
) -> list[Continuation]:
    """Generate at most `most` new tokens for each row.

    streamer  for a single row, receives the tokens as they are generated
    cache     keys and values of the first `shared` tokens, which are the same in all rows
    ends      the tokens that end a text; None: those of the model's generation config
    """
    import torch
    from transformers import LogitsProcessorList

    reads_first = bool(model.config.is_encoder_decoder)
    ids, mask = padded_rows([row[shared:] for row in rows], padding, left=not reads_first)
    if shared:  # padding stands after what is shared
        first = torch.tensor([list(rows[0][:shared])] * len(rows))
        ids, mask = torch.cat([first, ids], 1), torch.cat([torch.ones_like(first), mask], 1)
    with torch.inference_mode():
        out = model.generate(
            input_ids=ids.to(model.device),
            attention_mask=mask.to(model.device),
            max_new_tokens=most,
            pad_token_id=padding,
            do_sample=False,
            num_beams=1,
            logits_processor=LogitsProcessorList([GumbelSampler(draws)]),
            output_logits=logits,
            return_dict_in_generate=True,
            streamer=streamer,
            **({} if cache is None else {"past_key_values": cache}),
            **({} if ends is None else {"eos_token_id": sorted(ends)}),
        )
    new = out.sequences[:, 1 if reads_first else ids.shape[1] :].tolist()
    if ends is None:
        end = model.generation_config.eos_token_id
        ends = set(end) if isinstance(end, list) else set() if end is None else {end}
    texts = [row[: next((n for n, token in enumerate(row, 1) if token in ends), len(row))] for row in new]
    if not logits:
        return [Continuation(row) for row in texts]
    scores = torch.stack(out.logits, 1)
    return [Continuation(row, scores[i, : len(row)]) for i, row in enumerate(texts)]


def padded_rows(
    rows: Sequence[Sequence[int]], padding: int, left: bool
) -> "tuple[torch.Tensor, torch.Tensor]":
    """Return token ids and attention mask, both of shape (rows, longest)."""
    import torch

    width = max(map(len, rows))
    ids = torch.full((len(rows), width), padding)
    mask = torch.zeros((len(rows), width), dtype=torch.long)
    for i, row in enumerate(rows):
        place = slice(width - len(row), width) if left else slice(0, len(row))
        ids[i, place], mask[i, place] = torch.tensor(row), 1
    return ids, mask


class GumbelSampler:
    """Adds Gumbel noise to scores, so that the largest of a row is a sample of softmax(scores / temperature)."""

    def __init__(self, draws: Sequence[Draw]) -> None:
        import torch

        self._draws = [(draw.temperature, torch.Generator().manual_seed(draw.seed)) for draw in draws]

    def __call__(self, input_ids: "torch.Tensor", scores: "torch.Tensor") -> "torch.Tensor":
        import torch

        del input_ids
        if not any(temperature for temperature, _ in self._draws):
            return scores
        drawn = scores.float().clone()
        for row, (temperature, generator) in zip(drawn, self._draws, strict=True):
            if temperature:
                noise = -torch.empty(len(row)).exponential_(generator=generator).log()
                row.div_(temperature).add_(noise.to(row.device))
        return drawn


# Options of multiple-choice questions, scored by the log-probability of their tokens.

Tokens = Sequence[int]
NextLogits = Callable[[Sequence[Request], Sequence[list[int]]], "list[torch.Tensor]"]


def option_scores(
    model: Any,
    prompts: PromptTokens,
    requests: Sequence[Request],
    rows: Sequence[Tokens],
    next_logits: NextLogits,
) -> list[list[float]]:
    """Return a log-probability for each option of each request: of the option's letter or, in UnifiedQA's form, of its
    text per token.

    rows         the requests' prompts
    next_logits  returns, for requests and rows, the logits of the next token
    """
    if prompts.seq2seq:
        mean = prompts.unified_qa
        return [
            seq2seq_scores(model, row, prompts.targets(request), mean)
            for request, row in zip(requests, rows, strict=True)
        ]
    spelt = [[prompts.encoded(request, option.name) for option in request.choices] for request in requests]
    shared = [common_prefix(letters) for letters in spelt]
    plain = [i for i, letters in enumerate(spelt) if all(len(row) == shared[i] + 1 for row in letters)]
    scores = {}
    # Letters of several tokens are scored with the end of the line, since one may begin another ("1", "10").
    for i, request in enumerate(requests):
        if i not in plain:
            lines = [prompts.encoded(request, f"{option.name}\n") for option in request.choices]
            scores[i] = causal_scores(model, lines, common_prefix(lines))
    if plain:  # one pass over the prompts of the whole batch
        firsts = next_logits([requests[i] for i in plain], [spelt[i][0][: shared[i]] for i in plain])
        for i, first in zip(plain, firsts, strict=True):
            logs = first.float().log_softmax(-1)
            scores[i] = [float(logs[row[-1]]) for row in spelt[i]]
    return [scores[i] for i in range(len(requests))]


def common_prefix(rows: Sequence[Tokens]) -> int:
    """Return the length of the rows' common prefix, at most all but the last token of the shortest."""
    most = min(map(len, rows)) - 1
    return next((n for n in range(most) if len({row[n] for row in rows}) > 1), most)


def causal_scores(model: Any, rows: Sequence[Tokens], shared: int) -> list[float]:
    """Return the log-probability of each row's tokens after the first `shared` (at least one)."""
    import torch

    ids, mask = padded_rows(rows, 0, left=False)
    with torch.inference_mode():
        logits = model(input_ids=ids.to(model.device), attention_mask=mask.to(model.device)).logits
    return [_sum(logits[i, shared - 1 :], row[shared:]) for i, row in enumerate(rows)]


def seq2seq_scores(model: Any, row: Tokens, targets: Sequence[Tokens], mean: bool) -> list[float]:
    """Return the log-probability of each target for one input, summed over its tokens or, if `mean`, averaged."""
    import torch

    labels, mask = padded_rows(targets, 0, left=False)
    ids = torch.tensor([list(row)] * len(targets))
    with torch.inference_mode():
        logits = model(
            input_ids=ids.to(model.device),
            attention_mask=torch.ones_like(ids).to(model.device),
            labels=labels.masked_fill(mask == 0, -100).to(model.device),
        ).logits
    return [_sum(logits[i], target) / (len(target) if mean else 1) for i, target in enumerate(targets)]


def probabilities(scores: Sequence[float]) -> list[float]:
    """Return the softmax of log-probabilities: each option's share."""
    import numpy as np

    powers = np.exp(np.asarray(scores) - max(scores))
    return [float(share) for share in powers / powers.sum()]


def _sum(logits: "torch.Tensor", tokens: Tokens) -> float:
    """Return the log-probability of tokens, given the logits before each of them, shape (n, vocabulary)."""
    import torch

    logs = torch.log_softmax(logits[: len(tokens)].float(), -1)
    return float(logs[torch.arange(len(tokens)), torch.tensor(list(tokens))].sum())


TOP_TOKENS = 50
NEED_TOKENS = 4
STUDY_TOKENS = 1024
GPU_BATCH = 8  # prompts at a time on a GPU, unless --concurrency says otherwise


class LocalLLM:
    """A local model, on a CUDA device if there is one. Temperature 0 is greedy; equal seeds give equal replies.

    model       a folder or a Hugging Face name
    unified_qa  whether to prompt in UnifiedQA's form; None: if the model's name says so

    An option of a multiple-choice question is chosen by the probability of its letter; in UnifiedQA's form, by that of
    its text per token. Raises ModelUnavailable if the model can't be loaded.
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
        import torch
        from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSeq2SeqLM, AutoTokenizer

        # Load the model onto the GPU, if there is one.
        with loading(f"the model {model!r}"):
            config = AutoConfig.from_pretrained(model, trust_remote_code=False)
            factory = AutoModelForSeq2SeqLM if config.is_encoder_decoder else AutoModelForCausalLM
            self.tokenizer: Any = AutoTokenizer.from_pretrained(model, trust_remote_code=False)
            loaded: Any = factory.from_pretrained(model, dtype="auto", trust_remote_code=False)
        self.model = loaded.eval().to("cuda" if torch.cuda.is_available() else "cpu")
        named = "unifiedqa" in model.lower()
        self._prompts = PromptTokens(
            self.tokenizer,
            seq2seq=bool(self.model.config.is_encoder_decoder),
            unified_qa=named if unified_qa is None else unified_qa,
        )
        self._prefix = SharedPrefix(self.model)
        self.concurrency = GPU_BATCH if self.model.device.type == "cuda" else 1

    @property
    def window(self) -> int | None:
        """The most tokens that a prompt may have; None: no limit."""
        if self._prompts.seq2seq:
            return self._prompts.longest
        positions = getattr(self.model.config, "max_position_embeddings", None)
        return None if not positions else positions - self.max_tokens

    def count(self, request: Request) -> int:
        return len(self._prompts.encoded(request))

    def prompt(self, request: Request) -> str:
        """Return the text that the model reads."""
        return self._prompts.text(request)

    @property
    def announcement(self) -> str:
        """Return a sentence that tells the user which LLM answers."""
        return f"LLM: {self.name}, a local transformers model"

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
            elif request.kind in {"need", "study"}:
                group = request.kind
            elif request.kind == "answer" and request.choices:
                group = "option"
            groups.setdefault(group, []).append((i, request, row))
        answers = {
            "study": self._generate_studies,
            "draft": self._generate_drafts,
            "need": self._read_needs,
            "option": self._choose_options,
        }
        for name, members in groups.items():
            numbers, batch, rows = zip(*members, strict=True)
            outcomes.update(zip(numbers, answers.get(name, self._generate_texts)(batch, rows), strict=True))
        yield from (outcomes[i] for i in range(len(requests)))

    def stream(self, request: Request) -> Iterator[str | Reply]:
        """Yield the answer as it is generated, in a thread of its own."""
        from transformers import TextIteratorStreamer

        row = self._row(request)
        streamer = TextIteratorStreamer(self.tokenizer, skip_prompt=True, skip_special_tokens=True)
        ended: list[Any] = []

        def run() -> None:
            try:
                ended.extend(self._generate([request], [row], self.max_tokens, streamer=streamer))
            except Exception as error:  # noqa: BLE001 - whoever reads the stream raises it, else they would wait for ever
                ended.append(error)
                streamer.end()

        thread = Thread(target=run, daemon=True)
        thread.start()
        pieces = first_line(streamer) if self._prompts.continued else on_one_line(streamer)
        yield from (piece for piece in pieces if piece)
        thread.join()
        if isinstance(ended[0], Exception):
            raise ended[0]
        yield self._reply(row, ended[0].tokens)

    def _generate_texts(self, requests: Sequence[Request], rows: Sequence[list[int]]) -> list[Reply]:
        new = self._generate(requests, rows, self.max_tokens)
        return [self._reply(row, found.tokens) for row, found in zip(rows, new, strict=True)]

    def _generate_studies(self, requests: Sequence[Request], rows: Sequence[list[int]]) -> list[Reply]:
        """Generate long replies of several lines, as far as the model's positions allow."""
        left = STUDY_TOKENS
        if self.window is not None and not self._prompts.seq2seq:
            left = min(left, self.window + self.max_tokens - max(map(len, rows)))
        new = self._generate(requests, rows, left)
        return [
            replace(self._reply(row, continuation.tokens, "\n"), cut=len(continuation.tokens) == left)
            for row, continuation in zip(rows, new, strict=True)
        ]

    def _read_needs(self, requests: Sequence[Request], rows: Sequence[list[int]]) -> list[Reply]:
        """Return yes or no by the probabilities of the first token, else by the text."""
        replies = []
        new = self._generate(requests, rows, NEED_TOKENS, logits=True)
        for request, row, continuation in zip(requests, rows, new, strict=True):
            reply = self._reply(row, continuation.tokens)
            assert continuation.logits is not None
            first = continuation.logits[0]
            values, tokens = first.float().log_softmax(-1).topk(min(TOP_TOKENS, len(first)))
            top = zip(tokens.tolist(), values.tolist(), strict=True)
            yes = from_probabilities([(self.tokenizer.decode([token]), value) for token, value in top])
            yes = from_text(reply.text) if yes is None else yes
            replies.append(replace(reply, yes=NEED[request.template].needed(yes)))
        return replies

    def _generate_drafts(self, requests: Sequence[Request], rows: Sequence[list[int]]) -> list[Reply]:
        """Generate the most likely first words of an answer, with the scores of their tokens."""
        greedy = [replace(request, temperature=0.0) for request in requests]
        replies = []
        for row, continuation in zip(
            rows,
            self._generate(greedy, rows, min(DRAFT_TOKENS, self.max_tokens), logits=True),
            strict=True,
        ):
            new = continuation.tokens[: self._reply_length(continuation.tokens)]
            assert continuation.logits is not None
            replies.append(
                replace(
                    self._reply(row, new),
                    tokens=from_logits(continuation.logits[: len(new)].float().cpu(), new),
                )
            )
        return replies

    def _choose_options(self, requests: Sequence[Request], rows: Sequence[list[int]]) -> list[Reply]:
        """Choose the most likely option of each question."""
        scores = option_scores(self.model, self._prompts, requests, rows, self._next_logits)
        chosen = []
        for request, row, option_logs in zip(requests, rows, scores, strict=True):
            shares = probabilities(option_logs)
            best = max(range(len(shares)), key=shares.__getitem__)
            letter = request.choices[best].name
            chosen.append(Reply(letter, None, len(row), 1, confidence=shares[best], choice=letter))
        return chosen

    def _reply_length(self, new: Sequence[int]) -> int:
        """Return how many of the tokens belong to the reply."""
        if not self._prompts.continued:
            return len(new)
        texts = (self.tokenizer.decode(new[:n], skip_special_tokens=True) for n in range(1, len(new)))
        return next((n for n, text in enumerate(texts, 1) if "\n" in text.lstrip()), len(new))

    def _reply(self, row: Sequence[int], new: Sequence[int], joint: str = " ") -> Reply:
        """Make a reply of the new tokens: of all lines, or of the first for a model that only continues a text."""
        text: str = self.tokenizer.decode(new, skip_special_tokens=True)
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        reply = joint.join(lines[:1] if self._prompts.continued else lines)
        return Reply(reply, None, len(row), len(new))

    def _row(self, request: Request) -> list[int]:
        """Return the prompt's tokens; raise LLMError if they do not fit."""
        row = self._prompts.encoded(request)
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
        """Generate in batches of rows that share a prefix, or that share none worth caching."""
        groups: dict[tuple[int, ...], list[int]] = {}
        for i, (request, row) in enumerate(zip(requests, rows, strict=True)):
            shared = self._prompts.shared(request, row)
            groups.setdefault(tuple(row[:shared]) if shared >= LEAST else (), []).append(i)
        continuations: dict[int, Continuation] = {}
        for prefix, members in groups.items():
            cache = self._prefix.cache(prefix, len(members))
            draws = []
            for request in (requests[i] for i in members):
                temperature = self.temperature if request.temperature is None else request.temperature
                draws.append(Draw(temperature, derive_seed(self.seed, request.question, request.sample)))
            new = generate(
                self.model,
                [rows[i] for i in members],
                most,
                draws,
                padding=self._prompts.padding(),
                logits=logits,
                streamer=streamer,
                shared=0 if cache is None else len(prefix),
                cache=cache,
            )
            continuations.update(zip(members, new, strict=True))
        return [continuations[i] for i in range(len(rows))]

    def _next_logits(self, requests: Sequence[Request], rows: Sequence[list[int]]) -> "list[torch.Tensor]":
        """Return the logits of the token after each row, shape (vocabulary,)."""
        logits_of_rows = [one.logits for one in self._generate(requests, rows, 1, logits=True)]
        return [logits[0] for logits in logits_of_rows if logits is not None]
