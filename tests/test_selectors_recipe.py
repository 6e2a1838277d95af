"""The checker's training rows: invented claims follow from their evidence exactly where they say so."""

import itertools
import json
import re
from pathlib import Path
from random import Random

import pytest
from recipes.checker.elections import TRUE, contests, probes
from recipes.checker.evaluate import auc, balanced
from recipes.checker.invented import invented
from recipes.checker.relations import RELATIONS
from recipes.checker.rows import REFUTES, SUPPORTS, UNSUPPORTED, Row, read
from recipes.checker.swaps import swaps

from kcard import encoder
from kcard.protocols import Pair
from kcard.selectors.checker import WEIGHTS, MiniLMChecker


def test_invented_rows_repeat_by_seed_and_hold_both_labels() -> None:
    first = list(itertools.islice(invented(Random(3)), 500))
    assert first == list(itertools.islice(invented(Random(3)), 500))
    assert 0.3 < sum(row.label == SUPPORTS for row in first) / 500 < 0.7


def test_a_supported_invented_claim_names_nothing_that_the_evidence_lacks() -> None:
    for row in itertools.islice(invented(Random(5)), 3000):
        if row.label == SUPPORTS:
            claimed, there = (set(re.findall(r"\d+(?:,\d+)*", text)) for text in (row.claim, row.evidence))
            assert claimed <= there, row


def test_no_template_has_a_slot_that_its_relation_lacks() -> None:
    for relation in RELATIONS:
        for template in (*relation.statements, *relation.claims, *relation.denials):
            assert set(re.findall(r"{(\w+)}", template)) <= relation.slots.keys(), template


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


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_training_writes_weights_that_the_checker_reads_and_goes_on_from(tmp_path: Path) -> None:
    from recipes.checker.record import runs
    from recipes.checker.train import train

    real = [Row("Oslo won the cup in 1999.", "In 1999 Oslo won the cup against Bergen.", SUPPORTS)] * 50
    train(real, tmp_path / "first", seconds=4, seed=0)
    train(real, tmp_path / "second", seconds=4, seed=1, start_from=tmp_path / "first")
    assert [run["seed"] for run in runs(tmp_path / "second")] == [0, 1]
    config = json.loads((tmp_path / "first" / "adapter_config.json").read_text(encoding="utf-8"))
    assert config["base_model_name_or_path"] == encoder.NAME
    scores = [
        MiniLMChecker(weights=folder).read([Pair("Oslo won the cup.", "Bergen lost the cup.")])[0]
        for folder in (tmp_path / "first", tmp_path / "second", WEIGHTS)
    ]
    assert len(set(scores)) == 3
