"""Cards on a vLLM server.

`Server` deals in token ids and model names, not cards. The API is that of vLLM 0.32: OpenAI's completions with vLLM's
extra parameters, and loading LoRA adapters at runtime (docs.vllm.ai/en/latest/features/lora).
"""

import re
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from threading import BoundedSemaphore, Condition, Lock
from typing import Any
from uuid import uuid4

from kcard.batching import in_order
from kcard.cards.fingerprint import Fingerprint, Probe, read_fingerprint
from kcard.cards.models.prompting import Prompter
from kcard.connections import connected
from kcard.errors import CardError, LLMError, ModelUnavailable, one_line
from kcard.interfaces import CardGenerator
from kcard.types import Passage, Sampling

CONCURRENCY = 64  # concurrent requests; the server batches them
TIMEOUT = 120.0  # seconds; the first request for log-probabilities has taken 24 s to compile
# Override the server's generation_config.json, so that sampling follows kcard's settings alone.
PLAIN = {"top_p": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0}
PLAIN_EXTRA = {"min_p": 0.0, "repetition_penalty": 1.0, "ignore_eos": True, "return_token_ids": True}


class ModelGone(Exception):
    """The server has no model of that name (any more)."""


@dataclass(frozen=True)
class ServerModel:
    """A model of the server.

    root     the folder or repository that it was loaded from, as the server sees it
    parent   the name of an adapter's base; None for a base or a whole model
    context  maximum tokens of prompt and continuation, if the server reports it
    """

    name: str
    root: str
    parent: str | None
    context: int | None


@dataclass(frozen=True)
class DocumentRequest:
    """A document to generate. `ends`: stop token ids; `seed` applies above temperature 0."""

    prompt: tuple[int, ...]
    tokens: int
    temperature: float
    top_k: int
    seed: int
    ends: tuple[int, ...]


