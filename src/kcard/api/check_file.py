"""Many claims from a file to a file: one JSON object a line, its keys plus the score and the window that decided.

Line i of the output belongs to line i of the input. The input is read twice, first to find its mistakes, and never
held in memory. What was scored is on disk before the next lines are, so a run that was cut off goes on.
"""

import json
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, Any

from kcard.api.check import open_checker
from kcard.errors import UsageError
from kcard.json_values import parse
from kcard.protocols import Checker, Pair, Verdict

__all__ = ["Totals", "check_file"]

Row = dict[str, Any]

CHUNK = 128  # claims that are scored, and then written, together
RESULT = ("score", "window")
NOTHING = Verdict(0.0, "")


@dataclass(frozen=True)
class Totals:
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
) -> Totals:
    """Score each line of `source`, {"claim": text, "evidence": text or list of texts, ...}, into `target`.

    Of several texts the best decides; evidence without a word supports nothing: 0. `score` is in [0, 1], `window` the
    part of the evidence that decided. Other keys pass through. `report` is called with (claims done, claims in all),
    `told` with a sentence where a model is fetched; for the rest see `check`.

    Raises UsageError, before anything is written, for the first line that is not such an object, for a `target` that
    exists where nothing is to be resumed, and for one that is not this input's; and what `check` raises.
    """
    source, target = Path(source), Path(target)
    if not source.is_file():
        raise UsageError(f"--input {source} {'is not a file' if source.exists() else 'does not exist'}")
    if target.exists() and target.resolve() == source.resolve():
        raise UsageError(f"--output {target} is the input file: name another, or the claims would be lost")
    claims = sum(1 for _ in _read(source))
    if not claims:
        raise UsageError(f"--input {source} contains no claims")
    earlier = _earlier(source, target, resume)
    judge = open_checker(checker, device, trust_remote_code, told)
    with _appending(target) as stream:
        done = earlier
        for rows in _chunks((row for _, row in islice(_read(source), earlier, None)), CHUNK):
            _write(stream, target, zip(rows, _judged(rows, judge), strict=True))
            done += len(rows)
            if report:
                report(done, claims)
    return Totals(claims, earlier)


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


def _read(path: Path) -> Iterator[tuple[int, Row]]:
    """Every line that is not empty, with its number; UsageError names the first that is no claim with evidence."""
    with path.open("rb") as stream:
        for number, line in enumerate(stream, 1):
            if line.strip(b"\xef\xbb\xbf \t\r\n"):
                row = _object(path, number, line)
                if wrong := _wrong(row):
                    raise UsageError(f"{path}:{number}: {wrong}")
                yield number, row


def _object(path: Path, number: int, line: bytes) -> Row:
    try:
        row = parse(line.decode("utf-8-sig" if number == 1 else "utf-8"))
    except ValueError as error:
        raise UsageError(f"{path}:{number} is not JSON: {error}") from error
    if not isinstance(row, dict):
        raise UsageError(f"{path}:{number} must be an object with the keys 'claim' and 'evidence'")
    return row


def _wrong(row: Row) -> str | None:
    claim, evidence = row.get("claim"), row.get("evidence")
    if not isinstance(claim, str) or not claim.strip():
        return "the key 'claim' must hold a non-empty text"
    texts = [evidence] if isinstance(evidence, str) else evidence
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        return "the key 'evidence' must hold a text or a list of texts"
    return None


def _earlier(source: Path, target: Path, resume: bool) -> int:
    """How many lines an earlier run left; a half-written last one is taken away."""
    if not target.exists() or not target.stat().st_size:
        return 0
    if not resume:
        raise UsageError(
            f"--output {target} already exists: add --resume to continue it, or choose another file"
        )
    rows, whole = (row for _, row in _read(source)), 0
    with target.open("rb") as stream:
        for number, line in enumerate(stream, 1):
            if not line.endswith(b"\n"):
                os.truncate(target, whole)
                return number - 1
            if not _belongs(_object(target, number, line), next(rows, None)):
                raise UsageError(
                    f"{target}:{number} does not match the input, which has changed: choose another --output"
                )
            whole += len(line)
    return number


def _belongs(line: Row, row: Row | None) -> bool:
    return row is not None and all(key in line for key in RESULT) and _given(line) == _given(row)


def _given(row: Row) -> str:
    """What the scores did not write over; as text, since what JSON calls NaN equals nothing."""
    return json.dumps({key: value for key, value in row.items() if key not in RESULT})


def _chunks(rows: Iterable[Row], size: int) -> Iterator[list[Row]]:
    left = iter(rows)
    while chunk := list(islice(left, size)):
        yield chunk


def _appending(path: Path) -> IO[bytes]:
    try:
        return path.open("ab")
    except OSError as error:
        raise UsageError(f"--output {path} can't be written: {error.strerror or error}") from error


def _write(stream: IO[bytes], path: Path, judged: Iterable[tuple[Row, Verdict]]) -> None:
    lines = [
        json.dumps({**row, "score": verdict.score, "window": verdict.window}, ensure_ascii=False).encode()
        + b"\n"
        for row, verdict in judged
    ]
    try:
        stream.writelines(lines)
        stream.flush()
        os.fsync(stream.fileno())
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
