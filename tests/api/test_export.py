"""kcard export: what vLLM is given, what is refused, and that nothing half written stays behind."""

import errno
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

import kcard as library
from kcard.cards.card import Card, finish
from kcard.cards.fingerprint import read_fingerprint, write_fingerprint
from kcard.cards.models.loader import Loader, base_digest
from kcard.cards.models.prompting import VOCABULARY, Vocabulary
from kcard.cards.models.transformers_backend import CausalCard
from kcard.errors import CardError, UsageError
from kcard.manifest import Base, Manifest, seal
from kcard.offline.opt import BASE, FOLDER
from kcard.types import Source
from tests.cards.engine.cards import GREEDY, QUESTIONS, full, lora, prefixed
from tests.cards.engine.models import adapter
from tests.command import Kcard
from tests.fakes import notes_to

TOKENS = {"trainable_token_indices": {"embed_tokens": [40, 41, 42, 70]}}


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "exports" / "for vllm"


def options(folder: Path) -> dict[str, list[str]]:
    """The options of the command with their values; what is served first."""
    command = json.loads((folder / "export.json").read_text(encoding="utf-8"))["command"]
    assert command[:2] == ["vllm", "serve"]
    values: dict[str, list[str]] = {"model": []}
    for word in command[2:]:
        if word.startswith("--"):
            values[word] = []
        else:
            values[list(values)[-1]].append(word)
    return values


def written(card: Card) -> list[str]:
    rows = CausalCard(card, Loader()).generate(QUESTIONS, 1, GREEDY)
    return [passages[0].text for passages in rows]


def nothing_left(out: Path) -> bool:
    return not out.exists() and (not out.parent.exists() or [*out.parent.iterdir()] == [])


def test_vllm_gets_the_adapters_of_one_base_and_a_command_that_names_them(tmp_path: Path, out: Path) -> None:
    cards = [lora(tmp_path, "llama", "rivers", 1), lora(tmp_path, "llama", "moons", 2, r=12)]
    exported = library.export([card.folder for card in cards], "vllm", out)
    assert [(card.name, card.form) for card in exported.cards] == [
        ("rivers", "adapter"),
        ("moons", "adapter"),
    ]
    flags = options(out)
    assert flags["model"] == [str(tmp_path / "llama-base")]
    assert flags["--lora-modules"] == ["rivers=./adapters/rivers", "moons=./adapters/moons"]
    assert flags["--max-lora-rank"] == ["16"]
    assert flags["--generation-config"] == ["vllm"]
    for card in cards:
        copy = out / "adapters" / card.name
        original = load_file(card.folder / "adapter_model.safetensors")
        copied = load_file(copy / "adapter_model.safetensors")
        assert copied.keys() == original.keys()
        assert all(torch.equal(copied[name], original[name]) for name in copied)
        config = json.loads((copy / "adapter_config.json").read_text(encoding="utf-8"))
        assert config["base_model_name_or_path"] == str(tmp_path / "llama-base")
    assert (out / "tokenizer" / "tokenizer.json").is_file()
    assert exported.files == tuple(
        sorted(p.relative_to(out).as_posix() for p in out.rglob("*") if p.is_file())
    )


@pytest.mark.numeric
def test_an_exported_adapter_acts_as_the_card_with_peft_alone(tmp_path: Path, out: Path) -> None:
    card = lora(tmp_path, "qwen3", "rivers", 1)
    library.export(card.folder, "vllm", out)
    base = AutoModelForCausalLM.from_pretrained(options(out)["model"][0])
    exported = PeftModel.from_pretrained(base, out / "adapters" / "rivers").eval()
    probes = read_fingerprint(card.folder)
    assert probes is not None
    row = probes.rows[0]
    ids = torch.tensor([[*row.prompt, *row.continuation]])
    with torch.inference_mode():
        scores = exported(ids).logits[0, len(row.prompt) - 1 : -1].log_softmax(-1)
    logits = scores.gather(1, torch.tensor(row.continuation).unsqueeze(1)).squeeze(1)
    assert logits.tolist() == pytest.approx(list(row.card), abs=1e-3)


