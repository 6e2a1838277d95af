"""Graph cards: the statements about what a question names, one and two steps away, told as the corpus reader tells."""

from pathlib import Path

import pytest

from kcard.cards.card import Card
from kcard.cards.generators.graph import MAX_STATEMENTS, Graph
from kcard.cards.passages import passages
from kcard.cards.pool import CardPool
from kcard.errors import DamagedCard, UsageError
from kcard.manifest import seal
from kcard.selectors.evidence import CorpusEvidence, Statements
from kcard.training.train import train
from kcard.types import Sampling

TRIPLES = [
    ("Oslo", "capital of", "Norway"),
    ("Norway", "head of government", "Jonas Gahr Støre"),
    ("Norway", "currency", "Norwegian krone"),
    ("Lima", "capital of", "Peru"),
    ("Peru", "currency", "Sol"),
    ("Jonas Gahr Støre", "place of birth", "Oslo"),
    ("Gahr", "instance of", "name"),
]
SAMPLED = Sampling(temperature=1.0)


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "facts.tsv"
    rows = ["subject\trelation\tobject", *("\t".join(triple) for triple in TRIPLES)]
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def card(corpus: Path) -> Card:
    return train(corpus, kind="graph", name="facts", description="countries")


def written(card: Card, question: str, documents: int = 3) -> list[str]:
    return [p.text for p in CardPool([card]).generate([question], [["facts"]], documents, SAMPLED)[0]]


@pytest.mark.parametrize(
    ("question", "text", "line"),
    [
        ("What is the currency of Peru?", "The currency of Peru is Sol.", 6),
        (
            "Which currency has the country whose capital is Oslo?",
            "Oslo is the capital of Norway. The currency of Norway is Norwegian krone.",
            4,
        ),
    ],
)
def test_a_statement_about_what_is_named_comes_first_or_two_that_lead_to_the_answer(
    card: Card, question: str, text: str, line: int
) -> None:
    first, *others = CardPool([card]).generate([question], [["facts"]], 9, SAMPLED)[0]
    assert first.text == text
    assert first.source is not None
    assert (first.source.file, first.source.line) == ("facts.tsv", line)
    # A step that answers nothing of the question is not told.
    assert not [other for other in others if other.text.startswith(f"{text} ")]


def test_the_longest_name_counts_whatever_its_case_and_article(card: Card) -> None:
    graph = Graph.read(card.folder / "graph.tsv")
    asked = ["where", "was", "jonas", "gahr", "støre", "of", "norway", "born"]
    assert graph.find_names(asked) == [("jonas", "gahr", "støre"), ("norway",)]
    assert written(card, "where was JONAS GAHR STØRE born?", 1) == ["Jonas Gahr Støre was born in Oslo."]
    assert written(card, "the Norway's currency", 1) == ["The currency of Norway is Norwegian krone."]


@pytest.mark.parametrize("question", ["Who rules Zanzibar?", "", "?!", "word " * 20_000])
def test_a_question_that_names_nothing_gets_empty_documents(card: Card, question: str) -> None:
    assert written(card, question, 2) == ["", ""]


def test_what_is_written_depends_on_the_question_alone(card: Card) -> None:
    questions = ["What is the currency of Peru?", "Who governs Norway?", "Zanzibar?"]
    together = CardPool([card]).generate(questions, [["facts"]] * len(questions), 2, SAMPLED)
    alone = [CardPool([card]).generate([q], [["facts"]], 2, Sampling(seed=5))[0] for q in questions]
    assert together == alone


def test_a_busy_name_leads_nowhere_but_is_counted(tmp_path: Path) -> None:
    rows = [f"Race {n}\tpoint in time\t2022" for n in range(MAX_STATEMENTS + 1)]
    rows += ["Oregon race\tpoint in time\t2022", "Oregon race\twinner\tRon Wyden"]
    path = tmp_path / "races.tsv"
    path.write_text("\n".join(rows), encoding="utf-8")
    made = train(path, kind="graph", name="facts", description="races")
    assert written(made, "Who was the winner of the Oregon race in 2022?", 1) == [
        "The winner of Oregon race was Ron Wyden."
    ]
    assert len(written(made, "What happened in 2022?", 3)) == 3


def test_its_passages_travel_in_the_order_of_its_triples(card: Card) -> None:
    rows = (card.folder / "graph.tsv").read_text(encoding="utf-8").splitlines()
    assert len(rows) == len(passages(card.folder)) == len(TRIPLES)
    assert rows[1] == "Norway\thead of government\tJonas Gahr Støre"
    assert card.manifest.kind == "graph"
    assert not card.manifest.has_model
    assert not card.manifest.asks_elsewhere
    assert "knowledge graph" in (card.folder / "README.md").read_text(encoding="utf-8")


def test_two_statements_of_the_graph_are_supported_as_one_text() -> None:
    from kcard.types import Source

    told = Statements(
        CorpusEvidence([Source("Oslo is in Norway.", "a", 1), Source("Norway is cold.", "a", 2)])
    )
    both = "Oslo is in Norway. Norway is cold."
    first, *_ = told.find(both, 3)
    assert (first.text, first.line) == (both, 2)
    assert both not in [source.text for source in told.find("Oslo is in Norway. Norway is hot.", 3)]
    assert told.find(both, 0) == []


@pytest.mark.parametrize("damage", ["", "one\ttwo\n", "a\tb\tc\n"])
def test_a_graph_of_other_passages_is_refused(card: Card, damage: str) -> None:
    (card.folder / "graph.tsv").write_text(damage, encoding="utf-8")
    resealed = Card(card.folder, seal(card.folder, card.manifest))
    with pytest.raises(DamagedCard, match=r"graph\.tsv"):
        written(resealed, "What is the currency of Peru?")


def test_other_text_than_triples_and_options_of_models_are_refused(corpus: Path, tmp_path: Path) -> None:
    others = {"prose.txt": "Oslo is in Norway.\n", "table.tsv": "id\ttext\n1\tOslo is in Norway.\n"}
    for name, text in others.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
        with pytest.raises(UsageError, match=rf"{name}, line 1 is not a triple"):
            train(tmp_path / name, kind="graph", description="d")
    with pytest.raises(UsageError, match="kind graph has none"):
        train(corpus, kind="graph", epochs=3)
    with pytest.raises(UsageError, match="evidence hashes"):
        train(corpus, kind="graph", evidence="hashes")
