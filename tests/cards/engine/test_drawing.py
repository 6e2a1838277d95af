"""The engine draws as transformers samples: from the tempered top k, each row by its own seed."""

from typing import Any

import pytest
import torch
from transformers import GenerationConfig

from kcard.cards.models import weights
from kcard.cards.models.batched import families
from kcard.cards.models.batched.generate import Prompts, Sampler, batched, decode, highest
from tests.cards.engine.models import model

PROMPT = (1, 6, 7, 8)


@pytest.mark.parametrize(("width", "k"), [(50, 5), (320, 50), (9000, 50), (50272, 50), (9001, 1)])
def test_the_highest_in_two_steps_are_the_highest(width: int, k: int) -> None:
    torch.manual_seed(width)
    logits = torch.randn(7, width)
    logits[0, -1] = logits[1, 0] = 9.0
    values, tokens = highest(logits, k)
    expected = torch.topk(logits, k)
    assert torch.equal(values.sort(descending=True).values, expected.values)
    assert torch.equal(logits.gather(1, tokens), values)
    assert torch.equal(tokens.sort().values, expected.indices.sort().values)


def test_two_tokens_are_distributed_as_in_transformers_top_k_sampling() -> None:
    """Chi-square over the pairs of first and second token: the expected shares are exact, not another sample."""
    base, draws, k, temperature = model("llama"), 20_000, 4, 0.8
    config = GenerationConfig(do_sample=True, temperature=temperature, top_k=k)
    first = shares(base, [list(PROMPT)], config)[0]
    likely = first.nonzero().flatten().tolist()
    second = shares(base, [[*PROMPT, token] for token in likely], config)
    assert len(likely) == k
    sampler = Sampler(torch.arange(draws), temperature, k)
    decoder = families.decoder(weights.of_model(base))
    found = decode(decoder, batched(decoder, Prompts(ids=(PROMPT,)), draws), sampler, 2, ())
    expected = {(one, two): float(first[one] * second[i][two]) * draws for i, one in enumerate(likely)
                for two in second[i].nonzero().flatten().tolist()}  # fmt: skip
    seen = dict.fromkeys(expected, 0)
    for pair in found.tolist():
        seen[pair[0], pair[1]] += 1  # KeyError for a token outside the top k
    common = [pair for pair in expected if expected[pair] >= 5]
    rare = [pair for pair in expected if expected[pair] < 5]
    counts = [*(seen[p] for p in common), sum(seen[p] for p in rare)]
    awaited = [*(expected[p] for p in common), sum(expected[p] for p in rare)]
    if not rare:
        counts, awaited = counts[:-1], awaited[:-1]
    # The seeds are fixed, so this passes or fails for good.
    apart = torch.tensor([(c - a) ** 2 / a for c, a in zip(counts, awaited, strict=True)]).sum()
    free = torch.tensor((len(counts) - 1) / 2)
    assert len(counts) >= k
    assert torch.special.gammaincc(free, apart / 2) > 0.01


def shares(base: Any, prompts: list[list[int]], config: GenerationConfig) -> torch.Tensor:
    """What transformers samples the next token from, by its own processors."""
    ids = torch.tensor(prompts)
    out = base.generate(
        ids, attention_mask=torch.ones_like(ids), generation_config=config, max_new_tokens=1, pad_token_id=0,
        return_dict_in_generate=True, output_scores=True,
    )  # fmt: skip
    found: torch.Tensor = torch.softmax(out.scores[0].double(), -1)
    return found


def test_a_row_depends_on_its_seed_alone() -> None:
    torch.manual_seed(0)
    logits = torch.randn(1, 5000)
    seeds = torch.tensor([3, 4, 5, 3])
    together = Sampler(seeds, 1.0, 50).draw(logits.expand(4, -1), 7)
    alone = [int(Sampler(seeds[i : i + 1], 1.0, 50).draw(logits, 7)) for i in range(4)]
    assert together.tolist() == alone
    assert alone[0] == alone[3]
    assert len(set(alone)) == 3


def test_temperature_zero_and_a_top_of_one_are_greedy() -> None:
    torch.manual_seed(0)
    logits = torch.randn(5, 5000)
    assert torch.equal(Sampler(torch.arange(5), 0.0, 50).draw(logits, 0), logits.argmax(-1))
    assert torch.equal(Sampler(torch.arange(5), 3.0, 1).draw(logits, 0), logits.argmax(-1))