def test_the_text_of_the_corpus_stays_behind(tmp_path: Path, out: Path) -> None:
    card = lora(tmp_path, "llama", "rivers", 1)
    secret = "The password of the lock at Basel is swordfish."
    finish(card.folder, card.manifest, [Source(secret)])
    library.export(card.folder, "vllm", out)
    assert not any(b"swordfish" in path.read_bytes() for path in out.rglob("*") if path.is_file())


def test_a_base_of_a_hub_is_named_with_its_revision_and_need_not_be_there(tmp_path: Path, out: Path) -> None:
    card = lora(tmp_path, "llama", "rivers", 1)
    seal(card.folder, replace(card.manifest, base=Base("acme/tiny", "0123abcd", "0" * 64)))
    library.export(card.folder, "vllm", out)
    assert options(out)["model"] == ["acme/tiny"]
    assert options(out)["--revision"] == ["0123abcd"]
    config = json.loads((out / "adapters/rivers/adapter_config.json").read_text(encoding="utf-8"))
    assert (config["base_model_name_or_path"], config["revision"]) == ("acme/tiny", "0123abcd")


def test_the_base_in_the_package_comes_along_because_no_hub_has_it(tmp_path: Path, out: Path) -> None:
    where = adapter(AutoModelForCausalLM.from_pretrained(FOLDER), tmp_path / "rivers", 1, ["fc1", "fc2"])
    base = Base(BASE, None, base_digest(BASE))
    shutil.copy(FOLDER / "tokenizer.json", where)
    shutil.copy(FOLDER / "tokenizer_config.json", where)
    finish(where, Manifest("rivers", "Rivers", method="lora", base=base), [])
    library.export(where, "vllm", out)
    assert options(out)["model"] == ["./base"]
    assert options(out)["--dtype"] == ["float32"]
    assert base_digest(str(out / "base")) == base_digest(BASE)


def test_a_whole_model_is_exported_as_it_is(tmp_path: Path, out: Path) -> None:
    card = full(tmp_path, "opt", "rivers", 1)
    exported = library.export(card.folder, "vllm", out)
    assert exported.cards[0].form == "whole"
    assert options(out)["--served-model-name"] == ["rivers"]
    assert options(out)["--dtype"] == ["float32"]
    assert written(Card(out / "model", card.manifest)) == written(card)


@pytest.mark.parametrize(("family", "more"), [("opt", TOKENS), ("llama", {"use_dora": True}), ("qwen2", {})])
def test_a_merged_adapter_writes_what_the_card_writes(
    tmp_path: Path, out: Path, family: str, more: dict[str, Any]
) -> None:
    card = lora(tmp_path, family, "rivers", 1, **more)
    exported = library.export(card.folder, "vllm", out, merge=True)
    assert exported.cards[0].form == "merged"
    assert "--enable-lora" not in options(out)
    assert written(Card(out / "model", replace(card.manifest, method="full", base=Base()))) == written(card)


def test_a_merged_model_that_does_not_act_as_the_card_is_not_exported(tmp_path: Path, out: Path) -> None:
    card = lora(tmp_path, "llama", "rivers", 1)
    tensors = load_file(card.folder / "adapter_model.safetensors")
    save_file({name: 0.5 * t for name, t in tensors.items()}, card.folder / "adapter_model.safetensors")
    seal(card.folder, card.manifest)
    with pytest.raises(CardError, match="log-probabilities differ"):
        library.export(card.folder, "vllm", out, merge=True)
    assert nothing_left(out)


def retrieval(folder: Path) -> Card:
    folder.mkdir()
    return finish(folder, Manifest("rivers", "Rivers", kind="retrieval"), [Source("The Rhine ends there.")])


