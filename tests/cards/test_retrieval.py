"""Cards that look passages up, alone or beside a model; and cards of which only the hashes of passages travel."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from kcard.cards.card import Card, finish
from kcard.cards.passages import hashes, load_index, passages
from kcard.cards.pool import CardPool
from kcard.errors import CardError, DamagedCard
from kcard.manifest import Manifest, seal
from kcard.text import passage_digest
from kcard.types import Sampling, Source

RIVERS = [
    "The Rhine rises in the Alps and ends in the North Sea.",
    "The Thames rises near Kemble.",
    "The Danube flows through Vienna.",
    "London is the capital of the United Kingdom.",
]
SAMPLED = Sampling(temperature=1.0, seed=7)
RETRIEVAL = Manifest("rivers", "Rivers of Europe", kind="retrieval")


def sources(texts: list[str]) -> list[Source]:
    return [Source(text, "rivers.md", line) for line, text in enumerate(texts, 3)]


@pytest.fixture
def made(tmp_path: Path) -> Callable[..., Card]:
    def make(texts: list[str] = RIVERS, manifest: Manifest = RETRIEVAL) -> Card:
        folder = tmp_path / manifest.name
        folder.mkdir(exist_ok=True)
        return finish(folder, manifest, sources(texts))

    return make


def test_documents_are_passages_by_rank_with_their_place_and_empty_where_there_are_no_more(
    made: Callable[..., Card],
) -> None:
    pool = CardPool([made(RIVERS[:2])])
    (written,) = pool.generate(["Where does the Rhine end?"], [["rivers"]], 3, SAMPLED)
    assert [p.text for p in written] == [*RIVERS[:2], ""]
    assert written[0].card == "rivers"
    first, second, third = (p.source for p in written)
    assert first is not None
    assert second is not None
    assert third is None
    assert (first.text, first.file, first.line) == (RIVERS[0], "rivers.md", 3)
    assert 1 >= first.score > second.score


def test_the_meaning_counts_beside_the_words(made: Callable[..., Card]) -> None:
    """Small words are all that the question shares with either; BM25 alone puts the better one second."""
    texts = ["The town hall of the capital of the county is a big one.", "The mastiff is a huge hound."]
    question = "What is the biggest of the dogs?"
    assert [row for row, _ in load_index(made(texts)).search(question, 2)] == [0, 1]
    (written,) = CardPool([made(texts)]).generate([question], [["rivers"]], 2, SAMPLED)
    assert [p.text for p in written] == texts[::-1]


def test_passages_depend_on_the_question_alone(made: Callable[..., Card]) -> None:
    questions = ["Which river flows through Vienna?", "Where does the Thames rise?", "the capital of what?"]
    together = CardPool([made()]).generate(questions, [["rivers"]] * len(questions), 3, SAMPLED)
    pool, other = CardPool([made()]), Sampling(seed=1)
    for question, row in reversed([*zip(questions, together, strict=True)]):
        assert pool.generate([question], [["rivers"]], 3, other) == [row]


@pytest.mark.parametrize("question", ["", "?!", "\u2603"])
def test_a_question_without_words_gives_empty_documents(made: Callable[..., Card], question: str) -> None:
    (written,) = CardPool([made()]).generate([question], [["rivers"]], 3, SAMPLED)
    assert [(p.text, p.source) for p in written] == [("", None)] * 3


def test_what_the_words_of_the_question_match_nowhere_is_unlikely_to_be_its_answer(
    made: Callable[..., Card],
) -> None:
    (written,) = CardPool([made()]).generate(["Which sultan ruled Zanzibar?"], [["rivers"]], 3, SAMPLED)
    assert all(p.source is not None and p.source.score < 0.5 for p in written)


def test_a_chinese_corpus_is_searched_by_its_characters(made: Callable[..., Card]) -> None:
    texts = ["莱茵河流入北海。", "多瑙河流经维也纳。", "伦敦是英国的首都。"]
    card = made(texts, Manifest("rivers", "河流", kind="retrieval", language="zh"))
    (written,) = CardPool([card]).generate(["哪条河流经维也纳?"], [["rivers"]], 1, SAMPLED)
    assert written[0].text == texts[1]


def test_a_retrieval_card_needs_its_passages_and_their_index(made: Callable[..., Card]) -> None:
    with pytest.raises(DamagedCard, match=r"no index/params\.index\.json"):
        made(["?!", "..."])
    card = made()
    (card.folder / "passages.jsonl").unlink()
    with pytest.raises(DamagedCard, match=r"no passages\.jsonl"):
        Card.open(card.folder)


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("index/vocab.index.json", "{", '{"rhine": 5', r"card 'rivers' is damaged: "),
        ("passages.jsonl", "Kemble", "Oxford", r"the index of another passages\.jsonl"),
    ],
)
def test_a_bad_index_or_one_of_other_passages_that_was_sealed_is_refused_in_one_line(
    made: Callable[..., Card], file: str, old: str, new: str, message: str
) -> None:
    card = made()
    path = card.folder / file
    path.write_text(path.read_text().replace(old, new))
    sealed = Card(card.folder, seal(card.folder, card.manifest))
    with pytest.raises(CardError, match=message) as caught:
        CardPool([sealed]).generate(["Oxford?"], [["rivers"]], 1, SAMPLED)
    assert "\n" not in str(caught.value)


def test_an_older_card_without_an_index_is_indexed_when_it_is_used(tmp_path: Path) -> None:
    (tmp_path / "passages.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in RIVERS))
    assert load_index(Card(tmp_path, RETRIEVAL)).search("Vienna", 1)[0][0] == 2


def test_passages_are_read_where_they_are_asked_for(made: Callable[..., Card]) -> None:
    path = made().folder / "passages.jsonl"
    path.write_text(path.read_text().replace('{"text": "The Danube', 'no passage {"text": "'))
    found = passages(path.parent)
    assert (len(found), found[-1].text, found[0].line) == (4, RIVERS[3], 3)
    assert [p.text for p in found[:2]] == RIVERS[:2]
    with pytest.raises(CardError, match=r"passages\.jsonl, line 3"):
        found[2]


def test_only_hashes_of_the_passages_travel_where_that_is_asked_for(tmp_path: Path) -> None:
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        (tmp_path / name).write_text(name)
    card = finish(tmp_path, Manifest("rivers", "Rivers", evidence="hashes"), sources(RIVERS))
    assert not [name for name in card.manifest.files if name.startswith("index/")]
    for path in (tmp_path / "passages.jsonl", tmp_path / "README.md"):
        assert not [text for text in RIVERS if text in path.read_text()]
    assert list(passages(tmp_path)) == []
    assert hashes(tmp_path)[passage_digest(RIVERS[1])] == Source("", "rivers.md", 4)
    assert len(hashes(tmp_path)) == 4


OPTIONS = [
    "-r, --recursive: Copy folders with everything that is in them. See -R for what is kept of the path.",
    "-R, --relative: Keep the whole path of what was named, not its last part. It goes with folders too.",
    "-n, --dry-run: Show what would be copied, and copy nothing. It is good with -r for a look ahead.",
    "--durations=N: Show the N slowest copies. Those of less than a second are hidden without -v.",
    "--[no-]links: Copy links as links. Without -r the folders that they name are left out.",
    "Options may be joined, so that rcopy -rn shows what a copy of the folder would be, and -v says more.",
]


@pytest.mark.parametrize(
    ("question", "row"),
    [
        ("What does -r do?", 0),
        ("What does -R do?", 1),
        ("What does rcopy -n do?", 2),
        ("What is --durations for?", 3),
        ("What does --no-links do?", 4),
        ("what happens with the folders if I use -R", 1),
    ],
)
def test_of_two_options_the_one_that_was_asked_about_is_first(
    made: Callable[..., Card], question: str, row: int
) -> None:
    [written] = CardPool([made(OPTIONS)]).generate([question], [["rivers"]], 3, SAMPLED)
    assert written[0].text == OPTIONS[row]


def test_of_an_option_with_several_passages_the_explanation_comes_first(tmp_path: Path) -> None:
    section = "rcopy > -r, --recurse"
    texts = [
        "Copy folders with what is in them, to any depth.",
        "For example, rcopy -r a b copies the folder a into b, whatever -r finds there.",
        "What -r does with links is up to --links: what -r does to files, it does to links.",
    ]
    parts = [Source(text, "rcopy.md", 3 + n, section=section) for n, text in enumerate(texts)]
    card = finish(
        tmp_path, RETRIEVAL, [Source("A copier of files.", "rcopy.md", 1), *parts, *sources(RIVERS)]
    )
    [written] = CardPool([card]).generate(["What does -r do?"], [["rivers"]], 3, SAMPLED)
    assert written[0].text == texts[0]
    assert [passage.text for passage in written].count(texts[0]) == 1
    [other] = CardPool([card]).generate(
        ["How do links behave, what is up to them?"], [["rivers"]], 1, SAMPLED
    )
    assert other[0].text == texts[2]


def test_a_passage_that_stands_in_two_files_is_one_document(tmp_path: Path) -> None:
    copies = [Source(RIVERS[0], f"{name}.md", 1, section=name) for name in ("rhine", "rivers", "alps")]
    card = finish(tmp_path, RETRIEVAL, [*copies, *sources(RIVERS[1:])])
    [written] = CardPool([card]).generate(["Where does the Rhine end?"], [["rivers"]], 3, SAMPLED)
    texts = [passage.text for passage in written]
    assert texts[0] == RIVERS[0]
    assert len(set(texts)) == 3
