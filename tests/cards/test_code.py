"""Cards and models that bring code: it is never run, and the user is never asked to run it."""

import builtins
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kcard.cards.card import Card
from kcard.cards.generators.retrieval import load_generator
from kcard.cards.models.loader import Loader
from kcard.errors import CardError, KcardError
from kcard.gates import features
from kcard.llms.transformers_llm import LocalLLM
from kcard.manifest import Manifest
from kcard.selectors import checkers
from kcard.selectors.registry import Loading
from kcard.training.options import TrainOptions
from kcard.training.update import Previous

CLASSES = ("AutoConfig", "AutoModel", "AutoModelForCausalLM", "AutoModelForSequenceClassification")


class Attack:
    """A folder whose configs name code in evil.py; the user says yes to every question."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.folder, self._marker, self._asked = folder / "evil", folder / "executed", list[str]()
        self.folder.mkdir()
        code = f"open({str(self._marker)!r}, 'w').close()\nclass Evil: pass\n"
        (self.folder / "evil.py").write_text(code, encoding="utf-8")
        self.write("config.json", auto_map=dict.fromkeys(CLASSES, "evil.Evil"), model_type="evil")
        tokenizer = {"AutoTokenizer": ["evil.Evil", None]}
        self.write("tokenizer_config.json", auto_map=tokenizer, tokenizer_class="Evil")
        patch.setattr(builtins, "input", self._answer)

    def write(self, path: str, **config: Any) -> None:
        (self.folder / path).write_text(json.dumps(config), encoding="utf-8")

    def card(self, kind: str = "full", *files: str) -> Card:
        return Card(self.folder, Manifest("evil", "x", kind=kind, files=dict.fromkeys(files, "0" * 64)))

    @property
    def done(self) -> bool:
        return self._marker.exists() or bool(self._asked)

    def _answer(self, prompt: str = "") -> str:
        self._asked.append(prompt)
        return "y"


@pytest.fixture
def attack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Attack:
    return Attack(tmp_path, monkeypatch)


@pytest.mark.parametrize(
    "opened",
    [
        lambda attack: Loader().tokenizer(attack.card()),
        lambda attack: Loader().model(attack.card()),
        lambda attack: LocalLLM(str(attack.folder)),
        lambda attack: features.HiddenStates(str(attack.folder)),
        lambda attack: checkers.nli(str(attack.folder), Loading()),
    ],
    ids=["tokenizer", "card", "llm", "gate", "checker"],
)
def test_code_beside_a_model_is_not_run_whatever_loads_it(
    attack: Attack, opened: Callable[[Attack], object]
) -> None:
    with pytest.raises(KcardError):
        opened(attack)
    assert not attack.done


@pytest.mark.parametrize("kind", ["full", "lora"])
@pytest.mark.parametrize("path", ["config.json", "tokenizer_config.json", "adapter_config.json"])
def test_a_card_whose_config_names_code_is_refused_when_it_is_loaded(
    attack: Attack, kind: str, path: str
) -> None:
    for other in ("config.json", "tokenizer_config.json"):
        attack.write(other)
    attack.write(path, nested=[{"auto_map": {"AutoTokenizer": ["else/where--evil.Evil", None]}}])
    with pytest.raises(CardError, match=rf"card 'evil' needs custom code \(auto_map in {path}\)"):
        load_generator(attack.card(kind), Loader())
    with pytest.raises(CardError, match="custom code"):
        Previous(attack.card(kind), "0" * 64).arguments(TrainOptions())
    assert not attack.done


@pytest.mark.parametrize(
    ("config", "files", "what"),
    [
        ({"attn_implementation": "evil/kernel"}, (), "attn_implementation in config"),
        ({"custom_pipelines": {"x": {}}}, (), "custom_pipelines in config"),
        ({"attn_implementation": "sdpa"}, ("evil.py",), r"custom code \(evil\.py\)"),
    ],
)
def test_so_is_one_that_names_compiled_code_or_a_pipeline_or_has_a_file_of_code(
    attack: Attack, config: dict[str, Any], files: tuple[str, ...], what: str
) -> None:
    attack.write("tokenizer_config.json", auto_map=None)
    attack.write("config.json", **config)
    with pytest.raises(CardError, match=what):
        load_generator(attack.card("full", *files), Loader())
