"""Selectors by name and by preset: what a factory is given, what overrides what, what is listed, what is refused."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kcard import system
from kcard.cards.card import CardSet
from kcard.errors import ModelUnavailable, UsageError
from kcard.integrators.assembly import make_selectors as assembled
from kcard.integrators.options import AskOptions, Preset
from kcard.integrators.pipeline import Pipeline
from kcard.interfaces import Array, Checker, Pair
from kcard.selectors import checkpoints, registry
from kcard.selectors.minilm_checker import MiniLMChecker
from kcard.selectors.pruning import Extractive, Unpruned
from kcard.selectors.registry import GROUPS, MODELS, PRESETS, Loading, SelectorChoice, models
from kcard.selectors.relevance import MiniLMRelevance
from tests.command import Kcard
from tests.fakes import notes_to
from tests.selectors.conftest import Folder

pytestmark = pytest.mark.usefixtures("empty_cache")


class Own(Checker):
    """A user's own checker, made with nothing."""

    def support(self, pairs: Sequence[Pair]) -> Array:
        return np.ones(len(pairs), dtype=np.float32)


def named(model: str) -> tuple[str, None]:
    return model, None


def loaded(loading: Loading, model: str | None = None) -> tuple[str | None, Loading]:
    return model, loading


@pytest.fixture
def factories(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three more checkers, as entry points would bring them."""
    found = {"own": Own, "named": named, "loaded": loaded}
    load = system.load
    monkeypatch.setattr(system, "load", lambda group, name: found.get(name) or load(group, name))


@pytest.mark.usefixtures("factories")
def test_a_factory_is_given_what_its_parameters_are_called() -> None:
    loading = Loading(trust_remote_code=True)

    def made(spec: str) -> object:
        return registry.make("checker", spec, loading)

    assert isinstance(made("own"), Own)
    assert made("named:a/b@v1") == ("a/b@v1", None)
    assert made("loaded") == (None, loading)
    assert made("loaded:C:/models/x") == ("C:/models/x", loading)


@pytest.mark.usefixtures("factories")
@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("own:model", "own takes no model"),
        ("minilm:model", "minilm takes no model"),
        ("named", "'named' needs a model"),
        ("named:", "has no model after the colon"),
        ("nosuch", "unknown checker 'nosuch': choose one of .*minilm.*vitaminc"),
        ("nli:model@", "write MODEL, or MODEL@revision"),
        ("nli:/no/such/folder", "'/no/such/folder' is neither a folder nor a hub repository"),
    ],
)
def test_a_spec_that_does_not_fit_is_refused_with_what_would(spec: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        registry.make("checker", spec)


def test_every_preset_names_registered_selectors_that_the_catalogue_knows() -> None:
    for preset in PRESETS.values():
        for kind, group in GROUPS.items():
            assert preset.of(kind) in system.names(group)
            assert models(kind, preset.of(kind)) or preset.of(kind) == "none"
    for model in MODELS:
        assert model.name in system.names(GROUPS[model.kind])
        assert model.licence
        assert model.size
        commit = model.repository.revision
        assert model.embedded or commit == "main" or (len(commit) == 40 and int(commit, 16))


def test_offline_is_the_default_and_each_selector_can_be_replaced() -> None:
    assert [SelectorChoice().spec(kind) for kind in GROUPS] == ["minilm", "extractive", "minilm"]
    chosen = SelectorChoice("paper", checker="minilm", pruner="extractive")
    assert [chosen.spec(kind) for kind in GROUPS] == ["mpnet-base", "extractive", "minilm"]
    with pytest.raises(
        UsageError, match="unknown selectors 'best': choose one of offline, paper, modern, multilingual"
    ):
        SelectorChoice("best")


def test_the_offline_preset_is_the_embedded_selectors() -> None:
    found = assembled(AskOptions(evidence=("none",)), CardSet([]))
    assert isinstance(found.relevance, MiniLMRelevance)
    assert isinstance(found.pruner, Unpruned), "the LLM reads whole passages"
    pruning = assembled(AskOptions(evidence=("none",), prompts="paper"), CardSet([]))
    assert isinstance(pruning.pruner, Extractive)
    assert found.checker.sha256 == MiniLMChecker().sha256


@pytest.mark.parametrize("preset", ["paper", "modern"])
def test_a_missing_checkpoint_of_a_preset_names_the_preset_and_nothing_steps_in(preset: Preset) -> None:
    with pytest.raises(ModelUnavailable, match=f"--selectors {preset}: relevance '.*hf download"):
        assembled(AskOptions(evidence=("none",), selectors=preset), CardSet([]))


def test_an_error_of_a_selector_that_was_named_itself_does_not_blame_the_preset() -> None:
    with pytest.raises(ModelUnavailable) as caught:
        SelectorChoice("paper", checker="factcg").make("checker", Loading())
    assert "--selectors" not in str(caught.value)


def test_a_model_is_announced_before_it_is_fetched() -> None:
    said: list[str] = []
    with pytest.raises(ModelUnavailable):
        registry.make("relevance", "mpnet", Loading(on_event=notes_to(said)))
    assert said == []  # it can't be fetched: nothing is announced
    from kcard.selectors.checkpoints import Checkpoint, announce

    announce(Checkpoint("x", "a/b", size="2 GB"), Loading(on_event=notes_to(said)))
    assert said == ["downloading a/b (2 GB) from the Hugging Face Hub"]


def test_selectors_are_listed_with_what_they_read_and_whether_it_is_here() -> None:
    found = {(entry.kind, entry.name, entry.model): entry for entry in checkpoints.selectors()}
    assert found["checker", "minilm", "sentence-transformers/all-MiniLM-L6-v2"].here is True
    factcg = found["checker", "factcg", "yaxili96/FactCG-DeBERTa-v3-Large"]
    assert (factcg.licence, factcg.here, factcg.needs) == ("MIT", False, "")
    assert (
        found["pruner", "provence", "hotchpotch/open-provence-reranker-xsmall-v1"].needs
        == "--trust-remote-code"
    )
    assert found["checker", "nli", ""].needs == "MODEL"
    assert found["checker", "nli", ""].here is None
    assert {e.model for e in found.values() if e.name == "paper"} == {
        "tals/albert-xlarge-vitaminc-mnli",
        "bunsenfeng/FactKB",
    }
    ready = {one.preset.name: one.missing for one in checkpoints.presets()}
    assert ready["offline"] == ()
    assert "google/pegasus-xsum" in ready["paper"]


def test_a_model_in_the_cache_is_here(tmp_path: Path) -> None:
    """Weights alone are not enough where the tokenizer lies in another repository."""

    def put(model: str, revision: str, *files: str) -> None:
        snapshot = tmp_path / "cache" / f"models--{model.replace('/', '--')}" / "snapshots" / revision
        snapshot.mkdir(parents=True)
        for file in files:
            (snapshot / file).touch()

    (factkb,) = models("checker", "factkb")
    assert factkb.companion is not None
    put(factkb.repository.name, factkb.repository.revision, "config.json", "pytorch_model.bin")
    assert not next(e for e in checkpoints.selectors() if e.name == "factkb").here
    put(factkb.companion.name, factkb.companion.revision, "tokenizer.json")
    assert next(e for e in checkpoints.selectors() if e.name == "factkb").here


def test_an_answer_is_made_with_the_selectors_that_were_named(
    home: Path, tmp_path: Path, folder: Folder
) -> None:
    from kcard.cards.card import finish
    from kcard.hub.registry import Hub
    from kcard.manifest import Manifest
    from kcard.types import Source

    card = tmp_path / "towers"
    card.mkdir()
    text = "The Eiffel Tower stands in Paris. It was completed in 1889."
    manifest = Manifest(name="towers", description="Towers", kind="retrieval")
    finish(card, manifest, [Source(text, "a", 1)])
    Hub(home).publish(card)
    pipeline = Pipeline(mode="bottom-up", gate="always", checker=f"vitaminc:{folder('vitaminc')}")
    (answer,) = pipeline(["Where is the Eiffel Tower?"])
    assert answer.passages
    assert all(passage.faithfulness is not None for passage in answer.passages)
    with pytest.raises(UsageError, match="--trust-remote-code"):
        Pipeline(mode="bottom-up", gate="always", pruner="provence")


def test_the_command_lists_presets_and_selectors_as_json(kcard: Kcard) -> None:
    done = kcard("selectors", "--json")
    assert done.code == 0, done.err
    told: dict[str, Any] = json.loads(done.out)
    assert [(p["name"], p["ready"]) for p in told["presets"]] == [
        ("offline", True), ("paper", False), ("modern", False), ("multilingual", False),
    ]  # fmt: skip
    assert {"kind", "name", "model", "revision", "licence", "size", "needs", "here"} == set(
        told["selectors"][0]
    )


def test_a_preset_can_be_configured_and_trust_in_remote_code_can_not(kcard: Kcard, home: Path) -> None:
    home.mkdir()
    config = home / "config.toml"
    config.write_text('[ask]\nselectors = "paper"\n', encoding="utf-8")
    asked = kcard("ask", "Who?", "--gate", "always", "--mode", "bottom-up")
    assert asked.code == 1
    assert "no card" in asked.err or "--selectors paper" in asked.err
    assert kcard("config", "get", "ask.selectors").out.strip() == "paper"
    config.write_text("[ask]\ntrust_remote_code = true\n", encoding="utf-8")
    refused = kcard("ask", "Who?")
    assert refused.code == 2
    assert "give --trust-remote-code each time" in refused.err
    config.write_text('[ask]\nselectors = "best"\n', encoding="utf-8")
    assert "must be one of offline, paper, modern, multilingual" in kcard("ask", "Who?").err
