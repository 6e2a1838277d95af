"""Baselines: retrieval, GenRead, generated knowledge prompting, RECITE, REPLUG, and cards together with retrieval."""

import math
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Protocol

import numpy as np

from kcard.batching import batched
from kcard.errors import KcardError, UsageError
from kcard.events import OnEvent, ignore, note
from kcard.integrators.assembly import endpoint_of, make_llm, select_cards
from kcard.integrators.options import AskOptions, BaselineOptions
from kcard.interfaces import LLM, Answerer, Array, Evidence, Generator, replies
from kcard.llms.client import LLMClient
from kcard.questions import checked, run_step
from kcard.text import words
from kcard.types import (
    Answer,
    Choice,
    Decision,
    Example,
    Kind,
    Passage,
    Question,
    Reply,
    Request,
    Sampling,
    Source,
)

if TYPE_CHECKING:
    from kcard.cards.card import CardSet
    from kcard.hub.registry import Hub

ALWAYS = Decision("always", 0.0, True)


class KnowledgeSource(Protocol):
    def passages(
        self, llm: LLM, questions: Sequence[Question], examples: tuple[Example, ...]
    ) -> list[list[Passage]]:
        """Return for each question the passages that the LLM may read, best first; empty if there are none."""
        ...


class ReadingStrategy(Protocol):
    def replies(
        self, llm: LLM, requests: Sequence[Request], passages: Sequence[Sequence[Passage]]
    ) -> list[Reply]:
        """Return the answer to each request from its passages; the requests come without knowledge."""
        ...


@dataclass(frozen=True)
class BaselineAnswerer(Answerer):
    """An Answerer that gets knowledge for every question. `examples`: the default demonstrations."""

    name: str
    llm: LLMClient
    source: KnowledgeSource
    reading: ReadingStrategy
    examples: tuple[Example, ...] = ()

    def outcomes(self, questions: Sequence[str | Question]) -> Iterator[Answer | KcardError]:
        """Yield one Answer per question, in order, or its error: a failure affects only its own question.

        Requests about all questions are made together, as many at a time as the LLM takes.
        """
        pending = [checked(question) for question in questions]
        answers, failures = run_step(self._answer, list(dict.fromkeys(pending)))
        yield from (failures.get(question) or answers[question] for question in pending)

    def _answer(self, questions: Sequence[Question]) -> list[Answer]:
        """Answer distinct questions. Raises QuestionsFailed."""
        started = time.perf_counter()
        for question in questions:
            question.trace.begin()
        passages = self.source.passages(self.llm, questions, self.examples)
        requests = [question.request("answer", examples=self.examples) for question in questions]
        replies = self.reading.replies(self.llm, requests, passages)
        seconds = (time.perf_counter() - started) / len(questions)
        answers = []
        for question, own, reply in zip(questions, passages, replies, strict=True):
            descriptions = {choice.name: choice.description for choice in question.choices}
            trace = question.trace
            trace.card_seconds, trace.is_complete = max(seconds - trace.usage.llm_seconds, 0.0), True
            answers.append(
                Answer(
                    question=question.text,
                    answer=descriptions.get(reply.choice or "", reply.text).strip(),
                    mode=self.name,
                    gate=ALWAYS,
                    cards=tuple(dict.fromkeys(p.card for p in own)),
                    passages=tuple(replace(p, kept=True) for p in own),
                    calls=len(trace.calls),
                    seconds=trace.seconds + seconds,
                    notes=trace.notes,
                    confidence=reply.confidence,
                    choice=reply.choice,
                    usage=trace.usage,
                )
            )
        return answers


@dataclass(frozen=True)
class SampledReplies:
    """The LLM's own texts: `samples` replies per question, drawn at `temperature`. Empty ones are dropped."""

    name: str
    kind: Kind
    samples: int
    temperature: float

    def passages(
        self, llm: LLM, questions: Sequence[Question], examples: tuple[Example, ...]
    ) -> list[list[Passage]]:
        draws = [
            question.request(self.kind, (), examples, sample=n, temperature=self.temperature)
            for question in questions
            for n in range(self.samples)
        ]
        texts = batched((reply.text.strip() for reply in replies(llm, draws)), self.samples)
        return [[Passage(self.name, text) for text in part if text] for part in texts]


@dataclass(frozen=True)
class ScoredReply:
    """An answer to the question with one passage, or with none.

    probability  the geometric mean over the answer's tokens if the LLM gives them, else its own confidence, which for
                 an option is its share among the options; None if it gives neither
    """

    reply: Reply
    probability: float | None

    @property
    def key(self) -> str:
        """Return what equal answers share: the chosen option, else the words, without case and punctuation."""
        return self.reply.choice or " ".join(words(self.reply.text)) or self.reply.text

    @property
    def answers(self) -> bool:
        """Whether the LLM knows an answer and, where there are options, chose one."""
        return self.reply.known and self.reply.choice != ""


