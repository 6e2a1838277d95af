"""Demonstrations go with each question of a run; those of a classification stand in turns by class."""

from kcard.evaluation.runs.run import put
from kcard.evaluation.tasks.base import Item, TaskData
from kcard.types import Choice

CLASSES = (Choice("A", "satire"), Choice("B", "hoax"), Choice("C", "trusted"))
ITEM = Item("q", "Some news", ("A",), CLASSES)


def task(shots: tuple[Item, ...]) -> TaskData:
    return TaskData("lun", "balanced-accuracy", (ITEM,), "0", {"": shots})


def test_the_last_demonstrations_of_a_classification_are_of_all_classes() -> None:
    shots = [
        Item(f"{letter}{n}", f"news {letter}{n}", (letter,), CLASSES) for letter in "ABC" for n in range(3)
    ]
    question = put(task((*shots, Item("B3", "news B3", ("B",), CLASSES))), ITEM, None)
    letters = [example.reply for example in question.examples]
    assert letters == ["B", "A", "B", "C", "A", "B", "C", "A", "B", "C"]
    assert question.examples[-2].question == "news B3"
    assert [e.reply for e in put(task(tuple(shots)), ITEM, 3).examples] == ["A", "B", "C"]
    assert all(example.choices == CLASSES for example in question.examples)


def test_demonstrations_with_options_of_their_own_keep_their_order() -> None:
    shots = tuple(
        Item(str(n), f"who {n}", (letter,), (Choice("A", f"Ann {n}"), Choice("B", f"Ben {n}")))
        for n, letter in enumerate("AAB")
    )
    assert [example.question for example in put(task(shots), ITEM, None).examples] == [
        "who 0",
        "who 1",
        "who 2",
    ]


def test_open_demonstrations_keep_their_order() -> None:
    shots = tuple(Item(str(n), f"who {n}", ("Ann",)) for n in range(3))
    assert [example.question for example in put(task(shots), ITEM, 2).examples] == ["who 1", "who 2"]
    assert put(task(()), ITEM, 2).examples == ()