class Server:
    """The server at `url`, with or without /v1.

    Nothing is retried. A request without an answer after `timeout` seconds, an unreachable server and a malformed
    answer raise LLMError; unsuitable server settings raise ModelUnavailable.
    """

    def __init__(self, url: str, key: str | None = None, timeout: float = TIMEOUT) -> None:
        self.url = url.rstrip("/").removesuffix("/v1")
        self._timeout = timeout
        self._client = connected(f"{self.url}/v1", key, timeout, retries=0)
        weakref.finalize(self, self._client.close)
        self._free = BoundedSemaphore(CONCURRENCY)

    def models(self) -> list[ServerModel]:
        """Return bases and adapters, in the order in which adapters were loaded."""
        with self._explained():
            models = []
            for model in self._client.models.list().data:
                row: dict[str, Any] = model.to_dict()
                name, context = str(row["id"]), row.get("max_model_len")
                models.append(ServerModel(name, str(row.get("root") or name), row.get("parent"), context))
            return models

    def adapters_at_once(self) -> int | None:
        """Return the server's --max-loras, which its metrics report once an adapter was used; None if unknown."""
        with suppress(LLMError), self._explained():  # metrics may be disabled
            text = self._client.get(f"{self.url}/metrics", cast_to=str)
            match = re.search(r'vllm:lora_requests_info\{[^}]*max_lora="(\d+)"', text)
            if match:
                return max(1, int(match[1]))
        return None

    def load(self, name: str, folder: Path) -> None:
        """Load the adapter in `folder`, which the server must see under that path. It may be loaded already.

        Raises ModelUnavailable if the server can't load adapters, does not see the folder, or refuses the adapter.
        """
        import openai

        body = {"lora_name": name, "lora_path": str(folder)}
        with self._explained():
            try:
                self._client.post("/load_lora_adapter", cast_to=str, body=body)
            except (openai.BadRequestError, openai.NotFoundError, openai.InternalServerError) as error:
                if "already been loaded" not in str(error):
                    raise ModelUnavailable(self._explain_refusal(name, folder, error)) from error

    def unload(self, name: str) -> None:
        """Unload an adapter; does nothing if it is not loaded."""
        import openai

        with self._explained(), suppress(openai.NotFoundError):
            self._client.post("/unload_lora_adapter", cast_to=str, body={"lora_name": name})

    def generate(self, model: str, request: DocumentRequest) -> tuple[list[int], bool]:
        """Return the new token ids, without eos, and whether the model itself ended the document. Raises ModelGone."""
        extra = PLAIN_EXTRA | {"top_k": request.top_k, "stop_token_ids": list(request.ends)}
        options = {"temperature": request.temperature, "max_tokens": request.tokens, **PLAIN}
        if request.temperature > 0:
            options["seed"] = request.seed
        choice = self._complete(model, request.prompt, options, extra)
        ids: Any = choice.get("token_ids")
        if not isinstance(ids, list) or not all(isinstance(token, int) for token in ids):
            raise self._unreadable_error("token_ids")
        ended = choice.get("finish_reason") == "stop"
        return (ids[:-1] if ended and ids and ids[-1] in request.ends else ids), ended

    def log_probability(self, model: str, prompt: Sequence[int], token: int, salt: str) -> float:
        """Return the natural log-probability, 0 or less, of a token after a prompt. Raises ModelGone.

        The token is forced, and its log-probability is the one before forcing (vLLM's --logprobs-mode raw_logprobs, the
        default). vLLM's prompt_logprobs would need one request for many tokens, but ignores an adapter's change to the
        head, and on a CPU crashes the server if another adapter's request is in the batch (0.32). Only requests with
        the same `salt` share the prefix cache, so that no other request reuses what an unapplied adapter computed.
        """
        extra = {
            "allowed_token_ids": [token],
            "cache_salt": salt,
            "ignore_eos": True,
            "return_token_ids": True,
        }
        options = {"temperature": 0.0, "max_tokens": 1, "logprobs": 0}
        choice = self._complete(model, prompt, options, extra)
        try:
            (value,) = choice["logprobs"]["token_logprobs"]
            if choice["token_ids"] != [token]:
                raise self._unreadable_error("token_ids")
            return float(value)
        except (LookupError, TypeError, ValueError):
            raise self._unreadable_error("logprobs") from None

    def _complete(
        self, model: str, prompt: Sequence[int], options: dict[str, Any], extra: dict[str, Any]
    ) -> dict[str, Any]:
        import openai

        with self._explained(), self._free:
            try:
                answer: Any = self._client.completions.create(
                    model=model, prompt=[list(prompt)], **options, extra_body=extra
                )
            except openai.NotFoundError as error:
                raise ModelGone(one_line(error)) from error
            (choice,) = answer.to_dict()["choices"]
            reply: dict[str, Any] = choice
            return reply

    def _explain_refusal(self, name: str, folder: Path, error: Exception) -> str:
        import openai

        reason = one_line(error)
        found_none = "No adapter found" in reason
        no_such_path = isinstance(error, openai.NotFoundError) and not found_none
        if no_such_path or "LoRA is not enabled" in reason:
            return (
                f"{self.url} does not load adapters while it runs: start it with --enable-lora and "
                "VLLM_ALLOW_RUNTIME_LORA_UPDATING=True in its environment"
            )
        if found_none:
            return (
                f"{self.url} does not see the folder {folder}: let it see the folder under the same path (a shared "
                f"or mounted folder), or start it with --lora-modules {name}=PATH"
            )
        return f"{self.url} refuses the adapter in {folder}: {reason}"

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Turn client errors and malformed answers into a one-line error."""
        import openai

        try:
            yield
        except (openai.OpenAIError, LookupError, TypeError, ValueError, AttributeError) as error:
            raise LLMError(f"the engine {self.url} {self._describe_failure(error)}") from error

    def _describe_failure(self, error: Exception) -> str:
        import openai

        reason = one_line(error, 200)
        if isinstance(error, openai.APITimeoutError):
            return f"did not answer within {self._timeout:g} s: try again"
        if isinstance(error, openai.APIConnectionError):
            return "can't be reached, or closed the connection: start vLLM there, or leave out --engine"
        if isinstance(error, openai.AuthenticationError | openai.PermissionDeniedError):
            return "refused the key: set VLLM_API_KEY to the key of its --api-key"
        if isinstance(error, openai.APIStatusError):
            return f"failed with status {error.status_code}: {reason}"
        return f"sent an answer that can't be read ({reason}): is it vLLM?"

    def _unreadable_error(self, what: str) -> LLMError:
        return LLMError(f"the engine {self.url} sent no {what} that can be read: is it vLLM 0.10 or later?")


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
            names = [model.name for model in self._server.models() if model.parent is not None]
            if name in names:
                return
            # Evict until one more fits: first adapters without a place here, then idle ones.
            now = time.monotonic()
            listed = [other for other in names if other.startswith(PREFIX)]
            self._seen = {other: self._seen.get(other, now) for other in listed}
            with self._changed:
                gone, here = [], set()
                for other in listed:
                    if other in self._places:
                        here.add(other)
                    elif other in self._loaded or now - self._seen[other] >= FOREIGN_SECONDS:
                        gone.append(other)
                idle = [other for other in self._idle() if other in here]
                leaving = [*gone, *idle][: max(0, len(gone) + len(here) + 1 - self.most)]
            for other in leaving:
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
APPLIED = 0.5  # the minimum share of an adapter's effect
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
            if reference.share(measurement) >= APPLIED:
                return
        except CardError:
            pass
        bare = self._measure(self.base, now) if self.base is not None else [() for _ in values]
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
        different = documents if sampling.temperature > 0 else min(documents, 1)
        if not cards or not different:
            return [[[] for _ in questions] for _, questions in cards]
        places = {id(card.places): card.places for card, _ in cards}
        workers = min(sum(some.most for some in places.values()), len(cards))
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
        by_question = []
        with self.tokenizing:
            for question in questions:
                by_question.append([prompter.passage(question, *next(generated)) for _ in range(documents)])
        return by_question


def _with_values(
    probes: Fingerprint, card: Sequence[tuple[float, ...]], base: Sequence[tuple[float, ...]]
) -> Fingerprint:
    rows = zip(probes.rows, card, base, strict=True)
    return replace(probes, rows=tuple(replace(row, card=own, base=bare) for row, own, bare in rows))