def read_separately(
    llm: LLM, requests: Sequence[Request], passages: Sequence[Sequence[tuple[str, ...]]]
) -> list[list[ScoredReply]]:
    """Answer each request once per passage, with that passage alone (an empty tuple: with none): the most likely words,
    or the most likely option."""
    rows = zip(requests, passages, strict=True)
    drafts = [
        replace(request, knowledge=read, draft=not request.choices)
        for request, texts in rows
        for read in texts
    ]
    candidates = []
    for reply in replies(llm, drafts):
        probability = reply.confidence
        if reply.tokens:
            mean = sum(token.log_probability for token in reply.tokens) / len(reply.tokens)
            probability = math.exp(mean)
        candidates.append(ScoredReply(reply, probability))
    remaining = iter(candidates)
    return [[next(remaining) for _ in texts] for texts in passages]


def majority_answer(candidates: Sequence[ScoredReply], weights: Sequence[float]) -> Reply:
    """Return the reply whose answer has the largest sum of weights; of its wordings the heaviest, of equals the first.

    A reply without an answer abstains, unless all do.
    """
    voting = [i for i, candidate in enumerate(candidates) if candidate.answers] or [*range(len(candidates))]
    mass: dict[str, float] = {}
    for i in voting:
        mass[candidates[i].key] = mass.get(candidates[i].key, 0.0) + weights[i]
    winner = max(mass, key=mass.__getitem__)
    return candidates[max((i for i in voting if candidates[i].key == winner), key=lambda i: weights[i])].reply


@dataclass(frozen=True)
class JointReading:
    """Reads all passages in one prompt, best first: "Knowledge: ... Question: ... Answer:"."""

    def replies(
        self, llm: LLM, requests: Sequence[Request], passages: Sequence[Sequence[Passage]]
    ) -> list[Reply]:
        rows = zip(requests, passages, strict=True)
        return replies(
            llm, [replace(request, knowledge=tuple(p.knowledge for p in read)) for request, read in rows]
        )


# Retrievers of the baselines: over the source passages of the chosen cards, or a corpus; by words or by vectors.
#
# bm25                    words (kcard.index)
# minilm                  vectors of the embedded encoder, offline
# contriever[:MODEL]      Contriever's, as in Adaptive Retrieval; the paper's is facebook/contriever-msmarco
# hf:MODEL[,pooling=...]  any other encoder of kcard.representations

BM25 = "bm25"


def corpus_retriever(corpus: str, kind: str) -> Evidence:
    """Return a retriever over evidence as `--evidence` names it: a file, a folder, or a search of its own.

    Raises UsageError if vectors are requested of evidence that can't be iterated, such as an online encyclopedia.
    """
    from kcard.selectors.evidence import open_evidence

    evidence = open_evidence(corpus)
    if kind == BM25:
        return evidence
    if not isinstance(evidence, Iterable):
        raise UsageError(
            f"retriever {kind} needs the texts of {corpus}, which can only be searched: leave out --retriever"
        )
    return retriever(list(evidence), kind, evidence.name)


def retriever(sources: Sequence[Source], kind: str, name: str) -> Evidence:
    """Return a retriever over these texts. Raises UsageError for an unknown kind, ModelUnavailable."""
    if kind == BM25:
        from kcard.selectors.evidence import CorpusEvidence

        return CorpusEvidence(sources, name)
    from kcard.gates.features import find
    from kcard.selectors.dense import DenseCorpus

    encoder = find(kind)
    return DenseCorpus(sources, encoder.vectors, encoder.digest, name)


def card_passages(cards: "CardSet", on_event: OnEvent = ignore) -> list[Source]:
    """Return the source passages that travel with the cards, card by card; cards without any are reported.

    Raises UsageError if no card has any.
    """
    from kcard.cards.passages import passages

    by_card = {name: passages(card.folder) for name, card in cards.items()}
    without = [name for name, sources in by_card.items() if not sources]
    if len(without) == len(by_card):
        raise UsageError(
            f"no source passages travel with {', '.join(without) or 'the chosen cards'}: name what to search with "
            "--corpus"
        )
    if without:
        on_event(note(f"retrieval searches no passages of {', '.join(without)}: none travel with them"))
    return list(chain.from_iterable(by_card.values()))


# Retrieval: the best passages of a corpus (Adaptive Retrieval, section 5, takes one).

NAME = "retrieval"


@dataclass(frozen=True)
class Retrieval:
    """Retrieves at most `k` passages, best first; `Passage.source` holds place and score of each."""

    retriever: Evidence
    k: int

    def passages(
        self, llm: LLM, questions: Sequence[Question], examples: tuple[Example, ...]
    ) -> list[list[Passage]]:
        del llm, examples
        sources = self.retriever.find_all([question.text for question in questions], self.k)
        return [[Passage(NAME, source.text, source=source) for source in part] for part in sources]


