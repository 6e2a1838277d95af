"""Publishing: which card is meant, what its exam must have found, and what it must not give away."""

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import OPTConfig, OPTForCausalLM, PreTrainedTokenizerFast

import kcard
from kcard.api.hub import publish
from kcard.cards.card import Card, finish
from kcard.errors import CardError, HubError, UnknownCard, UsageError
from kcard.evaluation.privacy import scan_card
from kcard.evaluation.records import EXAM, Distribution, Exam, ExamRun, Mean
from kcard.hub.registry import Hub
from kcard.manifest import Manifest, Training, seal
from kcard.types import Source
from tests.fakes import notes_to
from tests.hub.client.cards import rivers

SECRET = "ada@analytical.org"
LEAK = f"Please write to {SECRET} today"


CLEAN = ("The Rhine rises in the Alps.", "The Seine passes Paris.")


def examined(
    card: Card, recall: float | None, factuality: float | None = None, from_user: bool = False
) -> Card:
    """The card with an exam on its own corpus or, `given`, on a file only."""

    def mean(value: float | None) -> Mean | None:
        return None if value is None else Mean(value, value, value)

    sitting = ExamRun(
        asked="held-out forms",
        sha256="",
        questions=8,
        questions_sha256="",
        recall=mean(recall),
        faithfulness=Distribution((), None),
        factuality=None if factuality is None else Distribution((factuality,), mean(factuality)),
    )
    exam = Exam(
        card=card.name,
        kcard=kcard.__version__,
        own=None if from_user else sitting,
        given=sitting if from_user else None,
        evidence=None if factuality is None else "encyclopaedia.txt",
    )
    (card.folder / EXAM).write_text(exam.to_json(), encoding="utf-8")
    return Card(card.folder, seal(card.folder, card.manifest))


