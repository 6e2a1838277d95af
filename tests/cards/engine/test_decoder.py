"""Adapters with rows of the table of tokens of their own, as peft's trainable_token_indices makes them."""

import copy
import json
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file, save_file
from transformers import LlamaConfig, LlamaForCausalLM

from kcard.cards.card import Card
from kcard.cards.models import weights
from kcard.cards.models.batched import decoder as batched_decoder
from kcard.cards.models.batched import families, generate, lora
from kcard.cards.models.batched import whole_models as whole
from kcard.cards.models.batched.decoder import Decoder, UnsupportedModel
from kcard.cards.models.batched.generate import Prompts, batched, log_probabilities
from kcard.cards.models.loader import Loader, base_digest
from kcard.cards.models.transformers_backend import CausalCard
from kcard.cards.models.transformers_backend import log_probabilities as of_transformers
from kcard.cards.pool import CardPool
from kcard.embedded import minilm
from kcard.manifest import Base, Manifest, Prompt
from kcard.token_sampling import Sampler
from tests.cards.engine.cards import GREEDY, QUESTIONS, SAMPLED, sealed, texts
from tests.cards.engine.models import GROUPED, WORDS, adapter, is_greedy, model

pytestmark = pytest.mark.numeric

PROMPTS = ((1, 6, 7, 8, 9, 10), (1, 20, 21))
TOKENS = 30
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


def changed(folder: Path, seed: int) -> Path:
    """With other rows than the base's, which are what peft begins with."""
    path = folder / lora.WEIGHTS
    tensors = load_file(path)
    torch.manual_seed(seed)
    for name in tensors:
        if name.endswith(DELTA):
            tensors[name] = torch.randn_like(tensors[name]) * 0.4
    save_file(tensors, path, {"format": "pt"})
    return folder


def adapted(
    base: Any, folder: Path, seed: int, targets: list[str], tokens: Any = None, **options: Any
) -> Path:
    made = adapter(base, folder, seed, targets, trainable_token_indices=tokens, **options)
    return changed(made, seed)


def decoder_of(base: Any) -> Decoder:
    return families.decoder(weights.of_model(base))


def read(folders: Sequence[Path]) -> list[lora.LoraAdapter]:
    for folder in folders:
        lora.check(folder)
    return [lora.read(folder, torch.float32) for folder in folders]


def write(decoder: Decoder, cards: int, tokens: int = TOKENS, eos: tuple[int, ...] = ()) -> list[Any]:
    """By card, by prompt, by document, of which there are two."""
    asked = Prompts(ids=PROMPTS * cards)
    sampler = Sampler(torch.zeros(len(asked) * 2, dtype=torch.int64), 0.0, 50)
    found = generate.decode(decoder, batched(decoder, asked, 2), sampler, tokens, eos)
    shaped: list[Any] = found.view(cards, len(PROMPTS), 2, -1).tolist()
    return shaped


def peft_of(base: Any, folder: Path) -> Any:
    return PeftModel.from_pretrained(copy.deepcopy(base), folder)


def folders_of(base: Any, kind: str, root: Path) -> list[Path]:
    """Many rows and few, as a list and by name, none, rows alone (LoRA of which nothing is left), and one row."""
    table = {"gpt-neox": "embed_in"}.get(kind, "embed_tokens")
    first, second = {
        "opt": (["q_proj", "v_proj", "fc1", "fc2"], ["out_proj"]),
        "gpt-neox": (["query_key_value", "dense"], ["dense_h_to_4h"]),
    }.get(kind, (["q_proj", "k_proj", "up_proj", "down_proj"], ["gate_proj"]))
    return [
        adapted(base, root / "a", 1, first, [319, 8, 6, *range(100, 180), 20]),
        adapted(base, root / "b", 2, second, {table: [7, 1, 300]}, r=7),
        adapted(base, root / "c", 3, first),
        adapted(base, root / "d", 4, second, list(range(WORDS)), init_lora_weights=True),
        adapted(base, root / "e", 5, first[:1], [0]),
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
            expected = of_transformers(peft, prompts, given, 0)
            for own, theirs in zip(log_probabilities(made, prompts, given), expected, strict=True):
                assert own == pytest.approx(theirs, abs=1e-4)


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
    folder = adapted(base, tmp_path / "a", 1, ["fc1"], [5, 6])

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
    missing = configured(adapted(base, tmp_path / "b", 1, ["fc1"]), [5, 6])
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


# ---- cards


def card(folder: Path, name: str, seed: int, tokens: Any, prompt: Prompt | None = None, **more: Any) -> Card:
    base = folder / "base"
    if not base.exists():
        model("opt").save_pretrained(base)
    where = adapted(model("opt"), folder / name, seed, ["q_proj", "fc1"], tokens, **more)
    if prompt is not None:
        torch.manual_seed(seed)
        tensors = {"weight": torch.randn(3 * 32, minilm.DIMENSIONS), "bias": torch.randn(3 * 32)}
        save_file(tensors, where / "projection.safetensors")
    made_from = Base(str(base), sha256=base_digest(str(base)))
    manifest = Manifest(name=name, description=name, method="lora", base=made_from)
    return sealed(where, manifest if prompt is None else replace(manifest, prompt=prompt))


@pytest.fixture(scope="module")
def cards(tmp_path_factory: pytest.TempPathFactory) -> list[Card]:
    folder = tmp_path_factory.mktemp("rows")
    prompt = Prompt("encoder-prefix", "", 3, minilm.NAME, minilm.SHA256)
    return [
        card(folder, "lakes", 1, list(range(40, 140))),
        card(folder, "seas", 2, None),
        card(folder, "dams", 3, {"embed_tokens": [1, 90, 4]}),
        card(folder, "wells", 4, [1, *range(60, 120)], prompt),
        card(folder, "ponds", 5, None, prompt),
    ]


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_cards_with_rows_write_in_a_pool_what_each_writes_with_peft(cards: list[Card], sampling: Any) -> None:
    pool, names = CardPool(cards), [card.name for card in cards]
    together = texts(pool, names, sampling)
    assert not any(isinstance(pool.generator(name), CausalCard) for name in names)
    for number, one in enumerate(cards):
        own = [row[2 * number : 2 * number + 2] for row in together]
        alone = CausalCard(one, Loader()).generate(QUESTIONS, 2, sampling)
        assert own == [[p.text for p in row] for row in alone], one.name
        assert texts(pool, [one.name], sampling) == own
    assert texts(CardPool(cards, rows=3), names, sampling) == together
