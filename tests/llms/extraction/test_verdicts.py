"""Verdicts of yes or no: the clause that speaks of what is asked."""

import re

import pytest

from kcard.llms.extraction.verdicts import YesNo, decide
from kcard.text import split_sentences


def verdict(question: str, passage: str, heading: str = "") -> str:
    """Return "yes", "no" or "" as the passage says."""
    decided = decide(question, split_sentences(passage), heading)
    if decided is None:
        return ""
    return "yes" if decided.is_yes else "no"


# Passages, each with questions that it answers with yes or no, and questions that it leaves in doubt.
VERDICTS = """
Lanterns are allowed in the yard but not in the barn.
  yes: Are lanterns allowed in the yard? May I have lanterns in the yard?
  no: Are lanterns allowed in the barn?
  doubtful: Are lanterns allowed? Are lanterns allowed in the mill? Are candles allowed in the yard?

Geese are welcome, swans are not.
  yes: Are geese welcome?
  no: Are swans welcome?
  doubtful: Are ducks welcome? Are geese or swans welcome?

The depot is open to all carters except apprentices.
  yes: May carters use the depot?
  no: May apprentices use the depot?
  doubtful: May clerks use the depot?

Carts may wait until ten, except on Fridays, when they may wait until midnight.
  yes: May carts wait until midnight on Fridays?
  no: May carts wait until midnight on Mondays?
  doubtful: May carts wait until noon on Fridays?

The crane is free for millers only.
  yes: Is the crane free for millers?
  no: Is the crane free for carters?
  doubtful: Is the crane free? Is the barn free for carters?

Only smiths may light the forge.
  yes: May smiths light the forge?
  no: May carters light the forge?
  doubtful: May I light the forge?

The lamp burns only oil.
  yes: Does the lamp burn oil?
  no: Does the lamp burn gas?
  doubtful: Does the lamp burn? Does the lamp burn at night?

The forge is closed on Mondays, not on Sundays.
  yes: Is the forge closed on Mondays?
  no: Is the forge closed on Sundays? Is the forge open on Mondays?
  doubtful: Is the forge closed?

You need no pass for the barn. A pass is required in the mill.
  yes: Is a pass required in the mill?
  no: Do I need a pass for the barn?
  doubtful: May I enter the barn?

Whistling is forbidden in the mill.
  yes: Is whistling forbidden in the mill?
  no: Is whistling allowed in the mill? May I whistle in the mill?
  doubtful: Is whistling forbidden? Is singing forbidden in the mill?

Mules are usually fed at night. Old mules are not shod.
  no: Are old mules shod?
  doubtful: Are mules fed at night? Are mules shod?

Smiths were paid in oats. Carters will be paid in coins.
  yes: Were smiths paid in oats? Will carters be paid in coins?
  doubtful: Are smiths paid in oats? Are carters paid in coins?

Sacks bought here may be returned, provided that they are dry. Sacks must not be lent.
  no: May sacks be lent?
  doubtful: May sacks be returned? Must sacks be lent?

The ferry runs from Monday to Thursday.
  yes: Does the ferry run on Wednesdays?
  doubtful: Does the ferry run on Saturdays? Does the ferry run every day at noon?

Version 4 opens files of version 3. Version 3 can't open files of version 4.
  yes: Can version 4 open files of version 3?
  no: Can version 3 open files of version 4?

- [x] Order the wheel
- [ ] Grease the axle
  yes: Has the wheel been ordered?
  no: Has the axle been greased?

A boat may carry only one net at a time. Guests may bring at most two dogs.
  yes: May a boat carry one net? May guests bring two dogs?
  no: May a boat carry several nets at once? May guests bring three dogs?
  doubtful: May a boat carry two anchors? May a clerk bring three dogs?

Only one guide may lead a tour. The hut is red.
  no: May more than one guide lead a tour of the hut?
  doubtful: May two guests join a tour? May three guides paint the hut?

Korp 2.0 was never published: a shop, by mistake, sold an early draft of Korp and called it 2.0.
  no: Was Korp 2.0 ever published?

It is perfectly fine to store seeds in jars. It is dangerous to store lye beside acid.
  yes: Is it ok to keep seeds in jars? Is it safe to keep seeds in jars?
  no: Is it safe to keep lye next to acid?
  doubtful: Is it ok to keep lye in jars? Is it ok to keep seeds next to acid?

You can safely try the loom as any weaver other than the owner, without damaging it in any way.
  yes: If I am not the owner, can I play around with the loom without any risk of breaking it?

Swans are old. Whistling in the mill is common. Letters go from Bern to Thun.
  yes: Do letters go from Bern to Thun?
  doubtful: Are swans allowed? Is whistling allowed in the mill? Do letters go from Thun to Bern?

The heater is disabled at night. The manual brake is worn. It is fine to wash felt in cold water.
  yes: Is it ok to wash felt in cold water?
  no: Is the heater enabled at night?
  doubtful: Is the brake automatic? Is it ok to wash felt in hot water?
"""


@pytest.mark.parametrize("block", VERDICTS.strip().split("\n\n"))
def test_the_clause_that_speaks_of_what_is_asked_decides(block: str) -> None:
    lines = block.split("\n")
    passage = "\n".join(line for line in lines if not line.startswith("  "))
    for line in lines:
        if line.startswith("  "):
            expected, _, questions = line.strip().partition(": ")
            for question in re.findall(r"[^?]+\?", questions):
                assert (verdict(question.strip(), passage) or "doubtful") == expected, question


def test_a_verdict_names_its_sentence_and_the_one_that_a_pronoun_leans_on() -> None:
    sentences = ["The depot is old.", "The crane is new.", "It isn't insured."]
    assert decide("Is the crane insured?", sentences) == YesNo(is_yes=False, first=1, last=2)


def test_an_answer_that_begins_with_yes_or_no_is_the_verdict_of_its_question() -> None:
    assert verdict("Can the crane lift a cart?", "No, it can't.", "Can the crane lift carts?") == "no"
    assert verdict("Can the crane lift a cart?", "Can the crane lift carts? In general, yes.") == "yes"
    assert verdict("Can the crane lift a cart?", "No, it can't.", "Can the mule swim?") == ""


def test_a_word_of_the_question_may_stand_in_the_heading() -> None:
    assert verdict("Are geese allowed in the park?", "Geese are allowed.", "Rules of the park") == "yes"
    assert verdict("Is park 7 open?", "Park 7 is open.", "Rules of the park") == "yes"


@pytest.mark.parametrize("mark", ["", "A: ", "Answer: "])
def test_a_text_does_not_say_what_it_asks(mark: str) -> None:
    question = "Does the ferry take caravans?"
    assert verdict(question, f"Q: Does the ferry take caravans?\n{mark}No. Use the bridge instead.") == "no"
    assert verdict(question, f"Q: Does the ferry take caravans?\n{mark}Yes, up to seven metres.") == "yes"
    assert verdict(question, f"Does the ferry take caravans?\n{mark}It depends on the tide.") == ""
