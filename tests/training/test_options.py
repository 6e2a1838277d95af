"""Presets of training: the paper's numbers and corpora, and what a user gives in their place."""

import math
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from kcard.api.train import train as train_and_examine
from kcard.cards.hugging_face import PUBLISHED_CARDS
from kcard.errors import MissingExtra, UsageError
from kcard.manifest import Manifest
from kcard.training.base_trainer import FineTuning
from kcard.training.execution import Execution
from kcard.training.finetune import Options, prepare
from kcard.training.options import CORPORA, TrainOptions, with_preset
from kcard.training.readers.data_sets import repository
from kcard.training.train import train
from tests.command import Kcard
from tests.training.bases import FACTS, make_base

PAPER = {
    "base": "facebook/opt-1.3b",
    "method": "full",
    "objective": "clm",
    "learning_rate": 2e-5,
    "epochs": 10,
}


def test_the_preset_has_the_numbers_of_table_6_and_what_is_given_stands() -> None:
    corpus, options = with_preset("notes/", TrainOptions(preset="knowledge-card"))
    assert corpus == "notes/"
    assert {name: getattr(options, name) for name in PAPER} == PAPER
    assert (options.batch_size, options.block, options.kind) == (32, 128, "model")
    arguments = TrainOptions(preset="knowledge-card", method="lora", epochs=1, kind="both")
    _, options = with_preset("notes/", arguments)
    assert (options.method, options.epochs, options.kind) == ("lora", 1, "both")


def test_a_corpus_of_the_paper_brings_its_data_set_and_the_published_cards_description() -> None:
    corpus, options = with_preset(None, TrainOptions(preset="knowledge-card:pubmed"))
    assert (corpus, options.field, options.name) == ("hf:MedRAG/pubmed", "content", "pubmed")
    assert (options.description, options.domain) == ("medical literature", "biomedical")
    corpus, options = with_preset("mine.txt", TrainOptions(preset="knowledge-card:PubMed", name="mine"))
    assert (corpus, options.field, options.name) == ("mine.txt", None, "mine")


def test_every_published_card_has_its_corpus_in_the_table() -> None:
    published = {card.suffix.lower().rstrip("1234") if "news" in card.suffix or "wikipedia" in card.suffix else
                 card.suffix.lower(): card for card in PUBLISHED_CARDS}  # fmt: skip
    assert published.keys() == CORPORA.keys()
    for name, card in published.items():
        assert CORPORA[name].domain == card.domain
        assert card.description.startswith(CORPORA[name].description)
    assert all(row.note for row in CORPORA.values())
    assert all(repository(row.data) for row in CORPORA.values() if row.data)


