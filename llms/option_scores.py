"""How likely a model of transformers finds each option of a question: the log-probability of the option's tokens."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from kcard.llms.generation import padded_rows
from kcard.llms.prompt_tokens import PromptTokens
from kcard.request import Request

if TYPE_CHECKING:
    import torch

__all__ = ["causal_scores", "common", "option_scores", "probabilities", "seq2seq_scores"]

Tokens = Sequence[int]
Following = Callable[[Sequence[Request], Sequence[list[int]]], "list[torch.Tensor]"]


def option_scores(
    model: Any,
    prompts: PromptTokens,
    requests: Sequence[Request],
    rows: Sequence[Tokens],
    following: Following,
) -> list[list[float]]:
    """A log-probability for each option of each request, whose prompt is the row: of the option's letter or, in
    UnifiedQA's form, of its text a token. `following`: for requests and rows, logits of the token that follows."""
    if prompts.seq2seq:
        mean = prompts.unified_qa
        return [
            seq2seq_scores(model, row, prompts.targets(request), mean)
            for request, row in zip(requests, rows, strict=True)
        ]
    spelt = [[prompts.encoded(request, option.name) for option in request.choices] for request in requests]
    shared = [common(letters) for letters in spelt]
    plain = [i for i, found in enumerate(spelt) if all(len(row) == shared[i] + 1 for row in found)]
    scores = {i: _long_letters(model, prompts, r) for i, r in enumerate(requests) if i not in plain}
    if plain:  # one pass over the prompts of the whole batch
        firsts = following([requests[i] for i in plain], [spelt[i][0][: shared[i]] for i in plain])
        for i, first in zip(plain, firsts, strict=True):
            logs = first.float().log_softmax(-1)
            scores[i] = [float(logs[row[-1]]) for row in spelt[i]]
    return [scores[i] for i in range(len(requests))]


def _long_letters(model: Any, prompts: PromptTokens, request: Request) -> list[float]:
    """Letters of several tokens, with the end of the line, since one may begin another ("1", "10")."""
    rows = [prompts.encoded(request, f"{option.name}\n") for option in request.choices]
    return causal_scores(model, rows, common(rows))


def common(rows: Sequence[Tokens]) -> int:
    """How many first tokens all rows share, at most all but the last of the shortest."""
    most = min(map(len, rows)) - 1
    return next((n for n in range(most) if len({row[n] for row in rows}) > 1), most)


def causal_scores(model: Any, rows: Sequence[Tokens], shared: int) -> list[float]:
    """Of each row, the log-probability of its tokens after the first `shared` (at least one) of them."""
    import torch

    ids, mask = padded_rows(rows, 0, left=False)
    with torch.inference_mode():
        logits = model(input_ids=ids.to(model.device), attention_mask=mask.to(model.device)).logits
    return [_sum(logits[i, shared - 1 :], row[shared:]) for i, row in enumerate(rows)]


def seq2seq_scores(model: Any, row: Tokens, targets: Sequence[Tokens], mean: bool) -> list[float]:
    """The log-probability of each target, all of its tokens or, if `mean`, a token, for one input."""
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
    """The softmax of log-probabilities: what each option has of the mass of all."""
    import numpy as np

    powers = np.exp(np.asarray(scores) - max(scores))
    return [float(share) for share in powers / powers.sum()]


def _sum(logits: "torch.Tensor", tokens: Tokens) -> float:
    """The log-probability of tokens, `logits` (n, vocabulary) being those before each of them."""
    import torch

    logs = torch.log_softmax(logits[: len(tokens)].float(), -1)
    return float(logs[torch.arange(len(tokens)), torch.tensor(list(tokens))].sum())
