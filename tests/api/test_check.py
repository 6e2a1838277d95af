"""kcard.check: one claim against evidence, with the window that decided; and kcard check at the command line."""

import json
import math
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kcard
from kcard.api import check as pairs_file
from kcard.api.check import ClaimTotals
from kcard.errors import CorpusError, UsageError
from kcard.interfaces import Array, Checker, Pair
from tests.command import Kcard
from tests.fakes import Supports, counts_to

FACTS = "In the 2022 elections, Oregon elected Ron Wyden.\nIn the 2022 elections, Ohio elected J. D. Vance.\n"
TRUE, FALSE = "Ron Wyden won in Oregon in 2022.", "J. D. Vance won in Oregon in 2022."


@pytest.fixture
def facts(tmp_path: Path) -> Path:
    path = tmp_path / "facts.txt"
    path.write_text(FACTS, encoding="utf-8")
    return path


def test_a_claim_has_score_verdict_window_and_place(facts: Path) -> None:
    true, false = kcard.check(TRUE, [facts]), kcard.check(FALSE, [facts])
    assert (true.verdict, false.verdict) == ("supported", "refuted")
    assert true.score is not None
    assert false.score is not None
    assert true.score > 0.5 > false.score
    assert true.window == "In the 2022 elections, Oregon elected Ron Wyden."
    assert true.source is not None
    assert (true.source.file, true.source.line) == ("facts.txt", 1)


def test_of_texts_and_searched_evidence_the_best_decides(facts: Path) -> None:
    checked = kcard.check(
        "It rained in Bergen.", [facts], texts=["", "The sun. It rained in Bergen. All day."]
    )
    assert (checked.score, checked.window) == (1.0, "It rained in Bergen.")
    assert checked.source is not None
    assert (checked.source.file, checked.source.text[:8]) == ("", "The sun.")


def test_without_evidence_that_says_anything_a_claim_is_not_covered(facts: Path) -> None:
    for checked in (kcard.check("Qwertz.", [facts]), kcard.check(TRUE, texts=[" ", ""])):
        assert (checked.score, checked.verdict, checked.window, checked.source) == (
            None,
            "not covered",
            "",
            None,
        )


def test_a_text_on_something_else_does_not_outweigh_one_that_denies_the_claim() -> None:
    true, lost = "Old versions of a folder are kept.", "Old versions of a file are not kept."
    claim = "Old versions of a file are kept."
    assert kcard.check(claim, texts=[true]).verdict == "supported"
    checked = kcard.check(claim, texts=[true, lost])
    assert checked.verdict == "refuted"
    assert checked.window == lost


