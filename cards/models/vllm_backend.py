"""Cards on a vLLM server: the places of its adapters, and the cards that it runs."""

import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from threading import Condition, Lock
from uuid import uuid4

from kcard.batching import in_order
from kcard.cards.fingerprint import Fingerprint, Probe, read_fingerprint
from kcard.cards.models.prompting import Prompter
from kcard.cards.models.vllm_server import CONCURRENCY, DocumentRequest, ModelGone, Server
from kcard.errors import CardError, LLMError, ModelUnavailable
from kcard.interfaces import CardGenerator
from kcard.types import Passage, Sampling

# The adapters loaded on a server: a limited number of places with least-recently-used eviction.
#
# Other programs may load and unload adapters on the same server. So the server's list is authoritative, not what was
# loaded from here, and an adapter that vanished is loaded again.

DEFAULT_PLACES = 4  # if the server does not report its limit
RECHECK_SECONDS = (
    60.0  # after which a model is checked again: its server may have been restarted with another
)
FOREIGN_SECONDS = 60.0  # for which another program's adapter is left alone
PREFIX = "kcard-"  # of the names of all adapters that kcard loads


@dataclass
class Place:
    """A model in use or recently used.

    users  number of current users
    loads  number of times that it was prepared
    since  when it was last prepared, in seconds of time.monotonic
    """

    name: str
    users: int = 0
    loads: int = 0
    since: float = 0.0
    lock: Lock = field(default_factory=Lock)

    def make_ready(self, prepare: Callable[[], None], seen: int = 0) -> int:
        """Prepare the model, unless done more than `seen` times and recently; return the number of preparations.

        Raises what `prepare` does; the next call then prepares again.
        """
        with self.lock:
            if self.loads <= seen or time.monotonic() - self.since > RECHECK_SECONDS:
                prepare()
                self.loads, self.since = max(self.loads, seen) + 1, time.monotonic()
            return self.loads


class Places:
    """Places for `most` adapters on a server; None: as many as the server batches, if it reports that."""

    def __init__(self, server: Server, most: int | None = None) -> None:
        self._server, self._most = server, most
        self._places: OrderedDict[str, Place] = OrderedDict()
        self._changed = Condition()
        self._loading = Lock()
        self._ask_again = 0.0
        self._loaded: set[str] = set()
        self._seen: dict[str, float] = {}

    @property
    def most(self) -> int:
        """DEFAULT_PLACES until the server, polled now and then, reports it."""
        if self._most is None and time.monotonic() >= self._ask_again:
            self._most, self._ask_again = self._server.adapters_at_once(), time.monotonic() + RECHECK_SECONDS
        return self._most or DEFAULT_PLACES

    @contextmanager
    def occupy(self, name: str) -> Iterator[Place]:
        """Hold a place for the adapter while the block lasts. Waits until one is free."""
        most = self.most
        with self._changed:
            while name not in self._places:
                # Evict idle adapters to free a place.
                for idle in self._idle()[: max(0, len(self._places) + 1 - most)]:
                    del self._places[idle]
                if len(self._places) < most:
                    break
                self._changed.wait()
            place = self._places.setdefault(name, Place(name))
            self._places.move_to_end(name)
            place.users += 1
        try:
            yield place
        except BaseException:
            place.loads = 0  # check the adapter again before its next use
            raise
        finally:
            with self._changed:
                place.users -= 1
                self._changed.notify_all()

    def load(self, name: str, load: Callable[[], None]) -> None:
        """Have the server load an adapter unless it lists it, evicting others first if the places are full.

        Adapters that this program is using are never evicted, and other programs' adapters only once they have been
        there for a while, as those of ended programs.
        """
        with self._loading:
            adapters = [model.name for model in self._server.models() if model.parent is not None]
            if name in adapters:
                return
            # Evict until one more fits: first adapters without a place here, then idle ones.
            now, seen_before, self._seen = time.monotonic(), self._seen, {}
            with self._changed:
                gone, here = [], set()
                for other in adapters:
                    if not other.startswith(PREFIX):
                        continue
                    self._seen[other] = seen_before.get(other, now)
                    if other in self._places:
                        here.add(other)
                    elif other in self._loaded or now - self._seen[other] >= FOREIGN_SECONDS:
                        gone.append(other)
                evictable = [*gone, *(other for other in self._idle() if other in here)]
                excess = len(gone) + len(here) + 1 - self.most
            for other in evictable[: max(0, excess)]:
                self._server.unload(other)
            self._loaded.add(name)
            load()

    def _idle(self) -> list[str]:
        """Return unused places, least recently used first."""
        return [name for name, place in self._places.items() if not place.users]


