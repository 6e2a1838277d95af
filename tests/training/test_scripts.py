"""Corpora in many scripts: each statement survives reading, hashing, tokenising and training, and keeps its limits."""

from pathlib import Path

import pytest

from kcard.offline.recipe import train_tokenizer
from kcard.training.corpus import read_corpus
from kcard.training.passages import PASSAGE, cut

STATEMENTS = {
    "Latin": ["Der Fluß fließt nach Süden.", "Cafe\u0301 Noir liegt in Genève."],
    "Cyrillic": ["Река течёт на юг.", "Ёлка стоит у окна."],
    "Greek": ["Ο ποταμός ρέει προς τον νότο.", "Η Αθήνα είναι μεγάλη."],
    "Chinese": ["这条河向南流。", "城里有三座桥。"],
    "Japanese": ["この川は南へ流れる。", "町には橋が三つある。"],
    "Korean": ["강은 남쪽으로 흐른다.", "마을에는 다리가 셋 있다."],
    "Thai": ["แม่น้ำไหลลงใต้", "ในเมืองมีสะพานสามแห่ง"],
    "Arabic": ["النهر يجري نحو الجنوب.", "هل في المدينة جسر؟"],
    "Hebrew": ["הנהר זורם דרומה.", "בָּעִיר יֵשׁ גֶּשֶׁר."],
    "Devanagari": ["नदी दक्षिण की ओर बहती है।", "शहर में तीन पुल हैं।"],
    "Emoji": ["The flag of the club is 🏴‍☠️ and its sign 👩🏽‍🚀.", "A smile 😀 stands for yes."],
}


@pytest.mark.parametrize("script", STATEMENTS)
def test_statements_survive_to_passages_and_through_the_tokenizer(script: str, tmp_path: Path) -> None:
    path = tmp_path / f"{script}.txt"
    path.write_text("\n".join(STATEMENTS[script]) + "\n", encoding="utf-8")
    corpus = read_corpus(path)
    assert [(p.text, p.line) for p in corpus.passages] == list(zip(STATEMENTS[script], (1, 2), strict=True))
    tokenizer = train_tokenizer(corpus.texts, 400)
    for text in corpus.texts:
        ids = tokenizer(text)["input_ids"]
        assert str(tokenizer.decode(ids, skip_special_tokens=True)).strip() == text


@pytest.mark.parametrize(
    ("sentence", "longest"),
    [
        ("这条河向南流。", 300),
        ("この川は南へ流れる。", 300),
        ("แม่น้ำไหลลงใต้ ", 650),
        ("नदी दक्षिण की ओर बहती है। ", 1200),
        ("هل في المدينة جسر؟ ", 1200),
        ("👩🏽‍🚀", 1200),
        ("é́", 1200),
    ],
)
def test_long_text_is_cut_to_what_a_card_can_hold_and_nothing_is_lost(sentence: str, longest: int) -> None:
    text = sentence * 900
    pieces = [*cut(text, PASSAGE)]
    assert "".join("".join(pieces).split()) == "".join(text.split())
    assert len(pieces) > 1
    assert all(len(piece) <= longest for piece in pieces)


@pytest.mark.parametrize(
    "sentence", ["这条河向南流。", "この川は南へ流れる。", "नदी दक्षिण की ओर बहती है।", "هل في المدينة جسر؟"]
)
def test_a_paragraph_is_cut_where_the_script_ends_its_sentences(sentence: str) -> None:
    joint = " " if " " in sentence else ""
    for piece in cut(joint.join([sentence] * 200), PASSAGE):
        assert piece.endswith(sentence)


def test_a_joined_emoji_and_an_accent_are_not_parted() -> None:
    for whole in ("👩🏽‍🚀", "e\u0301\u0323"):
        assert all(not piece.replace(whole, "") for piece in cut(whole * 1400, PASSAGE))
