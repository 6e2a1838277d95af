"""Cards by reference and converted cards, from real tiny models that a local server serves as the Hub would."""

import json
import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from huggingface_hub import constants
from safetensors.torch import load_file

from kcard.api.add import is_published
from kcard.cards import pickle_process
from kcard.cards.card import Card
from kcard.cards.hugging_face import POOL, PUBLISHED_CARDS, ModelRepository
from kcard.cards.pool import CardPool
from kcard.errors import CardError, ModelUnavailable
from kcard.hub.registry import Hub
from kcard.manifest import Base, Manifest, Prompt
from kcard.types import Sampling
from tests.cards.engine.models import adapter, model
from tests.cards.hub_server import serving
from tests.command import Done, Kcard
from tests.tiny_tokenizers import of_bytes

OLD, NEW = "a" * 40, "b" * 40
TEXT = "The Rhine flows through Basel and Cologne into the North Sea."
WEIGHTS = "model.safetensors"


class Payload:
    """What a pickle of this does when it is opened without care: it writes a file."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.marker}",)


class Remote:
    """A Hub at `url` with its repositories under `root`, which huggingface_hub takes for huggingface.co."""

    def __init__(self, url: str, root: Path, kcard: Kcard, patch: pytest.MonkeyPatch, home: Path) -> None:
        self.root, self._kcard, self._patch, self._home = root, kcard, patch, home
        patch.setattr(constants, "HF_HUB_CACHE", str(home / "hf"))
        self.move(url)
        self.switch(offline=False)

    def move(self, url: str) -> None:
        self._patch.setattr(constants, "ENDPOINT", url)
        self._patch.setattr(
            constants, "HUGGINGFACE_CO_URL_TEMPLATE", url + "/{repo_id}/resolve/{revision}/{filename}"
        )

    def switch(self, *, offline: bool) -> None:
        self._patch.setattr(constants, "HF_HUB_OFFLINE", offline)
        self._patch.setenv("HF_HUB_OFFLINE", str(int(offline)))

    def add(self, source: str, *options: str) -> Done:
        return self._kcard("add", f"hf:lab/{source}", "--description", "Rivers of Europe", *options)

    def write(self, card: str) -> str:
        """What the card of the hub generates about a question, greedily."""
        pool = CardPool([Card.open(Hub(self._home).folder(card))])
        question, greedy = "Where does the Rhine end?", Sampling(temperature=0, tokens=12)
        return pool.generate([question], [[pool.cards[0].name]], 1, greedy)[0][0].text


def repository(root: Path, name: str, commit: str = OLD) -> Path:
    """A new folder of a commit, which is the newest from now on; never outside `root`."""
    folder = root / name / commit
    folder.mkdir(parents=True)
    (root / name / "main").write_text(commit, encoding="utf-8")
    return folder


def whole(root: Path, name: str, seed: int = 0, commit: str = OLD) -> Path:
    folder = repository(root, name, commit)
    model("opt", seed).save_pretrained(folder)
    of_bytes([TEXT], 300, bos=False).save_pretrained(folder)
    return folder


def pickled(root: Path, name: str, shards: int = 1) -> Path:
    """The same model as a pickle; its head and its embeddings share their memory, as real ones do."""
    folder = whole(root, name)
    (folder / WEIGHTS).unlink()
    state = list(model("opt").state_dict().items())
    names = [f"pytorch_model-{i + 1:05}-of-{shards:05}.bin" for i in range(shards)]
    names = ["pytorch_model.bin"] if shards == 1 else names
    for i, file in enumerate(names):
        torch.save(dict(state[i::shards]), folder / file)
    return folder


def pretrained_adapter(root: Path, name: str, base: str) -> Path:
    folder = adapter(model("opt"), repository(root, name), 5, ["q_proj", "v_proj"])
    config = folder / "adapter_config.json"
    edit(config, base_model_name_or_path=base)
    of_bytes([TEXT], 300, bos=False).save_pretrained(folder)
    return folder


def edit(config: Path, **values: Any) -> None:
    config.write_text(json.dumps(json.loads(config.read_text()) | values))


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    root = tmp_path_factory.mktemp("remote")
    whole(root, "lab/Rivers")
    pickled(root, "lab/pickled")
    pickled(root, "lab/sharded", shards=2)
    pretrained_adapter(root, "lab/adapter", "lab/Rivers")
    weights = pretrained_adapter(root, "lab/pickled-adapter", "lab/Rivers") / "adapter_model.safetensors"
    torch.save(load_file(weights), weights.with_suffix(".bin"))
    weights.unlink()
    marker = root / "executed"
    for kind in ("zip", "plain", "old"):
        folder = pickled(root, f"lab/evil-{kind}") / "pytorch_model.bin"
        if kind == "plain":
            folder.write_bytes(pickle.dumps(Payload(marker), protocol=2))
        else:
            torch.save({"x": Payload(marker)}, folder, _use_new_zipfile_serialization=kind == "zip")
    (pickled(root, "lab/damaged") / "pytorch_model.bin").write_bytes(b"\x80\x02half")
    edit(pickled(root, "lab/code") / "config.json", auto_map={"AutoModel": "x.X"})
    edit(whole(root, "lab/safe-code") / "tokenizer_config.json", auto_map={"AutoTokenizer": ["x.X", None]})
    (repository(root, "lab/empty") / "README.md").write_text("nothing", encoding="utf-8")
    with serving(root) as url:
        yield url, root


@pytest.fixture
def remote(served: tuple[str, Path], kcard: Kcard, monkeypatch: pytest.MonkeyPatch, home: Path) -> Remote:
    return Remote(*served, kcard, monkeypatch, home)


@pytest.mark.slow
def test_cards_by_reference_and_converted_ones_write_what_their_models_write(
    remote: Remote, home: Path
) -> None:
    done = [
        remote.add("Rivers", "--domain", "geography/rivers", "--json"),
        remote.add("pickled", "--convert"),
        remote.add("sharded", "--convert"),
        remote.add("adapter"),
        remote.add("pickled-adapter", "--convert"),
    ]
    assert [step.code for step in done] == [0] * 5, done
    reported = json.loads(done[0].out)
    assert (reported["kind"], reported["base"], reported["revision"]) == ("reference", "lab/Rivers", OLD)
    names = ("rivers", "pickled", "sharded", "adapter", "pickled-adapter")
    rivers, whole_, sharded, lora, converted_lora = map(remote.write, names)
    assert remote.add("Rivers").code == 0
    assert rivers == whole_ == sharded != ""
    assert lora == converted_lora != rivers
    hub = Hub(home)
    assert set(hub.get("rivers@v1").files) == {"kcard.json", "README.md", "reference.json"}
    manifest = hub.get("rivers@v1").manifest
    assert (manifest.licence, manifest.language, manifest.domain) == ("mit", "de", "geography/rivers")
    assert len(manifest.base.sha256 or "") == 64
    kinds = ["reference", "model", "model", "reference", "model"]
    assert [hub.get(name).manifest.kind for name in names] == kinds
    assert hub.get("pickled").manifest.base.revision == OLD
    assert hub.get("pickled-adapter").manifest.base.name == "lab/Rivers"
    assert hub.verify() == []
    assert not list(hub.folder("pickled").rglob("*.bin"))


def test_a_reference_stays_with_its_commit_also_without_the_hub(remote: Remote, home: Path) -> None:
    whole(remote.root, "lab/moving", seed=1, commit=NEW)
    whole(remote.root, "lab/moving", seed=0)
    assert remote.add("moving").code == 0
    first = remote.write("moving")
    assert first
    (remote.root / "lab/moving/main").write_text(NEW, encoding="utf-8")
    assert remote.write("moving") == first
    assert remote.add("moving").code == 0
    assert remote.write("moving@v1") == first != remote.write("moving@v2")
    assert [v.manifest.base.revision for v in Hub(home).versions("moving")] == [OLD, NEW]
    remote.switch(offline=True)
    assert remote.write("moving@v1") == first
    for refused in (remote.add("moving"), remote.add("sharded")):
        assert (refused.code, refused.err.count("\n")) == (1, 1)
        assert "HF_HUB_OFFLINE" in refused.err


def test_a_commit_whose_weights_have_changed_is_refused(remote: Remote) -> None:
    swapped = whole(remote.root, "lab/swapped")
    assert remote.add("swapped").code == 0
    model("opt", 9).save_pretrained(swapped)
    with pytest.raises(ModelUnavailable, match="sha256"):
        remote.write("swapped")


def test_a_hub_that_does_not_answer_is_one_clear_error(remote: Remote, kcard: Kcard) -> None:
    remote.move("http://127.0.0.1:9")
    for done in (remote.add("Rivers"), kcard("add", "--published")):
        assert (done.code, done.out, done.err.count("\n")) == (1, "", 1)
        assert "can't be looked up" in done.err


REFUSED: list[tuple[list[str], int, str]] = [
    (["hf:lab/pickled"], 1, "--convert"),
    (["hf:lab/evil-zip", "--convert"], 1, "system"),
    (["hf:lab/code", "--convert"], 1, "auto_map in config"),
    (["hf:lab/safe-code"], 1, "auto_map in tokenizer"),
    (["hf:lab/empty"], 1, "no weights"),
    (["hf:lab/nowhere"], 2, "no repository"),
    (["hf:lab/Rivers@nowhere"], 2, "no revision"),
    (["Rivers"], 2, "hf:owner/name"),
    (["hf:lab/Rivers", "--template", "no place for it"], 2, "{question}"),
    (["hf:lab/Rivers", "--name", "No Name"], 1, "No Name"),
]


@pytest.mark.parametrize(("arguments", "code", "word"), REFUSED, ids=[" ".join(row[0]) for row in REFUSED])
def test_what_can_not_be_added_is_refused_and_what_hides_in_it_is_never_run(
    remote: Remote, kcard: Kcard, home: Path, arguments: list[str], code: int, word: str
) -> None:
    done = kcard("add", *arguments, "--description", "Rivers of Europe")
    # A download shows its progress on stderr before it is found out.
    assert (done.code, done.out, done.err.count("kcard: ")) == (code, "", 1), done
    assert word in done.err
    assert not (remote.root / "executed").exists()
    assert Hub(home).list() == []
    assert Hub(home).gc() == []


@pytest.mark.parametrize("kind", ["evil-zip", "evil-plain", "evil-old", "damaged"])
def test_a_file_of_more_than_tensors_is_refused_in_every_form_that_torch_reads(
    served: tuple[str, Path], kind: str
) -> None:
    with pytest.raises(CardError, match="more than tensors, or is damaged"):
        pickle_process.tensors(served[1] / f"lab/{kind}" / OLD / "pytorch_model.bin")
    assert not (served[1] / "executed").exists()


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
def test_the_published_cards_become_a_pool_once_they_can_be_loaded(
    remote: Remote, kcard: Kcard, home: Path
) -> None:
    assert len({card.repository for card in PUBLISHED_CARDS}) == 26
    for number, card in enumerate(PUBLISHED_CARDS):
        source = remote.root / ("lab/pickled" if number == 0 else "lab/Rivers") / OLD
        shutil.copytree(source, repository(remote.root, card.repository), dirs_exist_ok=True)
    done = [kcard("add", "--published", *options) for options in ([], ["--convert"], ["--convert"])]
    assert [step.code for step in done] == [1, 0, 0], done
    assert "1 of the 26 published cards" in done[0].err
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
