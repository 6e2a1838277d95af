"""Baselines: retrieval, GenRead, generated knowledge prompting, RECITE, REPLUG, and cards together with retrieval."""

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from kcard.batching import batched
from kcard.errors import KcardError, UsageError
from kcard.events import OnEvent, ignore, note
from kcard.integrators.assembly import endpoint_of, make_llm, select_cards
from kcard.integrators.options import AskOptions, BaselineOptions
from kcard.interfaces import LLM, Answerer, Array, Evidence, Generator, replies
from kcard.llms.client import LLMClient
from kcard.questions import all_checked, checked, run_step
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

ALWAYS_FIRED = Decision("always", 0.0, True)
RETRIEVAL = "retrieval"

# (LLM, questions, demonstrations) -> for each question the passages that the LLM may read, best first
KnowledgeSource = Callable[[LLM, Sequence[Question], tuple[Example, ...]], list[list[Passage]]]
# (LLM, requests without knowledge, the passages of each) -> the answer to each
ReadingStrategy = Callable[[LLM, Sequence[Request], Sequence[Sequence[Passage]]], list[Reply]]


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
        pending = all_checked(questions)
        answers, failures = run_step(self._answer, list(dict.fromkeys(pending)))
        for question in pending:
            yield failures.get(question) or answers[question]

    def _answer(self, questions: Sequence[Question]) -> list[Answer]:
        """Answer distinct questions. Raises QuestionsFailed."""
        started = time.perf_counter()
        for question in questions:
            question.trace.begin()
        passages = self.source(self.llm, questions, self.examples)
        requests = [question.request("answer", examples=self.examples) for question in questions]
        replies = self.reading(self.llm, requests, passages)
        seconds = (time.perf_counter() - started) / len(questions)
        answers = []
        for question, own, reply in zip(questions, passages, replies, strict=True):
            trace = question.trace
            trace.card_seconds, trace.is_complete = max(seconds - trace.usage.llm_seconds, 0.0), True
            answers.append(
                Answer(
                    question=question.text,
                    answer=question.answer_text(reply),
                    mode=self.name,
                    gate=ALWAYS_FIRED,
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


# The kind of request, and the temperature, of baselines whose knowledge the LLM writes.
WRITING_REQUESTS: Mapping[str, tuple[Kind, float | None]] = {
    # A document written for the question (Yu et al., ICLR 2023, section 3.1; GRTR in Knowledge Card).
    "genread": ("document", None),
    # Statements, with demonstrations (Liu et al., ACL 2022, section 2.1: 20 of them).
    "gkp": ("knowledge", 1.0),
    # Recited passages (Sun et al., ICLR 2023, section 3.2; section 3.3: 20 of them).
    "recitation": ("recite", 0.7),
}


def written(name: str, samples: int) -> KnowledgeSource:
    """Return a source of `samples` texts that the LLM writes as in the baseline `name`; empty ones are dropped."""
    kind, temperature = WRITING_REQUESTS[name]

    def passages(
        llm: LLM, questions: Sequence[Question], examples: tuple[Example, ...]
    ) -> list[list[Passage]]:
        requests = []
        for question in questions:
            for n in range(samples):
                requests.append(question.request(kind, (), examples, sample=n, temperature=temperature))
        by_question = []
        for drawn in batched(replies(llm, requests), samples):
            own = []
            for reply in drawn:
                text = reply.text.strip()
                if text:
                    own.append(Passage(name, text))
            by_question.append(own)
        return by_question

    return passages


def retrieved(retriever: Evidence, k: int) -> KnowledgeSource:
    """Return a source of at most `k` passages, best first; `Passage.source` holds place and score of each."""

    def passages(
        llm: LLM, questions: Sequence[Question], examples: tuple[Example, ...]
    ) -> list[list[Passage]]:
        del llm, examples
        sources = retriever.find_all([question.text for question in questions], k)
        return [retrieved_passages(part) for part in sources]

    return passages


def retrieved_passages(sources: Iterable[Source]) -> list[Passage]:
    return [Passage(RETRIEVAL, source.text, source=source) for source in sources]


def read_jointly(llm: LLM, requests: Sequence[Request], passages: Sequence[Sequence[Passage]]) -> list[Reply]:
    """Read all passages in one prompt, best first: "Knowledge: ... Question: ... Answer:"."""
    with_knowledge = []
    for request, read in zip(requests, passages, strict=True):
        texts = tuple(passage.knowledge for passage in read)
        with_knowledge.append(replace(request, knowledge=texts))
    return replies(llm, with_knowledge)


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
    llm: LLM,
    requests: Sequence[Request],
    passages: Sequence[Sequence[Passage]],
    also_without: bool = False,
) -> list[list[ScoredReply]]:
    """Answer each request once per passage, with that passage alone: the most likely words, or the most likely option.

    Where there is no passage, and `also_without`, it is answered without any, first.
    """
    # One draft for each passage, and one without any.
    drafts, counts = [], []
    for request, read in zip(requests, passages, strict=True):
        knowledge: list[tuple[str, ...]] = [(passage.knowledge,) for passage in read]
        if also_without or not read:
            knowledge.insert(0, ())
        for texts in knowledge:
            drafts.append(replace(request, knowledge=texts, draft=not request.choices))
        counts.append(len(knowledge))
    # The candidates of each question.
    arriving = iter(replies(llm, drafts))
    by_request = []
    for count in counts:
        candidates = []
        for reply in islice(arriving, count):
            probability = reply.confidence
            if reply.tokens:
                mean = sum(token.log_probability for token in reply.tokens) / len(reply.tokens)
                probability = math.exp(mean)
            candidates.append(ScoredReply(reply, probability))
        by_request.append(candidates)
    return by_request


def majority_answer(candidates: Sequence[ScoredReply], weights: Sequence[float]) -> Reply:
    """Return the reply whose answer has the largest sum of weights; of its wordings the heaviest, of equals the first.

    A reply without an answer abstains, unless all do.
    """
    mass: dict[str, float] = {}
    heaviest: dict[str, tuple[float, Reply]] = {}  # wording of each answer
    for i in voters(candidates):
        key, weight = candidates[i].key, weights[i]
        mass[key] = mass.get(key, 0.0) + weight
        if key not in heaviest or weight > heaviest[key][0]:
            heaviest[key] = weight, candidates[i].reply
    return heaviest[max(mass, key=mass.__getitem__)][1]


def voters(candidates: Sequence[ScoredReply]) -> Sequence[int]:
    """Return the numbers of the replies with an answer, or of all if none has one."""
    voting = [i for i, candidate in enumerate(candidates) if candidate.answers]
    return voting or range(len(candidates))


def take_most_probable(
    llm: LLM, requests: Sequence[Request], passages: Sequence[Sequence[Passage]]
) -> list[Reply]:
    """Take the answer of the highest probability, with one statement or with none (Liu et al., section 2.2); the most
    frequent one if a probability is unknown."""
    chosen = []
    for candidates in read_separately(llm, requests, passages, also_without=True):
        probabilities = known_probabilities(candidates)
        if probabilities is None:
            chosen.append(majority_answer(candidates, [1.0] * len(candidates)))
        else:
            best = max(voters(candidates), key=probabilities.__getitem__)
            chosen.append(candidates[best].reply)
    return chosen


def known_probabilities(candidates: Sequence[ScoredReply]) -> list[float] | None:
    """Return the candidates' probabilities; None if one is unknown."""
    probabilities = []
    for candidate in candidates:
        if candidate.probability is None:
            return None
        probabilities.append(candidate.probability)
    return probabilities


def take_majority(
    llm: LLM, requests: Sequence[Request], passages: Sequence[Sequence[Passage]]
) -> list[Reply]:
    """Take the most frequent answer (self-consistency: Sun et al., section 3.3); of equally frequent ones the first."""
    rows = read_separately(llm, requests, passages)
    return [majority_answer(candidates, [1.0] * len(candidates)) for candidates in rows]


def ensemble(
    llm: LLM, requests: Sequence[Request], passages: Sequence[Sequence[Passage]], relative: bool
) -> list[Reply]:
    """Read each retrieved passage alone, and ensemble the answers (REPLUG: Shi et al., 2023, section 3.2).

    A passage's share is the softmax of the retrieval scores. Of a question with options the LLM's distribution over all
    options is averaged by these shares, and the most likely option is the answer. The weight of any other answer is the
    sum, over the passages that gave it, of the passage's share times the probability of the answer with it; where the
    LLM gives no probabilities, the shares alone count.

    relative  divide scores by the best one first. BM25 scores need that: they have no common scale, and the softmax of
              raw ones, which are often 10 apart, would leave only the best passage
    """
    chosen = []
    rows = zip(requests, passages, read_separately(llm, requests, passages), strict=True)
    for request, read, candidates in rows:
        scores = np.zeros(max(len(read), 1), np.float32)
        for i, passage in enumerate(read):
            if passage.source is not None:
                scores[i] = passage.source.score
        if relative and scores.max() > 0:
            scores = scores / scores.max()
        powers = np.exp(scores - scores.max())
        shares: Array = powers / powers.sum()
        distributions = []
        for candidate in candidates:
            if candidate.reply.shares is not None:
                distributions.append(candidate.reply.shares)
        if len(distributions) == len(candidates):
            mean = shares @ np.asarray(distributions, np.float64)
            letter = request.choices[int(mean.argmax())].name
            reply = Reply(letter, confidence=float(mean.max()), choice=letter)
            chosen.append(replace(reply, shares=tuple(mean.tolist())))
            continue
        weights = shares.tolist()
        for i, probability in enumerate(known_probabilities(candidates) or ()):
            weights[i] *= probability
        chosen.append(majority_answer(candidates, weights))
    return chosen


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
    """Return a retriever over these texts. Raises UsageError for an unknown kind, ModelUnavailable.

    kind  bm25                    by words (kcard.index)
          minilm                  by vectors of the embedded encoder, offline
          contriever[:MODEL]      by Contriever's, as in Adaptive Retrieval; the paper's is facebook/contriever-msmarco
          hf:MODEL[,pooling=...]  by any other encoder of kcard.representations
    """
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

    everything: list[Source] = []
    without = []
    for name, card in cards.items():
        sources = passages(card.folder)
        everything += sources
        if not sources:
            without.append(name)
    if not everything:
        raise UsageError(
            f"no source passages travel with {', '.join(without) or 'the chosen cards'}: name what to search with "
            "--corpus"
        )
    if without:
        on_event(note(f"retrieval searches no passages of {', '.join(without)}: none travel with them"))
    return everything


class RetrieverAsCard(Generator):
    """Adds a retriever to a pool as one more card (Knowledge Card, appendix A).

    Raises UsageError if a card has the same name.
    """

    def __init__(self, pool: Generator, retriever: Evidence) -> None:
        if any(card.name == RETRIEVAL for card in pool.cards):
            raise UsageError(
                f"a card is named {RETRIEVAL!r}, as the retrieved passages are: leave it out of --cards"
            )
        self._pool, self._retriever = pool, retriever
        self.cards = (*pool.cards, Choice(RETRIEVAL, "passages retrieved from a corpus"))

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
        others = []
        for names in cards:
            others.append([name for name in names if name != RETRIEVAL])
        passages = self._pool.generate(questions, others, documents, sampling)
        for question, names, own in zip(questions, cards, passages, strict=True):
            if RETRIEVAL in names:
                own += retrieved_passages(self._retriever.find(checked(question).text, documents))
        return passages


CARDS_AND_RETRIEVAL = "cards+retrieval"
BASELINES = ("retrieval", "genread", "gkp", "recitation", "replug", CARDS_AND_RETRIEVAL)
READ_PASSAGES = 3
REPLUG_PASSAGES = 10  # as in its paper


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
    reading: ReadingStrategy = read_jointly
    if name == "genread":
        knowledge = written(name, 1)
    elif name == "gkp":
        knowledge, reading = written(name, baseline_options.samples), take_most_probable
    elif name == "recitation":
        knowledge, reading = written(name, baseline_options.samples), take_majority
    else:
        count = baseline_options.passages or READ_PASSAGES
        if name == "replug":
            count = baseline_options.passages or REPLUG_PASSAGES
            reading = partial(ensemble, relative=baseline_options.retriever == BM25)
        knowledge = retrieved(_retriever(options, baseline_options, hub, on_event), count)
    return BaselineAnswerer(name, llm, knowledge, reading, examples)


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