# Cards that a vLLM server runs: adapters, which it loads on demand, and whole models.
#
# All cards and questions of one call are sent together, up to a limit; the server batches them. Before a card
# generates, and whenever its adapter is loaded, its fingerprint is checked with the server's log-probabilities.

# The server does not report its dtype; most use this one.
DTYPE = "bfloat16"
PROBES = 16  # tokens of a fingerprint that are compared
MIN_ADAPTER_EFFECT = 0.5  # a share of the effect that the adapter had when it was made
RELOADS = 8  # of one adapter for one document, before its vanishing is an error


@dataclass(frozen=True)
class ServedCard(CardGenerator):
    """One card on a server.

    model   its name there
    base    the name there of its adapter's base; None for a whole model
    places  of the server's adapters
    host    generates for several cards at once
    """

    prompter: Prompter
    server: Server
    places: Places
    model: str
    base: str | None
    host: "ServedCards"

    def generate(self, questions: Sequence[str], documents: int, sampling: Sampling) -> list[list[Passage]]:
        """Generate for this card."""
        return self.host.generate_each([(self, questions)], documents, sampling)[0]

    def check(self, reference: Fingerprint) -> None:
        """Compare some tokens of all rows of the reference with the server's log-probabilities.

        Raises CardError or ModelUnavailable if they differ (see Fingerprint.check), LLMError and ModelGone. The base is
        measured only to diagnose a difference: on a CPU, vLLM 0.32 confuses requests for a base and an adapter if both
        are in one batch.
        """
        card, base = self.prompter.card, self.prompter.card.manifest.base.name
        # Tokenize the questions and texts again, with 0 for values not measured yet.
        with self.host.tokenizing:
            prompts, texts = self.prompter.probes(reference.pairs, None)
        unknown = [[0.0] * len(ids) for ids in texts]
        bases = unknown if self.base is not None else []
        tokenized = self.prompter.fingerprint(reference.pairs, (prompts, texts), DTYPE, unknown, bases)
        reference.check_tokens(tokenized, card.name)
        reference, now = reference.spread(PROBES), tokenized.spread(PROBES)
        values = self._measure(self.model, now)
        measurement = _with_values(now, values, [row.base for row in reference.rows])
        try:
            reference.check(measurement, card.name, base)
            if reference.share(measurement) >= MIN_ADAPTER_EFFECT:
                return
        except CardError:
            pass
        bare: list[tuple[float, ...]] = [()] * len(values)
        if self.base is not None:
            bare = self._measure(self.base, now)
        reference.check(_with_values(now, values, bare), card.name, base)
        share = reference.share(measurement)
        raise CardError(
            f"card {card.name!r}: its adapter is not applied (it shows {share:.0%} of its effect): load "
            "the card again; if that does not help, fetch its adapter again"
        )

    def _measure(self, model: str, probes: Fingerprint) -> list[tuple[float, ...]]:
        """Return the log-probability of each probe's token."""
        salt = uuid4().hex

        def measure_token(probe: Probe) -> tuple[float, ...]:
            return (self.server.log_probability(model, probe.prompt, probe.continuation[0], salt),)

        return [*in_order(measure_token, probes.rows, CONCURRENCY)]

    def prepare(self) -> None:
        """Have the adapter loaded, and verify that it is applied.

        Raises CardError or ModelUnavailable if it is not, and unloads it; nothing was generated then.
        """
        card = self.prompter.card
        if self.base is not None:
            self.places.load(self.model, partial(self.server.load, self.model, card.folder.resolve()))
        stored = read_fingerprint(card.folder)
        if stored is None:
            return
        try:
            self.check(stored)
        except (CardError, ModelUnavailable) as error:
            if self.base is not None:
                self.server.unload(self.model)
            raise type(error)(f"{error} (as {self.model} on {self.server.url})") from error

    def document(self, place: Place, request: DocumentRequest) -> tuple[list[int], bool]:
        """Generate a document. An adapter that another program unloaded is loaded and checked again."""
        gone: ModelGone | None = None
        for _ in range(RELOADS):
            loads = place.loads
            try:
                return self.server.generate(self.model, request)
            except ModelGone as error:
                gone = error
                self.ensure_ready(place, loads)
        raise self._drop_error() from gone

    def ensure_ready(self, place: Place, seen: int = 0) -> None:
        """Prepare the card, unless done more than `seen` times and recently."""
        gone: ModelGone | None = None
        for _ in range(RELOADS):
            try:
                place.make_ready(self.prepare, seen)
                return
            except ModelGone as error:  # between loading and checking
                gone = error
        raise self._drop_error() from gone

    def _drop_error(self) -> LLMError:
        return LLMError(
            f"{self.server.url} dropped {self.model}, or its base, {RELOADS} times while it was in use: raise "
            "--engine-places for all programs that share it, or start it as before"
        )


