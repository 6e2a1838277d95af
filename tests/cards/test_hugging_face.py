"""Cards by reference and converted cards, from real tiny models that a local server serves as the Hub would."""

import json
import os
import pickle
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file
from transformers import OPTConfig, OPTForCausalLM

from kcard.api.add import is_published
from kcard.cards import pickle_process
from kcard.cards.hugging_face import POOL, PUBLISHED, ModelRepository
from kcard.errors import CardError
from kcard.hub.registry import Hub
from kcard.manifest import Base, Manifest, Prompt
from tests.tiny_tokenizers import of_bytes

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="the session's environment is for POSIX"),
]

OLD, NEW = "a" * 40, "b" * 40
TEXT = "The Rhine flows through Basel and Cologne into the North Sea."
WEIGHTS = "model.safetensors"
HERE = Path(__file__).parent
Step = list[str] | str | dict[str, str]


class Payload:
    """What a pickle of this does when it is opened without care: it writes a file."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.marker}",)


@dataclass(frozen=True)
class Remote:
    """A Hub at `url` with its repositories under `root`."""

    url: str
    root: Path

    def run(
        self, home: Path, *steps: "list[str] | str | dict[str, str]", offline: bool = False
    ) -> list[dict[str, Any]]:
        environment = {
            **os.environ,
            "HF_ENDPOINT": self.url,
            "HF_HUB_OFFLINE": "1" if offline else "0",
            "HF_HOME": str(home / "hf"),
            "KCARD_HOME": str(home),
        }
        done = subprocess.run(
            [sys.executable, str(HERE / "hub_session.py")],
            input=json.dumps(steps),
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        found: list[dict[str, Any]] = json.loads(done.stdout)
        assert "Traceback" not in "".join(step["err"] for step in found) + done.stderr
        return found


def model(seed: int) -> OPTForCausalLM:
    torch.manual_seed(seed)
    sizes = {"hidden_size": 32, "word_embed_proj_dim": 32, "ffn_dim": 64, "init_std": 0.3}
    return OPTForCausalLM(
        OPTConfig(
            vocab_size=300,
            num_hidden_layers=2,
            num_attention_heads=4,
            max_position_embeddings=128,
            pad_token_id=0,
            bos_token_id=1,
            eos_token_id=2,
            **sizes,  # type: ignore[arg-type]
        )
    )


def repository(root: Path, name: str, commit: str = OLD) -> Path:
    """A new folder of a commit, which is the newest from now on; never outside `root`."""
    folder = root / name / commit
    folder.mkdir(parents=True)
    (root / name / "main").write_text(commit, encoding="utf-8")
    return folder


def whole(root: Path, name: str, seed: int = 0, commit: str = OLD) -> Path:
    folder = repository(root, name, commit)
    model(seed).save_pretrained(folder)
    of_bytes([TEXT], 300, bos=False).save_pretrained(folder)
    return folder


def pickled(root: Path, name: str, shards: int = 1) -> Path:
    """The same model as a pickle; its head and its embeddings share their memory, as real ones do."""
    folder = whole(root, name)
    (folder / WEIGHTS).unlink()
    state = list(model(0).state_dict().items())
    names = [f"pytorch_model-{i + 1:05}-of-{shards:05}.bin" for i in range(shards)]
    names = ["pytorch_model.bin"] if shards == 1 else names
    for i, file in enumerate(names):
        torch.save(dict(state[i::shards]), folder / file)
    return folder


def adapter(root: Path, name: str, base: str) -> Path:
    folder = repository(root, name)
    torch.manual_seed(5)
    made = get_peft_model(
        model(0), LoraConfig(r=4, target_modules=["q_proj", "v_proj"], init_lora_weights=False)
    )
    made.peft_config["default"].base_model_name_or_path = base
    made.save_pretrained(str(folder), save_embedding_layers=False)
    of_bytes([TEXT], 300, bos=False).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Remote]:
    root = tmp_path_factory.mktemp("remote")
    whole(root, "lab/Rivers")
    pickled(root, "lab/pickled")
    pickled(root, "lab/sharded", shards=2)
    adapter(root, "lab/adapter", "lab/Rivers")
    safe = load_file(adapter(root, "lab/pickled-adapter", "lab/Rivers") / "adapter_model.safetensors")
    torch.save(safe, root / "lab/pickled-adapter" / OLD / "adapter_model.bin")
    (root / "lab/pickled-adapter" / OLD / "adapter_model.safetensors").unlink()
    marker = root / "executed"
    for kind in ("zip", "plain", "old"):
        folder = pickled(root, f"lab/evil-{kind}") / "pytorch_model.bin"
        if kind == "plain":
            folder.write_bytes(pickle.dumps(Payload(marker), protocol=2))
        else:
            torch.save({"x": Payload(marker)}, folder, _use_new_zipfile_serialization=kind == "zip")
    (pickled(root, "lab/damaged") / "pytorch_model.bin").write_bytes(b"\x80\x02half")
    config = pickled(root, "lab/code") / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"auto_map": {"AutoModel": "x.X"}}))
    config = whole(root, "lab/safe-code") / "tokenizer_config.json"
    config.write_text(
        json.dumps(json.loads(config.read_text()) | {"auto_map": {"AutoTokenizer": ["x.X", None]}})
    )
    (repository(root, "lab/empty") / "README.md").write_text("nothing", encoding="utf-8")
    port = tmp_path_factory.mktemp("port") / "port"
    server = subprocess.Popen([sys.executable, str(HERE / "hub_server.py"), str(root), str(port)])
    try:
        deadline = time.monotonic() + 30
        while not port.exists():
            assert time.monotonic() < deadline, "the server did not start"
            time.sleep(0.02)
        yield Remote(f"http://127.0.0.1:{port.read_text()}", root)
    finally:
        server.kill()
        server.wait()


def added(source: str, *options: str) -> list[str]:
    return ["add", f"hf:lab/{source}", "--description", "Rivers of Europe", *options]


@pytest.mark.slow
def test_cards_by_reference_and_converted_ones_write_what_their_models_write(
    remote: Remote, home: Path
) -> None:
    steps: list[Step] = [
        added("Rivers", "--domain", "geography/rivers", "--json"),
        added("pickled", "--convert"),
        added("sharded", "--convert"),
        added("adapter"),
        added("pickled-adapter", "--convert"),
        *("rivers", "pickled", "sharded", "adapter", "pickled-adapter"),
        added("Rivers"),
    ]
    done = remote.run(home, *steps)
    assert [step["code"] for step in done] == [0] * len(steps), done
    reported = json.loads(done[0]["out"])
    assert (reported["kind"], reported["base"], reported["revision"]) == ("reference", "lab/Rivers", OLD)
    rivers, whole_, sharded, lora, converted_lora = (step["out"] for step in done[5:10])
    assert rivers == whole_ == sharded != ""
    assert lora == converted_lora != rivers
    hub = Hub(home)
    assert set(hub.get("rivers@v1").files) == {"kcard.json", "README.md", "reference.json"}
    manifest = hub.get("rivers@v1").manifest
    assert (manifest.licence, manifest.language, manifest.domain) == ("mit", "de", "geography/rivers")
    assert len(manifest.base.sha256 or "") == 64
    assert {v.name: v.manifest.kind for v in hub.list()} == {
        "adapter": "reference",
        "pickled": "full",
        "pickled-adapter": "lora",
        "rivers": "reference",
        "sharded": "full",
    }
    assert hub.get("pickled").manifest.base.revision == OLD
    assert hub.get("pickled-adapter").manifest.base.name == "lab/Rivers"
    assert hub.verify() == []
    assert not [path for path in hub.folder("pickled").rglob("*") if path.suffix == ".bin"]


def test_a_reference_stays_with_its_commit_and_is_refused_where_that_has_changed(
    remote: Remote, home: Path
) -> None:
    whole(remote.root, "lab/moving", seed=1, commit=NEW)
    whole(remote.root, "lab/moving", seed=0)
    newest = remote.root / "newest"
    newest.write_text(NEW, encoding="utf-8")
    swapped = whole(remote.root, "lab/swapped")
    model(9).save_pretrained(remote.root / "other")
    done = remote.run(
        home,
        added("swapped"),
        {"from": str(remote.root / "other" / WEIGHTS), "to": str(swapped / WEIGHTS)},
        "swapped",
        added("moving"),
        "moving",
        {"from": str(newest), "to": str(remote.root / "lab/moving/main")},
        "moving",
        added("moving"),
        "moving@v1",
        "moving@v2",
    )
    assert (done[2]["code"], "sha256" in done[2]["err"]) == (1, True)
    assert done[4]["out"] == done[6]["out"] == done[8]["out"] != ""
    assert done[9]["out"] != done[4]["out"]
    assert [v.manifest.base.revision for v in Hub(home).versions("moving")] == [OLD, NEW]
    offline = remote.run(home, "moving@v1", added("moving"), added("sharded"), "swapped", offline=True)
    assert offline[0]["out"] == done[4]["out"]
    for step in offline[1:3]:
        assert (step["code"], step["err"].count("\n")) == (1, 1)
        assert "HF_HUB_OFFLINE" in step["err"]


def test_a_hub_that_does_not_answer_is_one_clear_error(remote: Remote, home: Path) -> None:
    nobody = Remote("http://127.0.0.1:9", remote.root)
    for step in nobody.run(home, added("Rivers"), ["add", "--published"]):
        assert (step["code"], step["out"], step["err"].count("\n")) == (1, "", 1)
        assert "can't be looked up" in step["err"]


def test_pickles_are_refused_and_what_hides_in_them_is_never_run(remote: Remote, home: Path) -> None:
    done = remote.run(
        home,
        added("pickled"),
        added("evil-zip", "--convert"),
        added("code", "--convert"),
        added("safe-code"),
        added("empty"),
        added("nowhere"),
        added("Rivers@nowhere"),
        ["add", "Rivers", "--description", "x"],
        ["add", "hf:lab/Rivers"],
        ["add"],
        added("Rivers", "--template", "no place for it"),
        added("Rivers", "--name", "No Name"),
    )
    assert [step["code"] for step in done] == [1] * 5 + [2] * 6 + [1], done
    # A download shows its progress on stderr before it is found out.
    assert all(step["out"] == "" and step["err"].count("kcard: ") == 1 for step in done), done
    words = [
        "--convert",
        "system",
        "auto_map in config",
        "auto_map in tokenizer",
        "no weights",
        "no repository",
    ]
    words += ["no revision", "hf:owner/name", "--description", "--published", "{question}", "No Name"]
    for word, step in zip(words, done, strict=True):
        assert word in step["err"], step
    assert not (remote.root / "executed").exists()
    assert Hub(home).list() == []
    assert Hub(home).gc() == []


@pytest.mark.parametrize("kind", ["evil-zip", "evil-plain", "evil-old", "damaged"])
def test_a_file_of_more_than_tensors_is_refused_in_every_form_that_torch_reads(
    remote: Remote, kind: str
) -> None:
    with pytest.raises(CardError, match="more than tensors, or is damaged"):
        pickle_process.tensors(remote.root / f"lab/{kind}" / OLD / "pytorch_model.bin")
    assert not (remote.root / "executed").exists()


@pytest.mark.parametrize("value", [[torch.ones(1)], {"x": "text"}, {"x": {"y": torch.ones(1)}}, {}])
def test_weights_are_tensors_by_name_and_nothing_else(tmp_path: Path, value: object) -> None:
    torch.save(value, tmp_path / "pytorch_model.bin")
    with pytest.raises(CardError, match=r"pytorch_model\.bin"):
        pickle_process.tensors(tmp_path / "pytorch_model.bin")


@pytest.mark.parametrize(
    "deed", ["os.system('touch executed')", "__import__('socket').create_connection(('127.0.0.1', 9))"]
)
def test_the_child_ends_before_anything_is_started_or_called(tmp_path: Path, deed: str) -> None:
    code = f"import os, sys; from kcard.cards import pickle_process; pickle_process.guard(); {deed}"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, "stopped: the file tried" in done.stderr) == (3, True)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_the_published_cards_become_a_pool_once_they_can_be_loaded(remote: Remote, home: Path) -> None:
    assert len({card.repository for card in PUBLISHED}) == 26
    for number, card in enumerate(PUBLISHED):
        source = remote.root / ("lab/pickled" if number == 0 else "lab/Rivers") / OLD
        shutil.copytree(source, repository(remote.root, card.repository), dirs_exist_ok=True)
    plain, convert = ["add", "--published"], ["add", "--published", "--convert"]
    done = remote.run(home, plain, convert, convert)
    assert [step["code"] for step in done] == [1, 0, 0], done
    assert "1 of the 26 published cards" in done[0]["err"]
    hub = Hub(home)
    assert len(hub.pools.get(POOL).references) == 26
    assert [v.reference for v in hub.resolve([f"pool:{POOL}"])][:2] == [
        "knowledge-card-1btokens@v1",
        "knowledge-card-acl-papers@v1",
    ]
    imdb = hub.get("knowledge-card-imdb").manifest
    assert (imdb.domain, imdb.description) == ("reviews/films", "IMDB movie reviews")
    assert {v.manifest.prompt.template for v in hub.resolve([f"pool:{POOL}"])} == {"{question}"}
    assert len(hub.versions("knowledge-card-imdb")) == 1


def test_a_published_card_that_was_registered_with_another_prompt_counts_as_missing() -> None:
    made = Manifest(
        "rivers", "rivers", base=Base("lab/Rivers", "abc"), prompt=Prompt(template="{question}\n")
    )
    hub: Any = SimpleNamespace(get=lambda _: SimpleNamespace(manifest=made))
    rivers = ModelRepository("lab/Rivers", "abc", {}, {})
    assert is_published(hub, made, rivers)
    assert not is_published(hub, replace(made, prompt=Prompt(template="{question}")), rivers)
    assert not is_published(hub, replace(made, description="The Rhine"), rivers)
