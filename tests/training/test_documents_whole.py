"""Whole documents for causal language modelling: their text, where they begin and end, and their tokens."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kcard.offline.recipe import EOS, train_tokenizer
from kcard.training.corpus import read_corpus
from kcard.training.epochs import TokenBlocks
from kcard.training.passages import rejoin

LONG = " ".join(f"The gate number {n} of the long wall was painted red in spring." for n in range(40))
PROSE = f"# Walls\n\nThe wall of Arlen has forty gates.\n\n{LONG}\n\n## Keepers\n\nEach gate has a keeper of its own.\n"


def documents(path: Path) -> list[str]:
    documents = read_corpus(path, whole=True).documents
    assert documents is not None
    return [documents[number] for number in range(len(documents))]


def test_a_file_of_prose_is_one_document_with_all_its_words_in_their_order(tmp_path: Path) -> None:
    path = tmp_path / "walls.md"
    path.write_text(PROSE, encoding="utf-8")
    [text] = documents(path)
    assert text.split("\n") == [
        "Walls",
        "The wall of Arlen has forty gates.",
        LONG,
        "Keepers",
        "Each gate has a keeper of its own.",
    ]


def test_a_list_of_statements_is_one_document(tmp_path: Path) -> None:
    path = tmp_path / "facts.txt"
    path.write_text("Ann won.\nBob lost.\nCarl stayed at home.\n", encoding="utf-8")
    assert documents(path) == ["Ann won.\nBob lost.\nCarl stayed at home."]


def test_a_row_of_a_table_is_a_document_with_its_lines(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"text": "Ann won.\\n\\nShe is a smith."}\n{"text": "Bob lost."}\n', encoding="utf-8")
    assert documents(path) == ["Ann won.\nShe is a smith.", "Bob lost."]


def test_equal_documents_are_kept_once_and_files_without_text_are_none(tmp_path: Path) -> None:
    for name, text in (("a.txt", "Ann won."), ("b.txt", "Ann won."), ("c.txt", ""), ("d.txt", "Bob lost.")):
        (tmp_path / name).write_text(text, encoding="utf-8")
    assert documents(tmp_path) == ["Ann won.", "Bob lost."]


def test_a_document_of_very_many_characters_becomes_several(tmp_path: Path, monkeypatch: Any) -> None:
    from kcard.training import corpus

    monkeypatch.setattr(corpus, "LONGEST", 30)
    path = tmp_path / "facts.txt"
    path.write_text("".join(f"Fact {n} is told.\n" for n in range(6)), encoding="utf-8")
    assert [text.count("\n") + 1 for text in documents(path)] == [3, 3]


def test_without_being_asked_for_documents_are_not_kept(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("Ann won.", encoding="utf-8")
    assert read_corpus(path).documents is None


def test_the_passages_of_a_card_are_joined_again_to_what_they_were_cut_from(tmp_path: Path) -> None:
    path = tmp_path / "walls.txt"
    path.write_text(
        f"The wall of Arlen has forty gates.\n\n{LONG}\n\nEach gate has a keeper.\n", encoding="utf-8"
    )
    corpus = read_corpus(path, whole=True)
    assert len(corpus.passages) > 3
    assert [*rejoin(corpus.passages)] == documents(path)


def streamed(blocks: TokenBlocks) -> list[int]:
    return [token for place in range(len(blocks)) for token in blocks[place].target]


def test_the_tokens_of_the_blocks_are_the_text_with_an_end_between_documents() -> None:
    texts = [LONG, "Ann won.", f"{LONG} And so on."]
    words = train_tokenizer(texts, 400)
    blocks = TokenBlocks(texts, words, 64)
    stream = streamed(blocks)
    assert {len(blocks[place]) for place in range(len(blocks) - 1)} == {64}
    ends = [place for place, token in enumerate(stream) if token == EOS]
    assert len(ends) == 3
    assert ends[-1] == len(stream) - 1
    parts = [stream[start + 1 : end] for start, end in zip([-1, *ends], ends, strict=False)]
    assert [str(words.decode(part, skip_special_tokens=True)).strip() for part in parts] == texts


class StartsWithItsEnd:
    """A tokenizer that puts the end-of-text token in front of a text, as OPT's does; letters are tokens."""

    bos_token_id = eos_token_id = 2

    def __call__(self, texts: Sequence[str], verbose: bool) -> dict[str, list[list[int]]]:
        del verbose
        return {"input_ids": [[2, *map(ord, text)] for text in texts]}


def test_a_token_that_begins_and_ends_texts_stands_once_between_two() -> None:
    blocks = TokenBlocks(["ab", "c"], StartsWithItsEnd(), 8)
    assert streamed(blocks) == [2, 97, 98, 2, 99, 2]


def test_a_last_block_of_one_token_is_left_out() -> None:
    words = StartsWithItsEnd()
    assert [len(TokenBlocks(["abc", "d"], words, size)) for size in (3, 6, 7)] == [2, 1, 1]
    assert len(TokenBlocks(["abc"], words, 4)) == 1