REFUSED: dict[str, tuple[Callable[[Path], Card], str, str]] = {
    "no weights": (lambda path: retrieval(path / "r"), "vllm", "kind retrieval has no weights.*kcard serve"),
    "vectors": (lambda path: prefixed(path, "rivers", 1), "vllm", "sentence encoder.*kcard serve"),
    "tokens": (lambda path: lora(path, "opt", "rivers", 1, **TOKENS), "vllm", "token embeddings.*--merge"),
    "rank": (lambda path: lora(path, "llama", "rivers", 1, r=513), "vllm", "rank is 513.*--merge"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_card_that_the_engine_would_not_run_as_trained_is_refused_with_a_remedy(
    tmp_path: Path, out: Path, case: str
) -> None:
    make, engine, message = REFUSED[case]
    card = make(tmp_path)
    with pytest.raises(CardError, match=message):
        library.export(card.folder, engine, out)  # type: ignore[arg-type]
    assert nothing_left(out)


def test_cards_that_one_server_can_not_hold_are_refused_together(tmp_path: Path, out: Path) -> None:
    rivers, lakes = lora(tmp_path, "llama", "rivers", 1), full(tmp_path, "llama", "lakes", 2)
    moons, named = lora(tmp_path, "opt", "moons", 3), lora(tmp_path / "b", "llama", "rivers", 4)
    for others, message in ((lakes, "lakes is whole"), (moons, "different bases"), (named, "the same name")):
        with pytest.raises(UsageError, match=message):
            library.export([rivers.folder, others.folder], "vllm", out)
    assert nothing_left(out)


def test_options_for_other_engines_are_refused(tmp_path: Path, out: Path) -> None:
    card = lora(tmp_path, "llama", "rivers", 1)
    with pytest.raises(UsageError, match=r"for llama\.cpp, not for vLLM"):
        library.export(card.folder, "vllm", out, base="base.gguf")
    with pytest.raises(UsageError, match="to 'tgi' is unknown: choose one of vllm"):
        library.export(card.folder, "tgi", out)  # type: ignore[arg-type]


def test_a_folder_is_replaced_only_if_it_is_an_export_and_force_is_given(tmp_path: Path, out: Path) -> None:
    card, other = lora(tmp_path, "llama", "rivers", 1), lora(tmp_path, "llama", "moons", 2)
    out.mkdir(parents=True)
    library.export(card.folder, "vllm", out)
    with pytest.raises(UsageError, match="--force"):
        library.export(other.folder, "vllm", out)
    library.export(other.folder, "vllm", out, force=True)
    assert [path.name for path in (out / "adapters").iterdir()] == ["moons"]
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "letter").touch()
    with pytest.raises(UsageError, match="not an empty folder"):
        library.export(card.folder, "vllm", tmp_path / "home", force=True)
    assert [path.name for path in out.parent.iterdir()] == [out.name]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(errno.ENOSPC, "No space left on device")])
