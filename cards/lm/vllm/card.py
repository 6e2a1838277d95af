"""Cards whose documents a vLLM server writes: adapters that it loads as they are needed, and whole models.

All cards and questions of one call are sent together, with a bound; the server batches them. Before a card writes, and
whenever its adapter was loaded, its fingerprint is compared through the server's log-probabilities.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from threading import Lock
from uuid import uuid4

from kcard.answer import Passage
from kcard.cards.format import fingerprint
from kcard.cards.format.fingerprint import Fingerprint, Probe
from kcard.cards.lm.prompting import Prompting
from kcard.cards.lm.vllm.places import Place, Places
from kcard.cards.lm.vllm.server import CONCURRENCY, Gone, Row, Server
from kcard.concurrency import in_order
from kcard.errors import CardError, LLMError, ModelUnavailable
from kcard.sampling import Sampling

__all__ = ["ServedCard", "ServedCards"]

# The server does not say in which dtype it computes; most do in this one.
DTYPE = "bfloat16"
PROBES = 16  # tokens of a fingerprint that are compared
APPLIED = 0.5  # the least share of an adapter's effect
RELOADS = 8  # of one adapter for one document, before its vanishing is an error


@dataclass(frozen=True)
class ServedCard:
    """One card on a server.

    model   its name there
    base    the name there of its adapter's base; None for a whole model
    places  of the server's adapters
    group   what writes for it and for others at once
    """

    asked: Prompting
    server: Server
    places: Places
    model: str
    base: str | None
    group: "ServedCards"

    def write(self, questions: Sequence[str], documents: int, sampling: Sampling) -> list[list[Passage]]:
        """See CardGenerator."""
        return self.group.write_each([(self, questions)], documents, sampling)[0]

    def check(self, kept: Fingerprint) -> None:
        """Compare some tokens of all its rows with what the server says of them now.

        Raises CardError or ModelUnavailable where they differ (see Fingerprint.check), LLMError and Gone. The base is
        measured only to tell what is wrong: on a CPU, vLLM 0.32 answers for the base as for an adapter where both are
        in one batch.
        """
        card, base = self.asked.card, self.asked.card.manifest.base.name
        tokenized = self._tokenized(kept)
        kept.check_tokens(tokenized, card.name)
        kept, now = kept.spread(PROBES), tokenized.spread(PROBES)
        values = self._measured(self.model, now)
        found = _with(now, values, [row.base for row in kept.rows])
        try:
            kept.check(found, card.name, base)
            if kept.share(found) >= APPLIED:
                return
        except CardError:
            pass
        bare = self._measured(self.base, now) if self.base is not None else [() for _ in values]
        kept.check(_with(now, values, bare), card.name, base)
        raise CardError(
            f"card {card.name!r}: its adapter is not applied (it shows {kept.share(found):.0%} of its effect): load "
            "the card anew; if that does not help, fetch its adapter again"
        )

    def _tokenized(self, kept: Fingerprint) -> Fingerprint:
        """The questions and texts as the card's tokenizer makes them now, with 0 for what is not measured yet."""
        with self.group.tokenizing:
            prompts, texts = self.asked.probes(kept.pairs, None)
        unknown = [[0.0] * len(ids) for ids in texts]
        bases = unknown if self.base is not None else []
        return self.asked.fingerprint(kept.pairs, (prompts, texts), DTYPE, unknown, bases)

    def _measured(self, model: str, probes: Fingerprint) -> list[tuple[float, ...]]:
        """The log-probability of each probe's one token."""
        salt = uuid4().hex

        def measured(probe: Probe) -> tuple[float, ...]:
            return (self.server.log_probability(model, probe.prompt, probe.continuation[0], salt),)

        return [*in_order(measured, probes.rows, CONCURRENCY)]

    def prepare(self) -> None:
        """Have the adapter loaded, and prove that it is applied.

        Raises CardError or ModelUnavailable where it is not; it is dropped then, and nothing was written.
        """
        card = self.asked.card
        if self.base is not None:
            self.places.load(self.model, partial(self.server.load, self.model, card.folder.resolve()))
        if (kept := fingerprint.read(card.folder)) is None:
            return
        try:
            self.check(kept)
        except (CardError, ModelUnavailable) as error:
            if self.base is not None:
                self.server.unload(self.model)
            raise type(error)(f"{error} (as {self.model} on {self.server.url})") from error

    def document(self, place: Place, row: Row) -> tuple[list[int], bool]:
        """What the server writes. An adapter that another program dropped is loaded and checked again."""
        gone: Gone | None = None
        for _ in range(RELOADS):
            loads = place.loads
            try:
                return self.server.write(self.model, row)
            except Gone as error:
                gone = error
                self.made_ready(place, loads)
        raise self._dropped() from gone

    def made_ready(self, place: Place, seen: int = 0) -> None:
        """Prepare the card, unless that was done more than `seen` times and lately."""
        gone: Gone | None = None
        for _ in range(RELOADS):
            try:
                place.ready(self.prepare, seen)
                return
            except Gone as error:  # between loading and checking
                gone = error
        raise self._dropped() from gone

    def _dropped(self) -> LLMError:
        return LLMError(
            f"{self.server.url} dropped {self.model}, or its base, {RELOADS} times while it was in use: raise "
            "--engine-places for all programs that share it, or start it as before"
        )