@pytest.mark.parametrize(
    ("arguments", "options", "error", "message"),
    [
        ((" ", ["x"]), {}, UsageError, "the claim is empty"),
        (("c",), {}, UsageError, "needs evidence"),
        (("c", "facts.txt"), {}, UsageError, "must be lists"),
        (("c",), {"texts": "one"}, UsageError, "must be lists"),
        (("c", ["/no/such/path"]), {}, CorpusError, "/no/such/path"),
        (("c",), {"texts": ["one"], "checker": "nobody"}, UsageError, "unknown checker 'nobody'.*minilm"),
    ],
)
def test_what_cannot_be_checked_is_refused(
    arguments: Any, options: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        kcard.check(*arguments, **options)


def test_the_command_prints_verdict_window_and_place(kcard: Kcard, facts: Path) -> None:
    done = kcard("check", TRUE, "--evidence", facts)
    assert done.code == 0, done.err
    verdict, window, place = (line.strip() for line in done.out.splitlines())
    assert verdict.startswith("supported  0.")
    assert (window, place) == ("In the 2022 elections, Oregon elected Ron Wyden.", "facts.txt:1")
    done = kcard("check", TRUE, "--evidence", facts, "--text", "[red]It rained.[/red]", "--json")
    checked = json.loads(done.out)
    assert list(checked) == ["claim", "score", "refutation", "verdict", "window", "source"]
    assert (checked["verdict"], checked["source"]["line"]) == ("supported", 1)


def test_what_the_evidence_does_not_speak_of_is_not_covered_and_what_it_denies_is_refuted(
    facts: Path,
) -> None:
    denied = kcard.check("Ohio did not elect J. D. Vance in 2022.", [facts])
    assert denied.verdict == "refuted"
    assert denied.window == "In the 2022 elections, Ohio elected J. D. Vance."
    other = kcard.check(
        "The mill of Galle grinds oats.", texts=["The lighthouse of Galle was built in 1848."]
    )
    assert other.verdict == "not covered"
    # A checker of one's own has no verdict of refutation.
    assert kcard.check("x", texts=["y"], checker=Supports(0.2)).verdict == "not supported"


# A file of claims: keys pass through, mistakes are found before anything is written, a broken run goes on.

Row = dict[str, Any]
ROWS: list[Row] = [
    {"id": 7, "claim": "Ron Wyden won in Oregon.", "evidence": "Oregon elected Ron Wyden.", "label": None},
    {"claim": "It rained.", "evidence": ["The sun shone.", "All day it rained. It rained."], "n": 1.5},
    {"evidence": "月は地球を回る。", "claim": "月は地球を回る。"},
    {"claim": "Nothing supports this.", "evidence": ""},
    {"claim": "Nor this.", "evidence": []},
]


class Overlap(Checker):
    """Share of the claim's words that stand in the evidence; counts pairs and calls."""

    def __init__(self, stop_after: int = 10**9) -> None:
        self.calls: list[int] = []
        self.stop_after = stop_after

    def support(self, pairs: Sequence[Pair]) -> Array:
        self.calls.append(len(pairs))
        if len(self.calls) > self.stop_after:
            raise KeyboardInterrupt
        shares = [len(set(p.claim.split()) & set(p.evidence.split())) / len(p.claim.split()) for p in pairs]
        return np.array(shares, dtype=np.float32)


def write(path: Path, rows: Sequence[object]) -> Path:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


def read(path: Path) -> list[Row]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def numbered(count: int) -> list[Row]:
    return [{"claim": f"claim number {i}", "evidence": [f"claim {i}", "number"]} for i in range(count)]


def test_every_line_keeps_its_keys_and_gets_score_and_window(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    done: list[tuple[int, int | None]] = []
    totals = kcard.check_file(write(tmp_path / "in.jsonl", ROWS), out, on_event=counts_to(done))
    assert totals == ClaimTotals(5, 0)
    rows = read(out)
    for row, line in zip(ROWS, rows, strict=True):
        assert list(line) == [*row, "score", "verdict", "window"]
        assert {key: line[key] for key in row} == row
        assert 0 <= line["score"] <= 1
    assert [line["window"] for line in rows] == [
        "Oregon elected Ron Wyden.", "It rained.", "月は地球を回る。", "", "",
    ]  # fmt: skip
    assert [line["score"] for line in rows[1:]] == [1, 1, 0, 0]
    assert done == [(5, 5)]
    # Of a list the best text decides, and all are read in one call.
    checker = Overlap()
    lists = [
        {"claim": "a b c d", "evidence": ["a", "a b c", "", "a b"]},
        {"claim": "a b c d", "evidence": "a"},
    ]
    kcard.check_file(write(tmp_path / "in", lists), tmp_path / "out", checker=checker)
    scored = [(line["score"], line["window"]) for line in read(tmp_path / "out")]
    assert scored == [(0.75, "a b c"), (0.25, "a")]
    assert checker.calls == [3]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("not json", "not JSON"),
        ("[1]", "expected an object, found list"),
        ('{"claim": "c"}', "'evidence' must hold"),
        ('{"claim": "c", "evidence": 3}', "'evidence' must hold"),
        ('{"claim": "c", "evidence": ["a", null]}', "'evidence' must hold"),
        ('{"claim": " ", "evidence": "e"}', "'claim' must hold a non-empty text"),
        ('{"claim": ["c"], "evidence": "e"}', "'claim' must hold"),
        ('{"evidence": "e"}', "'claim' must hold"),
        ('{"claim": "\\ud800", "evidence": "e"}', "a lone surrogate"),
    ],
)
@pytest.mark.parametrize("resume", [False, True])
def test_a_bad_line_is_named_before_anything_is_written(
    tmp_path: Path, line: str, message: str, resume: bool
) -> None:
    source, out, checker = write(tmp_path / "in.jsonl", [*ROWS, ""][:5]), tmp_path / "out.jsonl", Overlap()
    kcard.check_file(source, out, checker=checker)
    before, calls = out.read_bytes(), len(checker.calls)
    source.write_text(source.read_text(encoding="utf-8") + "\n" + line + "\n", encoding="utf-8")
    target = out if resume else tmp_path / "new.jsonl"
    with pytest.raises(UsageError, match=rf"in\.jsonl, line 7: .*{message}"):
        kcard.check_file(source, target, checker=checker, resume=resume)
    assert (out.read_bytes(), len(checker.calls)) == (before, calls)
    assert not (tmp_path / "new.jsonl").exists()


