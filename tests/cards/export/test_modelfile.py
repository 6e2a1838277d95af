"""Modelfiles: read as Ollama reads them, they give the prompt and settings of the card."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kcard.cards.export.modelfile import modelfile
from kcard.cards.export.prompt import TextPrompt
from kcard.sampling import Sampling
from tests.cards.export.ollama import read, rendered

SAMPLING = Sampling(temperature=0.1, tokens=100)
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r"), max_size=20)


def made(prompt: TextPrompt, model: str = "./base.gguf", adapter: str | None = "./rivers.gguf") -> str:
    return modelfile(model, adapter, prompt, SAMPLING, ["</s>"], 2048)


def test_a_modelfile_names_base_adapter_and_how_kcard_samples() -> None:
    found = read(made(TextPrompt("", "{question}\n", "")))
    assert found[:2] == [("FROM", "./base.gguf"), ("ADAPTER", "./rivers.gguf")]
    assert {i.name: i.value for i in found[3:]} == {
        "PARAMETER temperature": "0.1",
        "PARAMETER top_k": "50",
        "PARAMETER top_p": "1.0",
        "PARAMETER min_p": "0.0",
        "PARAMETER repeat_penalty": "1.0",
        "PARAMETER num_predict": "100",
        "PARAMETER num_ctx": "2048",
        "PARAMETER stop": "</s>",
    }


def test_the_modelfile_of_a_whole_model_has_no_adapter() -> None:
    found = read(made(TextPrompt("", "{question}", ""), "./model.gguf", None))
    assert [i.name for i in found[:2]] == ["FROM", "TEMPLATE"]


@given(before=TEXTS, after=TEXTS)
@example(before="<s>", after="\n")
@example(before="", after="")
@example(before='Say "', after='".\n"""')
@example(before="{", after="}} {{ .System }} {")
@example(before="\u00a0\u200b", after=" \t\n ")
def test_the_template_gives_the_prompt_that_the_card_was_trained_with(before: str, after: str) -> None:
    prompt = TextPrompt(before, f"Q: {{question}}{after}", "")
    template = next(i.value for i in read(made(prompt)) if i.name == "TEMPLATE")
    assert rendered(template, "Where does it end?") == prompt.text("Where does it end?")


def test_an_end_of_text_token_with_quotes_is_left_to_the_gguf_file() -> None:
    text = modelfile("m", None, TextPrompt("", "{question}", ""), SAMPLING, ['<"end">'], 100)
    assert "PARAMETER stop" not in {i.name for i in read(text)}


@pytest.mark.parametrize("text", ["TEMPLATE x", 'FROM m\nTEMPLATE """x', "FROM m\nNONSENSE x"])
def test_the_reader_of_this_test_refuses_what_ollama_refuses(text: str) -> None:
    with pytest.raises(ValueError, match=r"no FROM|quotes|no instruction"):
        read(text)
