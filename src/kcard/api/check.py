"""Check claims against evidence, one or a file of them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

from kcard.batching import batched
from kcard.errors import UsageError
from kcard.events import Event, OnEvent, ignore
from kcard.interfaces import Checker, Pair, Verdict
from kcard.io import Row, append_rows, earlier_rows, read_rows
from kcard.options import Option, documented
from kcard.types import Source

SEARCH_RESULTS = 3  # of evidence, for a claim; the paper's k


@dataclass(frozen=True)
class Checked:
    """A claim, and the evidence that decides about it.

    score       support of the claim, in [0, 1]; None if no evidence was found, which is neither 0 nor a pass
    window      the part of the source that decided
    source      None if no evidence was found; without a file if the text itself was passed
    refutation  the probability that the window refutes the claim; None if the checker gives none
    """

    claim: str
    score: float | None = None
    window: str = ""
    source: Source | None = None
    refutation: float | None = None

    @property
    def verdict(self) -> str:
        """Return supported, refuted or not covered; not supported if the checker can't distinguish the last two."""
        return verdict_of(self.score, self.refutation)

    def to_json(self) -> dict[str, Any]:
        """Return the object that `kcard check --json` prints."""
        source = self.source
        return {
            "claim": self.claim,
            "score": self.score,
            "refutation": self.refutation,
            "verdict": self.verdict,
            "window": self.window,
            "source": source and {"text": source.text, "file": source.file, "line": source.line},
        }


@documented
def check(
    claim: Annotated[str, Option("The claim.", argument=True)],
    evidence: Annotated[
        Sequence[str | Path],
        Option(
            "Where to search evidence: a file or folder of text, wikipedia, or a registered name. Repeatable.",
            command_line=list[str],
        ),
    ] = (),
    *,
    texts: Annotated[
        Sequence[str], Option("Evidence, given as text. Repeatable.", flag="--text", command_line=list[str])
    ] = (),
    checker: Annotated[
        "str | Checker", Option("The checker; `kcard selectors` lists them.", command_line=str)
    ] = "minilm",
    device: Annotated[str, Option("Device of the checker: cpu, cuda or cuda:N.")] = "cpu",
    trust_remote_code: Annotated[bool, Option("Let the checker run code from its repository.")] = False,
    on_event: OnEvent = ignore,
) -> Checked:
    """Check a claim against evidence, which is searched, and texts, which are read as they are; the best decides.

    `on_event` is called with a note before a model is downloaded.

    Raises UsageError for an empty claim, missing evidence or an unknown name, CorpusError, ModelUnavailable.
    """
    from kcard.selectors.evidence import open_evidence
    from kcard.selectors.factuality import verdicts

    if not claim.strip():
        raise UsageError("the claim is empty")
    if isinstance(evidence, (str, Path)) or isinstance(texts, str):
        raise UsageError("evidence and texts must be lists: put a single value in brackets")
    if not evidence and not texts:
        raise UsageError("a claim needs evidence: give a file, a folder, a named source or a text")
    # The distinct texts; of equal ones, the first, but in the place of the last.
    candidates = [Source(text) for text in texts]
    for spec in evidence:
        candidates += open_evidence(str(spec)).find(claim, SEARCH_RESULTS)
    by_text: dict[str, Source] = {}
    for source in reversed(candidates):
        if source.text.strip():
            by_text[source.text] = source
    sources = list(by_text.values())
    sources.reverse()
    if not sources:
        return Checked(claim)
    judge = open_checker(checker, device, trust_remote_code, on_event)
    judged = verdicts(judge, [Pair(claim, source.text) for source in sources])
    best = decisive_place(claim, judged)
    return Checked(claim, judged[best].score, judged[best].window, sources[best], judged[best].refutation)


def verdict_of(score: float | None, refutation: float | None) -> str:
    """Return the verdict in words for a score and a probability of refutation."""
    from kcard.selectors.minilm_checker import MIN_REFUTATION, MIN_SUPPORT

    if score is not None and score >= MIN_SUPPORT:
        return "supported"
    if score is not None and refutation is None:
        return "not supported"
    if refutation is not None and refutation >= MIN_REFUTATION:
        return "refuted"
    return "not covered"


def decisive_place(claim: str, judged: "Sequence[Verdict]") -> int:
    """Return the index of the verdict that decides: the one with the highest support, unless another text contradicts
    it; if none supports the claim, the one with the highest refutation."""
    from kcard.selectors.minilm_checker import MIN_SUPPORT, contradicted, covered

    best = max(range(len(judged)), key=lambda at: judged[at].score)
    if judged[best].refutation is None:
        return best
    by_refutation = sorted(
        range(len(judged)), key=lambda at: (judged[at].refutation or 0.0, judged[at].score), reverse=True
    )
    if judged[best].score < MIN_SUPPORT:
        return by_refutation[0]
    share = covered(claim, judged[best].window)
    for at in by_refutation:
        other, refutation = judged[at], judged[at].refutation or 0.0
        if other.score < MIN_SUPPORT and contradicted(
            judged[best].score, share, refutation, covered(claim, other.window)
        ):
            return at
    return best


