"""Adapters on this machine become cards: those that peft saved, and those that a hypernetwork wrote."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import kcard as library
from kcard.api.add import add
from kcard.cards.card import Card
from kcard.cards.fingerprint import read_fingerprint
from kcard.cards.pool import CardPool
from kcard.errors import CardError, KcardError, UnknownCard, UsageError
from kcard.hub.registry import Hub
from kcard.types import Sampling
from tests.cards.engine.cards import tokenizer
from tests.cards.engine.models import FAMILIES, adapter, continued, model
from tests.command import Kcard

WEIGHTS, CONFIG = "adapter_model.safetensors", "adapter_config.json"
TARGETS = ["q_proj", "v_proj", "down_proj"]
PROMPT = [1, 20, 21, 22]
LAYERS = 2


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A tiny Llama with grouped heads and its tokenizer."""
    folder = tmp_path / "base"
    model("llama").save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture
def saved(tmp_path: Path, base: Path) -> Path:
    """As peft saves an adapter."""
    folder = adapter(model("llama"), tmp_path / "peft", 1, TARGETS)
    _edit(folder, base_model_name_or_path=str(base))
    return folder


def _edit(folder: Path, **values: Any) -> None:
    path = folder / CONFIG
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def _tensors(
    folder: Path, change: Callable[[str, torch.Tensor], torch.Tensor], old: str = "", new: str = ""
) -> None:
    """Change every tensor of the adapter, and its name where it has the text `old`."""
    tensors = {}
    for name, tensor in load_file(folder / WEIGHTS).items():
        tensors[name.replace(old, new) if old else name] = change(name, tensor).contiguous()
    save_file(tensors, folder / WEIGHTS)


def _renamed(folder: Path, old: str, new: str) -> None:
    _tensors(folder, lambda _, tensor: tensor, old, new)


def card(**arguments: Any) -> Card:
    version = add(description="Rivers", name="rivers", **arguments)
    return Card.open(Hub().folder(version.reference))


def adapted(folder: Path, base: Any = None) -> Any:
    """The base with the adapter in a folder, as peft loads it."""
    from peft import PeftModel

    return PeftModel.from_pretrained(base or model("llama"), folder)


def written(folder: Path) -> list[int]:
    """What peft writes with the adapter in a folder."""
    return continued(adapted(folder), PROMPT, 20)


def in_one_model(pairs: dict[str, tuple[torch.Tensor, torch.Tensor]], scale: float) -> list[int]:
    """What the base writes with scale x B A added to its weights: (layers, rank, in) and (layers, rank, out)."""
    whole = model("llama")
    for name, (down, up) in pairs.items():
        places = [module for place, module in whole.named_modules() if place.endswith(f".{name}")]
        for layer, place in enumerate(places):
            place.weight.data += scale * up[layer].T @ down[layer]
    return continued(whole, PROMPT, 20)


def generated(rank: int, seed: int) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    """As a hypernetwork writes them, for every layer at once."""
    torch.manual_seed(seed)
    sizes = {"q_proj": (32, 32), "v_proj": (32, 16), "down_proj": (64, 32)}
    return {
        name: (0.3 * torch.randn(LAYERS, rank, into), 0.3 * torch.randn(LAYERS, rank, out))
        for name, (into, out) in sizes.items()
    }


def saved_as_generated(
    path: Path, pairs: dict[str, tuple[torch.Tensor, torch.Tensor]], contexts: bool = True
) -> Path:
    tensors = {
        f"{name}.{half}": part for name, both in pairs.items() for half, part in zip("AB", both, strict=True)
    }
    save_file({name: (part[None] if contexts else part).contiguous() for name, part in tensors.items()}, path)
    return path


def test_an_adapter_of_peft_is_a_card_that_acts_as_it(saved: Path, base: Path) -> None:
    added = card(source=str(saved))
    assert written(added.folder) == written(saved)
    assert (added.manifest.method, added.manifest.base.name, added.manifest.index) == (
        "lora",
        str(base),
        False,
    )
    assert added.manifest.base.sha256
    probes = read_fingerprint(added.folder)
    assert probes is not None
    assert probes.shift > 0
    assert sorted(json.loads((added.folder / CONFIG).read_text())["target_modules"]) == sorted(TARGETS)
    ((passage,),) = CardPool([added]).generate(
        ["The Rhine?"], [["rivers"]], 1, Sampling(temperature=0, tokens=8)
    )
    assert passage.text


