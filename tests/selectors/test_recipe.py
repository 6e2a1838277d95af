"""The checker's training rows: invented claims follow from their evidence exactly where they say so."""

import itertools
import json
import re
from pathlib import Path
from random import Random

import pytest
from benchmarks.checkers import auc, balanced, best_threshold, crossed
from recipes.checker.contrasts import contrasts
from recipes.checker.elections import CLAIMS, EVIDENCE, TRUE, Contest, contests, probes
from recipes.checker.invented import invented
from recipes.checker.relations import RELATIONS
from recipes.checker.rows import REFUTES, SUPPORTS, UNSUPPORTED, Row, read
from recipes.checker.swaps import swaps

from kcard.embedded import minilm
from kcard.interfaces import Pair
from kcard.selectors.minilm_checker import WEIGHTS, MiniLMChecker


def test_invented_rows_repeat_by_seed_and_hold_both_labels() -> None:
    first = list(itertools.islice(invented(Random(3)), 500))
    assert first == list(itertools.islice(invented(Random(3)), 500))
    assert 0.3 < sum(row.label == SUPPORTS for row in first) / 500 < 0.7


def test_a_supported_invented_claim_names_nothing_that_the_evidence_lacks() -> None:
    for row in itertools.islice(invented(Random(5)), 3000):
        if row.label == SUPPORTS:
            claimed, there = (set(re.findall(r"\d+(?:,\d+)*", text)) for text in (row.claim, row.evidence))
            assert claimed <= there, row


def test_no_wording_of_the_probes_is_trained_on() -> None:
    known = {text for r in RELATIONS for t in (*r.statements, *r.colour, *r.claims) for text in _wordings(t)}
    for office in ("{o} race", "{n} congressional district"):
        contest = Contest(office, "{p}", "{w}", "{y}")  # type: ignore[arg-type]
        for text in (*(e(contest, "{l}") for e in EVIDENCE), *(c(contest) for c in CLAIMS)):
            assert text not in known


def _wordings(template: str) -> list[str]:
    parts = [part.split("|") for part in re.split(r"\[([^\]]*)\]", template)]
    return ["".join(chosen) for chosen in itertools.product(*parts)]


def test_alternatives_and_events_are_filled_in() -> None:
    rows = list(itertools.islice(invented(Random(2)), 5000))
    assert not [row for row in rows if set("{}[]|") & set(row.claim + row.evidence)]
    assert len({row.evidence for row in rows}) > 500


def test_of_two_rivals_in_one_sentence_each_is_claimed_to_have_won() -> None:
    """The exchanged claim differs from a true one about the same text in nothing but who has which part."""
    by_text: dict[str, list[Row]] = {}
    for row in itertools.islice(invented(Random(4)), 4000):
        by_text.setdefault(row.evidence, []).append(row)
    pairs = [
        (true, false)
        for rows in by_text.values()
        for true in rows
        for false in rows
        if true.label == SUPPORTS
        and false.label == UNSUPPORTED
        and sorted(re.findall(r"\w+", true.claim)) == sorted(re.findall(r"\w+", false.claim))
    ]
    assert len(pairs) > 100


def test_contrasting_rows_follow_from_the_labels_alone() -> None:
    rows = [
        Row("Oslo won.", "In 1999 Oslo won the cup.", SUPPORTS),
        Row("Oslo won.", "In 1999 Oslo lost the cup.", REFUTES),
        Row("Oslo lost.", "In 1999 Oslo won the cup.", REFUTES),
    ]
    made = {row for seed in range(40) for row in contrasts(rows, 1.0, Random(seed))}
    assert made == {
        Row("In 1999 Oslo lost the cup.", "In 1999 Oslo won the cup.", UNSUPPORTED),
        Row("In 1999 Oslo won the cup.", "In 1999 Oslo won the cup.", SUPPORTS),
        Row("Oslo lost.", "Oslo won.", UNSUPPORTED),
    }