# Retrieved passages as candidates beside the cards' documents (Knowledge Card, appendix A).

DESCRIPTION = "passages retrieved from a corpus"


class RetrieverAsCard(Generator):
    """Adds a retriever to a pool as one more card. Raises UsageError if a card has the same name."""

    def __init__(self, pool: Generator, retriever: Evidence) -> None:
        if any(card.name == NAME for card in pool.cards):
            raise UsageError(
                f"a card is named {NAME!r}, as the retrieved passages are: leave it out of --cards"
            )
        self._pool, self._retriever = pool, retriever
        self.cards = (*pool.cards, Choice(NAME, DESCRIPTION))

    @property
    def is_sequential(self) -> bool:
        return self._pool.is_sequential

    def generate(
        self,
        questions: Sequence[str | Question],
        cards: Sequence[Sequence[str]],
        documents: int,
        sampling: Sampling,
    ) -> list[list[Passage]]:
        """See Generator; fewer than `documents` passages are retrieved if no more match."""
        others = [[name for name in names if name != NAME] for names in cards]
        passages = self._pool.generate(questions, others, documents, sampling)
        for question, names, own in zip(questions, cards, passages, strict=True):
            if NAME in names:
                sources = self._retriever.find(checked(question).text, documents)
                own += [Passage(NAME, source.text, source=source) for source in sources]
        return passages


# GenRead, in Knowledge Card GRTR: the LLM generates a document, then reads it (Yu et al., ICLR 2023, section 3.1).


@dataclass(frozen=True)
class GenRead:
    """One document generated by the LLM; none if its reply is empty."""

    def passages(
        self, llm: LLM, questions: Sequence[Question], examples: tuple[Example, ...]
    ) -> list[list[Passage]]:
        requests = [question.request("document", examples=examples) for question in questions]
        texts = [reply.text.strip() for reply in replies(llm, requests)]
        return [[Passage("genread", text)] if text else [] for text in texts]


# Generated knowledge prompting: the LLM generates statements, and the most probable of its answers counts.
#
# Liu et al. (ACL 2022): section 2.1 samples 20 statements from the LLM at temperature 1, with demonstrations; section
# 2.2 answers with each statement and without any, and takes the answer of the highest probability.

GKP_TEMPERATURE = 1.0


def statements(samples: int) -> SampledReplies:
    """Return a source that samples statements (the paper: 20)."""
    return SampledReplies("gkp", "knowledge", samples, GKP_TEMPERATURE)


@dataclass(frozen=True)
class MostProbable:
    """Takes the answer of the highest probability, with one statement or with none; the most frequent one if a
    probability is unknown."""

    def replies(
        self, llm: LLM, requests: Sequence[Request], passages: Sequence[Sequence[Passage]]
    ) -> list[Reply]:
        knowledge: list[list[tuple[str, ...]]] = [[(), *((p.knowledge,) for p in read)] for read in passages]
        chosen = []
        for candidates in read_separately(llm, requests, knowledge):
            probabilities = [c.probability for c in candidates if c.probability is not None]
            if len(probabilities) < len(candidates):
                chosen.append(majority_answer(candidates, [1.0] * len(candidates)))
                continue
            able = [i for i, c in enumerate(candidates) if c.answers] or [*range(len(candidates))]
            chosen.append(candidates[max(able, key=probabilities.__getitem__)].reply)
        return chosen


# Recitation-augmented answering (RECITE): the LLM recites passages, and the most frequent of its answers counts.
#
# Sun et al. (ICLR 2023): section 3.2, recite and answer; section 3.3, self-consistency, one answer for each of 20
# recitations drawn at temperature 0.7.

RECITATION_TEMPERATURE = 0.7


def recitations(samples: int) -> SampledReplies:
    """Return a source that samples recitations (the paper: 20)."""
    return SampledReplies("recitation", "recite", samples, RECITATION_TEMPERATURE)


@dataclass(frozen=True)
class MajorityVote:
    """Takes the most frequent answer; of equally frequent ones the first."""

    def replies(
        self, llm: LLM, requests: Sequence[Request], passages: Sequence[Sequence[Passage]]
    ) -> list[Reply]:
        knowledge: list[list[tuple[str, ...]]] = [[(p.knowledge,) for p in read] or [()] for read in passages]
        return [
            majority_answer(candidates, [1.0] * len(candidates))
            for candidates in read_separately(llm, requests, knowledge)
        ]


# REPLUG: each retrieved passage is read alone, and the answers are ensembled (Shi et al., 2023, section 3.2).
#
# A passage's share is the softmax of the retrieval scores. Of a question with options the LLM's distribution over all
# options is averaged by these shares, and the most likely option is the answer. The weight of any other answer is the
# sum, over the passages that gave it, of the passage's share times the probability of the answer with it; where the LLM
# gives no probabilities, the shares alone count.


