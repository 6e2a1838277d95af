"""A setting of an evaluation is a way of answering with a gate and options, and an analysis varies it."""

import pytest

from kcard.api.eval_settings import COUNTS, EvalAnalysis, overrides, parse_settings, variants
from kcard.errors import UsageError
from kcard.evaluation.runs.run import SettingName
from kcard.integrators.options import AskOptions

CARDS = ("moons@v2", "rivers@v1")


@pytest.mark.parametrize(
    ("text", "base", "options"),
    [
        ("direct", "direct", ()),
        ("cards+retrieval", "cards+retrieval", ()),
        ("bottom-up@always+n1=1", "bottom-up@always", (("n1", "1"),)),
        ("top-down+cards=a+cards=b", "top-down", (("cards", "a"), ("cards", "b"))),
        (
            "bottom-up+card-tokens=20+evidence=c++/notes",
            "bottom-up",
            (("card-tokens", "20"), ("evidence", "c++/notes")),
        ),
    ],
)
def test_a_name_is_split_into_base_and_options_and_put_together_again(
    text: str, base: str, options: tuple[tuple[str, str], ...]
) -> None:
    name = SettingName.of(text)
    assert (name.base, name.options) == (base, options)
    assert str(name) == text


def test_options_of_a_name_take_the_place_of_those_of_the_run() -> None:
    (setting,) = parse_settings("bottom-up+n1=1+floor=0.5+pruner=none+cards=moons")
    options = setting.options(AskOptions(n1=3, n2=7, cards=CARDS))
    assert (options.mode, options.n1, options.n2, options.floor, options.pruner) == (
        "bottom-up",
        1,
        7,
        0.5,
        "none",
    )
    assert options.cards == ("moons@v2",)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("bottom-up+n1=x", "n1 is 'x', expected a whole number"),
        ("bottom-up+n1=0", "setting bottom-up.n1=0: n1 is 0: it must be at least 1"),
        ("bottom-up+floor=high", "floor is 'high', expected a number"),
        ("bottom-up+n1=1+n1=2", "n1 is given twice"),
        ("bottom-up+llm=hf:x", "llm can't be set here: choose among cards"),
        ("bottom-up+cards=seas", "card seas is not among this run's cards: moons@v2, rivers@v1"),
        ("bottom-up+selectors=best", "selectors 'best' is unknown"),
    ],
)
def test_a_wrong_option_is_refused_with_its_setting(name: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        overrides(SettingName.of(name), CARDS)


@pytest.mark.parametrize(
    ("analysis", "names"),
    [
        ("patch", ["bottom-up+cards=moons", "bottom-up+cards=rivers"]),
        ("adding", ["bottom-up+cards=moons", "bottom-up+cards=moons+cards=rivers"]),
        (
            "selectors",
            [
                "bottom-up",
                "bottom-up+relevance=random",
                "bottom-up+pruner=none",
                "bottom-up+checker=none",
                "bottom-up+relevance=random+pruner=none+checker=none",
            ],
        ),
        ("documents", [f"bottom-up+{key}={count}" for key, counts in COUNTS.items() for count in counts]),
    ],
)
def test_an_analysis_varies_each_setting_with_cards(analysis: EvalAnalysis, names: list[str]) -> None:
    assert variants(analysis, ["direct", "bottom-up"], CARDS) == ["direct", *names]
    for setting in parse_settings(names):
        setting.options(AskOptions(cards=CARDS))


def test_an_analysis_without_a_setting_that_uses_cards_is_refused() -> None:
    with pytest.raises(UsageError, match="add one, such as top-down"):
        variants("patch", ["direct"], CARDS)
    with pytest.raises(UsageError, match="has an option that the analysis documents varies"):
        variants("documents", ["bottom-up+n1=2"], CARDS)
    with pytest.raises(UsageError, match="not with a baseline"):
        parse_settings("genread+n1=2")
