"""Batched generation with transformers: prompts as tokens, a shared prefix, sampling, scores of options."""

import copy
import inspect
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from kcard.llms.prompts import messages, render, unified_qa, without_control
from kcard.token_sampling import DrawnTokens, Sampler
from kcard.types import Request

if TYPE_CHECKING:
    import torch

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
        if longest > NO_LIMIT:
            return None
        return longest

    def text(self, request: Request) -> str:
        """Return the prompt; only the template may contain control tokens."""
        if self.unified_qa and not self.templated:
            return without_control(unified_qa(request), self._control)
        if not self.templated:
            return without_control(render(request), self._control)
        turns = []
        for turn in messages(request):
            content = without_control(turn["content"], self._control)
            turns.append({"role": turn["role"], "content": content})
        return str(self.tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True))

    def encoded(self, request: Request, reply: str = "") -> list[int]:
        """Return the tokens of the prompt and of a reply after it."""
        text = self.text(request)
        if self.templated:
            return list(self.tokenizer(text + reply, add_special_tokens=False, verbose=False).input_ids)
        if reply:
            text = f"{text} {reply}"
        return list(self.tokenizer(text, verbose=False).input_ids)

    def shared(self, request: Request, row: Sequence[int]) -> int:
        """Return the length of the prefix that the prompt shares with others of its kind and examples."""
        if self.seq2seq or not request.shots:
            return 0
        bare = replace(request, question="", knowledge=(), choices=(), turns=())
        without, with_knowledge = self.encoded(bare), self.encoded(replace(bare, knowledge=("",)))
        length = 0
        for token, one, other in zip(row[:-1], without, with_knowledge, strict=False):
            if not token == one == other:
                break
            length += 1
        return length

    def targets(self, request: Request) -> list[list[int]]:
        """Return the tokens that a sequence-to-sequence model would reply for each option: its letter or, in
        UnifiedQA's form, its text and the end of the text."""
        targets = []
        for option in request.choices:
            text = option.name
            if self.unified_qa:
                text = option.description.lower()
            encoded = self.tokenizer(text_target=text, add_special_tokens=self.unified_qa)
            targets.append(list(encoded.input_ids))
        return targets

    def padding(self) -> int:
        for token in (self.tokenizer.pad_token_id, self.tokenizer.eos_token_id):
            if token is not None:
                return int(token)
        return 0

    @cached_property
    def _control(self) -> list[str]:
        """Return the tokenizer's control tokens, such as the end of a turn, longest first."""
        tokens = set()
        for token in self.tokenizer.added_tokens_decoder.values():
            text = token.content
            if len(text) > 2 and (token.special or text[0] in "<["):
                tokens.add(text)
        return sorted(tokens, key=len, reverse=True)


# The common prefix of a causal model's prompts, such as their examples, is read once; its keys and values are cached.

MIN_SHARED_TOKENS = 64  # tokens, below which reading them again is cheaper than the bookkeeping


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
        if not self._able or len(tokens) < MIN_SHARED_TOKENS:
            return None
        if tuple(tokens) != self._tokens:
            # Read the tokens and keep what the layers remember of them.
            import torch
            from transformers import DynamicCache
            from transformers.cache_utils import DynamicLayer

            ids = torch.tensor([list(tokens)], device=self._model.device)
            with torch.inference_mode():
                read = self._model(input_ids=ids, use_cache=True, logits_to_keep=1).past_key_values
            # Layers of another kind, such as those with a sliding window, forget keys.
            self._tokens, self._kept = tuple(tokens), None
            if type(read) is DynamicCache and all(type(layer) is DynamicLayer for layer in read.layers):
                self._kept = read
        if self._kept is None:
            return None
        cache = copy.deepcopy(self._kept)
        if rows > 1:
            cache.batch_repeat_interleave(rows)
        return cache


# Batched generation, with each row as if it were alone.
#
# Rows are padded on the side where the model does not continue them. Each row samples with noise of its own seed, so
# that a reply does not depend on its batch, except for rounding, which in float32 hardly ever shows.


@dataclass(frozen=True, eq=False)
class Continuation:
    """New tokens, including the end of the text; `logits`, shape (n, vocabulary), are those before each token."""

    tokens: list[int]
    logits: "torch.Tensor | None" = None


