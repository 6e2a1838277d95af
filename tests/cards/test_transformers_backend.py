"""Generation."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from kcard.cards.models.batched.generate import Prompts
from kcard.cards.models.transformers_backend import Limits, generate
from kcard.token_sampling import gumbel
from kcard.types import Sampling
from tests.cards.engine.models import model as opt

pytestmark = pytest.mark.numeric

LIMITS = Limits(eos=(2,), pad=0)
PROMPTS = Prompts(ids=((1, 17, 23, 5), (1, 9), (1, 40, 41, 42, 43, 44, 45), (1, 33, 12)))
SEEDS = [11, 22, 33, 44]


@pytest.fixture(scope="module")
def model() -> Any:
    return opt("opt")


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_document_is_the_same_alone_and_in_a_batch(model: Any, temperature: float) -> None:
    sampling = Sampling(temperature=temperature, tokens=24)
    together = generate(model, PROMPTS, SEEDS, sampling, LIMITS)
    alone = [generate(model, PROMPTS.pick([i]), [SEEDS[i]], sampling, LIMITS)[0] for i in range(4)]
    in_pairs = generate(model, PROMPTS, SEEDS, sampling, replace(LIMITS, rows=2))
    assert together == alone == in_pairs
    assert len({tuple(ids) for ids, _ in together}) == 4


def test_temperature_zero_is_the_greedy_search_of_transformers(model: Any) -> None:
    (ids, _), *_ = generate(
        model, PROMPTS, SEEDS, Sampling(temperature=0, tokens=12), replace(LIMITS, eos=())
    )
    expected = model.generate(
        torch.tensor([PROMPTS.ids[0]]), max_new_tokens=12, min_new_tokens=12, do_sample=False
    )
    assert ids == expected[0, 4:].tolist()


def test_embeddings_of_the_same_tokens_give_the_same_document(model: Any) -> None:
    rows = Prompts(ids=(PROMPTS.ids[0], (1, 8, 30, 2)))
    embedded = Prompts(embeddings=model.get_input_embeddings()(torch.tensor(rows.ids)))
    for sampling in (Sampling(temperature=0, tokens=12), Sampling(temperature=1, tokens=12)):
        assert generate(model, embedded, [1, 2], sampling, LIMITS) == generate(
            model, rows, [1, 2], sampling, LIMITS
        )


def test_a_document_ends_before_the_first_end_token(model: Any) -> None:
    sampling = Sampling(temperature=0, tokens=12)
    (whole, _), *_ = generate(model, PROMPTS, SEEDS, sampling, replace(LIMITS, eos=()))
    end = whole[3]
    (cut, ended), *_ = generate(model, PROMPTS, SEEDS, sampling, replace(LIMITS, eos=(end,)))
    assert cut == whole[: whole.index(end)]
    assert ended


def test_noise_belongs_to_the_token_whatever_its_rank() -> None:
    seeds, tokens = torch.tensor([7, 2**62]), torch.tensor([[3, 1, 2], [3, 1, 2]])
    swapped = tokens[:, [2, 0, 1]]
    assert torch.equal(gumbel(seeds, 4, tokens)[:, [2, 0, 1]], gumbel(seeds, 4, swapped))