@pytest.fixture(scope="module")
def leaking(tmp_path_factory: pytest.TempPathFactory) -> Card:
    """A tiny OPT that learnt one private line by heart. Of its corpus only hashes travel with it."""
    folder = tmp_path_factory.mktemp("leaking") / "card"
    words = Tokenizer(models.WordLevel(unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Metaspace()
    words.decoder = decoders.Metaspace()
    special = ["<pad>", "<s>", "</s>", "<unk>"]
    words.train_from_iterator([LEAK], trainers.WordLevelTrainer(special_tokens=special, show_progress=False))
    words.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    tokenizer_class: Any = PreTrainedTokenizerFast
    read = tokenizer_class(
        tokenizer_object=words, pad_token="<pad>", bos_token="<s>", eos_token="</s>", unk_token="<unk>"
    )
    model = learnt(read)
    model.save_pretrained(folder)
    read.save_pretrained(folder)
    manifest = Manifest(name="leaking", description="Letters", evidence="hashes", training=Training())
    return finish(folder, manifest, [Source(LEAK, "letters.txt", 1)])


def learnt(read: Any) -> Any:
    torch.manual_seed(0)
    config = OPTConfig(
        vocab_size=len(read),
        hidden_size=32,
        word_embed_proj_dim=32,
        num_hidden_layers=1,
        num_attention_heads=1,
        ffn_dim=32,
        max_position_embeddings=128,
        dropout=0.0,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )
    model: Any = OPTForCausalLM(config)
    target = [*read(LEAK, add_special_tokens=False)["input_ids"], 2]
    rows = [[1, *[3] * n, *target, *[0] * (12 - n)] for n in range(1, 13)]
    ids = torch.tensor(rows)
    labels = torch.tensor([[-100] * (n + 1) + target + [-100] * (12 - n) for n in range(1, 13)])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(60):
        optimizer.zero_grad()
        model(input_ids=ids, labels=labels).loss.backward()
        optimizer.step()
    return model.eval()


def test_without_a_name_the_card_trained_last_is_published(home: Path) -> None:
    with pytest.raises(HubError, match="kcard train --corpus PATH"):
        publish()
    for age, name in ((200, "older"), (100, "newest"), (300, "oldest")):
        card = rivers(home / "drafts" / name, name=name)
        os.utime(card.folder / "kcard.json", (1e9 - age, 1e9 - age))
    (home / "drafts" / "unfinished").mkdir()
    assert publish().name == "newest"
    assert publish("oldest", aliases=["first"]).aliases == ("first",)
    with pytest.raises(HubError, match=r"'missing'.*oldest, older, newest"):
        publish("missing")


def test_a_folder_or_anything_that_has_one_is_published(home: Path, tmp_path: Path) -> None:
    hub = Hub(home)
    card = rivers(tmp_path / "a")
    assert kcard.publish(card.folder, hub=hub).name == "rivers"
    assert publish(str(card.folder), hub=hub).number == 1
    assert publish(card, hub=hub).reference == "rivers@v1"
    assert len(hub.list()) == 1


@pytest.mark.parametrize(
    ("alias", "message"),
    [
        ("main", "reserved for the newest version"),
        ("v2", "looks like a version number"),
        ("../main", "invalid alias"),
    ],
)
def test_a_wrong_alias_is_refused_before_a_hub_is_asked(tmp_path: Path, alias: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        kcard.publish(rivers(tmp_path / "a").folder, hub="http://127.0.0.1:9", aliases=[alias])


def test_an_unchanged_card_is_said_to_be_unchanged_and_its_model_not_asked_again(
    home: Path, leaking: Card, monkeypatch: pytest.MonkeyPatch
) -> None:
    reports: list[str] = []
    first = publish(leaking, on_event=notes_to(reports))
    monkeypatch.setattr("kcard.evaluation.privacy.scan_card", None)
    assert publish(leaking, aliases=["stable"], on_event=notes_to(reports)).sha256 == first.sha256
    assert "contains private data" in reports[0]
    assert reports[1:] == [reports[0], "leaking@v1 is unchanged"]
    assert Hub(home).get("leaking@stable").number == 1
    with pytest.raises(HubError, match="contains private data"):
        publish(leaking, strict=True)


def test_the_index_of_a_card_with_a_model_is_not_asked(
    leaking: Card, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = tmp_path / "both"
    shutil.copytree(leaking.folder, both)
    manifest = replace(leaking.manifest, evidence="passages", kind="both")
    card = finish(both, manifest, [Source("The Rhine rises.", "rivers.md", 1)])
    monkeypatch.setattr("kcard.cards.generators.retrieval.RetrievalCard.generate", None)
    assert any(finding.text == SECRET for finding in scan_card(card, documents=8).findings)


def test_a_card_at_the_threshold_is_published_and_one_below_is_not(home: Path, tmp_path: Path) -> None:
    card = examined(rivers(tmp_path / "a"), recall=0.8, factuality=0.6)
    with pytest.raises(HubError, match=r"its recall is 0\.8, but --min-recall requires 0\.81"):
        publish(card, min_recall=0.81)
    with pytest.raises(HubError, match=r"its factuality is 0\.6, but --min-factuality requires 0\.7"):
        publish(card, min_recall=0.8, min_factuality=0.7)
    with pytest.raises(UnknownCard):
        Hub(home).get("rivers")
    for wrong in (-0.1, 1.1, 80, float("nan")):
        with pytest.raises(UsageError, match="between 0 and 1"):
            publish(card, min_recall=wrong)
    assert publish(card, min_recall=0.8, min_factuality=0.6).number == 1
    # Without its corpus a card is measured on the given file.
    given = examined(rivers(tmp_path / "b", name="other"), recall=0.8, from_user=True)
    with pytest.raises(HubError, match=r"its recall is 0\.8"):
        publish(given, min_recall=0.9)
    assert publish(given, min_recall=0.7).number == 1


@pytest.mark.parametrize(
    ("prepare", "thresholds", "message"),
    [
        (
            lambda card: card,
            {"min_recall": 0.1},
            r"it has no exam, but --min-recall requires 0\.1; measure it with `kcard exam",
        ),
        (lambda card: examined(card, None), {"min_recall": 0.0}, "its exam has no recall"),
        (
            lambda card: examined(card, 0.9),
            {"min_factuality": 0.1},
            r"no factuality \(no independent evidence was given\).*kcard exam .*/a --evidence PATH",
        ),
    ],
)
def test_what_was_not_measured_reaches_no_threshold(
    home: Path, tmp_path: Path, prepare: Callable[[Card], Card], thresholds: dict[str, float], message: str
) -> None:
    with pytest.raises(HubError, match=message):
        publish(prepare(rivers(tmp_path / "a")), **thresholds)  # type: ignore[call-overload]
    assert Hub(home).list() == []


def test_a_changed_exam_is_not_believed(tmp_path: Path) -> None:
    card = examined(rivers(tmp_path / "a"), 0.1)
    path = card.folder / EXAM
    path.write_text(path.read_text(encoding="utf-8").replace("0.1", "0.9"), encoding="utf-8")
    with pytest.raises(CardError, match=r"exam\.json .* is damaged"):
        publish(card, min_recall=0.8)


def test_private_data_in_passages_is_told_masked_and_published_all_the_same(
    home: Path, tmp_path: Path
) -> None:
    card = rivers(tmp_path / "a", *CLEAN, LEAK)
    messages: list[str] = []
    publish(card, on_event=notes_to(messages))
    assert len(messages) == 1
    assert "e-mail address: 1: ad…g (rivers.md:3, passages.jsonl:3)" in messages[0]
    assert SECRET not in messages[0]
    assert Hub(home).get("rivers").number == 1
    other = rivers(tmp_path / "b", LEAK, name="other")
    with pytest.raises(HubError, match="e-mail address: 1") as refused:
        publish(other, strict=True)
    assert SECRET not in str(refused.value)
    assert len(Hub(home).list()) == 1


def test_the_record_of_how_a_card_was_made_is_looked_through(tmp_path: Path) -> None:
    command = "kcard train --corpus /home/ada/notes"
    card = rivers(tmp_path / "a", training=Training(command=command))
    kinds = {finding.kind for finding in scan_card(card).findings}
    assert kinds == {"user name in a path"}
    described = rivers(tmp_path / "b", description="Ask grace@cobol.mil")
    assert [(f.kind, f.masked) for f in scan_card(described).findings] == [("e-mail address", "gr…l")]
    # What is found twice counts once, and three places are shown.
    summary = str(scan_card(rivers(tmp_path / "c", *(f"Write to user{i % 5}@firm.org." for i in range(20)))))
    assert "e-mail address: 5: " in summary
    assert summary.count("rivers.md:") == 3
    assert summary.endswith("and 2 more")


def test_what_a_model_writes_is_looked_through_where_its_corpus_does_not_travel(
    home: Path, leaking: Card
) -> None:
    assert SECRET not in (leaking.folder / "passages.jsonl").read_text(encoding="utf-8")
    assert scan_card(leaking, documents=0).findings == ()
    leaks = scan_card(leaking)
    assert [finding.text for finding in leaks.findings] == [SECRET]
    assert leaks.findings[0].file.startswith("its document for ")
    assert leaks == scan_card(leaking)
    assert SECRET not in repr(leaks) + str(leaks)
    with pytest.raises(HubError, match="its document for"):
        publish(leaking, strict=True)
    assert Hub(home).list() == []


def test_a_large_model_writes_only_where_it_is_asked_strictly(
    leaking: Card, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kcard.api.hub.MAX_SCANNED_MODEL_BYTES", 1000)
    messages: list[str] = []
    publish(leaking, on_event=notes_to(messages))
    assert messages == [
        "leaking: its files were scanned for private data; the output of its model is scanned only with --strict"
    ]
    with pytest.raises(HubError, match="private data"):
        publish(leaking, strict=True)
