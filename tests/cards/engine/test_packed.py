"""Packed weights: the same documents from the same bytes, laid out for oneDNN."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from kcard.cards.models import weights
from kcard.cards.models.batched import decoder as batched_decoder
from kcard.cards.models.batched import families, lora
from kcard.cards.models.batched import whole_models as whole
from kcard.cards.models.batched.decoder import Decoder, packed
from kcard.cards.models.batched.generate import Prompts, Sampler, batched, decode, log_probabilities
from tests.cards.engine.models import FAMILIES, adapter, model

PROMPTS = Prompts(ids=((1, 6, 7, 8, 9, 10), (1, 20, 21)))
TOKENS = 40


def plain(family: str, dtype: torch.dtype = torch.float32) -> Decoder:
    return families.decoder(weights.of_model(model(family).to(dtype)))


def needs_packing() -> None:
    if not packed(plain("opt")).head.weight.is_mkldnn:
        pytest.skip("this machine has no packed products")


def documents(decoder: Decoder, cards: int, seeds: list[int], temperature: float = 1.0) -> list[list[int]]:
    """Of every card, as many a prompt as the seeds allow."""
    asked = Prompts(ids=PROMPTS.ids * cards)
    batch = batched(decoder, asked, len(seeds) // len(asked))
    found: list[list[int]] = decode(
        decoder, batch, Sampler(torch.tensor(seeds), temperature, 50), TOKENS, ()
    ).tolist()
    return found


@pytest.mark.parametrize("family", FAMILIES)
def test_packed_weights_write_what_plain_ones_write(family: str, tmp_path: Path) -> None:
    needs_packing()
    base, (first, second) = model(family), FAMILIES[family][1]
    folders = [adapter(base, tmp_path / "a", 1, first), adapter(base, tmp_path / "b", 2, second, r=3)]
    read = [lora.read(folder, torch.float32) for folder in folders]
    both = {laid: lora.stacked(laid(plain(family)), read) for laid in (packed, lambda decoder: decoder)}
    seeds = [*range(8)]
    for temperature in (0.0, 1.0):
        one, other = (documents(decoder, 2, seeds, temperature) for decoder in both.values())
        assert one == other


def test_a_document_of_packed_weights_does_not_depend_on_its_batch(tmp_path: Path) -> None:
    needs_packing()
    base = model("opt")
    folders = [adapter(base, tmp_path / str(n), n, ["q_proj", "fc1"]) for n in range(5)]
    decoder = lora.stacked(packed(plain("opt")), [lora.read(folder, torch.float32) for folder in folders])
    together = documents(decoder, 5, [*range(30)])
    alone = [documents(whole.part(decoder, n, n + 1, 5), 1, [*range(6 * n, 6 * n + 6)]) for n in range(5)]
    assert together == [row for rows in alone for row in rows]


def test_packed_weights_take_the_place_of_plain_ones() -> None:
    needs_packing()
    decoder = plain("llama")
    found = packed(decoder)
    assert all(linear.weight.is_mkldnn for layer in found.layers for linear in lora.modules(layer))
    assert batched_decoder.size(found) == batched_decoder.size(decoder)
    assert lora.widths(found) == lora.widths(decoder)


def test_a_head_that_shares_the_embeddings_weight_is_counted_when_it_is_packed() -> None:
    needs_packing()
    decoder = plain("opt")
    assert decoder.head.weight.data_ptr() == decoder.embed.table.data_ptr()
    table = decoder.embed.table
    assert (
        batched_decoder.size(packed(decoder))
        == batched_decoder.size(decoder) + table.numel() * table.element_size()
    )


def test_in_bf16_packed_weights_give_the_probabilities_of_fp32_within_its_precision() -> None:
    half = packed(plain("opt", torch.bfloat16))
    if not half.head.weight.is_mkldnn:
        pytest.skip("this machine has no packed products in bf16")
    # The same rounded weights in fp32, so that only the products differ.
    exact = batched_decoder.mapped(plain("opt", torch.bfloat16), torch.Tensor.float)
    said = [[30, 31, 32, 33], [40, 41, 42]]
    expected, found = (log_probabilities(decoder, PROMPTS, said) for decoder in (exact, half))
    for row, other in zip(expected, found, strict=True):
        assert other == pytest.approx(row, abs=0.05)


def test_weights_that_have_no_packed_products_stay_as_they_are() -> None:
    for dtype in (torch.float16, torch.float64):
        decoder = plain("opt", dtype)
        assert packed(decoder) is decoder
    decoder = plain("opt")
    joined = whole.joined(iter([decoder, replace(decoder)]), [320, 320])
    assert packed(joined) is joined
