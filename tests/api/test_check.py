"""kcard.check: one claim against evidence, with the window that decided; and kcard check at the command line."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kcard
from kcard.errors import CorpusError, UsageError
from kcard.interfaces import Array, Pair
from tests.command import Kcard

FACTS = "In the 2022 elections, Oregon elected Ron Wyden.\nIn the 2022 elections, Ohio elected J. D. Vance.\n"
TRUE, FALSE = "Ron Wyden won in Oregon in 2022.", "J. D. Vance won in Oregon in 2022."


class ByLength:
    """A checker of one's own, without windows: the longer evidence supports more."""

    def support(self, pairs: Sequence[Pair]) -> Array:
        return np.array([min(len(pair.evidence) / 100, 1) for pair in pairs], dtype=np.float32)


@pytest.fixture
def facts(tmp_path: Path) -> Path:
    path = tmp_path / "facts.txt"
    path.write_text(FACTS, encoding="utf-8")
    return path


def test_a_claim_has_score_verdict_window_and_place(facts: Path) -> None:
    true, false = kcard.check(TRUE, [facts]), kcard.check(FALSE, [facts])
    assert (true.verdict, false.verdict) == ("supported", "refuted")
    assert true.score > 0.5 > false.score
    assert true.window == "In the 2022 elections, Oregon elected Ron Wyden."
    assert (true.source.file, true.source.line) == ("facts.txt", 1)


def test_of_texts_and_searched_evidence_the_best_decides(facts: Path) -> None:
    checked = kcard.check(
        "It rained in Bergen.", [facts], texts=["", "The sun. It rained in Bergen. All day."]
    )
    assert (checked.score, checked.window) == (1.0, "It rained in Bergen.")
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


def test_a_checker_of_ones_own_may_lack_windows() -> None:
    checked = kcard.check("x", texts=["a" * 20, "b" * 60], checker=ByLength())
    assert (checked.score, checked.window) == (pytest.approx(0.6), "b" * 60)


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


@pytest.fixture
def run(kcard: Kcard) -> Kcard:
    return lambda *arguments: kcard("check", *arguments)


def test_the_command_prints_verdict_window_and_place(run: Kcard, facts: Path) -> None:
    done = run(TRUE, "--evidence", str(facts))
    assert done.code == 0, done.err
    verdict, window, place = (line.strip() for line in done.out.splitlines())
    assert verdict.startswith("supported  0.")
    assert (window, place) == ("In the 2022 elections, Oregon elected Ron Wyden.", "facts.txt:1")


def test_the_command_prints_json(run: Kcard, facts: Path) -> None:
    done = run(TRUE, "--evidence", str(facts), "--text", "[red]It rained.[/red]", "--json")
    checked = json.loads(done.out)
    assert list(checked) == ["claim", "score", "refutation", "verdict", "window", "source"]
    assert (checked["verdict"], checked["source"]["line"]) == ("supported", 1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "give one claim, or --input"),
        (("c", "--input", "x"), "give one claim, or --input"),
        (("--input", "x"), "--input and --output go together"),
        (("c",), "needs evidence: --evidence"),
        (("c", "--text", "t", "--resume"), "--resume needs --input"),
        (("--input", "x", "--output", "y", "--text", "t"), "--text goes with one claim"),
        (("--input", "/no/such", "--output", "y"), "/no/such can't be read"),
    ],
)
def test_a_wrong_command_line_is_one_line_and_exit_code_2(
    run: Kcard, arguments: tuple[str, ...], message: str
) -> None:
    done = run(*arguments)
    assert (done.code, done.out) == (2, "")
    assert message in done.err
    assert done.err.count("\n") == 1


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
    assert kcard.check("x", texts=["a" * 20], checker=ByLength()).verdict == "not supported"
