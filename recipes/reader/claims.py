"""Claims of VitaminC as questions of yes or no: its verb moved to the front, the evidence beside it.

DATA/fact_check/train.jsonl.gz (Schuster et al., 2021; CC BY-SA 3.0). What the evidence does not tell is a question that
it does not answer.
"""

import gzip
import json
import random
import re
from pathlib import Path

from kcard.evaluation.natural_questions import AUXILIARIES
from kcard.text import sentence_spans as sentences
from recipes.reader.example import Reading

SUBJECT = 9  # words before the verb
_COMMON = """
The A An There It In This These He She They His Her Its More Less Over Under About Some Fewer
"""
COMMON = frozenset(_COMMON.split())
LEADS = ("In", "As", "At", "By", "On", "Before", "After")
LOWER = 0.3  # share that is written in lower case
MARKS = (("-LRB-", "("), ("-RRB-", ")"), ("-LSB-", "["), ("-RSB-", "]"), ("``", '"'), ("''", '"'))


def questions(data: Path, seed: int) -> list[Reading]:
    """All claims of which a question can be made, in an order that the seed draws."""
    rng = random.Random(seed)
    with gzip.open(data / "fact_check" / "train.jsonl.gz", "rt", encoding="utf-8") as stream:
        rows = [json.loads(line) for line in stream]
    rng.shuffle(rows)
    readings = []
    for row in rows:
        if question := _question(_plain(row["claim"]).rstrip(".")):
            text = _plain(row["evidence"])
            decided = row["label"] != "NOT ENOUGH INFO"
            places = sentences(text)
            evidence = tuple(places) if decided and len(places) == 1 else ()
            wording = question.lower() if rng.random() < LOWER else question
            readings.append(Reading(wording, "", text, decided, (), evidence, "VitaminC"))
    return readings


def _question(claim: str) -> str | None:
    words = claim.split()
    verb = next((at for at, word in enumerate(words[:SUBJECT]) if word in AUXILIARIES), None)
    if not verb or words[0] in LEADS:
        return None
    subject = words[:verb]
    if subject[0] in COMMON:
        subject = [subject[0].lower(), *subject[1:]]
    return f"{words[verb].capitalize()} {' '.join([*subject, *words[verb + 1 :]])}?"


def _plain(text: str) -> str:
    for mark, plain in MARKS:
        text = text.replace(mark, plain)
    return re.sub(r"\s+([.,;:!?)'])", r"\1", " ".join(text.split())).replace("( ", "(")
