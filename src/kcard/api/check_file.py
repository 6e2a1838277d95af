"""Many claims from a file to a file: one JSON object a line, its keys plus score, verdict and the window that decided.

Line i of the output belongs to line i of the input. The input is read twice, first to find its mistakes, and never
held in memory. What was scored is on disk before the next lines are, so a run that was cut off goes on.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from kcard.api.check import TEXTS, deciding, open_checker, verdict_of
from kcard.batches import batched
from kcard.errors import UsageError
from kcard.protocols import Checker, Evidence, Pair, Verdict
from kcard.rows import Row, append_rows, earlier_rows, read_rows

__all__ = ["ClaimTotals", "check_file"]

CHUNK = 128  # claims that are scored, and then written, together
RESULT = {"score", "verdict", "window"}


@dataclass(frozen=True)
class ClaimTotals:
    """`earlier`: how many of the claims a run before had scored."""

    claims: int
    earlier: int


def check_file(
    source: str | Path,
    target: str | Path,
    evidence: Sequence[str | Path] = (),
    *,
    checker: str | Checker = "minilm",
    resume: bool = False,
    device: str = "cpu",
    trust_remote_code: bool = False,
    report: Callable[[int, int], None] | None = None,
    told: Callable[[str], None] | None = None,
) -> ClaimTotals:
    """Score each line of `source`, {"claim": text, "evidence": text or list of texts, ...}, into `target`.

    A line may lack its evidence where `evidence` names where to search it, as for `check`. Of several texts the best
    decides; without a word of evidence the score is 0 and the claim not covered. `score` is in [0, 1], `window` the
    part of the evidence that decided. Other keys pass through. `report` is called with (claims done, claims in all),
    `told` with a sentence where a model is fetched; for the rest see `check`.

    Raises UsageError, before anything is written, for the first line that is not such an object, for a `target` that
    exists where nothing is to be resumed, and for one that is not this input's; and what `check` raises.
    """
    source, target = Path(source), Path(target)
    if target.exists() and target.resolve() == source.resolve():
        raise UsageError(f"--output {target} is the input file: name another, or the claims would be lost")
    from kcard.selectors.evidence.registry import open_evidence

    corpora = [open_evidence(str(spec)) for spec in evidence]
    found = bool(corpora)
    claims = sum(1 for _ in _read(source, found))
    if not claims:
        raise UsageError(f"--input {source} contains no claims")
    earlier = sum(1 for _ in earlier_rows(target, _read(source, found), resume, RESULT))
    judge = open_checker(checker, device, trust_remote_code, told)
    append_rows(target, [])
    done = earlier
    for rows in batched(islice(_read(source, found), earlier, None), CHUNK):
        texts = [_texts(row, corpora) for row in rows]
        append_rows(target, map(_scored, rows, _judged(rows, texts, judge)))
        done += len(rows)
        if report:
            report(done, claims)
    return ClaimTotals(claims, earlier)


def _scored(row: Row, verdict: Verdict | None) -> Row:
    if verdict is None:
        return {**row, "score": 0.0, "verdict": verdict_of(None, None), "window": ""}
    said = verdict_of(verdict.score, verdict.refutation)
    return {**row, "score": verdict.score, "verdict": said, "window": verdict.window}


def _judged(rows: list[Row], texts: list[list[str]], checker: Checker) -> Iterator[Verdict | None]:
    """The verdict that decides about each row, None without evidence; all pairs are judged in one call."""
    from kcard.selectors.verdicts import verdicts

    groups = [
        [Pair(row["claim"], text) for text in own if text.strip()]
        for row, own in zip(rows, texts, strict=True)
    ]
    pairs = list(dict.fromkeys(pair for group in groups for pair in group))
    judged = dict(zip(pairs, verdicts(checker, pairs), strict=True))
    for row, group in zip(rows, groups, strict=True):
        found = [judged[pair] for pair in group]
        yield found[deciding(row["claim"], found)] if found else None


def _texts(row: Row, corpora: Sequence[Evidence]) -> list[str]:
    """The evidence of a line, and what is found for its claim."""
    own = row.get("evidence", [])
    found = (source.text for corpus in corpora for source in corpus.find(row["claim"], TEXTS))
    return [*([own] if isinstance(own, str) else own), *found]


def _read(path: Path, searched: bool) -> Iterator[Row]:
    """Every claim with its evidence, which it may lack if some is `searched`; UsageError names the first line that is
    none."""
    for where, row in read_rows(path, "--input"):
        claim, evidence = row.get("claim"), row.get("evidence", [] if searched else None)
        if not isinstance(claim, str) or not claim.strip():
            raise UsageError(f"{where}: the key 'claim' must hold a non-empty text")
        texts = [evidence] if isinstance(evidence, str) else evidence
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise UsageError(f"{where}: the key 'evidence' must hold a text or a list of texts")
        yield row
