"""The main job: one question becomes one Answer. Here, and only here, the parts are put together.

The front door (this file, batch.py and __init__.py) stands above all parts; the rest of src/kcard below them.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, get_args

from kcard import plugins
from kcard.answer import Answer, Decision
from kcard.config import Settings, settings
from kcard.errors import UsageError
from kcard.gates.decision import decide
from kcard.integrators.counted import Counted
from kcard.integrators.gathered import Gathered
from kcard.protocols import LLM, Evidence, Writer
from kcard.request import Example, Request
from kcard.sampling import Sampling

if TYPE_CHECKING:
    from kcard.cards.folder import Card
    from kcard.hub.registry import Hub
    from kcard.integrators.bottom_up import BottomUp
    from kcard.integrators.selectors import Selectors
    from kcard.integrators.top_down import TopDown

__all__ = ["Mode", "Pipeline", "Select", "ask"]

Mode = Literal["top-down", "bottom-up", "direct"]
Select = Literal["auto", "explicit"]


@dataclass(frozen=True)
class Cards:
    """The chosen cards and the pool that writes for them."""

    cards: "Sequence[Card]"
    writer: Writer


class _Integrator(Protocol):
    def gather(self, questions: Sequence[str]) -> list[Gathered]: ...


class Pipeline:
    """Cards, gate, selectors and LLM, loaded once for many questions.

    Args:
        mode: bottom-up (every card writes, the selectors choose), top-down (the LLM asks for one card at a
            time) or direct (no cards).
        select: how top-down picks a card: auto (nearest description) or explicit (the LLM names one).
        cards: names, references (name@v2, name@alias) or domain subtrees (biomedical/); None: the newest
            version of every published card.
        llm: embedded, openai:MODEL or hf:MODEL; None: the configured one, else embedded.
        llm_url: where an OpenAI-compatible endpoint listens.
        gate: self-ask, always, never, or another registered one.
        evidence: what passages are checked against: "own" (each card's own source passages), "none", and
            files or folders of text; several may be given.
        n1, n2, n3: documents a card writes, relevance keeps, factuality keeps (paper: 3, 5, 3).
        temperature: the LLM's. card_temperature, card_tokens: the cards'.
        max_iterations: rounds of top-down.
        examples: a JSONL file of in-context examples instead of the built-in ones.
        device: where cards write: cpu, cuda or cuda:N.
        seed: of all sampling; each document has a seed of its own, derived from it.
        hub: where the cards are; None: the hub under KCARD_HOME.

    Raises:
        UsageError for a wrong argument, HubError where no card is published or found, ModelUnavailable.
    """

    def __init__(
        self,
        *,
        mode: Mode = "top-down",
        select: Select = "auto",
        cards: Sequence[str] | None = None,
        llm: str | LLM | None = None,
        llm_url: str | None = None,
        gate: str = "self-ask",
        evidence: Sequence[str | Path] = ("own",),
        n1: int = 3,
        n2: int = 5,
        n3: int = 3,
        temperature: float = 0.1,
        card_temperature: float = 0.1,
        card_tokens: int = 100,
        max_iterations: int = 1,
        examples: Path | None = None,
        device: str = "cpu",
        seed: int = 0,
        hub: "Hub | None" = None,
    ) -> None:
        _check_choice("mode", mode, get_args(Mode))
        _check_choice("select", select, get_args(Select))
        _check_choice("device", device.partition(":")[0], ("cpu", "cuda"))
        for name, count in {"n1": n1, "n2": n2, "n3": n3, "card-tokens": card_tokens}.items():
            if count < 1:
                raise UsageError(f"{name} is {count}: it must be at least 1")
        if max_iterations < 1:
            raise UsageError(
                f"max-iterations is {max_iterations}: it must be at least 1 (--gate never asks no card)"
            )
        if min(temperature, card_temperature) < 0:
            raise UsageError("a temperature must be 0 or more")
        from kcard.llms.examples import load as load_examples

        self.mode: Mode = mode
        self._gate_name = "never" if mode == "direct" else gate
        make_gate = plugins.load("kcard.gates", self._gate_name)
        self._examples = load_examples(examples)
        self.llm: Any = (
            _llm(llm, llm_url, temperature, settings()) if llm is None or isinstance(llm, str) else llm
        )
        pool = None if self._gate_name == "never" else _pool(_published(cards, hub), device)
        self._counted = Counted(self.llm)
        self._gate = make_gate(self._counted, self._examples)
        sampling = Sampling(card_temperature, card_tokens, seed=seed)
        self._integrator: _Integrator | None
        if pool is None:
            self._integrator = None
        elif mode == "bottom-up":
            self._integrator = _bottom_up(pool, evidence, sampling, n1, n2, n3)
        else:
            top_down = _top_down(pool, evidence, sampling, select, self._counted, self._examples)
            self._integrator = replace(top_down, n1=n1, max_iterations=max_iterations)

    def __call__(self, questions: Sequence[str]) -> list[Answer]:
        """Answer each question, in order. Equal questions of one call are answered once.

        Raises UsageError for an empty question and LLMError where the LLM fails.
        """
        if any(not question.strip() for question in questions):
            raise UsageError("the question is empty")
        started = time.perf_counter()
        self._counted.calls.clear()
        distinct = list(dict.fromkeys(questions))
        decisions = decide(self._gate, self._gate_name, distinct)
        fired = [q for q, decision in zip(distinct, decisions, strict=True) if decision.fired]
        gathered = (
            dict(zip(fired, self._integrator.gather(fired), strict=True))
            if self._integrator and fired
            else {}
        )
        replies = {q: self._answer(q, gathered.get(q, Gathered())) for q in distinct}
        seconds = (time.perf_counter() - started) / max(len(questions), 1)
        by_question = dict(zip(distinct, decisions, strict=True))
        return [self._assemble(q, replies[q], by_question[q], gathered, seconds) for q in questions]

    def _answer(self, question: str, gathered: Gathered) -> str:
        request = Request("answer", question, gathered.knowledge, self._examples)
        return self._counted.reply(request).text.strip()

    def _assemble(
        self, question: str, answer: str, decision: Decision, gathered: Mapping[str, Gathered], seconds: float
    ) -> Answer:
        trace = gathered.get(question, Gathered())
        return Answer(
            question=question,
            answer=answer,
            mode=self.mode,
            gate=decision,
            cards=tuple(dict.fromkeys(p.card for p in trace.passages)),
            passages=trace.passages,
            calls=self._counted.calls[question],
            seconds=seconds,
            notes=trace.notes,
        )


def ask(question: str, **options: Any) -> Answer:
    """Answer one question. `options` are those of Pipeline; for many questions, make one Pipeline and call it."""
    return Pipeline(**options)([question])[0]


def _check_choice(name: str, value: str, known: Sequence[str]) -> None:
    if value not in known:
        raise UsageError(f"{name} {value!r} is unknown: choose one of {', '.join(known)}")


def _published(selection: Sequence[str] | None, hub: "Hub | None") -> "list[Card]":
    """The chosen cards, verified, as folders."""
    from kcard.cards.folder import Card
    from kcard.hub.registry import Hub

    hub = hub or Hub()
    return [Card(hub.folder(version.reference), version.manifest) for version in hub.resolve(selection)]


def _llm(spec: str | None, url: str | None, temperature: float, configured: Settings) -> LLM:
    """The backend that `spec` names (backend or backend:model)."""
    backend, _, model = (spec or configured.llm).partition(":")
    make: Callable[..., LLM] = plugins.load("kcard.llms", backend)
    if backend == "embedded":
        return make() if not model else _no_model(backend, model)
    if not model:
        raise UsageError(f"--llm {backend} needs a model: {backend}:MODEL")
    if backend == "openai":
        return make(model, url=url or configured.llm_url, key=configured.llm_key, temperature=temperature)
    return make(model, temperature=temperature)


def _no_model(backend: str, model: str) -> LLM:
    raise UsageError(f"--llm {backend}:{model}: {backend} takes no model")


def _pool(cards: "Sequence[Card]", device: str) -> Cards:
    from kcard.cards.pool import Pool

    if device != "cpu":
        import torch

        if not torch.cuda.is_available():
            raise UsageError(f"device {device!r}: no GPU is at hand; leave --device out")
    return Cards(cards, Pool(cards, device))


def _bottom_up(
    pool: Cards, evidence: Sequence[str | Path], sampling: Sampling, n1: int, n2: int, n3: int
) -> "BottomUp":
    from kcard.integrators.bottom_up import BottomUp

    return BottomUp(pool.writer, _selectors(pool.cards, evidence), sampling, n1, n2, n3)


def _top_down(
    pool: Cards,
    evidence: Sequence[str | Path],
    sampling: Sampling,
    select: Select,
    llm: LLM,
    examples: tuple[Example, ...],
) -> "TopDown":
    from kcard.integrators.choice import AutoChoice, ExplicitChoice
    from kcard.integrators.top_down import TopDown

    selectors, offered = _selectors(pool.cards, evidence), pool.writer.cards
    choice = (
        AutoChoice(llm, selectors.relevance, offered, examples)
        if select == "auto"
        else ExplicitChoice(llm, offered, examples)
    )
    return TopDown(pool.writer, selectors, sampling, llm, choice, examples)


def _selectors(cards: "Sequence[Card]", evidence: Sequence[str | Path]) -> "Selectors":
    from kcard.cards.folder import passages
    from kcard.integrators.selectors import Selectors
    from kcard.selectors.evidence import Corpus, Union

    given = [str(e) for e in evidence]
    if "none" in given and len(given) > 1:
        raise UsageError("evidence 'none' can't be combined with other evidence")
    shared = [Corpus.from_path(Path(e)) for e in given if e not in {"own", "none"}]
    by_card: dict[str, Evidence] = {}
    for card in cards:
        sources = passages(card.folder) if "own" in given else []
        corpora = [*([Corpus(sources, name=card.manifest.name)] if sources else []), *shared]
        if corpora:
            by_card[card.manifest.name] = corpora[0] if len(corpora) == 1 else Union(corpora)
    return Selectors(
        relevance=plugins.load("kcard.relevance", "minilm")(),
        pruner=plugins.load("kcard.pruners", "extractive")(),
        checker=plugins.load("kcard.checkers", "minilm")(),
        evidence=by_card,
    )