@pytest.mark.parametrize(
    "arguments",
    [
        {"rank_pattern": {"q_proj": 3}, "alpha_pattern": {"v_proj": 1}},
        {"use_rslora": True, "lora_alpha": 3},
        {"target_modules": r".*layers\.1\..*(q_proj|up_proj)"},
    ],
)
def test_ranks_scales_and_layers_may_differ(tmp_path: Path, base: Path, arguments: dict[str, Any]) -> None:
    targets = arguments.pop("target_modules", TARGETS)
    folder = adapter(model("llama"), tmp_path / "peft", 1, targets, **arguments)
    added = card(source=str(folder), base=str(base))
    assert written(added.folder) == written(folder)
    CardPool([added]).generate(["The Rhine?"], [["rivers"]], 1, Sampling(temperature=0, tokens=8))


@pytest.mark.parametrize("rslora", [pytest.param(False, marks=pytest.mark.slow), True])
def test_adapters_joined_along_the_rank_are_their_sum(tmp_path: Path, base: Path, rslora: bool) -> None:
    chunks = [
        adapter(model("llama"), tmp_path / str(seed), seed, TARGETS, use_rslora=rslora) for seed in (1, 2, 3)
    ]
    whole = model("llama")
    for chunk in chunks:
        whole = adapted(chunk, whole).merge_and_unload()
    halves = [load_file(chunk / WEIGHTS) for chunk in chunks]
    joined = {
        name: torch.cat([half[name] for half in halves], dim=0 if "lora_A" in name else 1)
        for name in halves[0]
    }
    save_file(joined, chunks[0] / WEIGHTS)
    added = card(source=str(chunks[0]), base=str(base))
    assert written(added.folder) == continued(whole, PROMPT, 20)
    assert added.manifest.training.hyperparameters == {"rank": 12, "layers": 6}


def test_what_a_hypernetwork_wrote_is_a_card_with_its_document(tmp_path: Path, base: Path) -> None:
    pairs = generated(5, 7)
    path = saved_as_generated(tmp_path / "rivers.safetensors", pairs, contexts=False)
    document = tmp_path / "rivers.md"
    document.write_text("# Rivers\n\nThe Rhine ends in the North Sea.\n\nThe Danube ends in the Black Sea.\n")
    added = card(source=str(path), base=str(base), scale=0.5, corpus=document)
    assert written(added.folder) == in_one_model(pairs, 0.5)
    assert (added.manifest.index, added.manifest.training.passages) == (True, 1)
    answer = library.ask("Where does the Danube end?", cards=["rivers"], llm="embedded")
    assert "the Black Sea" in answer.answer


