"""The same question in other words: synonyms for some, here and there an apposition or an adverb left out."""

import re
from random import Random

__all__ = ["reworded"]

_SYNONYMS = """
founded: started, set up, established | establish: set up, start, create | established: set up, founded, started
built: constructed, erected | constructed: built | created: made, set up | create: make, set up
discovered: found | discover: find | invented: came up with, devised | wrote: authored, penned | written: authored
won: came out on top in | defeated: beat | defeat: beat | killed: slain | died: passed away
began: started | begin: start | started: began | ended: finished, came to an end | end: finish, stop
located: situated, found | situated: located | contains: holds, includes | contain: hold, include | includes: covers
include: contain, have | uses: makes use of, employs | use: employ, make use of | used: employed, made use of
called: named, known as | known: called | named: called | shows: displays | show: display | displays: shows
provides: gives, offers | provide: give, offer | offers: provides | allows: lets, permits | allow: let, permit
requires: needs | require: need | needed: required, necessary | needs: requires | helps: assists | help: assist
removes: deletes, takes out | remove: delete, get rid of | removed: deleted | delete: remove | deletes: removes
changes: alters, modifies | change: alter, modify | changed: altered, modified | modify: change
stores: keeps, saves | store: keep, save | stored: kept, saved | saves: stores | save: store, keep | keeps: stores
sends: transmits | send: transmit | received: got | receive: get | returns: gives back | return: give back
reads: looks at | starts: launches, begins | start: launch, begin | run: execute | runs: executes | stops: ends, halts
stop: end, halt | increases: raises | increase: raise | reduced: lowered, cut | reduce: lower, cut | lower: reduce
moved: relocated, went | move: relocate | became: turned into | become: turn into | led: headed | lead: head
large: big | big: large | small: little | important: significant | main: chief, principal | fast: quick
largest: biggest | biggest: largest | new: recent | old: former | many: numerous | entire: whole | whole: entire
about: roughly, around | approximately: roughly, about | often: frequently | usually: normally, generally
people: persons, folks | children: kids | city: town | country: nation | house: home | film: movie | company: firm
year: twelve months | picture: image | file: document | folder: directory | directory: folder | option: switch, flag
error: failure | problem: issue | person: individual | area: region | region: area | part: portion, piece
"""
SYNONYMS = {
    word.strip(): [other.strip() for other in others.split(",")]
    for entry in _SYNONYMS.replace("\n", " | ").split(" | ")
    if ":" in entry
    for word, _, others in [entry.partition(":")]
}
OFTEN = 0.5  # share of the words with synonyms that are replaced
ADVERBS = re.compile(
    r" (?:also|mainly|primarily|generally|usually|often|then|later|still|however|originally|currently|officially)\b"
)
WORD = re.compile(r"(?<![\w-])(?<!How )[a-z]+(?![\w-])")


def reworded(question: str, rng: Random) -> str:
    """The question in other words; the same state of `rng` gives the same."""
    text = ADVERBS.sub(lambda found: "" if rng.random() < 0.7 else found[0], question)

    def other(found: re.Match[str]) -> str:
        choices = SYNONYMS.get(found[0])
        return rng.choice(choices) if choices and rng.random() < OFTEN else found[0]

    return WORD.sub(other, text)
