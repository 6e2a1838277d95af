"""Each paper's preset, step by step, against a literal and slow implementation that was written from the paper."""

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kcard.gates.base import QuestionGate, Resources
from kcard.gates.popularity import Popularity
from kcard.gates.records import Record
from kcard.gates.self_ask import SKR_ICL, SelfAsk
from kcard.gates.skr import NearestNeighbours
from kcard.gates.thrust import Thrust, clusters_by_rule, kmeans
from kcard.integrators.assembly import gate_turns, make_integrator
from kcard.integrators.baselines import BaselineAnswerer, ensemble, retrieved
from kcard.integrators.options import PAPERS, AskOptions, Mode, Paper, Select, with_preset
from kcard.integrators.pool_views import Selectors
from kcard.interfaces import LLM, Array, Checker, Evidence, Gate, Generator, Pair, Pruner, Relevance
from kcard.llms.client import LLMClient
from kcard.llms.prompts import render
from kcard.selectors.factuality import draw
from kcard.selectors.relevance import Unranked
from kcard.types import Choice, Context, Passage, Question, Reply, Request, Sampling, Source, derive_seed
from tests.fakes import LetterCounts, Points, Says

QUESTION = "Who wrote it?"


def grade(seed: int, *parts: str) -> float:
    """One of five scores in [0, 1], so that ties are frequent; the same for the same texts."""
    return derive_seed(seed, *parts) % 5 / 4