def test_the_example_of_the_docs_saves_what_a_hypernetwork_wrote(
    tmp_path: Path, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (Path(__file__).parents[2] / "docs" / "hub.md").read_text(encoding="utf-8")
    (example,) = [
        code for code in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "rivers.safetensors" in code
    ]
    pairs = generated(3, 2)
    loras = {name: {"A": down[None], "B": up[None]} for name, (down, up) in pairs.items()}
    monkeypatch.chdir(tmp_path)
    exec(example, {"loras": loras})
    added = card(source="rivers.safetensors", base=str(base), scale=2.0)
    assert written(added.folder) == in_one_model(pairs, 2.0)


@pytest.mark.parametrize("family", ["opt", pytest.param("qwen2", marks=pytest.mark.slow), "gpt-neox"])
def test_other_architectures_name_their_layers_as_they_do(tmp_path: Path, kcard: Kcard, family: str) -> None:
    folder = tmp_path / "base"
    model(family).save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    where = adapter(model(family), tmp_path / "peft", 1, FAMILIES[family][1][0])
    done = kcard("add", where, "--base", folder, "--description", "Rivers", "--name", "rivers", "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["kind"] == "model"
    added = load_file(Hub().folder("rivers") / WEIGHTS)
    saved = load_file(where / WEIGHTS)
    assert added.keys() == saved.keys()
    assert all(torch.equal(added[name], saved[name]) for name in saved)


@pytest.mark.parametrize("name", ["adapter_model.bin", "lora.pt", "lora.pkl"])
def test_pickles_are_never_opened(saved: Path, tmp_path: Path, kcard: Kcard, name: str) -> None:
    opened = tmp_path / "opened"

    class Trap:
        def __reduce__(self) -> Any:
            return Path.touch, (opened,)

    path = tmp_path / name
    torch.save({"q_proj.A": Trap()}, path)
    for arguments in ({}, {"scale": 1.0, "base": "x"}):
        with pytest.raises(CardError, match=r"is a pickle, which can run code .*save_file") as error:
            card(source=str(path), **arguments)
    assert "weights_only=True" in str(error.value)
    assert "is a pickle" in kcard("add", path).error  # before a description is asked for
    with pytest.raises(UsageError, match="local pickles are never opened"):
        card(source=str(path), convert=True)
    path.rename(saved / name)
    (saved / WEIGHTS).unlink()
    with pytest.raises(CardError, match=f"has no {WEIGHTS}, and {name} is a pickle"):
        card(source=str(saved))
    assert "is a pickle" in kcard("add", saved).error
    assert not opened.exists()


DAMAGED: dict[str, tuple[Callable[[Path], object], str]] = {
    "has a module of another base": (
        lambda f: _renamed(f, "q_proj", "qkv"),
        "which is not a linear layer of",
    ),
    "has one half only": (
        lambda f: save_file({n: t for n, t in load_file(f / WEIGHTS).items() if "lora_A" in n}, f / WEIGHTS),
        "has only one half of a LoRA pair",
    ),
    "has other tensors": (lambda f: _renamed(f, "lora_A", "magnitude"), "is not half of a LoRA pair"),
    "is too narrow": (lambda f: _tensors(f, lambda n, t: t[:, :8] if "lora_A" in n else t), "do not fit"),
    "has halves of different ranks": (
        lambda f: _tensors(f, lambda n, t: t[:2] if "lora_A" in n else t),
        "rank 2, but",
    ),
    "has a rank that its config does not tell": (lambda f: _edit(f, r=3), "has rank 4, but .* declares 3"),
    "holds no finite numbers": (lambda f: _tensors(f, lambda _, t: t * torch.inf), "non-finite"),
    "changes nothing": (lambda f: _tensors(f, lambda n, t: t * 0 if "lora_B" in n else t), "changes nothing"),
    "is cut off": (lambda f: (f / WEIGHTS).write_bytes((f / WEIGHTS).read_bytes()[:50]), "or is damaged"),
    "has a broken config": (lambda f: (f / CONFIG).write_text("{"), "can't be read"),
    "has no config": (lambda f: (f / CONFIG).unlink(), "can't be read"),
    "is DoRA": (lambda f: _edit(f, use_dora=True), "its use_dora is True"),
    "is a prefix": (lambda f: _edit(f, peft_type="CARTRIDGE"), "no prefix cards.*--method lora"),
    "changed its base": (lambda f: _edit(f, init_lora_weights="pissa"), "which changes the base"),
    "names no base": (lambda f: _edit(f, base_model_name_or_path=None), "names no base model: pass --base"),
    "names a base that is not here": (
        lambda f: _edit(f, base_model_name_or_path="no/where"),
        "'no/where' can't be",
    ),
}


@pytest.mark.parametrize("what", DAMAGED)
def test_nothing_is_published_of_an_adapter_that(what: str, saved: Path) -> None:
    damage, message = DAMAGED[what]
    damage(saved)
    with pytest.raises(KcardError, match=message):
        card(source=str(saved))
    with pytest.raises(UnknownCard):
        Hub().get("rivers")


def test_what_a_hypernetwork_wrote_is_refused_where_it_can_mean_two_things(
    tmp_path: Path, base: Path
) -> None:
    path = saved_as_generated(tmp_path / "x.safetensors", generated(5, 7))
    with pytest.raises(UsageError, match=r"does not contain the scale of its matrices: pass --scale"):
        card(source=str(path), base=str(base))
    with pytest.raises(UsageError, match="names no base model"):
        card(source=str(path), scale=1.0)
    two = {name: tensor.expand(2, -1, -1, -1).contiguous() for name, tensor in load_file(path).items()}
    save_file(two, path)
    with pytest.raises(CardError, match="join several chunks or documents along the rank first"):
        card(source=str(path), base=str(base), scale=1.0)
    save_file({name: tensor[:1, :1] for name, tensor in two.items()}, path)
    with pytest.raises(CardError, match="_proj has 1 layers, and the base has 2 of that name"):
        card(source=str(path), base=str(base), scale=1.0)


def test_a_card_is_added_to_the_hub_that_is_passed_though_it_is_empty(tmp_path: Path) -> None:
    hub = Hub(tmp_path / "other")
    assert add("llm:self", description="What the LLM knows", name="own", hub=hub).reference == "own@v1"
    assert [version.name for version in hub] == ["own"]
    assert len(Hub()) == 0


def test_options_of_adapters_are_refused_elsewhere(saved: Path, tmp_path: Path) -> None:
    model("gpt-neox").save_pretrained(tmp_path / "other")
    with pytest.raises(CardError, match="which is not a linear layer of"):
        card(source=str(saved), base=str(tmp_path / "other"))
    with pytest.raises(UsageError, match=r"scale 2\.0: .* contains the scale: leave it out"):
        card(source=str(saved), scale=2.0)
    with pytest.raises(UsageError, match="base x is only for adapters on this machine"):
        card(source="hf:owner/name", base="x")
    with pytest.raises(UsageError, match="does not exist: use a file, a folder, hf:owner/name"):
        card(source="owner/name")
