"""Relevance and pruning by models from the hub, on tiny ones of their architectures."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kcard.errors import ModelUnavailable, UsageError
from kcard.interfaces import Pruner, Relevance
from kcard.selectors import registry
from kcard.selectors.pruning import Summariser
from kcard.selectors.registry import Loading
from tests.selectors.conftest import Folder

pytestmark = pytest.mark.usefixtures("empty_cache")

QUESTION = "Ann won the race in Oregon?"
TEXTS = ["Bob lost it.", "Ann won the race in Oregon?", "The Eiffel Tower stands in Paris. " * 30, ""]
CPU = Loading()


def relevance(name: str, path: Path, loading: Loading = CPU) -> Relevance:
    selector: Relevance = registry.make("relevance", f"{name}:{path}", loading)
    return selector


def pruner(name: str, path: Path, loading: Loading = CPU) -> Pruner:
    selector: Pruner = registry.make("pruner", f"{name}:{path}", loading)
    return selector


@pytest.mark.numeric
@pytest.mark.parametrize(("name", "model"), [("mpnet-base", "mpnet"), ("granite", "modernbert")])
def test_a_text_scores_the_same_in_any_company(folder: Folder, name: str, model: str) -> None:
    found = relevance(name, folder(model))
    together = found.scores(QUESTION, [*TEXTS, TEXTS[0]])
    alone = [float(found.scores(QUESTION, [text])[0]) for text in TEXTS]
    assert together[:4] == pytest.approx(alone, abs=1e-5)
    assert together[4] == together[0]
    assert together[1] == pytest.approx(1.0, abs=1e-5)
    assert np.all(np.abs(together) <= 1)
    assert found.scores(QUESTION, []).shape == (0,)


@pytest.mark.numeric
def test_in_bfloat16_a_cosine_stays_near_and_does_not_depend_on_the_batch(folder: Folder) -> None:
    whole = relevance("mpnet-base", folder("mpnet")).scores(QUESTION, TEXTS)
    half = relevance("mpnet-base", folder("mpnet"), Loading(dtype="bfloat16"))
    alone = [float(half.scores(QUESTION, [text])[0]) for text in TEXTS]
    assert half.scores(QUESTION, TEXTS) == pytest.approx(whole, abs=0.05)
    assert half.scores(QUESTION, TEXTS) == pytest.approx(alone, abs=0.02)


@pytest.mark.numeric
@pytest.mark.parametrize("name", ["mpnet-base", "cls"])
def test_a_plain_encoder_is_pooled_by_the_mean_over_all_tokens_or_at_its_first_one(
    folder: Folder, name: str
) -> None:
    import torch
    from transformers import AutoTokenizer, MPNetModel

    path = folder("mpnet")
    words, model = AutoTokenizer.from_pretrained(path), MPNetModel.from_pretrained(path).eval()
    pooled = []
    for text in (QUESTION, TEXTS[0]):
        with torch.inference_mode():
            states = model(**words(text, return_tensors="pt")).last_hidden_state[0]
        pooled.append(states[0] if name == "cls" else states.mean(0))
    wanted = torch.cosine_similarity(pooled[0], pooled[1], dim=0).item()
    assert relevance(name, path).scores(QUESTION, TEXTS)[0] == pytest.approx(wanted, abs=1e-5)


@pytest.mark.numeric
def test_a_plain_model_or_a_published_one_can_be_named(folder: Folder) -> None:
    for model in ("mpnet", "modernbert"):
        scores = relevance("sentence-transformers", folder(model)).scores(QUESTION, TEXTS)
        assert scores[1] == pytest.approx(1.0, abs=1e-5)
    granite = relevance("granite", folder("modernbert")).scores(QUESTION, TEXTS)
    named = relevance("sentence-transformers", folder("modernbert")).scores(QUESTION, TEXTS)
    assert granite.tolist() == named.tolist()


def test_a_relevance_model_that_is_not_here_is_an_error() -> None:
    with pytest.raises(
        ModelUnavailable, match=r"relevance 'mpnet'.*hf download sentence-transformers/all-mp"
    ):
        registry.make("relevance", "mpnet")


def test_a_summary_is_the_same_in_any_batch_and_never_empty(folder: Folder) -> None:
    found = pruner("pegasus", folder("pegasus"))
    texts = ["Ann won the race in Oregon. Bob lost it.", "Water boils.", "  ", "The Tower stands. " * 200]
    together = found.prune("Who?", texts)
    assert together == [found.prune("Whose?", [text])[0] for text in texts]
    assert together[2] == "  "
    assert all(text.strip() for i, text in enumerate(together) if i != 2)
    assert found.prune("Who?", []) == []


def test_pegasus_writes_as_much_as_in_the_papers_code(folder: Folder) -> None:
    """And a summariser that is only named writes as its own settings say."""
    found = pruner("pegasus", folder("pegasus"))
    assert isinstance(found, Summariser)
    written = found.model.generate(**found.tokenizer("Ann won", return_tensors="pt"), **found.lengths)
    assert 10 <= written.shape[1] <= 30
    named = pruner("summariser", folder("pegasus"))
    assert isinstance(named, Summariser)
    assert named.lengths == {}


def test_a_text_longer_than_the_summariser_reads_is_cut(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = pruner("pegasus", folder("pegasus"))
    assert isinstance(found, Summariser)
    lengths, generate = [], found.model.generate

    def spy(**inputs: Any) -> Any:
        lengths.append(inputs["input_ids"].shape[1])
        return generate(**inputs)

    monkeypatch.setattr(found.model, "generate", spy)
    found.prune("Who?", ["Ann won the race. " * 500])
    assert lengths == [128]


CODE = '''
import torch
from transformers import PretrainedConfig, PreTrainedModel


class Config(PretrainedConfig):
    model_type = "tiny_provence"


class Model(PreTrainedModel):
    """Keeps sentences that share a word with the question: what it decides is not the matter here."""

    config_class = Config

    def __init__(self, config):
        super().__init__(config)
        self.weight = torch.nn.Parameter(torch.zeros(1))
        self.post_init()

    def process(self, question, context, *, title, sentence_splitter, return_sentence_texts, show_progress,
                enable_warnings):
        assert isinstance(question, str) and isinstance(context, list) and return_sentence_texts
        words = set(question.lower().split())
        kept = [[s for s in sentence_splitter(text) if words & set(s.lower().split())] for text in context]
        return {"pruned_context": ["".join(k) for k in kept], "kept_sentences": kept}
'''


@pytest.fixture
def foreign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model whose code lies beside it; what transformers copies of it stays in the test's folder."""
    import json

    import torch
    import transformers.dynamic_module_utils as dynamic
    from safetensors.torch import save_file

    monkeypatch.setattr(dynamic, "HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.syspath_prepend(str(tmp_path / "modules"))
    path = tmp_path / "foreign"
    path.mkdir()
    (path / "tiny_provence.py").write_text(CODE, encoding="utf-8")
    auto = {"AutoConfig": "tiny_provence.Config", "AutoModel": "tiny_provence.Model"}
    config = {"model_type": "tiny_provence", "auto_map": auto, "architectures": ["Model"]}
    (path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    save_file({"weight": torch.ones(1)}, path / "model.safetensors", {"format": "pt"})
    return path


def test_code_from_a_repository_is_not_run_without_trust(foreign: Path) -> None:
    (foreign / "tiny_provence.py").write_text("raise SystemExit('ran')", encoding="utf-8")
    models: list[tuple[registry.SelectorKind, str]] = [
        ("pruner", "provence"),
        ("pruner", "summariser"),
        ("checker", "nli"),
    ]
    for kind, name in models:
        with pytest.raises(UsageError, match="--trust-remote-code"):
            registry.make(kind, f"{name}:{foreign}")
    for name in ("sentence-transformers", "mpnet-base"):
        with pytest.raises(UsageError, match="--trust-remote-code"):
            relevance(name, foreign)


def test_a_trusted_pruner_keeps_sentences_in_order_and_never_nothing(foreign: Path) -> None:
    found = pruner("provence", foreign, Loading(trust_remote_code=True))
    texts = [
        "Ann ran. Bob saw the race. Rain fell on the hill.",
        "Nothing here.",
        " ",
        "Ann ran. Bob saw the race.",
    ]
    kept = found.prune("Who won the race", texts)
    assert kept == ["Bob saw the race. Rain fell on the hill.", "Nothing here.", " ", "Bob saw the race."]
    assert found.prune("Who won", []) == []
