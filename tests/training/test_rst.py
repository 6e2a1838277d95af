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


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        (".. warning:: Close the lid.\n\n   It may hurt.\n", ["Close the lid.", "It may hurt."]),
        (".. deprecated:: Close the lid.\n\n   It may hurt.\n", ["Close the lid.", "It may hurt."]),
        (".. deprecated:: 6.2\n\n   Closed.\n", ["Deprecated since version 6.2", "Closed."]),
        (".. versionadded:: 6.2\n\nClosed.\n", ["New in version 6.2", "Closed."]),
        (".. versionchanged:: 6.2\n\nClosed.\n", ["Changed in version 6.2", "Closed."]),
        (
            "It is open.\n\n.. _here:\n.. a comment\n.. |sign| image:: sign.png\n\nIt is free.\n",
            ["It is open.", "It is free."],
        ),
        (
            "See the `opening\nhours <https://hours.example>`_ and :ref:`prices in\nwinter <winter>` first.\n",
            ["See the opening hours and prices in winter first."],
        ),
    ],
)
def test_directives_and_links_that_go_on_are_their_words_and_comments_are_none(
    tmp_path: Path, text: str, parts: list[str]
) -> None:
    assert [part for _, part in kinds_and_texts(blocks(tmp_path, "manual.rst", text))] == parts


RST_TABLES = """
.. list-table:: Fuses
   :header-rows: 1

   * - Fuse
     - Rating
   * - F7
     - 16 A, in
       the hall

.. csv-table::
   :header: "Lamp", "Watt"

   "Big, red", 40

+------+--------+------+
| Part | Maker  | Cost |
+======+========+======+
| Mast | Ardo   | 30   |
+------+ & Sons +------+
| Boom |        | 20   |
+------+--------+------+
| Sail | unknown       |
+------+---------------+

=====  =====
Day    Opens
=====  =====
Mon    9
Sun    ten or
       never
=====  =====

Drawn::

   +------+-----+
   | a    | b   |
   +------+-----+
"""


def test_tables_of_restructured_text_are_items_with_the_names_of_their_columns(tmp_path: Path) -> None:
    parsed = blocks(tmp_path, "t.rst", RST_TABLES)
    *items, drawn, code = kinds_and_texts(parsed)
    assert items == [
        ("text", "Fuses"),
        *(
            ("item", f"- {row}")
            for row in (
                "F7; Rating: 16 A, in the hall",
                "Big, red; Watt: 40",
                "Mast; Maker: Ardo & Sons; Cost: 30",
                "Boom; Maker: Ardo & Sons; Cost: 20",
                "Sail; Maker: unknown; Cost: unknown",
                "Mon; Opens: 9",
                "Sun; Opens: ten or never",
            )
        ),
    ]
    assert (drawn, code[0]) == (("text", "Drawn:"), "code")
