"""The shipped checker: what it must catch, and scores that depend on the pair alone."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from kcard.errors import ModelUnavailable
from kcard.interfaces import Array, Pair
from kcard.selectors.minilm_checker import WEIGHTS, MiniLMChecker, encode_pairs, grounded, near, windows
from kcard.text import split_sentences

EVIDENCE = "Ron Wyden won the 2022 senate race in Oregon, defeating Jo Rae Perkins."
SUPPORTED = [
    "Ron Wyden won Oregon's senate race.",
    "In 2022, Oregon elected Ron Wyden.",
    "The 2022 senate race in Oregon was won by Ron Wyden.",
]
UNSUPPORTED = [
    "Jo Rae Perkins won the 2022 senate race in Oregon.",
    "Ron Wyden won the 2020 senate race in Oregon.",
    "Ron Wyden won the 2022 senate race in Idaho.",
    "Ron Wyden lost the 2022 senate race in Oregon.",
    "Ron Wyden did not win the 2022 senate race in Oregon.",
    "Chuck Schumer won the 2022 senate race in Oregon.",
    "Ron Wyden won the 2022 governor race in Oregon.",
]


@pytest.fixture(scope="module")
def checker() -> MiniLMChecker:
    return MiniLMChecker()


@pytest.mark.parametrize("claim", SUPPORTED)
def test_a_claim_in_other_words_is_supported(checker: MiniLMChecker, claim: str) -> None:
    assert checker.support([Pair(claim, EVIDENCE)])[0] > 0.5


@pytest.mark.parametrize("claim", UNSUPPORTED)
def test_a_claim_that_differs_in_one_point_is_not(checker: MiniLMChecker, claim: str) -> None:
    assert checker.support([Pair(claim, EVIDENCE)])[0] < 0.5


@pytest.mark.parametrize(
    ("claim", "text"),
    [
        (
            "Old versions of a file are kept.",
            "Old versions of a file are not kept. Old versions of a folder are kept.",
        ),
        (
            "Passwords are stored in clear text.",
            "Passwords are never stored in clear text. User names are stored in clear text.",
        ),
        (
            "The mail server listens on port 25.",
            "The web server listens on port 25 in tests. The mail server does not listen on port 25.",
        ),
    ],
)
def test_a_sentence_on_something_else_supports_nothing_that_another_denies(
    checker: MiniLMChecker, claim: str, text: str
) -> None:
    denial = next(
        sentence for sentence in split_sentences(text) if " not " in sentence or " never " in sentence
    )
    verdict = checker.judge([Pair(claim, text)])[0]
    assert verdict.score < 0.5
    assert verdict.refutation is not None
    assert verdict.refutation >= 0.5
    assert denial in verdict.window
    assert checker.support([Pair(claim, text.replace(denial, ""))])[0] >= 0.5  # alone it would support


def test_scores_are_the_same_in_any_batch(checker: MiniLMChecker) -> None:
    pairs = [Pair(claim, EVIDENCE) for claim in (*SUPPORTED, *UNSUPPORTED)]
    pairs += [
        Pair(claim, f"{EVIDENCE} {'And it rained a lot in Oregon that day. ' * 5}") for claim in SUPPORTED
    ]
    together = checker.support(pairs)
    alone = np.concatenate([checker.support([pair]) for pair in pairs])
    assert together == pytest.approx(alone, abs=1e-4)
    assert checker.support(pairs[::-1])[::-1] == pytest.approx(together, abs=1e-4)


def test_a_sentence_that_stands_in_the_evidence_is_supported_whatever_its_case(
    checker: MiniLMChecker,
) -> None:
    claim = "the 2022 SENATE race, in Oregon"
    verdict = checker.judge([Pair(claim, f"It was close. {claim.title()}. It rained.")])[0]
    assert (verdict.score, verdict.window) == (1.0, f"{claim.title()}.")
    assert checker.support([Pair("won the race", "Nobody won the race.")])[0] < 1.0


def test_a_claim_of_several_sentences_has_their_mean(checker: MiniLMChecker) -> None:
    first, second = SUPPORTED[0], UNSUPPORTED[0]
    both, *single = checker.support([Pair(c, EVIDENCE) for c in (f"{first} {second}", first, second)])
    assert both == pytest.approx(np.mean(single), abs=1e-4)
    cut = checker.support([Pair(f"{first} Ron Wyden wo", EVIDENCE)])[0]
    assert cut == pytest.approx(single[0], abs=1e-4)


@pytest.mark.parametrize("pair", [Pair("", EVIDENCE), Pair(SUPPORTED[0], ""), Pair(" ", " ")])
def test_an_empty_side_is_not_supported(checker: MiniLMChecker, pair: Pair) -> None:
    assert checker.support([pair]).tolist() == [0.0]
    assert checker.judge([pair])[0].window == ""


def test_a_verdict_is_the_score_with_the_window_that_decided(checker: MiniLMChecker) -> None:
    text = f"It rained in Oregon. {EVIDENCE} The votes were counted for a week."
    pairs = [Pair(claim, text) for claim in (*SUPPORTED, *UNSUPPORTED)]
    verdicts = checker.judge(pairs)
    assert [v.score for v in verdicts] == pytest.approx(checker.support(pairs).tolist(), abs=1e-6)
    assert all(v.window in text for v in verdicts)
    assert all(EVIDENCE in v.window for v in verdicts[: len(SUPPORTED)])


def test_the_window_of_several_sentences_is_that_of_the_least_supported_one(checker: MiniLMChecker) -> None:
    text = f"{EVIDENCE} Oslo is the capital of Norway. It has a fjord. Lima is the capital of Peru."
    false = "Lima is the capital of Chile."
    both, alone = checker.judge([Pair(f"{SUPPORTED[0]} {false}", text), Pair(false, text)])
    assert both.window == alone.window
    assert "Lima" in both.window


def test_of_a_very_long_text_only_the_sentences_near_the_claim_are_read(checker: MiniLMChecker) -> None:
    filler = [f"The {i}th district of Ohio has elected Ann Lee{i} since the war." for i in range(1000)]
    text = " ".join([*filler[:700], EVIDENCE, *filler[700:]])
    assert len(text) > 50_000
    sentences = near(text, SUPPORTED[0])
    assert EVIDENCE in sentences
    assert sum(map(len, sentences)) <= 8000
    assert sentences == [s for s in split_sentences(text) if s in set(sentences)], "in order, unchanged"
    assert checker.support([Pair(SUPPORTED[0], text)])[0] > 0.5


def test_a_text_of_many_short_lines_is_read_whole() -> None:
    lines = [f"Town {i} lies in Norway." for i in range(100)]
    assert near("\n".join(lines), "Oslo lies in Peru") == lines


def test_any_text_gets_a_score_between_0_and_1(checker: MiniLMChecker) -> None:
    texts = ["他赢了。", "?!", "word " * 600, "a" * 3000, "Ünïcode ½ ①", EVIDENCE]
    pairs = [*(Pair(text, EVIDENCE) for text in texts), *(Pair(SUPPORTED[0], text) for text in texts)]
    scores = checker.support(pairs)
    assert scores.dtype == np.float32
    assert scores.shape == (12,)
    assert ((scores >= 0) & (scores <= 1)).all()
    assert checker.support([]).shape == (0,)


def test_windows_are_one_or_two_sentences_with_the_claims_words() -> None:
    text = "Lima is in Peru. Oslo is in Norway. It is cold there. Rome is in Italy."
    assert windows(split_sentences(text), "Oslo is a cold city in Norway", 2) == [
        "Oslo is in Norway. It is cold there.",
        "Oslo is in Norway.",
    ]
    assert windows([], "Oslo", 4) == []


@pytest.mark.parametrize(
    ("claim", "expected"),
    [
        ("Ron Wyden won in 2022.", True),
        ("Ron Wyden won in 2020.", False),
        ("Somebody won.", True),
        ("It was won in 2022 and 2024.", False),
        ("He won more than 3 times.", True),
    ],
)
def test_a_claim_is_grounded_where_all_its_numbers_are_unless_it_compares(claim: str, expected: bool) -> None:
    assert grounded(claim, EVIDENCE) is expected


def test_a_window_without_a_word_of_the_claim_grounds_nothing(checker: MiniLMChecker) -> None:
    assert not grounded("Ron Wyden won.", "word word word")
    assert checker.support([Pair(SUPPORTED[0], "word " * 10_000)])[0] < 0.5


def test_figures_and_number_words_and_ordinals_are_one() -> None:
    assert grounded("It has 3 of 1,000 seats in the 7th district.", "three of 1000 seats, district 7")


def test_the_shipped_weights_are_small_and_say_how_they_were_made() -> None:
    assert sum(path.stat().st_size for path in WEIGHTS.iterdir()) < 3_500_000
    card = (WEIGHTS / "README.md").read_text(encoding="utf-8")
    for part in ("CC BY-SA 3.0", "VitaminC", "python -m recipes.checker.train", "all-MiniLM-L6-v2"):
        assert part in card


def test_the_shipped_network_gives_what_torch_and_peft_give(checker: MiniLMChecker) -> None:
    import warnings

    import torch
    from recipes.checker.cross_encoder import logits
    from safetensors.torch import load_file

    from kcard.embedded import minilm

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # peft touches names that transformers has deprecated
        from peft import PeftModel

        adapted = PeftModel.from_pretrained(minilm.model(), WEIGHTS).eval()
    head = {name: weight.float() for name, weight in load_file(WEIGHTS / "head.safetensors").items()}
    pairs = [Pair(claim, EVIDENCE) for claim in SUPPORTED]
    rows = encode_pairs(minilm.words().ids, pairs, 64)
    with torch.inference_mode():
        expected = logits(adapted, head, rows).softmax(-1)[:, 0].numpy()
        plain = logits(minilm.model(), head, rows).softmax(-1)[:, 0].numpy()
    np.testing.assert_allclose(checker.read(pairs)[:, 0], expected, atol=1e-5)
    assert not np.allclose(checker.read(pairs)[:, 0], plain, atol=0.1), (
        "without the adapter the scores must differ"
    )


def test_missing_or_damaged_weights_are_named(tmp_path: Path) -> None:
    with pytest.raises(ModelUnavailable, match=str(tmp_path)):
        MiniLMChecker(weights=tmp_path).support([Pair("Oslo is in Norway.", "Lima is in Peru.")])
    for name in ("adapter_model.safetensors", "head.safetensors"):
        (tmp_path / name).write_bytes(b"not safetensors")
    (tmp_path / "adapter_config.json").write_text(json.dumps({"r": 1, "lora_alpha": 2}), encoding="utf-8")
    with pytest.raises(ModelUnavailable, match="can't be read"):
        MiniLMChecker(weights=tmp_path).support([Pair("Oslo is in Norway.", "Lima is in Peru.")])


def test_nothing_heavy_loads_with_the_module_and_nothing_is_printed_when_it_works() -> None:
    code = """
import sys
import kcard.selectors.minilm_checker, kcard.selectors.evidence, kcard.selectors.factuality, kcard.selectors.pruning
assert not {"torch", "transformers", "bm25s", "pysbd"} & sys.modules.keys()
from kcard.interfaces import Pair
kcard.selectors.minilm_checker.MiniLMChecker().support([Pair("Oslo is in Norway.", "Lima is in Peru.")])
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_of_a_claim_of_very_many_sentences_64_spread_over_it_are_judged(
    checker: MiniLMChecker, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim = " ".join(f"Town {i} lies in Norway." for i in range(1000))
    judged: list[Pair] = []

    def read(_: MiniLMChecker, pairs: list[Pair]) -> Array:
        judged.extend(pairs)
        return np.full((len(pairs), 3), 0.5, np.float32)

    monkeypatch.setattr(MiniLMChecker, "read", read)
    (verdict,) = checker.judge([Pair(claim, "Oslo is the capital of Norway.")])
    towns = sorted(int(pair.claim.split()[1]) for pair in judged)
    assert len(towns) == 64
    assert (towns[0], towns[-1]) == (0, 984)
    assert 0 < verdict.score <= 0.5