@dataclass(frozen=True)
class ServedCards:
    """The cards of all servers. `tokenizing`: cards share tokenizers, which take one call at a time."""

    tokenizing: Lock = field(default_factory=Lock)

    def write_each(
        self, cards: Sequence[tuple[ServedCard, Sequence[str]]], documents: int, sampling: Sampling
    ) -> list[list[list[Passage]]]:
        """By card, by question of its own: `documents` passages. At temperature 0 they are all the same, and written
        once."""
        different = documents if sampling.temperature > 0 else min(documents, 1)

        if not cards or not different:
            return [[[] for _ in questions] for _, questions in cards]
        places = {id(card.places): card.places for card, _ in cards}
        workers = min(sum(some.most for some in places.values()), len(cards))
        requests = -(-CONCURRENCY // workers)

        def write(asked: tuple[ServedCard, Sequence[str]]) -> list[list[Passage]]:
            return self._written(*asked, different, sampling, requests)

        written = [*in_order(write, cards, workers)]
        if different == documents:
            return written
        return [[passages * documents for passages in by_question] for by_question in written]

    def _written(
        self,
        card: ServedCard,
        questions: Sequence[str],
        documents: int,
        sampling: Sampling,
        requests: int,
    ) -> list[list[Passage]]:
        """What one card writes, with so many requests at a time."""
        asked = card.asked
        with self.tokenizing:
            prompts = asked.prompts(questions, sampling, None)
        rows = [
            Row(prompt, asked.length(sampling), sampling.temperature, sampling.top_k, seed, asked.eos)
            for question, prompt in zip(questions, prompts.ids, strict=True)
            for seed in asked.seeds(question, documents, sampling)
        ]
        with card.places.held(card.model) as place:
            card.made_ready(place)
            written = [*in_order(partial(card.document, place), rows, requests)]
        with self.tokenizing:
            found = [
                asked.passage(questions[number // documents], ids, ended)
                for number, (ids, ended) in enumerate(written)
            ]
        return [found[start : start + documents] for start in range(0, len(found), documents)]


def _with(
    probes: Fingerprint, card: Sequence[tuple[float, ...]], base: Sequence[tuple[float, ...]]
) -> Fingerprint:
    """The probes with what was measured of them."""
    rows = zip(probes.rows, card, base, strict=True)
    return replace(probes, rows=tuple(replace(row, card=own, base=bare) for row, own, bare in rows))
