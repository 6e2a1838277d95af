"""Sequence-to-sequence models answer, tried on a tiny T5 that the test makes, and UnifiedQA's form."""

from pathlib import Path

import pytest

from kcard.integrators.pipeline import Pipeline
from kcard.llms.prompts import unified_qa
from kcard.llms.transformers_llm import LocalLLM
from kcard.types import Choice, Example, Question, Reply, Request
from tests.tiny_models import tokenizer

PEOPLE = (Choice("A", "Ann"), Choice("B", "Bob"))
LEARNT = {
    "Question: who won?\nAnswer:": "Ann Ann",
    "Question: who lost the race?\nAnswer:": "Bob",
    "Question: who won?\nA. Ann\nB. Bob\nAnswer:": "B",
    r"who won the race? \n (a) ann (b) bob": "bob",
    r"who won the race? \n (a) bob (b) ann \n ann won it.": "ann",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A T5 that has learnt these answers by heart."""
    import torch
    from transformers import T5Config, T5ForConditionalGeneration

    path = tmp_path_factory.mktemp("t5")
    words = tokenizer(path, "t5")
    torch.manual_seed(0)
    config = T5Config(
        vocab_size=len(words), d_model=32, d_ff=64, d_kv=16, num_layers=2, num_heads=2, dropout_rate=0.0,
        pad_token_id=words.pad_token_id, eos_token_id=words.eos_token_id,
    )  # fmt: skip
    config.decoder_start_token_id = words.pad_token_id
    model = T5ForConditionalGeneration(config)
    inputs = words(list(LEARNT), padding=True, return_tensors="pt")
    labels = words(text_target=list(LEARNT.values()), padding=True, return_tensors="pt").input_ids
    labels[labels == words.pad_token_id] = -100
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(400):
        loss = model(input_ids=inputs.input_ids, attention_mask=inputs.attention_mask, labels=labels).loss
        if loss < 0.03:
            break
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss < 0.1, f"the tiny T5 did not learn: {loss:.2f}"
    model.save_pretrained(path)
    return path


def test_it_answers_what_it_has_learnt_alone_in_a_batch_and_as_a_stream(folder: Path) -> None:
    llm = LocalLLM(str(folder), temperature=0, max_tokens=8)
    requests = [Request("answer", "who won?"), Request("answer", "who lost the race?")]
    assert [llm.reply(request).text for request in requests] == ["Ann Ann", "Bob"]
    assert list(llm.reply_all(requests)) == [llm.reply(request) for request in requests]
    *pieces, reply = llm.stream(requests[0])
    assert "".join(map(str, pieces)).split() == ["Ann", "Ann"]
    assert reply == llm.reply(requests[0])


def test_an_option_is_chosen_by_the_probability_of_its_letter(folder: Path) -> None:
    llm = LocalLLM(str(folder), temperature=0)
    (answer,) = Pipeline(mode="direct", llm=llm)([Question("who won?", PEOPLE)])
    assert (answer.choice, answer.answer) == ("B", "Bob")
    assert answer.confidence is not None
    assert answer.confidence > 0.9


def test_in_unified_qa_form_an_option_is_chosen_by_the_probability_of_its_text(folder: Path) -> None:
    llm = LocalLLM(str(folder), temperature=0, unified_qa=True)
    turned = (Choice("A", "Bob"), Choice("B", "Ann"))
    assert llm.reply(Request("answer", "Who won the race?", choices=PEOPLE)).choice == "B"
    reply = llm.reply(Request("answer", "Who won the race?", ("Ann won it.",), choices=turned))
    assert reply.choice == "B"
    assert reply.confidence is not None
    assert reply.confidence > 0.9


def test_need_is_a_probability_or_unknown_and_its_window_is_the_tokenizers(folder: Path) -> None:
    llm = LocalLLM(str(folder), temperature=0)
    reply = llm.reply(Request("need", "who won?"))
    assert isinstance(reply, Reply)
    assert reply.yes is None or 0 <= reply.yes <= 1
    assert llm.window == 512


def test_the_name_of_the_model_says_that_it_is_unified_qa(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "UnifiedQA-t5").symlink_to(folder)
    assert LocalLLM(str(tmp_path / "UnifiedQA-t5")).prompts.unified_qa
    assert not LocalLLM(str(folder)).prompts.unified_qa


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        (Request("answer", "Who won?"), "who won?"),
        (Request("answer", "Who\nwon?", ("Ann won.", "It rained.")), r"who won? \n ann won. it rained."),
        (
            Request("answer", "Who won?", ("Ann won.",), (Example("answer", "q", "a"),), PEOPLE),
            r"who won? \n (a) ann (b) bob \n ann won.",
        ),
        (Request("need", "Who won?"), r"question: who won? \n do you need more information? (yes or no)"),
    ],
)
def test_unified_qa_is_asked_in_its_own_form(request_: Request, text: str) -> None:
    assert unified_qa(request_) == text
