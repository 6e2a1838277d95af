"""A transformers model in this process, tried on a tiny one that the test makes."""

from pathlib import Path
from typing import Any

import pytest

from kcard.errors import LLMError, ModelUnavailable
from kcard.llms.transformers_llm import LocalLLM
from kcard.types import Request

TEXT = "Question: who won? Do you need more information? (Yes or No) Answer: Yes No Knowledge: Ann"
TEMPLATE = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


def save(folder: Path, template: str | None = None, positions: int = 512) -> None:
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    base = Tokenizer(models.BPE())
    base.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    base.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=["<s>", "</s>"], initial_alphabet=alphabet, show_progress=False
    )
    base.train_from_iterator([TEXT] * 3, trainer)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=base, bos_token="<s>", eos_token="</s>")
    tokenizer.chat_template = template
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, max_position_embeddings=positions, bos_token_id=0, eos_token_id=1,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(folder)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("llama")
    save(path)
    return path


def pushed(llm: LocalLLM, word: str) -> None:
    """Make the model say `word` next, whatever the prompt: its head sees one direction only."""
    import torch

    token = llm.prompts.tokenizer(word, add_special_tokens=False).input_ids
    assert len(token) == 1, token
    state = torch.ones(32)
    with torch.no_grad():
        llm.model.model.norm.weight.zero_()
        llm.model.lm_head.weight.zero_()

    def constant(_module: Any, _inputs: Any, output: Any) -> Any:
        return output + state

    llm.model.model.norm.register_forward_hook(constant)
    with torch.no_grad():
        llm.model.lm_head.weight[token[0]] = 1.0


@pytest.mark.numeric
@pytest.mark.parametrize(("word", "expected"), [("Yes", 1.0), ("No", 0.0)])
def test_need_is_read_from_next_token_logits(folder: Path, word: str, expected: float) -> None:
    llm = LocalLLM(str(folder), temperature=0)
    pushed(llm, word)
    reply = llm.reply(Request("need", "who won?"))
    assert reply.yes == pytest.approx(expected, abs=1e-6)
    assert reply.text.startswith(word)


def test_a_model_that_says_neither_gives_no_probability(folder: Path) -> None:
    llm = LocalLLM(str(folder), temperature=0)
    pushed(llm, "K")
    reply = llm.reply(Request("need", "who won?"))
    assert reply.yes is None
    assert reply.text.startswith("K")


def test_an_answer_is_repeatable_and_of_one_line(folder: Path) -> None:
    llm = LocalLLM(str(folder), temperature=0.8, max_tokens=20)
    request = Request("answer", "who won?", ("Ann won.",))
    first = llm.reply(request)
    assert first.text == llm.reply(request).text
    assert first.yes is None
    assert "\n" not in first.text


def test_the_chat_template_is_used_where_there_is_one(tmp_path: Path) -> None:
    save(tmp_path, TEMPLATE)
    llm = LocalLLM(str(tmp_path))
    text = llm.prompts.tokenizer.decode(llm.prompts.encoded(Request("answer", "who won?")))
    assert text.startswith("<system>")
    assert text.endswith("Question: who won?\nAnswer:<assistant>")


def test_text_from_outside_holds_no_control_token_of_the_model(tmp_path: Path) -> None:
    save(tmp_path, TEMPLATE)
    llm = LocalLLM(str(tmp_path))
    row = llm.prompts.encoded(Request("answer", "who won? </s> <s>", ("Ann </s> won",)))
    assert not {0, 1} & set(row)
    assert "< /s>" in llm.prompts.tokenizer.decode(row)


@pytest.mark.parametrize("template", [None, TEMPLATE])
def test_a_stream_gives_the_same_text_as_the_whole_reply(tmp_path: Path, template: str | None) -> None:
    save(tmp_path, template)
    llm = LocalLLM(str(tmp_path), temperature=0.8, max_tokens=20)
    request = Request("answer", "who won?", ("Ann won.",))
    *pieces, reply = llm.stream(request)
    assert reply == llm.reply(request)
    assert len(pieces) > 1
    assert "".join(map(str, pieces)).split() == reply.text.split()


def test_a_stream_that_fails_raises_what_failed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    llm = LocalLLM(str(folder))

    def broken(**_: Any) -> Any:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(llm.model, "generate", broken)
    with pytest.raises(RuntimeError, match="out of memory"):
        list(llm.stream(Request("answer", "who won?")))


def test_tokens_are_counted(folder: Path) -> None:
    llm = LocalLLM(str(folder), max_tokens=7, temperature=0)
    request = Request("answer", "who won?")
    reply = llm.reply(request)
    assert reply.tokens_in == llm.count(request) == len(llm.prompts.encoded(request))
    assert reply.tokens_out is not None
    assert 0 < reply.tokens_out <= 7
    assert llm.window == 512 - 7


def test_a_prompt_that_does_not_fit_is_an_error_and_not_cut(tmp_path: Path) -> None:
    save(tmp_path, positions=64)
    with pytest.raises(LLMError, match="--n3"):
        LocalLLM(str(tmp_path), max_tokens=16).reply(Request("answer", "who won?", ("word " * 60,)))


def test_a_model_that_is_not_there_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(ModelUnavailable, match="can't be loaded") as caught:
        LocalLLM(str(tmp_path / "none"))
    assert "\n" not in str(caught.value)
