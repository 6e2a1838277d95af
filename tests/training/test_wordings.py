"""Which statements of a corpus state the same fact."""

from kcard.offline.pseudo_queries import wordings


def wordings_of(winner: str, town: str, seat: str) -> list[str]:
    return [
        f"{winner} won {town}'s {seat} ward in the 1994 council vote.",
        f"Voters of {town}'s {seat} ward chose {winner} for the City Council in 1994.",
        f"The {seat} ward of {town} went to {winner}.",
    ]


def test_statements_of_the_same_names_and_figures_are_wordings_of_one_fact() -> None:
    names = ("Ida Vale", "Tom Birk", "Ann Lee", "Cy Okafor", "Ida Vale")
    facts = [(name, town, f"{n}th") for town in ("Ormond", "Corby") for n, name in enumerate(names, 4)]
    texts = [text for fact in facts for text in wordings_of(*fact)]
    assert wordings(texts) == [[first, first + 1, first + 2] for first in range(0, 30, 3) for _ in range(3)]


def test_statements_that_say_more_stand_alone() -> None:
    texts = [
        "Ida Vale led Ormond.",
        "Ormond was led by Ida Vale.",
        "Ida Vale led Ormond and Corby.",
        "It rained.",
    ]
    assert wordings(texts) == [[0, 1], [0, 1], [2], [3]]