@pytest.mark.parametrize("torn", [b"", b'{"claim": "claim numb', '{"claim": "月'.encode()[:-1]])
def test_a_run_that_was_cut_off_goes_on_and_comes_to_the_same(tmp_path: Path, torn: bytes) -> None:
    source, out, whole = write(tmp_path / "in", numbered(300)), tmp_path / "out", tmp_path / "whole"
    kcard.check_file(source, whole, checker=Overlap())
    with pytest.raises(KeyboardInterrupt):
        kcard.check_file(source, out, checker=Overlap(stop_after=1))
    assert len(read(out)) == pairs_file.CLAIMS_PER_BATCH
    out.write_bytes(out.read_bytes() + torn)
    with pytest.raises(UsageError, match="add --resume"):
        kcard.check_file(source, out, checker=Overlap())
    totals = kcard.check_file(source, out, checker=Overlap(), resume=True)
    assert totals == ClaimTotals(300, pairs_file.CLAIMS_PER_BATCH)
    assert out.read_bytes() == whole.read_bytes()
    checker = Overlap()
    assert kcard.check_file(source, out, checker=checker, resume=True) == ClaimTotals(300, 300)
    assert checker.calls == []


def test_an_output_of_another_input_is_not_gone_on_with(tmp_path: Path) -> None:
    out = tmp_path / "out"
    kcard.check_file(write(tmp_path / "in", numbered(3)), out, checker=Overlap())
    before = out.read_bytes()
    for rows in (numbered(2), numbered(3)[::-1]):
        with pytest.raises(UsageError, match="which has changed"):
            kcard.check_file(write(tmp_path / "in", rows), out, checker=Overlap(), resume=True)
    assert out.read_bytes() == before


def test_what_is_no_score_is_refused_and_what_was_scored_stays(tmp_path: Path) -> None:
    class Broken(Overlap):
        def support(self, pairs: Sequence[Pair]) -> Array:
            scores = super().support(pairs)
            return scores if len(self.calls) == 1 else scores * math.nan

    out = tmp_path / "out"
    with pytest.raises(UsageError, match="checker Broken gave the score nan"):
        kcard.check_file(write(tmp_path / "in", numbered(200)), out, checker=Broken())
    assert len(read(out)) == pairs_file.CLAIMS_PER_BATCH


def test_input_and_output_may_not_be_one_file_nor_a_folder(tmp_path: Path) -> None:
    source = write(tmp_path / "in", numbered(1))
    with pytest.raises(UsageError, match="is the input file"):
        kcard.check_file(source, source)
    with pytest.raises(UsageError, match="can't be read: Is a directory"):
        kcard.check_file(tmp_path, tmp_path / "out")
    with pytest.raises(UsageError, match="can't be written"):
        kcard.check_file(source, tmp_path / "no" / "out")


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    import tracemalloc

    def peak(count: int) -> int:
        rows = [{"claim": f"claim {i}", "evidence": "word " * 200, "more": "x" * 1000} for i in range(count)]
        source, out = write(tmp_path / "in", rows), tmp_path / f"out{count}"
        del rows
        tracemalloc.start()
        kcard.check_file(source, out, checker=Overlap())
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most

    assert peak(3000) < 1.5 * peak(300)


def test_claims_without_evidence_are_checked_against_what_is_searched(tmp_path: Path, facts: Path) -> None:
    source = write(tmp_path / "in.jsonl", [{"claim": TRUE}, {"claim": "Qwertz.", "n": 1}])
    kcard.check_file(source, tmp_path / "out.jsonl", [facts])
    scored = [(row["verdict"], row["window"]) for row in read(tmp_path / "out.jsonl")]
    assert scored == [("supported", FACTS.splitlines()[0]), ("not covered", "")]
    with pytest.raises(UsageError, match="line 1: the key 'evidence' must hold"):
        kcard.check_file(source, tmp_path / "other.jsonl")


def test_an_interrupted_command_says_how_to_go_on(tmp_path: Path) -> None:
    rows = [
        {"claim": f"Candidate {i} won in Oregon.", "evidence": f"Oregon elected {i + 1}."}
        for i in range(3000)
    ]
    source, out = write(tmp_path / "in", rows), tmp_path / "out"
    command = [sys.executable, "-m", "kcard", "check", "--input", str(source), "--output", str(out)]
    running = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while (
        not (out.exists() and out.stat().st_size) and running.poll() is None and time.monotonic() < deadline
    ):
        time.sleep(0.02)
    running.send_signal(signal.SIGINT)
    stdout, stderr = running.communicate(timeout=60)
    assert (running.returncode, stdout) == (130, "")
    assert "repeat the command with --resume to continue" in stderr
    assert len(read(out)) % pairs_file.CLAIMS_PER_BATCH == 0
