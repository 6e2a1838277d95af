"""Rows about invented facts: true paraphrases, and claims that a small change makes false."""

import functools
import re
from collections.abc import Iterator, Mapping
from random import Random

from recipes.checker.names import draw, near
from recipes.checker.relations import RELATIONS, Relation
from recipes.checker.rows import SUPPORTS, UNSUPPORTED, Row

SLOT = re.compile(r"{(\w)}")
EITHER = re.compile(r"\[([^\]]*)\]")
ALIASES = {
    "senate": ("senate", "U.S. Senate", "Senate"),
    "governor": ("governor", "gubernatorial", "governor's"),
    "mayoral": ("mayoral", "mayor", "mayor's"),
}
JOINS = (", while ", "; ", ", and ")

Facts = Mapping[str, str]


def invented(rng: Random) -> Iterator[Row]:
    """Rows without end, about two in five of them supported."""
    weights = [relation.weight for relation in RELATIONS]
    while True:
        yield from _rows(rng.choices(RELATIONS, weights)[0], rng)


def _rows(relation: Relation, rng: Random) -> Iterator[Row]:
    facts, other = _fact(relation, rng), _fact(relation, rng)
    if rng.random() < 0.3:  # a second fact that shares most values is the hardest company
        shared = rng.choice(list(relation.slots))
        other = {**other, shared: facts[shared]}
    statement = _statement(relation, rng)
    second = statement if rng.random() < 0.3 else _statement(relation, rng)
    evidence, crowded = _evidence(_fill(statement, facts, rng), _fill(second, other, rng), rng)
    slots = _slots(statement)
    sayable = [c for c in (*relation.claims, *relation.statements) if _slots(c) <= slots and c != statement]
    firm = [c for c in sayable if " not " not in c]
    for claim in _some(sayable, 3, rng):
        yield Row(_fill(claim, facts, rng), evidence, SUPPORTS)
    if crowded:
        heard = [c for c in relation.claims if _slots(c) <= _slots(second)]
        for claim in _some(heard, 1, rng):
            yield Row(_fill(claim, other, rng), evidence, SUPPORTS)
        yield from _mixed(firm, facts, other, evidence, rng)
    for claim in _some(firm, 3, rng):
        slot = rng.choice(sorted(_slots(claim)))
        wrong = {**facts, slot: near(relation.slots[slot], facts[slot], rng)}
        if wrong[slot] not in evidence:
            yield Row(_fill(claim, wrong, rng), evidence, UNSUPPORTED)
    yield from _twins(relation, sayable, facts, evidence, rng)
    denials = [d for d in relation.denials if _slots(d) <= slots] or relation.denials
    for claim in _some(list(denials), 1, rng):
        yield Row(_fill(claim, facts, rng), evidence, UNSUPPORTED)
    choice = rng.random()
    unsaid = [c for c in relation.claims if not _slots(c) <= slots]
    if choice < 0.3 and unsaid:
        yield Row(_fill(rng.choice(unsaid), facts, rng), evidence, UNSUPPORTED)
    elif choice < 0.5 and firm and not crowded:
        yield Row(_fill(rng.choice(firm), facts, rng), _fill(second, _fact(relation, rng), rng), UNSUPPORTED)


def _statement(relation: Relation, rng: Random) -> str:
    rich = relation.colour and rng.random() < 0.4
    return rng.choice(relation.colour if rich else relation.statements)


def _twins(relation: Relation, claims: list[str], facts: Facts, evidence: str, rng: Random) -> Iterator[Row]:
    """Where the evidence names both rivals, a claim about them and the same claim with them exchanged."""
    if not relation.rivals or not all(facts[slot] in evidence for slot in relation.rivals):
        return
    first, second = relation.rivals
    exchanged = {**facts, first: facts[second], second: facts[first]}
    for claim in _some([c for c in claims if _slots(c) & {first, second}], 2, rng):
        yield Row(_fill(claim, facts, rng), evidence, SUPPORTS)
        yield Row(_fill(claim, exchanged, rng), evidence, UNSUPPORTED)


def _mixed(claims: list[str], facts: Facts, other: Facts, evidence: str, rng: Random) -> Iterator[Row]:
    """A claim that crosses the two facts of the evidence: the winner here with the place there."""
    for claim in _some([c for c in claims if len(_slots(c)) > 1], 2, rng):
        slots = sorted(_slots(claim))
        taken = rng.sample(slots, rng.randint(1, len(slots) - 1))
        crossed = {**facts, **{slot: other[slot] for slot in taken}}
        if all(facts[slot] != other[slot] for slot in slots):
            yield Row(_fill(claim, crossed, rng), evidence, UNSUPPORTED)


def _evidence(statement: str, company: str, rng: Random) -> tuple[str, bool]:
    """The statement alone, beside another sentence, or joined with it; and whether it has company."""
    choice = rng.random()
    if choice < 0.5:
        return statement, False
    first, second = (statement, company) if rng.random() < 0.5 else (company, statement)
    if choice < 0.8:
        return f"{first} {second}", True
    for start in ("In ", "The ", "By ", "At "):
        if second.startswith(start):
            second = start.lower() + second[len(start) :]
    return first.removesuffix(".") + rng.choice(JOINS) + second, True


def _fact(relation: Relation, rng: Random) -> Facts:
    facts: dict[str, str] = {}
    for slot, kind in relation.slots.items():
        value = draw(kind, rng)
        while value in facts.values():
            value = draw(kind, rng)
        facts[slot] = value
    return facts


@functools.cache
def _slots(template: str) -> frozenset[str]:
    return frozenset(SLOT.findall(template))


def _fill(template: str, facts: Facts, rng: Random) -> str:
    def value(match: re.Match[str]) -> str:
        fact = facts[match[1]]
        return rng.choice(ALIASES.get(fact, (fact,)))

    worded = EITHER.sub(lambda match: rng.choice(match[1].split("|")), template)
    text = SLOT.sub(value, worded)
    return text[0].upper() + text[1:]


def _some(items: list[str], count: int, rng: Random) -> list[str]:
    return rng.sample(items, min(count, len(items)))