@pytest.mark.parametrize(
    ("preset", "options", "message"),
    [
        (
            "thrust",
            {},
            r"preset 'thrust' is unknown: use knowledge-card, or knowledge-card:CORPUS with one of 1b",
        ),
        ("knowledge-card:sports", {}, "preset 'knowledge-card:sports' is unknown"),
        ("knowledge-card", {}, "--corpus is missing: the preset knowledge-card is for one of yours"),
        (
            "knowledge-card:kgap",
            {},
            r"--corpus is missing: that of the preset knowledge-card:kgap is not on the",
        ),
        ("knowledge-card", {"update": "towns"}, "an update is trained as its card was"),
        ("knowledge-card", {"base": "embedded"}, "leave out --base embedded"),
    ],
)
def test_what_a_preset_can_not_do_is_told_before_any_work(
    preset: str, options: dict[str, str], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        with_preset(None, TrainOptions(preset=preset, **options))  # type: ignore[arg-type]


def test_a_card_is_trained_as_in_the_paper(tmp_path: Path, kcard: Kcard) -> None:
    base = make_base(tmp_path, "opt")
    corpus = tmp_path / "towns.txt"
    corpus.write_text("".join(f"The gate of town {n} is red.\n" for n in range(40)), encoding="utf-8")
    done = kcard(
        "train", "--preset", "knowledge-card", "--corpus", corpus, "--base", base, "--output", tmp_path / "card",
        "--no-exam", "--json",
    )  # fmt: skip
    assert done.code == 0, done.err
    manifest = Manifest.read(tmp_path / "card")
    numbers = manifest.training.hyperparameters
    assert {name: numbers[name] for name in PAPER if name != "base"} == {
        name: value for name, value in PAPER.items() if name != "base"
    }
    assert (numbers["decay"], numbers["epsilon"], numbers["warm"]) == (1e-5, 1e-6, 0.06)
    assert list(numbers["betas"]) == [0.9, 0.98]
    assert (numbers["batch_size"], numbers["block"]) == (32, 128)
    assert (manifest.method, manifest.index, manifest.prompt.template) == ("full", False, "{question}")


def test_without_preset_and_corpus_the_command_says_what_is_missing(kcard: Kcard) -> None:
    done = kcard("train")
    assert (done.code, "--corpus is missing: name a file or folder" in done.err) == (2, True)


# Options for large models: gradient checkpointing, micro-batches, number formats, optimizers, devices.


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A tiny OPT without dropout."""
    return str(make_base(tmp_path_factory.mktemp("bases"), "opt", dropout=0.0))


RATES = {"full": 2e-5, "lora": 2e-4}


def weights(base: str, tmp_path: Path, execution: Execution, method: Any = "full") -> dict[str, torch.Tensor]:
    options = Options(base, method, learning_rate=RATES[method], batch_size=8, epochs=1)
    job = prepare(FACTS, options, execution=execution).job
    job.run(tmp_path / "checkpoint")
    assert isinstance(job, FineTuning)
    return {name: weight.detach() for name, weight in job.model.named_parameters()}


TRAINED_WHOLE: dict[str, dict[str, torch.Tensor]] = {}


@pytest.mark.numeric
@pytest.mark.usefixtures("float32")
@pytest.mark.parametrize("method", ["full", "lora"])
@pytest.mark.parametrize("other", [Execution("cpu", 2), Execution("cpu", 1, checkpointing=True)])
def test_micro_batches_and_checkpointing_train_the_same_weights(
    base: str, tmp_path: Path, method: Any, other: Execution
) -> None:
    if method not in TRAINED_WHOLE:
        TRAINED_WHOLE[method] = weights(base, tmp_path, Execution("cpu"), method)
    parts = weights(base, tmp_path, other, method)
    for name, weight in TRAINED_WHOLE[method].items():
        torch.testing.assert_close(weight, parts[name], rtol=1e-4, atol=1e-5, msg=name)


def distance(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> float:
    return math.sqrt(sum(float((weight - other[name]).square().sum()) for name, weight in one.items()))


@pytest.mark.numeric
@pytest.mark.usefixtures("bfloat16")
@pytest.mark.parametrize("method", ["full", "lora"])
def test_in_bfloat16_micro_batches_differ_by_the_rounding_of_products_and_checkpointing_by_nothing(
    base: str, tmp_path: Path, method: Any
) -> None:
    job = prepare(FACTS, Options(base, method, batch_size=8, epochs=1), execution=Execution("cpu")).job
    assert isinstance(job, FineTuning)
    untrained = {name: weight.detach().clone() for name, weight in job.model.named_parameters()}
    whole = weights(base, tmp_path, Execution("cpu"), method)
    moved = distance(whole, untrained)
    # As much with eight parts as with two: their gradients are added in float32.
    for rows in (1, 4):
        assert distance(whole, weights(base, tmp_path, Execution("cpu", rows), method)) < 0.04 * moved
    again = weights(base, tmp_path, Execution("cpu", 8, checkpointing=True), method)
    assert all(torch.equal(weight, again[name]) for name, weight in whole.items())


def test_a_card_has_the_dtype_it_was_trained_in(base: str, tmp_path: Path) -> None:
    path = tmp_path / "towns.txt"
    path.write_text("\n".join(FACTS))
    card = train(path, base=base, method="full", dtype="bfloat16", epochs=1, output=tmp_path / "card")
    assert card.manifest.training.hyperparameters["dtype"] == "bfloat16"
    assert {weight.dtype for weight in load_file(card.folder / "model.safetensors").values()} == {
        torch.bfloat16
    }


def test_an_optimizer_whose_package_is_missing_is_refused_before_anything_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "bitsandbytes", None)
    with pytest.raises(
        MissingExtra, match=r"optimizer adamw8bit needs bitsandbytes: pip install 'kcard\[8bit\]'"
    ):
        train("no such corpus", base="x", optimizer="adamw8bit")


@pytest.mark.parametrize(
    ("micro_batch", "processes", "rows"), [(None, 1, 8), (3, 1, 2), (3, 2, 2), (5, 4, 2)]
)
def test_a_micro_batch_divides_the_batch_evenly(micro_batch: int | None, processes: int, rows: int) -> None:
    assert Execution("cpu", micro_batch, processes=processes).micro_batch_rows(8, 100) == rows
    with pytest.raises(UsageError, match="batch_size 7 can't be divided evenly among 2 processes"):
        Execution("cpu", micro_batch, processes=2).micro_batch_rows(7, 100)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "oracle"}, "kind 'oracle' is unknown: choose one of model, retrieval, both, graph, search"),
        ({"evidence": "none"}, "evidence 'none' is unknown: choose one of passages, hashes"),
        ({"method": "bitfit"}, "method 'bitfit' is unknown"),
        ({"objective": "mlm"}, "objective 'mlm' is unknown"),
        ({"prompt_style": "soft"}, "prompt_style 'soft' is unknown"),
        ({"device": "tpu"}, "device 'tpu' is unknown: choose cpu, cuda or cuda:N"),
        ({"device": "cuda:7"}, "device 'cuda:7', but . GPUs were found"),
        ({"knowledge_date": "last week"}, "knowledge_date 'last week' is not a date"),
        ({"epochs": 0}, "epochs 0 must be above 0"),
        ({"minutes": 0}, "minutes 0 must be above 0"),
        ({"micro_batch": 0}, "micro_batch 0 must be above 0"),
        ({"kind": "retrieval", "evidence": "hashes"}, "kind retrieval returns that text"),
        ({"kind": "both", "evidence": "hashes"}, "kind both returns that text"),
        (
            {"kind": "retrieval", "base": "embedded"},
            "base 'embedded' is only for models, and kind retrieval has none",
        ),
        ({"kind": "retrieval", "base": None, "epochs": 3}, "epochs 3 is only for models"),
        ({"kind": "retrieval", "base": None, "rank": 3}, "rank 3 is only for models"),
        ({"kind": "retrieval", "base": None, "minutes": 2}, "minutes 2 is only for models"),
        ({"kind": "retrieval", "base": None, "micro_batch": 2}, "only for models"),
        ({"kind": "retrieval", "base": None, "resume": True}, "nothing to resume"),
        ({"prompt_style": "tokens"}, "is only for base embedded"),
        (
            {"base": "embedded", "method": "lora", "prompt_style": "encoder-prefix"},
            "encoder-prefix needs a full model",
        ),
        ({"base": "embedded", "method": "lora", "rank": 200}, "rank 200 is above the width"),
        ({"base": "embedded", "rank": 8}, "rank 8 is only for method lora"),
        ({"base": "embedded", "batch_size": 8}, "batch_size has no effect with base embedded"),
        ({"base": "embedded", "gradient_checkpointing": True}, "has no effect with base embedded"),
        ({"base": "embedded", "device": "cuda"}, "has no effect with base embedded"),
        (
            {"base": "embedded", "objective": "clm", "prompt_style": "encoder-prefix"},
            "objective clm has no questions",
        ),
    ],
)
def test_what_does_not_go_together_is_refused_before_anything_is_read(options: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        train("no such corpus", **{"base": "x"} | options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "full", "optimizer": "adamw8bit"}, "use adamw or method lora"),
        ({"device": "cuda:0"}, "one GPU for 2 processes"),
        ({"minutes": 2}, "minutes 2: several processes don't end by the"),
    ],
)
def test_what_several_processes_can_not_do_is_refused(
    options: Any, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(UsageError, match=message):
        train("no such corpus", base="x", **options)


def test_the_exam_runs_where_training_ran(base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "towns.txt"
    path.write_text("\n".join(FACTS))
    card = train(path, base=base, device="cpu", epochs=0.5, output=tmp_path / "card")
    devices = []
    monkeypatch.setattr("kcard.api.exam.exam", lambda *_, device, **__: devices.append(device))
    monkeypatch.setattr("torch.cuda.device_count", lambda: 3)
    # In place of training, which no test has a GPU for: a card that was trained on the CPU.
    monkeypatch.setattr("kcard.training.train.train", lambda *_, **__: card)
    train_and_examine(tmp_path, base=base, kind="both", device="cuda:2")
    train_and_examine(tmp_path, base=base, kind="both")
    assert devices == ["cuda:2", "cuda"]
