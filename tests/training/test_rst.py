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
    ("text", "parts"),
    [
        ("It takes :class:`~depot.Letter` when\nopen.", ["It takes depot.Letter when open."]),
        ("It takes :py:func:`sort`.", ["It takes sort."]),
        ("It is ``a * b * c``.", ["It is a * b * c."]),
        ("2 * 3 * 4", ["2 * 3 * 4"]),
        ("See `letters`_.", ["See letters."]),
        ("snake_case_name", ["snake_case_name"]),
        ("It is *one* and **two**.", ["It is one and two."]),
        (".. warning:: Close the lid.\n\n   It may hurt.", ["Close the lid.", "It may hurt."]),
        (".. deprecated:: Close the lid.\n\n   It may hurt.", ["Close the lid.", "It may hurt."]),
        (".. deprecated:: 6.2\n\n   Closed.", ["Deprecated since version 6.2", "Closed."]),
        (".. versionadded:: 6.2\n\nClosed.", ["New in version 6.2", "Closed."]),
        (".. versionchanged:: 6.2\n\nClosed.", ["Changed in version 6.2", "Closed."]),
        ("Open.\n\n.. _here:\n.. a comment\n.. |sign| image:: sign.png\n\nFree.", ["Open.", "Free."]),
        ("See the `opening\nhours <https://hours.example>`_ first.", ["See the opening hours first."]),
        ("See :ref:`prices in\nwinter <winter>` first.", ["See prices in winter first."]),
    ],
)
def test_marks_and_directives_go_and_their_words_stay(tmp_path: Path, text: str, parts: list[str]) -> None:
    assert [part for _, part in kinds_and_texts(blocks(tmp_path, "manual.rst", f"{text}\n"))] == parts


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
    title, *items, drawn, code = kinds_and_texts(blocks(tmp_path, "t.rst", RST_TABLES))
    assert title == ("text", "Fuses")
    assert {kind for kind, _ in items} == {"item"}
    assert [text for _, text in items] == [
        "- F7; Rating: 16 A, in the hall",
        "- Big, red; Watt: 40",
        "- Mast; Maker: Ardo & Sons; Cost: 30",
        "- Boom; Maker: Ardo & Sons; Cost: 20",
        "- Sail; Maker: unknown; Cost: unknown",
        "- Mon; Opens: 9",
        "- Sun; Opens: ten or never",
    ]
    assert (drawn, code[0]) == (("text", "Drawn:"), "code")