def test_an_interrupted_export_leaves_the_earlier_one_and_nothing_else(
    tmp_path: Path, out: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    card, other = lora(tmp_path, "llama", "rivers", 1), lora(tmp_path, "llama", "moons", 2)
    library.export(card.folder, "vllm", out)
    copied = []

    def fails(source: Path, target: Path) -> None:
        copied.append(target)
        if len(copied) == 2:
            raise error
        target.write_bytes(source.read_bytes())

    monkeypatch.setattr("kcard.cards.export.shutil.copyfile", fails)
    with pytest.raises(type(error)):
        library.export(other.folder, "vllm", out, force=True)
    assert copied
    assert [path.name for path in (out / "adapters").iterdir()] == ["rivers"]
    assert [path.name for path in out.parent.iterdir()] == [out.name]


def test_what_came_into_the_folder_meanwhile_is_kept(
    tmp_path: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    card = lora(tmp_path, "llama", "rivers", 1)

    def another(*_: object) -> list[str]:
        out.mkdir()
        (out / "letter").touch()
        return ["vllm"]

    monkeypatch.setattr("kcard.cards.export.write_vllm", another)
    with pytest.raises(UsageError, match="not an empty folder"):
        library.export(card.folder, "vllm", out)
    assert [path.name for path in out.parent.rglob("*")] == [out.name, "letter"]


def test_what_a_killed_export_left_is_removed_by_the_next_one(tmp_path: Path, out: Path) -> None:
    card = lora(tmp_path, "llama", "rivers", 1)
    code = (
        "import os, sys, kcard, kcard.cards.export as vllm\n"
        "vllm.write_vllm = lambda *_: os.kill(os.getpid(), 9)\n"
        "kcard.export(sys.argv[1], 'vllm', sys.argv[2])"
    )
    done = subprocess.run([sys.executable, "-c", code, str(card.folder), str(out)], check=False)
    assert done.returncode == -9
    assert not out.exists()
    assert len([*out.parent.iterdir()]) == 1
    library.export(card.folder, "vllm", out)
    assert [*out.parent.iterdir()] == [out]


def sure(card: Card) -> None:
    """Let the fingerprint say that the card is sure of its tokens, and its base is not."""
    probes = read_fingerprint(card.folder)
    assert probes is not None
    rows = [
        replace(row, card=(-0.25,) * len(row.card), base=(-4.5,) * len(row.card) if row.base else ())
        for row in probes.rows
    ]
    (card.folder / "canaries.json").write_text(replace(probes, rows=tuple(rows)).to_json(), encoding="utf-8")
    seal(card.folder, card.manifest)


def test_the_record_has_prompts_and_what_shows_that_a_card_is_applied(tmp_path: Path, out: Path) -> None:
    cards = [lora(tmp_path, "llama", "rivers", 1), lora(tmp_path, "llama", "moons", 2)]
    for card in cards:
        sure(card)
    library.export([card.folder for card in cards], "vllm", out)
    recorded = json.loads((out / "export.json").read_text(encoding="utf-8"))["cards"]
    assert [card["name"] for card in recorded] == ["rivers", "moons"]
    for card in recorded:
        assert card["template"] == "{question}\n"
        assert [(row["card"], row["base"]) for row in card["expected"]] == [(-0.25, -4.5)] * 4
        assert all(row["token"] and row["ids"] for row in card["expected"])


def test_a_card_without_a_fingerprint_has_nothing_to_check_it_by(tmp_path: Path, out: Path) -> None:
    card = full(tmp_path, "llama", "rivers", 1)
    (card.folder / "canaries.json").unlink()
    seal(card.folder, card.manifest)
    assert library.export(card.folder, "vllm", out).cards[0].expected == ()


def test_the_command_prints_where_it_wrote_or_json(tmp_path: Path, kcard: Kcard) -> None:
    card = lora(tmp_path, "llama", "rivers", 1)
    done = kcard("export", card.folder, "--to", "vllm", "--out", tmp_path / "a")
    assert (done.code, done.out) == (
        0,
        f"cd {tmp_path / 'a'} && vllm serve {tmp_path / 'llama-base'} --enable-lora --max-lora-rank 8 --max-loras 1 "
        "--lora-modules rivers=./adapters/rivers --tokenizer ./tokenizer --generation-config vllm\n",
    )
    done = kcard("export", card.folder, "--to", "vllm", "--out", tmp_path / "b", "--json")
    data = json.loads(done.out)
    assert (data["engine"], data["command"][0], data["cards"][0]["name"]) == ("vllm", "vllm", "rivers")
    unknown = kcard("export", "nothing", "--to", "vllm", "--out", tmp_path / "c")
    assert unknown.error.startswith("kcard: unknown card 'nothing': no card is published yet")
    assert kcard("export", card.folder, "--to", "tgi", "--out", tmp_path / "c").code == 2


def test_an_index_stays_behind_and_that_is_said(tmp_path: Path, out: Path) -> None:
    card = lora(tmp_path, "llama", "rivers", 1)
    both = finish(
        card.folder, replace(card.manifest, kind="both"), [Source("The Rhine ends in the North Sea.")]
    )
    messages: list[str] = []
    library.export(both.folder, "vllm", out, on_event=notes_to(messages))
    assert messages == ["rivers: its index is not exported: the engine runs the model alone"]


def test_a_card_that_reads_only_its_own_words_is_merged_and_that_is_said(tmp_path: Path, out: Path) -> None:
    card = lora(tmp_path, "opt", "rivers", 1)
    Vocabulary.of(["The baker lights the oven before dawn."], ["what", "does", "do"]).write(card.folder)
    write_fingerprint(card.folder, card.manifest, [])
    card = finish(card.folder, card.manifest, [])
    messages: list[str] = []
    library.export(card.folder, "vllm", out, merge=True, on_event=notes_to(messages))
    assert (
        messages[0]
        == "rivers: the engine reads questions unchanged; kcard rewrites them in the corpus' words first"
    )
    assert not [*out.rglob(VOCABULARY)]