@dataclass
class World(Generator, Relevance, Pruner, Checker, Evidence):
    """Cards, selectors, evidence and an LLM of which everything follows from a seed."""

    seed: int
    count: int = 3
    known: int = 4  # of five texts, those about which evidence is found
    distinct: int = 50  # documents that cards choose from; few give duplicates
    yes: Sequence[bool] = ()
    generated: list[tuple[str, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        names = ("elections", "moons", "prizes", "towns")[: self.count]
        self.cards = tuple(Choice(name, f"all about {name}") for name in names)
        self.rounds: Counter[str] = Counter()

    def document(self, card: str, number: int) -> str:
        chosen = derive_seed(self.seed, "document", card, number) % self.distinct
        return "" if chosen == 7 else f"document {chosen} tells of it"

    # Of kcard's interfaces.

    def generate(
        self,
        questions: Sequence[str | Question],
        cards: Sequence[Sequence[str]],
        documents: int,
        sampling: Sampling,
    ) -> list[list[Passage]]:
        del sampling
        passages: list[list[Passage]] = []
        for _, names in zip(questions, cards, strict=True):
            own = []
            for name in names:
                first = self.rounds[name] * documents
                self.rounds[name] += 1
                self.generated.append((name, documents))
                texts = [self.document(name, first + i) for i in range(documents)]
                # Some texts were looked up.
                places = [Source(t) if derive_seed(self.seed, "place", t) % 3 == 0 else None for t in texts]
                own += [Passage(name, t, source=place) for t, place in zip(texts, places, strict=True)]
            passages.append(own)
        return passages

    def scores(self, question: str, texts: Sequence[str]) -> Array:
        return np.array([grade(self.seed, "near", question, text) for text in texts], dtype=np.float32)

    def prune(self, question: str, texts: Sequence[str]) -> list[str]:
        del question
        return [self.pruned(text) for text in texts]

    def pruned(self, text: str) -> str:
        return text.removesuffix(" tells of it") if len(text) % 2 else text

    def support(self, pairs: Sequence[Pair]) -> Array:
        return np.array([grade(self.seed, p.claim, p.evidence) for p in pairs], dtype=np.float32)

    def find(self, claim: str, k: int) -> list[Source]:
        if derive_seed(self.seed, "found", claim) % 5 >= self.known:
            return []
        return [Source(f"source {i} of {claim}") for i in range(k)]


class Teller(LLM):
    """Says yes as often as it is told, then no; names a kind of information and a source by its seed."""

    def __init__(self, seed: int, cards: Sequence[Choice], yes: Sequence[bool]) -> None:
        self.seed, self.cards, self.yes = seed, cards, list(yes)
        self.requests: list[Request] = []

    def reply(self, request: Request) -> Reply:
        self.requests.append(request)
        if request.kind == "need":
            is_yes = self.yes.pop(0) if self.yes else False
            return Reply("Yes" if is_yes else "No", yes=float(is_yes))
        if request.kind == "what":
            return Reply(self.need(len(request.knowledge)))
        if request.kind == "choose":
            return Reply(f"{self.named(len(request.knowledge))}, please.")
        return Reply("42")

    def need(self, documents: int) -> str:
        return f"information number {derive_seed(self.seed, 'what', documents) % 9}"

    def named(self, documents: int) -> str:
        return self.cards[derive_seed(self.seed, "choose", documents) % len(self.cards)].name


def gather(
    preset: Paper,
    world: World,
    llm: LLM,
    gate: Gate,
    *,
    mode: Mode,
    select: Select = "auto",
    max_iterations: int | None = None,
    relevance: Relevance | None = None,
) -> tuple[AskOptions, Context]:
    """Return the preset's options, and the context that its integrator gathers."""
    changes = {"mode": mode, "select": select, "max_iterations": max_iterations}
    changes = {key: value for key, value in changes.items() if value is not None}
    options = AskOptions(**with_preset({"preset": preset, **changes}))
    selectors = Selectors(relevance or world, world, world, {}, independent=world, rank_by=options.rank_by)
    integrator = make_integrator(options, selectors, world, llm, (), gate)
    (context,) = integrator.gather([Question(QUESTION)])
    return options, context


# Knowledge Card, algorithm 1.


def best_first(scores: Sequence[float]) -> list[int]:
    """Return the numbers of the scores by taking the highest one again and again, of equal ones the first."""
    left, order = list(range(len(scores))), []
    while left:
        highest = left[0]
        for i in left:
            if scores[i] > scores[highest]:
                highest = i
        order.append(highest)
        left.remove(highest)
    return order


def bottom_up_literally(world: World, n1: int, n2: int) -> list[tuple[str, str, float | None]]:
    """Return (document, its pruned text, s) of the n2 documents that relevance keeps."""
    # for each card c_i: n1 documents c_i(q); D is their set
    documents: list[str] = []
    for card in world.cards:
        for number in range(n1):
            text = world.document(card.name, number)
            if text and text not in documents:
                documents.append(text)
    # the n2 most relevant by cosine of document and query
    near = [grade(world.seed, "near", QUESTION, text) for text in documents]
    chosen = [documents[i] for i in best_first(near)[:n2]]
    # pruned, and scored: s = (sum-fact(pruned | document) + max over 3 retrieved texts of fact-check) / 2
    rows: list[tuple[str, str, float | None]] = []
    for text in chosen:
        pruned = world.pruned(text)
        sources = world.find(text, 3)
        score = None
        if sources:
            s_fact = max(grade(world.seed, text, source.text) for source in sources)
            s_sum = 1.0 if pruned == text else grade(world.seed, pruned, text)
            score = (s_sum + s_fact) / 2
        rows.append((text, pruned, score))
    return rows


@settings(max_examples=50)
@given(st.integers(0, 10_000), st.integers(1, 4), st.integers(0, 5), st.sampled_from([6, 50]))
def test_bottom_up_is_algorithm_1(seed: int, count: int, known: int, distinct: int) -> None:
    world = World(seed, count, known, distinct)
    options, context = gather("knowledge-card", world, Says("42"), SelfAsk(Says("Yes")), mode="bottom-up")
    assert world.generated == [(card.name, 3) for card in world.cards]
    expected = bottom_up_literally(World(seed, count, known, distinct), 3, 5)
    judged = [p for p in context.passages if p.pruned is not None]
    assert sorted((p.text, p.pruned, p.support) for p in judged) == sorted(
        (text, pruned, None if score is None else pytest.approx(score)) for text, pruned, score in expected
    )
    # Of those with a score, n3 of the k = 2 n3 best are drawn; if there are no more than n3, all stay.
    kept = [p.text for p in context.passages if p.kept]
    scored = [(text, score) for text, _, score in expected if score is not None]
    best = {scored[i][0] for i in best_first([score for _, score in scored])[: 2 * options.n3]}
    assert len(kept) == min(options.n3, len(expected))
    assert len(best & set(kept)) == min(options.n3, len(scored))
    # The prompt holds what cards wrote, pruned, and nothing else.
    assert set(context.knowledge) == {pruned for text, pruned, _ in expected if text in kept}


@pytest.mark.parametrize(("scores", "k"), [((0.9, 0.1, 0.5, 0.5, 0.0), None), ((1.0, 1.0, 0.2, 0.4, 0.3), 3)])
def test_the_draw_is_top_k_factuality_sampling(scores: tuple[float, ...], k: int | None) -> None:
    count, draws = 2, 1500
    best = best_first(scores)[: k or 2 * count]
    # Without replacement: each draw has p = exp(s) / sum of exp(s) over the documents that are left.
    chances: dict[tuple[int, ...], float] = {}
    for first, second in itertools.permutations(best, 2):
        total = sum(math.exp(scores[i]) for i in best)
        chance = math.exp(scores[first]) / total
        chance *= math.exp(scores[second]) / (total - math.exp(scores[first]))
        chances[first, second] = chance
    drawn = Counter(tuple(draw(scores, count, seed, k)) for seed in range(draws))
    assert set(drawn) == set(chances)
    for pair, chance in chances.items():
        # Five standard deviations; the seeds are fixed.
        assert abs(drawn[pair] / draws - chance) < 5 * math.sqrt(chance * (1 - chance) / draws)


# Knowledge Card, algorithm 2.


def top_down_literally(
    world: World, llm: Teller, select: Select, rounds: int
) -> tuple[list[str], list[str], list[str]]:
    """Return the kinds of the requests before the answer, the documents in order, and the cards of the rounds."""
    kinds, written = ["need"], Counter[str]()
    documents: list[str] = []
    cards: list[str] = []
    answers = list(llm.yes)
    yes = answers.pop(0) if answers else False
    while yes:
        # The LLM says what it needs, or names a source of all.
        if select == "auto":
            kinds.append("what")
            need = llm.need(len(documents))
            near = [grade(world.seed, "near", need, card.description) for card in world.cards]
            card = world.cards[best_first(near)[0]].name
        else:
            kinds.append("choose")
            card = llm.named(len(documents))
        cards.append(card)
        # That card writes n1 documents, prompted with the question; the most factual one is kept.
        texts: list[str] = []
        for number in range(3 * written[card], 3 * written[card] + 3):
            text = world.document(card, number)
            if text and text not in texts:
                texts.append(text)
        written[card] += 1
        facts = []
        for text in texts:
            sources = world.find(text, 3)
            facts.append(max(grade(world.seed, text, source.text) for source in sources) if sources else -1.0)
        if texts:
            documents.append(texts[best_first(facts)[0]])
        if len(cards) == rounds:
            break
        kinds.append("need")
        yes = answers.pop(0) if answers else False
    return kinds, documents, cards


@given(
    st.integers(0, 10_000),
    st.integers(1, 4),
    st.integers(0, 5),
    st.sampled_from(["auto", "explicit"]),
    st.integers(1, 3),
    st.lists(st.booleans(), max_size=4),
)
@example(0, 1, 5, "auto", 3, [True, True])  # one card writes in each of three rounds
def test_top_down_is_algorithm_2(
    seed: int, count: int, known: int, select: Select, rounds: int, yes: list[bool]
) -> None:
    expected_world = World(seed, count, known, distinct=12)
    kinds, documents, cards = top_down_literally(
        expected_world, Teller(seed, expected_world.cards, yes), select, rounds
    )
    world = World(seed, count, known, distinct=12)
    llm = Teller(seed, world.cards, yes)
    gate = SelfAsk(llm)
    (decision,) = gate.decide([Question(QUESTION)], "self-ask")
    context = Context(turns=gate_turns(gate, fired=False))
    if decision.fired:
        _, context = gather(
            "knowledge-card", world, llm, gate, mode="top-down", select=select, max_iterations=rounds
        )
    assert [request.kind for request in llm.requests] == kinds
    assert [name for name, _ in world.generated] == cards
    assert list(context.knowledge) == documents
    # Documents are neither pruned nor drawn, and the LLM has seen those of the earlier rounds each time.
    assert all(p.pruned is None for p in context.passages)
    assert all(request.knowledge == context.knowledge[: len(request.knowledge)] for request in llm.requests)


def test_a_shared_word_does_not_overrule_the_relevance_selector() -> None:
    class Says93(Relevance):
        def scores(self, question: str, texts: Sequence[str]) -> Array:
            del question
            return np.array([0.88 if "moons" in text else 0.93 for text in texts], dtype=np.float32)

    world = World(0, count=2)
    _, context = gather(
        "knowledge-card",
        world,
        Says("moons"),
        SelfAsk(Says("Yes")),
        mode="top-down",
        relevance=Says93(),
    )
    assert {p.card for p in context.passages} == {"elections"}


# Thrust, SKR and Adaptive Retrieval: a gate, and one retriever's passages as they were retrieved.


class Letters(LetterCounts):
    name = "minilm"  # the encoder for relations, which every record names here


def records(seed: int, count: int) -> list[Record]:
    random = np.random.default_rng(seed)
    return [
        Record(
            question=" ".join(f"{x:.3f}" for x in random.normal(size=3)),
            correct_without=float(random.random() < 0.6),
            correct_with=float(random.random() < 0.6),
            popularity=float(random.integers(0, 6)),
            relation=("author", "capital")[int(random.integers(0, 2))],
        )
        for _ in range(count)
    ]


@settings(max_examples=15)
@given(st.integers(0, 10_000), st.integers(1, 40), st.sampled_from([25, 50, 75]))
def test_thrust_seeks_below_the_percentile_of_equation_1(seed: int, count: int, percentile: int) -> None:
    sample = records(seed, count)
    gate = Thrust.fit(sample, {"percentile": percentile}, Resources(representation=Points()))
    # K clusters of the one dummy class; the sample is in the order of its own seed, as k-means depends on it.
    ordered = sorted(sample, key=lambda record: (derive_seed(0, record.question), ""))
    vectors = Points().vectors([record.question for record in ordered]).astype(np.float64)
    k = max(math.ceil(count**0.25 - 1e-9), 3)
    assert k == clusters_by_rule(count)
    clusters = kmeans(vectors, k, derive_seed(0, ""))

    def thrust(query: np.ndarray) -> float:
        total = np.zeros(3)
        for centroid, size in zip(clusters.centroids, clusters.sizes, strict=True):
            d = centroid - query
            if not np.linalg.norm(d) > 1e-4:
                return math.inf
            total += size / np.linalg.norm(d) ** 2 * d / np.linalg.norm(d)
        return float(np.linalg.norm(total / len(clusters.sizes)))

    own = [thrust(vector) for vector in vectors]
    random = np.random.default_rng(seed + 1)
    questions = [" ".join(f"{x:.3f}" for x in random.normal(size=3)) for _ in range(8)]
    finite = [score for score in own if math.isfinite(score)]
    assume_far = np.quantile(own, percentile / 100) if len(finite) == len(own) else None
    for question in questions:
        score = thrust(Points().vectors([question])[0].astype(np.float64))
        (decision,) = QuestionGate(gate).decide([Question(question)], "thrust")
        if assume_far is not None and abs(score - assume_far) > 1e-3 * max(1.0, score):
            assert decision.fired == (score < assume_far)
        elif assume_far is None and score < min(finite, default=0.0) * 0.999 and percentile >= 50:
            assert decision.fired


@settings(max_examples=50)
@given(st.integers(0, 10_000), st.integers(12, 40), st.integers(3, 10))
def test_skr_knn_is_the_papers_ratio(seed: int, count: int, k: int) -> None:
    sample = records(seed, count)
    positive = [r for r in sample if r.correct_without >= r.correct_with and not r.wrong_both_ways]
    negative = [r for r in sample if r.correct_without < r.correct_with]
    if not positive or not negative or k > len(positive) + len(negative):
        return
    gate = NearestNeighbours.fit(sample, {"k": k}, Resources(representation=Points()))
    m, n = len(positive), len(negative)
    random = np.random.default_rng(seed + 1)
    for _ in range(8):
        question = " ".join(f"{x:.3f}" for x in random.normal(size=3))
        vector = np.array(question.split(), dtype=np.float64)

        def cosine(record: Record, vector: np.ndarray = vector) -> float:
            other = np.array(record.question.split(), dtype=np.float64)
            return float(vector @ other / np.linalg.norm(vector) / np.linalg.norm(other))

        usable = [r for r in sample if not r.wrong_both_ways]
        order = sorted(usable, key=cosine, reverse=True)
        if k < len(order) and cosine(order[k - 1]) - cosine(order[k]) < 1e-5:
            continue
        near = sum(r in positive for r in order[:k])
        knows = near == k or near / (k - near) >= m / n
        (decision,) = QuestionGate(gate).decide([Question(question)], "skr-knn")
        assert decision.fired == (not knows)


@settings(max_examples=50)
@given(st.integers(0, 10_000), st.integers(1, 30))
def test_the_popularity_threshold_of_each_relation_is_brute_force(seed: int, count: int) -> None:
    sample = records(seed, count)
    gate = Popularity.fit(sample, {}, Resources(representation=Letters()))

    def accuracy(rows: Sequence[Record], threshold: float) -> float:
        return sum(r.correct_with if (r.popularity or 0) < threshold else r.correct_without for r in rows)

    fired = gate.scores([record.query for record in sample]) < gate.threshold
    for relation in {record.relation for record in sample}:
        rows = [(r, is_fired) for r, is_fired in zip(sample, fired, strict=True) if r.relation == relation]
        best = max(accuracy([r for r, _ in rows], threshold) for threshold in range(8))
        assert sum(r.correct_with if is_fired else r.correct_without for r, is_fired in rows) == best
        # One threshold: what is less popular than a question that seeks knowledge seeks it, too.
        seeking = [r.popularity or 0 for r, is_fired in rows if is_fired]
        knowing = [r.popularity or 0 for r, is_fired in rows if not is_fired]
        assert max(seeking, default=-1) < min(knowing, default=math.inf)


@pytest.mark.parametrize("preset", ["thrust", "skr", "adaptive-retrieval"])
def test_the_llm_reads_passages_as_they_were_retrieved(preset: Paper) -> None:
    documents = [f"passage {i} of the index" for i in (4, 1, 3, 0, 2)]

    class Index(World):
        def document(self, card: str, number: int) -> str:
            del card
            return documents[number]

        def pruned(self, text: str) -> str:
            return text

    assert PAPERS[preset]["relevance"] == "none"
    assert PAPERS[preset]["pruner"] == "none"
    for seed in range(20):
        world = Index(seed, count=1, known=3)
        options, context = gather(
            preset, world, Says("42"), SelfAsk(Says("Yes")), mode="bottom-up", relevance=Unranked()
        )
        assert list(context.knowledge) == documents[: options.n3]


@settings(max_examples=50)
@given(st.integers(0, 10_000), st.integers(1, 5), st.integers(2, 4))
def test_replug_averages_the_distributions_over_the_options(seed: int, passages: int, count: int) -> None:
    options = tuple(Choice(letter, f"option {letter}") for letter in "ABCD"[:count])
    random = np.random.default_rng(seed)
    scores = [float(x) for x in random.normal(size=passages)]
    distributions = random.dirichlet([0.5] * count, size=passages)

    class Tells(LLM):
        def reply(self, request: Request) -> Reply:
            shares = tuple(distributions[int(request.knowledge[0].split()[1])].tolist())
            letter = options[int(np.argmax(shares))].name
            return Reply(letter, choice=letter, confidence=max(shares), shares=shares)

    class Retriever(Evidence):
        def find(self, claim: str, k: int) -> list[Source]:
            del claim
            return [Source(f"passage {i}", score=score) for i, score in enumerate(scores)][:k]

    source, reading = retrieved(Retriever(), 10), partial(ensemble, relative=False)
    runner = BaselineAnswerer("replug", LLMClient(Tells()), source, reading)
    [answer] = runner.answers([Question(QUESTION, options)])
    # p(y | x) = sum over d of lambda(d, x) p(y | d, x), lambda the softmax of the retrieval scores
    total = sum(math.exp(score) for score in scores)
    expected = [
        sum(math.exp(scores[d]) / total * distributions[d][y] for d in range(passages)) for y in range(count)
    ]
    assert answer.choice == options[best_first(expected)[0]].name
    assert answer.confidence == pytest.approx(max(expected))


def test_skr_prompts_stand_on_one_line() -> None:
    ask = "Do you need additional information to answer this question?"
    records = [Record("Who built Rome?", 1.0, 0.0), Record("Who built Ulm?", 0.0, 1.0)]
    llm = Says("No")
    settings = {"wording": "skr-inline", "demonstrations": 2}
    gate = SKR_ICL.fit(records, settings, Resources(llm=llm))
    QuestionGate(gate).decide([Question(QUESTION)], "skr-icl")
    assert render(llm.requests[0]) == (
        f"Who built Rome? Q: {ask} A: No, I don't need additional information to answer this question.\n\n"
        f"Who built Ulm? Q: {ask} A: Yes, I need additional information to answer this question.\n\n"
        f"{QUESTION} Q: {ask} A:"
    )