@dataclass(frozen=True)
class ServedCards:
    """The cards of all servers. `tokenizing`: locks the tokenizers, which cards share."""

    tokenizing: Lock = field(default_factory=Lock)

    def generate_each(
        self, cards: Sequence[tuple[ServedCard, Sequence[str]]], documents: int, sampling: Sampling
    ) -> list[list[list[Passage]]]:
        """Return `documents` passages by card and by its questions. At temperature 0 all are equal and generated
        once."""
        different = sampling.distinct(documents)
        if not cards or not different:
            return [[[] for _ in questions] for _, questions in cards]
        places_by_server = {id(card.places): card.places.most for card, _ in cards}
        workers = min(sum(places_by_server.values()), len(cards))
        requests = -(-CONCURRENCY // workers)

        def generate(job: tuple[ServedCard, Sequence[str]]) -> list[list[Passage]]:
            return self._generate_for_card(*job, different, sampling, requests)

        by_card = [*in_order(generate, cards, workers)]
        if different < documents:
            for by_question in by_card:
                by_question[:] = [passages * documents for passages in by_question]
        return by_card

    def _generate_for_card(
        self,
        card: ServedCard,
        questions: Sequence[str],
        documents: int,
        sampling: Sampling,
        requests: int,
    ) -> list[list[Passage]]:
        """Generate for one card with `requests` concurrent requests."""
        prompter = card.prompter
        with self.tokenizing:
            prompts = prompter.prompts(questions, sampling, None)
        length, eos = prompter.length(sampling), prompter.eos
        document_requests = []
        for question, prompt in zip(questions, prompts.ids, strict=True):
            for seed in prompter.seeds(question, documents, sampling):
                document_requests.append(
                    DocumentRequest(prompt, length, sampling.temperature, sampling.top_k, seed, eos)
                )
        with card.places.occupy(card.model) as place:
            card.ensure_ready(place)
            generated = iter([*in_order(partial(card.document, place), document_requests, requests)])
        by_question: list[list[Passage]] = []
        with self.tokenizing:
            for question in questions:
                by_question.append([])
                for _ in range(documents):
                    by_question[-1].append(prompter.passage(question, *next(generated)))
        return by_question


def _with_values(
    probes: Fingerprint, card: Sequence[tuple[float, ...]], base: Sequence[tuple[float, ...]]
) -> Fingerprint:
    rows = []
    for row, own, bare in zip(probes.rows, card, base, strict=True):
        rows.append(replace(row, card=own, base=bare))
    return replace(probes, rows=tuple(rows))