@dataclass(frozen=True)
class Replug:
    """`relative`: divide scores by the best one first. BM25 scores need that: they have no common scale, and the
    softmax of raw ones, which are often 10 apart, would leave only the best passage."""

    relative: bool

    def replies(
        self, llm: LLM, requests: Sequence[Request], passages: Sequence[Sequence[Passage]]
    ) -> list[Reply]:
        """Answer each request; without knowledge if nothing was retrieved."""
        knowledge: list[list[tuple[str, ...]]] = [[(p.knowledge,) for p in read] or [()] for read in passages]
        rows = zip(requests, passages, read_separately(llm, requests, knowledge), strict=True)
        replies = []
        for request, read, candidates in rows:
            # The softmax of the passages' scores
            scores = np.asarray([p.source.score if p.source else 0.0 for p in read] or [0.0], np.float32)
            if self.relative and scores.max() > 0:
                scores = scores / scores.max()
            powers = np.exp(scores - scores.max())
            shares: Array = powers / powers.sum()
            # average the distributions over the options,
            distributions = [c.reply.shares for c in candidates if c.reply.shares is not None]
            if len(distributions) == len(candidates):
                mean = shares @ np.asarray(distributions, np.float64)
                letter = request.choices[int(mean.argmax())].name
                reply = Reply(letter, confidence=float(mean.max()), choice=letter)
                replies.append(replace(reply, shares=tuple(mean.tolist())))
                continue
            # or weigh each answer: the share times the probability of each answer, if the LLM gives all of them
            probabilities = [1.0 if c.probability is None else c.probability for c in candidates]
            if any(c.probability is None for c in candidates):
                probabilities = [1.0] * len(candidates)
            weights = [float(share) * p for share, p in zip(shares, probabilities, strict=True)]
            replies.append(majority_answer(candidates, weights))
        return replies


# The baselines by name, ready to answer.

CARDS_AND_RETRIEVAL = "cards+retrieval"
BASELINES = ("retrieval", "genread", "gkp", "recitation", "replug", CARDS_AND_RETRIEVAL)
PASSAGES, ENSEMBLED = 3, 10  # REPLUG's paper ensembles ten


def baseline(
    name: str,
    options: AskOptions | None = None,
    baseline_options: BaselineOptions | None = None,
    *,
    hub: "Hub | None" = None,
    on_event: OnEvent = ignore,
) -> Answerer:
    """Return the baseline of that name.

    options  a baseline reads those of LLM and examples, and the cards for their passages; cards+retrieval reads all
    hub      where the cards are; None: the hub under KCARD_HOME

    Raises UsageError for an unknown name or a wrong value, CorpusError, HubError and ModelUnavailable.
    """
    options = options or AskOptions()
    baseline_options = baseline_options or BaselineOptions()
    if name not in BASELINES:
        raise UsageError(f"baseline {name!r} is unknown: choose one of {', '.join(BASELINES)}")
    if name == CARDS_AND_RETRIEVAL:
        from kcard.integrators.pipeline import Pipeline

        source = _retriever(options, baseline_options, hub, on_event)
        options = replace(options, mode="bottom-up")
        return Pipeline(options, hub=hub, on_event=on_event, retriever=source)
    from kcard.llms.prompts import load

    endpoint = endpoint_of(options, on_event)
    llm = LLMClient(make_llm(options.llm, options.temperature, endpoint), options.concurrency)
    examples = load(options.examples)
    if name == "genread":
        return BaselineAnswerer(name, llm, GenRead(), JointReading(), examples)
    if name == "gkp":
        return BaselineAnswerer(name, llm, statements(baseline_options.samples), MostProbable(), examples)
    if name == "recitation":
        return BaselineAnswerer(name, llm, recitations(baseline_options.samples), MajorityVote(), examples)
    source = _retriever(options, baseline_options, hub, on_event)
    if name == "replug":
        reading = Replug(relative=baseline_options.retriever == BM25)
        return BaselineAnswerer(
            name, llm, Retrieval(source, baseline_options.passages or ENSEMBLED), reading, examples
        )
    return BaselineAnswerer(
        name, llm, Retrieval(source, baseline_options.passages or PASSAGES), JointReading(), examples
    )


def _retriever(
    options: AskOptions,
    baseline_options: BaselineOptions,
    hub: "Hub | None",
    on_event: OnEvent,
) -> Evidence:
    """Return the retriever over the corpus that the options name, else over the cards' source passages."""
    if baseline_options.corpus is not None:
        return corpus_retriever(str(baseline_options.corpus), baseline_options.retriever)
    cards, _ = select_cards(options.card_names, hub)
    return retriever(card_passages(cards, on_event), baseline_options.retriever, "cards")
