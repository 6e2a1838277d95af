"""Many claims from a file to a file: one JSON object a line, its keys plus the score and the window that decided.

Line i of the output belongs to line i of the input. The input is read twice, first to find its mistakes, and never
held in memory. What was scored is on disk before the next lines are, so a run that was cut off goes on.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from kcard.api.check import open_checker
from kcard.batches import batched
from kcard.errors import UsageError
from kcard.protocols import Checker, Pair, Verdict
from kcard.rows import Row, append_rows, earlier_rows, read_rows

__all__ = ["ClaimTotals", "check_file"]

CHUNK = 128  # claims that are scored, and then written, together
RESULT = {"score", "window"}
NOTHING = Verdict(0.0, "")


@dataclass(frozen=True)
class ClaimTotals:
    """`earlier`: how many of the claims a run before had scored."""

    claims: int
    earlier: int


def check_file(
    source: str | Path,
    target: str | Path,
    *,
    checker: str | Checker = "minilm",
    resume: bool = False,
    device: str = "cpu",
    trust_remote_code: bool = False,
    report: Callable[[int, int], None] | None = None,
    told: Callable[[str], None] | None = None,
) -> ClaimTotals:
    """Score each line of `source`, {"claim": text, "evidence": text or list of texts, ...}, into `target`.

    Of several texts the best decides; evidence without a word supports nothing: 0. `score` is in [0, 1], `window` the
    part of the evidence that decided. Other keys pass through. `report` is called with (claims done, claims in all),
    `told` with a sentence where a model is fetched; for the rest see `check`.

    Raises UsageError, before anything is written, for the first line that is not such an object, for a `target` that
    exists where nothing is to be resumed, and for one that is not this input's; and what `check` raises.
    """
    source, target = Path(source), Path(target)
    if target.exists() and target.resolve() == source.resolve():
        raise UsageError(f"--output {target} is the input file: name another, or the claims would be lost")
    claims = sum(1 for _ in _read(source))
    if not claims:
        raise UsageError(f"--input {source} contains no claims")
    earlier = sum(1 for _ in earlier_rows(target, _read(source), resume, RESULT))
    judge = open_checker(checker, device, trust_remote_code, told)
    append_rows(target, [])
    done = earlier
    for rows in batched(islice(_read(source), earlier, None), CHUNK):
        judged = zip(rows, _judged(rows, judge), strict=True)
        append_rows(target, ({**row, "score": best.score, "window": best.window} for row, best in judged))
        done += len(rows)
        if report:
            report(done, claims)
    return ClaimTotals(claims, earlier)


def _judged(rows: list[Row], checker: Checker) -> Iterator[Verdict]:
    """The best verdict of each row; all pairs are judged in one call."""
    from kcard.selectors.verdicts import verdicts

    groups = [[Pair(row["claim"], text) for text in _texts(row) if text.strip()] for row in rows]
    pairs = list(dict.fromkeys(pair for group in groups for pair in group))
    judged = dict(zip(pairs, verdicts(checker, pairs), strict=True))
    for group in groups:
        yield max((judged[pair] for pair in group), key=lambda verdict: verdict.score, default=NOTHING)


def _texts(row: Row) -> list[str]:
    evidence = row["evidence"]
    return [evidence] if isinstance(evidence, str) else evidence


def _read(path: Path) -> Iterator[Row]:
    """Every claim with its evidence; UsageError names the first line that is none."""
    for where, row in read_rows(path, "--input"):
        claim, evidence = row.get("claim"), row.get("evidence")
        if not isinstance(claim, str) or not claim.strip():
            raise UsageError(f"{where}: the key 'claim' must hold a non-empty text")
        texts = [evidence] if isinstance(evidence, str) else evidence
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise UsageError(f"{where}: the key 'evidence' must hold a text or a list of texts")
        yield row