def open_checker(
    checker: "str | Checker",
    device: str = "cpu",
    trust_remote_code: bool = False,
    on_event: OnEvent = ignore,
) -> "Checker":
    """Load the checker of that name with a cache; a checker object is cached only if it has a `sha256`."""
    from kcard.selectors.factuality import cached
    from kcard.selectors.registry import Loading, make

    if isinstance(checker, str):
        loading = Loading(device=device, trust_remote_code=trust_remote_code, on_event=on_event)
        return cached(make("checker", checker, loading))
    return cached(checker)


# Check the claims of a file, one JSON object per line, into a file with the same keys plus score, verdict and window.
#
# Line i of the output belongs to line i of the input. The input is read twice, first to check it, and never held in
# memory. Results are on disk before the next lines are scored, so an interrupted run can be resumed.

CLAIMS_PER_BATCH = 128  # scored and written together
RESULT = {"score", "verdict", "window"}


@dataclass(frozen=True)
class ClaimTotals:
    """Number of claims; `earlier`: those that an earlier run had scored."""

    claims: int
    earlier: int


@documented
def check_file(
    source: str | Path,
    target: str | Path,
    evidence: Sequence[str | Path] = (),
    *,
    checker: str | Checker = "minilm",
    resume: bool = False,
    device: str = "cpu",
    trust_remote_code: bool = False,
    on_event: OnEvent = ignore,
) -> ClaimTotals:
    """Score each line of `source`, {"claim": text, "evidence": text or list of texts, ...}, into `target`.

    Lines need no evidence of their own if `evidence` names where to search it, as for `check`. The best of several
    texts decides; without any evidence the score is 0 and the claim is not covered. `score` is in [0, 1], `window` the
    part of the evidence that decided; other keys are copied. `on_event` is called with the number of finished claims
    (kind checking), and with a note before a model is downloaded; for the rest see `check`.

    Raises UsageError, before anything is written, for the first invalid line, for a `target` that exists without
    `resume`, and for one that belongs to another input; and what `check` raises.
    """
    source, target = Path(source), Path(target)
    if target.exists() and target.resolve() == source.resolve():
        raise UsageError(f"--output {target} is the input file: name another, or the claims would be lost")
    from kcard.selectors.evidence import open_evidence

    corpora = [open_evidence(str(spec)) for spec in evidence]
    is_searched = bool(corpora)
    claims = sum(1 for _ in _read_claims(source, is_searched))
    if not claims:
        raise UsageError(f"--input {source} contains no claims")
    earlier = sum(1 for _ in earlier_rows(target, _read_claims(source, is_searched), resume, RESULT))
    judge = open_checker(checker, device, trust_remote_code, on_event)
    append_rows(target, [])
    done = earlier
    for rows in batched(islice(_read_claims(source, is_searched), earlier, None), CLAIMS_PER_BATCH):
        # The evidence of each line, and the results of searching the corpora for its claim.
        texts = []
        for row in rows:
            own = row.get("evidence", [])
            row_texts = [own] if isinstance(own, str) else list(own)
            for corpus in corpora:
                for result in corpus.find(row["claim"], SEARCH_RESULTS):
                    row_texts.append(result.text)
            texts.append(row_texts)
        append_rows(target, _score_rows(rows, texts, judge))
        done += len(rows)
        on_event(Event("checking", done=done, total=claims))
    return ClaimTotals(claims, earlier)


def _score_rows(rows: list[Row], texts: list[list[str]], checker: Checker) -> Iterator[Row]:
    """Yield each row with the verdict that decides about it; all pairs of claim and text are scored in one call."""
    from kcard.selectors.factuality import verdicts

    groups: list[list[Pair]] = []
    distinct: dict[Pair, None] = {}
    for row, own in zip(rows, texts, strict=True):
        group = [Pair(row["claim"], text) for text in own if text.strip()]
        groups.append(group)
        distinct |= dict.fromkeys(group)
    pairs = list(distinct)
    scored = dict(zip(pairs, verdicts(checker, pairs), strict=True))
    for row, group in zip(rows, groups, strict=True):
        if not group:
            yield {**row, "score": 0.0, "verdict": verdict_of(None, None), "window": ""}
            continue
        candidates = [scored[pair] for pair in group]
        best = candidates[decisive_place(row["claim"], candidates)]
        verdict = verdict_of(best.score, best.refutation)
        yield {**row, "score": best.score, "verdict": verdict, "window": best.window}


def _read_claims(path: Path, searched: bool) -> Iterator[Row]:
    """Yield every claim with its evidence, which is optional if `searched`. UsageError names the first invalid
    line."""
    for where, row in read_rows(path, "--input"):
        claim, evidence = row.get("claim"), row.get("evidence", [] if searched else None)
        if not isinstance(claim, str) or not claim.strip():
            raise UsageError(f"{where}: the key 'claim' must hold a non-empty text")
        texts = [evidence] if isinstance(evidence, str) else evidence
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise UsageError(f"{where}: the key 'evidence' must hold a text or a list of texts")
        yield row
