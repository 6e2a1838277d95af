"""Accuracy of choices, balanced accuracy and macro F1, against scikit-learn."""

import math
import warnings

import numpy as np
import pytest
from sklearn import metrics as sklearn

from kcard.evaluation.metrics import accuracy, balanced_accuracy, macro_f1

CLASSES = ("satire", "hoax", "propaganda", "trusted")


def drawn(seed: int, count: int = 200) -> tuple[list[str], list[str]]:
    """Predictions, some of which are no class, and the right classes, of different sizes."""
    random = np.random.default_rng(seed)
    actual = random.choice(CLASSES, count, p=[0.6, 0.2, 0.15, 0.05])
    guess = random.choice([*CLASSES, ""], count)
    return np.where(random.random(count) < 0.6, actual, guess).tolist(), actual.tolist()


def test_a_choice_is_right_if_it_is_one_of_the_right_letters() -> None:
    assert accuracy("B", ("B",)) == 1.0
    assert accuracy("C", ("B", "C")) == 1.0
    assert accuracy("A", ("B",)) == 0.0
    assert accuracy("", ("B",)) == 0.0


@pytest.mark.parametrize("seed", range(5))
def test_balanced_accuracy_and_macro_f1_are_those_of_scikit_learn(seed: int) -> None:
    predicted, actual = drawn(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # "" is predicted but is no class
        expected = sklearn.balanced_accuracy_score(actual, predicted)
    assert balanced_accuracy(predicted, actual) == pytest.approx(expected)
    expected = sklearn.f1_score(actual, predicted, labels=CLASSES, average="macro", zero_division=0)
    assert macro_f1(predicted, actual) == pytest.approx(expected)


def test_a_class_that_neither_occurs_nor_is_predicted_has_f1_zero() -> None:
    actual, predicted = ["hoax", "satire"], ["hoax", "hoax"]
    expected = sklearn.f1_score(actual, predicted, labels=CLASSES, average="macro", zero_division=0)
    assert macro_f1(predicted, actual, CLASSES) == pytest.approx(expected)


def test_one_class_for_everything_is_no_better_than_chance() -> None:
    assert balanced_accuracy(["hoax"] * 10, ["hoax"] * 9 + ["satire"]) == 0.5
    assert balanced_accuracy([""] * 10, ["hoax"] * 9 + ["satire"]) == 0.0


def test_nothing_has_no_accuracy() -> None:
    assert math.isnan(balanced_accuracy([], []))
    assert math.isnan(macro_f1([], []))
