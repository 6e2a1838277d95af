"""Greedy in fp32 the engine writes, token for token, what transformers and peft write for each card alone."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from transformers import GenerationConfig

from kcard.cards.models.batched import decoder as batched_decoder
from kcard.cards.models.batched import lora
from kcard.cards.models.batched import whole_models as whole
from kcard.cards.models.batched.decoder import Decoder, UnsupportedModel, packed
from kcard.cards.models.batched.generate import (
    KVCache,
    Prompts,
    batched,
    decode,
    log_probabilities,
    until_eos,
)
from kcard.token_sampling import Sampler, highest
from tests.cards.engine.models import (
    FAMILIES,
    PROMPTS,
    TOKENS,
    WORDS,
    adapter,
    assert_log_probabilities,
    decoder_of,
    is_greedy,
    model,
    write,
)

pytestmark = pytest.mark.numeric


@pytest.mark.parametrize("family", FAMILIES)
def test_stacked_adapters_write_what_peft_writes_with_each(family: str, tmp_path: Path) -> None:
    base, (first, second) = model(family), FAMILIES[family][1]
    folders = [
        adapter(base, tmp_path / "a", 1, first, r=4),
        adapter(base, tmp_path / "b", 2, first, r=7, lora_alpha=5, use_rslora=True),
        adapter(base, tmp_path / "c", 3, second, r=2),
        adapter(base, tmp_path / "d", 4, first[:1], rank_pattern={"0." + ".*": 9}, alpha_pattern={".*": 3}),
    ]
    for folder in folders:
        lora.check(folder)
    decoder = decoder_of(base)
    read = [lora.read(folder, torch.float32) for folder in folders]
    for one in read:
        lora.check_fit(decoder, one)
    written = write(lora.stacked(decoder, read), 4)
    bare = write(decoder, 1)[0]
    assert is_greedy(base, PROMPTS, bare)
    peft: Any = PeftModel.from_pretrained(base, folders[0], adapter_name="card0")
    for number, folder in enumerate(folders[1:], 1):
        peft.load_adapter(folder, adapter_name=f"card{number}")
    for number, by_prompt in enumerate(written):
        peft.set_adapter(f"card{number}")
        assert is_greedy(peft, PROMPTS, by_prompt), folders[number].name
    assert len({str(by_prompt) for by_prompt in [*written, bare]}) == 5


@pytest.mark.parametrize("family", FAMILIES)
def test_stacked_whole_models_write_what_each_writes(family: str) -> None:
    models = [model(family, seed) for seed in range(3)]
    decoders = [decoder_of(one) for one in models]
    assert len({whole.architecture_signature(decoder) for decoder in decoders}) == 1
    joined = whole.joined(iter(decoders), [WORDS] * 3)
    assert batched_decoder.size(joined) == 3 * whole.size(decoders[0])
    written = write(joined, 3)
    for one, by_prompt in zip(models, written, strict=True):
        assert is_greedy(one, PROMPTS, by_prompt)
    assert write(whole.part(joined, 1, 3, 3), 2) == written[1:]
    assert write(whole.part(joined, 1, 2, 3), 1) == written[1:2]


@pytest.mark.parametrize("family", FAMILIES)
def test_log_probabilities_are_those_of_transformers(family: str) -> None:
    base = model(family)
    table = base.get_input_embeddings().weight.detach()
    embedded = Prompts(embeddings=torch.stack([table[[1, 6, 7]], table[[1, 20, 21]]]))
    texts = [[5, 6, 7], [30, 31, 32, 33]]
    for asked in (Prompts(ids=PROMPTS), embedded):
        assert_log_probabilities(decoder_of(base), base, asked, texts)


def test_models_of_unlike_shape_are_not_akin() -> None:
    found = {name: whole.architecture_signature(decoder_of(model(name))) for name in FAMILIES}
    assert len(set(found.values())) == len(found)
    tied = model("qwen2")
    tied.lm_head.weight = tied.model.embed_tokens.weight
    assert whole.architecture_signature(decoder_of(tied)) != found["qwen2"]


@pytest.mark.parametrize("family", ["opt", "llama"])
def test_whole_models_of_unlike_vocabularies_are_stacked_and_draw_their_own_tokens_only(family: str) -> None:
    models = [model(family, 1), model(family, 2), model(family, 3)]
    for one, words in zip(models, (50, WORDS, 30), strict=True):
        one.resize_token_embeddings(words, mean_resizing=False)
    decoders = [decoder_of(one) for one in models]
    assert len({whole.architecture_signature(decoder) for decoder in decoders}) == 1
    joined = whole.joined(iter(decoders), [50, WORDS, 30])
    written = write(joined, 3)
    for one, by_prompt in zip(models, written, strict=True):
        assert is_greedy(one, PROMPTS, by_prompt)
    asked = Prompts(ids=PROMPTS * 3)
    sampler = Sampler(torch.arange(300 * len(asked)), 5.0, 50)
    drawn = decode(joined, batched(joined, asked, 300), sampler, 1, ()).view(3, -1)
    assert drawn.amax(1).tolist() == [49, pytest.approx(280, abs=39), 29]
    alone = decode(decoders[2], batched(decoders[2], asked.pick([4, 5]), 300),
                   Sampler(sampler.seeds[-600:], 5.0, 50), 1, ())  # fmt: skip
    assert torch.equal(drawn[2], alone[:, 0])


def test_an_adapter_of_another_shape_or_of_other_layers_is_a_misfit(tmp_path: Path) -> None:
    decoder = decoder_of(model("llama"))
    norm = adapter(model("gpt-neox"), tmp_path / "a", 1, ["dense"])
    with pytest.raises(
        UnsupportedModel, match=r"^its adapter changes gpt_neox\.layers\.0\.attention\.dense$"
    ):
        lora.check_fit(decoder, lora.read(norm, torch.float32))
    known = lora.read(adapter(model("llama"), tmp_path / "b", 1, ["q_proj"]), torch.float32)
    cut = {name: (down[:, :-1], up) for name, (down, up) in known.modules.items()}
    with pytest.raises(
        UnsupportedModel, match=r"of model\.layers\.0\.self_attn\.q_proj does not fit the base$"
    ):
        lora.check_fit(decoder, lora.LoraAdapter(cut))


def test_architectures_that_the_engine_does_not_know_are_left_alone() -> None:
    from transformers import GPT2Config, GPT2LMHeadModel, MistralConfig, MistralForCausalLM

    small: dict[str, Any] = {"n_embd": 16, "n_layer": 1, "n_head": 2, "vocab_size": 20}
    with pytest.raises(UnsupportedModel, match=r"^a GPT2LMHeadModel$"):
        decoder_of(GPT2LMHeadModel(GPT2Config(**small)))
    windowed = MistralConfig(
        vocab_size=20, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=2, sliding_window=8,
    )  # fmt: skip
    with pytest.raises(UnsupportedModel, match=r"^a MistralForCausalLM with sliding windows$"):
        decoder_of(MistralForCausalLM(windowed))


@pytest.mark.parametrize("kind", ["adapters", "whole models", "one model"])
def test_documents_that_go_on_after_most_cards_are_through_stay_what_they_are(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    picks: list[int] = []
    pick = KVCache.pick

    def counted(cache: KVCache, prompts: torch.Tensor) -> None:
        picks.append(len(prompts))
        pick(cache, prompts)

    monkeypatch.setattr(KVCache, "pick", counted)
    if kind == "whole models":
        models = [model("opt", seed) for seed in range(6)]
        decoder = whole.joined((decoder_of(one) for one in models), [WORDS] * 6)
    else:
        base = model("opt")
        folders = [adapter(base, tmp_path / str(n), n, ["q_proj", "fc1"]) for n in range(6)]
        decoder = decoder_of(base)
        if kind == "adapters":
            decoder = lora.stacked(decoder, [lora.read(folder, torch.float32) for folder in folders])
    asked = Prompts(ids=PROMPTS * 6)
    sampler, eos = Sampler(torch.arange(24), 1.0, 50), tuple(range(3, WORDS, 8))
    found = decode(decoder, batched(decoder, asked, 2), sampler, TOKENS, eos).tolist()
    whole_ones = decode(decoder, batched(decoder, asked, 2), sampler, TOKENS, ()).tolist()
    assert [until_eos(row, eos) for row in found] == [
        until_eos(row[: len(found[0])], eos) for row in whole_ones
    ]
    assert picks


# The engine draws as transformers samples: from the tempered top k, each row by its own seed.

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
    decoder = decoder_of(base)
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


# Packed weights: the same documents from the same bytes, laid out for oneDNN.


ASKED = Prompts(ids=PROMPTS)


def plain(family: str, dtype: torch.dtype = torch.float32) -> Decoder:
    return decoder_of(model(family).to(dtype))


def needs_packing() -> None:
    if not packed(plain("opt")).head.weight.is_mkldnn:
        pytest.skip("this machine has no packed products")


def documents(decoder: Decoder, cards: int, seeds: list[int], temperature: float = 1.0) -> list[list[int]]:
    """Of every card, as many a prompt as the seeds allow."""
    asked = Prompts(ids=ASKED.ids * cards)
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


def test_packed_weights_take_the_place_of_plain_ones_and_a_head_of_its_own_is_counted() -> None:
    needs_packing()
    decoder = plain("llama")
    found = packed(decoder)
    assert all(linear.weight.is_mkldnn for linear in found.linears)
    assert batched_decoder.size(found) == batched_decoder.size(decoder)
    assert lora.widths(found) == lora.widths(decoder)
    tied = plain("opt")
    table = tied.embed.table
    assert tied.head.weight.data_ptr() == table.data_ptr()
    head = table.numel() * table.element_size()
    assert batched_decoder.size(packed(tied)) == batched_decoder.size(tied) + head


def test_in_bf16_packed_weights_give_the_probabilities_of_fp32_within_its_precision() -> None:
    half = packed(plain("opt", torch.bfloat16))
    if not half.head.weight.is_mkldnn:
        pytest.skip("this machine has no packed products in bf16")
    # The same rounded weights in fp32, so that only the products differ.
    exact = batched_decoder.mapped(plain("opt", torch.bfloat16), torch.Tensor.float)
    said = [[30, 31, 32, 33], [40, 41, 42]]
    expected, found = (log_probabilities(decoder, ASKED, said) for decoder in (exact, half))
    for row, other in zip(expected, found, strict=True):
        assert other == pytest.approx(row, abs=0.05)


def test_weights_that_have_no_packed_products_stay_as_they_are() -> None:
    for dtype in (torch.float16, torch.float64):
        decoder = plain("opt", dtype)
        assert packed(decoder) is decoder
    decoder = plain("opt")
    joined = whole.joined(iter([decoder, replace(decoder)]), [320, 320])
    assert packed(joined) is joined