def test_swaps_change_supported_claims_only_and_keep_their_evidence() -> None:
    rows = [
        Row("Oslo won the cup in 1999.", "In 1999 Oslo won the cup against Bergen.", SUPPORTS),
        Row("Bergen won the cup.", "In 1999 Oslo won the cup against Bergen.", REFUTES),
    ]
    made = {(r.claim, r.label) for seed in range(40) for r in swaps(rows, 1.0, Random(seed))}
    assert ("Oslo lost the cup in 1999.", UNSUPPORTED) in made
    assert ("Bergen won the cup in 1999.", UNSUPPORTED) in made
    assert all(claim != rows[0].claim for claim, label in made if label == UNSUPPORTED)


def test_published_rows_are_read_and_their_tokenisation_undone(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(
        '{"claim": "A -LRB- b -RRB- .", "evidence": "It \'s 5 %", "label": "REFUTES"}\n', encoding="utf-8"
    )
    assert read(path) == [Row("A (b).", "It's 5%", REFUTES)]


def test_probes_change_one_point_of_a_true_claim(tmp_path: Path) -> None:
    states = ["Oregon", "Ohio", "Utah", "Iowa", "Maine", "Texas", "Idaho", "Kansas", "Nevada", "Alaska"]
    rows = [
        {
            "question": f"Who won the {office} of {state} in the 2022 U.S. midterm elections?",
            "answer": f"{state} {office[0]}",
        }
        for state in states
        for office in ("senate race", "3rd congressional district")
    ]
    path = tmp_path / "questions.json"
    path.write_text(json.dumps({"testset": rows}), encoding="utf-8")
    assert len(contests(path)) == 20
    found = probes(path, 10)
    assert all(len(pairs) == 10 for pairs in found.values())
    assert set(TRUE) < found.keys()
    false = [
        pair.claim
        for kind, pairs in found.items()
        if kind not in TRUE and "text" not in kind
        for pair in pairs
    ]
    assert not set(false) & {pair.claim for pair in found["true"]}


def test_measures_are_the_textbook_ones() -> None:
    import numpy as np
    from sklearn.metrics import balanced_accuracy_score, roc_auc_score

    rng = np.random.default_rng(0)
    truth, scores = rng.random(200) < 0.4, rng.integers(0, 20, 200).astype(np.float32)
    assert abs(auc(truth, scores) - roc_auc_score(truth, scores)) < 1e-9
    assert abs(balanced(truth, scores > 9) - balanced_accuracy_score(truth, scores > 9)) < 1e-9
    best = max(balanced(truth, scores >= at) for at in range(21))
    assert balanced(truth, scores >= best_threshold(truth, scores)) == pytest.approx(best)


def test_a_threshold_is_chosen_on_other_claims_than_it_judges() -> None:
    import numpy as np

    rows = [Row(f"claim {i}", "text", SUPPORTS if i % 2 else REFUTES) for i in range(400)]
    truth = np.array([row.label == SUPPORTS for row in rows])
    assert crossed(rows, truth, truth.astype(np.float32)) == 1.0
    noise = np.random.default_rng(0).random(400).astype(np.float32)
    own = balanced(truth, noise >= best_threshold(truth, noise))
    assert crossed(rows, truth, noise) < own, "noise looks good only where it was chosen on itself"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_training_writes_weights_that_the_checker_reads_and_goes_on_from(tmp_path: Path) -> None:
    from recipes.checker.record import runs
    from recipes.checker.train import Material, Plan, train

    real = [Row("Oslo won the cup in 1999.", "In 1999 Oslo won the cup against Bergen.", SUPPORTS)] * 50
    train(Material(real), tmp_path / "first", Plan(seconds=4, invented=500))
    train(
        Material(real),
        tmp_path / "second",
        Plan(seconds=4, seed=1, rate=0.5, invented=500),
        tmp_path / "first",
    )
    assert [run["seed"] for run in runs(tmp_path / "second")] == [0, 1]
    assert "--seed 1 --rate 0.5 --invented 500" in (tmp_path / "second" / "README.md").read_text("utf-8")
    config = json.loads((tmp_path / "first" / "adapter_config.json").read_text(encoding="utf-8"))
    assert config["base_model_name_or_path"] == minilm.NAME
    scores = [
        MiniLMChecker(weights=folder).read([Pair("Oslo won the cup.", "Bergen lost the cup.")])[0, 0]
        for folder in (tmp_path / "first", tmp_path / "second", WEIGHTS)
    ]
    assert len(set(scores)) == 3
