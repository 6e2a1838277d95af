"""Adapters with rows of the table of tokens of their own, as peft's trainable_token_indices makes them."""

import copy
import json
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from transformers import LlamaConfig, LlamaForCausalLM

from kcard.cards.models.batched import decoder as batched_decoder
from kcard.cards.models.batched import lora
from kcard.cards.models.batched import whole_models as whole
from kcard.cards.models.batched.decoder import UnsupportedModel
from kcard.cards.models.batched.generate import Prompts
from tests.cards.engine.models import (
    GROUPED,
    PROMPTS,
    WORDS,
    adapter,
    assert_log_probabilities,
    decoder_of,
    is_greedy,
    model,
    write,
)

pytestmark = pytest.mark.numeric

DELTA = "token_adapter.trainable_tokens_delta"


def base_of(kind: str) -> Any:
    """Of two families, whose heads are their tables or are not."""
    if kind != "tied llama":
        return model(kind)
    torch.manual_seed(0)
    made = LlamaForCausalLM(LlamaConfig(**GROUPED, tie_word_embeddings=True))
    for weight in made.parameters():
        torch.nn.init.normal_(weight, std=0.25) if weight.dim() > 1 else None
    made.generation_config.eos_token_id = None
    return made.eval()


def read(folders: Sequence[Path]) -> list[lora.LoraAdapter]:
    for folder in folders:
        lora.check(folder)
    return [lora.read(folder, torch.float32) for folder in folders]


def peft_of(base: Any, folder: Path) -> Any:
    return PeftModel.from_pretrained(copy.deepcopy(base), folder)


def folders_of(base: Any, kind: str, root: Path) -> list[Path]:
    """Many rows and few, as a list and by name, none, rows alone (LoRA of which nothing is left), and one row."""
    table = {"gpt-neox": "embed_in"}.get(kind, "embed_tokens")
    first, second = {
        "opt": (["q_proj", "v_proj", "fc1", "fc2"], ["out_proj"]),
        "gpt-neox": (["query_key_value", "dense"], ["dense_h_to_4h"]),
    }.get(kind, (["q_proj", "k_proj", "up_proj", "down_proj"], ["gate_proj"]))
    many, few, every, one = [319, 8, 6, *range(100, 180), 20], {table: [7, 1, 300]}, list(range(WORDS)), [0]
    return [
        adapter(base, root / "a", 1, first, trainable_token_indices=many),
        adapter(base, root / "b", 2, second, trainable_token_indices=few, r=7),
        adapter(base, root / "c", 3, first),
        adapter(base, root / "d", 4, second, trainable_token_indices=every, init_lora_weights=True),
        adapter(base, root / "e", 5, first[:1], trainable_token_indices=one),
    ]


@pytest.mark.parametrize("kind", ["opt", "llama", "tied llama", "gpt-neox"])
def test_stacked_rows_write_what_peft_writes_with_each(kind: str, tmp_path: Path) -> None:
    base = base_of(kind)
    folders = folders_of(base, kind, tmp_path)
    decoder, found = decoder_of(base), read(folders)
    for one in found:
        lora.check_fit(decoder, one)
    made = lora.stacked(decoder, found)
    assert (made.head.own is None) == (kind in ("llama", "gpt-neox"))
    written = write(made, 5)
    for folder, by_prompt in zip(folders, written, strict=True):
        assert is_greedy(peft_of(base, folder), PROMPTS, by_prompt), folder.name
    assert len({str(by_prompt) for by_prompt in written}) == 5
    assert write(batched_decoder.packed(made), 5) == written
    assert write(lora.stacked(batched_decoder.packed(decoder), found), 5) == written


@pytest.mark.parametrize("kind", ["opt", "llama"])
def test_a_part_and_a_choice_of_cards_keep_their_rows(kind: str, tmp_path: Path) -> None:
    base = base_of(kind)
    found = read(folders_of(base, kind, tmp_path))
    made = lora.stacked(decoder_of(base), found)
    written = write(made, 5)
    for first, last in ((1, 2), (0, 3), (3, 5)):
        assert write(whole.part(made, first, last, 5), last - first) == written[first:last]
    assert write(whole.picked(made, torch.tensor([3, 0])), 2) == [written[3], written[0]]
    alone = lora.stacked(decoder_of(base), found[:1])
    assert write(alone, 1) == written[:1]
    assert whole.cards(made) == 5


