"""reStructuredText: its text without the marks of roles and directives."""

from pathlib import Path

import pytest

from tests.training.documents import blocks, kinds_and_texts, sections

TEXT = """.. _depot:

=====
Depot
=====

.. index:: letters

It sorts :ref:`all letters <letters>` by
``depot -q`` and *never* loses **one**. See `the rules <https://depot.example>`_.

.. note::

   Keep a copy.

.. image:: depot.png
   :alt: a picture

Opening hours
-------------

The depot opens at noon, but for
days on which it is closed.

.. code-block:: python
   :linenos:

   for letter in letters:
       print(letter)

-q
    Write nothing.

* first item
* second item
  that goes on
"""


def test_headings_are_kept_and_marks_are_not(tmp_path: Path) -> None:
    (first, second) = sections(tmp_path, "manual.rst", TEXT)
    assert first == (
        "Depot",
        "It sorts all letters by depot -q and never loses one. See the rules.\nKeep a copy.",
    )
    assert second[0] == "Depot > Opening hours"
    assert second[1].splitlines() == [
        "The depot opens at noon, but for days on which it is closed.",
        "for letter in letters:",
        "    print(letter)",
        "-q: Write nothing.",
        "- first item",
        "- second item that goes on",
    ]


@pytest.mark.parametrize(
    ("marked", "plain"),
    [
        (":class:`~depot.Letter`", "depot.Letter"),
        (":py:func:`sort`", "sort"),
        ("``a * b * c``", "a * b * c"),
        ("2 * 3 * 4", "2 * 3 * 4"),
        ("`letters`_", "letters"),
        ("snake_case_name", "snake_case_name"),
        ("*one* and **two**", "one and two"),
    ],
)
def test_inline_marks_go_and_their_words_stay(tmp_path: Path, marked: str, plain: str) -> None:
    parsed = blocks(tmp_path, "manual.rst", f"It takes {marked} when\nit is open.\n")
    assert kinds_and_texts(parsed) == [("text", f"It takes {plain} when it is open.")]


@pytest.mark.parametrize("directive", ["warning", "tip", "deprecated"])
def test_the_text_of_a_directive_is_kept(tmp_path: Path, directive: str) -> None:
    text = f".. {directive}:: Close the lid.\n\n   It may hurt.\n"
    assert [part for _, part in kinds_and_texts(blocks(tmp_path, "manual.rst", text))] == [
        "Close the lid.",
        "It may hurt.",
    ]


def test_comments_and_targets_are_not_text(tmp_path: Path) -> None:
    text = "The depot is open.\n\n.. _here:\n.. a comment\n.. |sign| image:: sign.png\n\nIt is free.\n"
    assert [part for _, part in kinds_and_texts(blocks(tmp_path, "manual.rst", text))] == [
        "The depot is open.",
        "It is free.",
    ]


@pytest.mark.parametrize(
    ("directive", "message"),
    [
        ("deprecated", "Deprecated since version 6.2"),
        ("versionadded", "New in version 6.2"),
        ("versionchanged", "Changed in version 6.2"),
    ],
)
def test_what_happened_in_a_version_keeps_its_words(tmp_path: Path, directive: str, message: str) -> None:
    text = f".. {directive}:: 6.2\n\nThe lid is closed.\n"
    assert [part for _, part in kinds_and_texts(blocks(tmp_path, "manual.rst", text))] == [
        message,
        "The lid is closed.",
    ]


def test_links_and_roles_that_go_on_in_the_next_line_lose_their_marks(tmp_path: Path) -> None:
    text = "See the `opening\nhours <https://hours.example>`_ and :ref:`prices in\nwinter <winter>` first.\n"
    assert kinds_and_texts(blocks(tmp_path, "manual.rst", text)) == [
        ("text", "See the opening hours and prices in winter first.")
    ]