def generate(
    model: Any,
    rows: Sequence[Sequence[int]],
    most: int,
    temperature: float,
    seeds: Sequence[int],
    *,
    padding: int,
    logits: bool = False,
    streamer: Any = None,
    shared: int = 0,
    cache: Any = None,
    ends: Set[int] | None = None,
) -> list[Continuation]:
    """Generate at most `most` new tokens for each row.

    temperature  at least 0 (greedy)
    seeds     one per row, unused at temperature 0
    streamer  for a single row, receives the tokens as they are generated
    cache     keys and values of the first `shared` tokens, which are the same in all rows
    ends      the tokens that end a text; None: those of the model's generation config
    """
    import torch
    from transformers import LogitsProcessorList

    # Pad the rows, with the shared prefix in front of the padding.
    reads_first = bool(model.config.is_encoder_decoder)
    ids, mask = padded_rows([row[shared:] for row in rows], padding, left=not reads_first)
    if shared:
        first = torch.tensor([list(rows[0][:shared])] * len(rows))
        ids, mask = torch.cat([first, ids], 1), torch.cat([torch.ones_like(first), mask], 1)
    processors: list[Any] = []
    if temperature > 0:
        processors.append(DrawnTokens(Sampler(torch.tensor(seeds, device=model.device), temperature, 0)))
    more: dict[str, Any] = {}
    if cache is not None:
        more["past_key_values"] = cache
    if ends is not None:
        more["eos_token_id"] = sorted(ends)
    with torch.inference_mode():
        out = model.generate(
            input_ids=ids.to(model.device),
            attention_mask=mask.to(model.device),
            max_new_tokens=most,
            pad_token_id=padding,
            do_sample=False,
            num_beams=1,
            logits_processor=LogitsProcessorList(processors),
            output_logits=logits,
            return_dict_in_generate=True,
            streamer=streamer,
            **more,
        )
    if ends is None:
        end = model.generation_config.eos_token_id
        if not isinstance(end, list):
            end = [end]
        ends = set(end)
    # Cut each row after its end token. The sequences begin with the prompt; those of an encoder-decoder with a start
    # token.
    start = ids.shape[1]
    if reads_first:
        start = 1
    continuations = []
    for i, row in enumerate(out.sequences[:, start:].tolist()):
        length = 0
        for token in row:
            length += 1
            if token in ends:
                break
        continuation = Continuation(row[:length])
        if logits:
            continuation = replace(
                continuation, logits=torch.stack([step[i] for step in out.logits[:length]])
            )
        continuations.append(continuation)
    return continuations


def padded_rows(
    rows: Sequence[Sequence[int]], padding: int, left: bool
) -> "tuple[torch.Tensor, torch.Tensor]":
    """Return token ids and attention mask, both of shape (rows, longest)."""
    import torch

    width = max(map(len, rows))
    ids = torch.full((len(rows), width), padding)
    mask = torch.zeros((len(rows), width), dtype=torch.long)
    for i, row in enumerate(rows):
        place = slice(0, len(row))
        if left:
            place = slice(width - len(row), width)
        ids[i, place], mask[i, place] = torch.tensor(row), 1
    return ids, mask


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
    scores: dict[int, list[float]] = {}
    single: dict[int, tuple[list[int], list[int]]] = {}  # prompts, and their letters of one token
    for i, (request, row) in enumerate(zip(requests, rows, strict=True)):
        if prompts.seq2seq:
            scores[i] = seq2seq_scores(model, row, prompts.targets(request), prompts.unified_qa)
            continue
        spelt = [prompts.encoded(request, option.name) for option in request.choices]
        shared = common_prefix(spelt)
        if {len(letter) for letter in spelt} == {shared + 1}:
            single[i] = spelt[0][:shared], [letter[-1] for letter in spelt]
            continue
        # Letters of several tokens are scored with the end of the line, since one may begin another ("1", "10").
        lines = [prompts.encoded(request, f"{option.name}\n") for option in request.choices]
        scores[i] = causal_scores(model, lines, common_prefix(lines))
    # Letters of one token: one pass over the prompts of the whole batch.
    if single:
        logits = next_logits([requests[i] for i in single], [prompt for prompt, _ in single.values()])
        for (i, (_, letters)), first in zip(single.items(), logits, strict=True):
            logs = first.float().log_softmax(-1)
            scores[i] = logs[letters].tolist()
    return [scores[i] for i in range(len(requests))]


def common_prefix(rows: Sequence[Tokens]) -> int:
    """Return the length of the rows' common prefix, at most all but the last token of the shortest."""
    most = min(map(len, rows)) - 1
    for n in range(most):
        if len({row[n] for row in rows}) > 1:
            return n
    return most


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
    scores = []
    for i, target in enumerate(targets):
        score = _sum(logits[i], target)
        if mean:
            score /= len(target)
        scores.append(score)
    return scores


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