@pytest.mark.parametrize("kind", ["opt", "llama"])
def test_log_probabilities_are_those_of_peft(kind: str, tmp_path: Path) -> None:
    base = base_of(kind)
    asked, given = Prompts(ids=PROMPTS), [[5, 6, 7], [300, 31, 8, 33]]
    for folder in folders_of(base, kind, tmp_path):
        peft = peft_of(base, folder)
        made = lora.stacked(decoder_of(base), read([folder]))
        start = peft.get_input_embeddings()(torch.tensor([[1]]))[0, 0].detach()
        assert torch.equal(made.embed.row(0, 1), start)
        prefixed = Prompts(embeddings=torch.stack([torch.zeros_like(start), start]).expand(2, 2, -1))
        for prompts in (asked, prefixed):
            assert_log_probabilities(made, peft, prompts, given)


def test_the_bytes_of_a_stack_with_rows_are_known_before_it_is_made(tmp_path: Path) -> None:
    base = base_of("opt")
    decoder, found = decoder_of(base), read(folders_of(base, "opt", tmp_path))
    made = lora.stacked(decoder, found[:3])
    assert lora.added(decoder, [one.ranks for one in found[:3]]) == batched_decoder.size(
        made
    ) - batched_decoder.size(decoder)


# ---- what can't be taken


def configured(folder: Path, tokens: Any) -> Path:
    path = folder / lora.CONFIG
    config = json.loads(path.read_text())
    path.write_text(json.dumps(config | {lora.TOKENS: tokens}))
    return folder


def test_rows_that_can_not_be_taken_are_refused_with_the_reason(tmp_path: Path) -> None:
    base = base_of("opt")
    decoder = decoder_of(base)
    folder = adapter(base, tmp_path / "a", 1, ["fc1"], trainable_token_indices=[5, 6])

    def why(tokens: Any, change: Any = None) -> str | None:
        one = configured(folder, tokens)
        try:
            lora.check(one)
            made = lora.read(one, torch.float32)
            lora.check_fit(decoder, made if change is None else change(made))
        except UnsupportedModel as reason:
            return str(reason)
        return None

    def narrow(one: lora.LoraAdapter) -> lora.LoraAdapter:
        assert one.rows is not None
        return lora.LoraAdapter(one.modules, one.table, (one.rows[0], one.rows[1][:, :-1]))

    name = "model.decoder.embed_tokens"
    outside = "its trainable_token_indices name a token that is not among the 320 of the base"
    assert why([5, 6]) is why({"embed_tokens": [5, 6]}) is None
    assert why([5, WORDS - 1]) is None
    assert why([5, WORDS]) == why([-1, 5]) == outside
    assert why([5, 5]) == "its trainable_token_indices name a token twice"
    assert why([5]) == f"its rows of {name} are (2, 32), but must be (1, 32)"
    assert why([5, 6], narrow) == f"its rows of {name} are (2, 31), but must be (2, 32)"
    assert why({"lm_head": [5, 6]}) == "its trainable_token_indices name lm_head"
    both = {"embed_tokens": [5, 6], "lm_head": [5, 6]}
    assert why(both) == "its trainable_token_indices name embed_tokens and lm_head"
    assert why([]) == why(None) == f"it changes base_model.model.{name}.{DELTA}"
    missing = configured(adapter(base, tmp_path / "b", 1, ["fc1"]), [5, 6])
    with pytest.raises(UnsupportedModel, match=r"^it has rows of 0 tables for its trainable_token_indices$"):
        lora.check(missing)
    other = decoder_of(base_of("llama"))
    only = lora.LoraAdapter({}, name, (torch.tensor([5]), torch.zeros(1, 32)))
    with pytest.raises(UnsupportedModel, match=f"^its adapter changes {name}$"):
        lora.check_fit(other, only)


def test_a_head_that_is_changed_in_two_ways_is_refused(tmp_path: Path) -> None:
    for kind in ("opt", "llama"):
        base = base_of(kind)
        made = adapter(base, tmp_path / kind, 1, ["q_proj"], trainable_token_indices=[5])
        one = lora.read(made, torch.float32)
        head = {"lm_head": (torch.zeros(2, 32), torch.zeros(WORDS, 2))}
        refused = pytest.raises(UnsupportedModel, match=r"^its adapter changes the head twice$")
        with refused if kind == "opt" else nullcontext():
            lora.check_fit(decoder_of(base), lora.LoraAdapter(head, one.table, one.rows))
