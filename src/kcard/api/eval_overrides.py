"""Options in the name of a setting, such as those of bottom-up+n1=1: checked, and as AskOptions takes them."""

from collections.abc import Mapping, Sequence
from typing import Any, get_args

from kcard.errors import UsageError
from kcard.evaluation.runs.setting_name import SettingName
from kcard.integrators.options import AskOptions
from kcard.option import check_values, declared

__all__ = ["OVERRIDES", "overrides"]

SEVERAL = ("cards", "evidence")
OVERRIDES = (
    *SEVERAL,
    "selectors",
    "relevance",
    "pruner",
    "checker",
    "n1",
    "n2",
    "n3",
    "floor",
    "min-factuality",
    "card-temperature",
    "card-tokens",
    "max-iterations",
    "shortlist",
    "max-cards",
)


def overrides(name: SettingName, cards: Sequence[str] | None = None) -> dict[str, Any]:
    """The options of a setting's name by the names of AskOptions. `cards`: the references that cards stand for.

    Raises UsageError for an option that a setting can't have, a value of another type or out of range, and a card that
    is not among `cards`.
    """
    found: dict[str, Any] = {}
    for option in dict.fromkeys(key for key, _ in name.options):
        if option not in OVERRIDES:
            raise UsageError(
                f"setting {name}: {option} can't be set here: choose among {', '.join(OVERRIDES)}"
            )
        values = name.values(option)
        if option not in SEVERAL and len(values) > 1:
            raise UsageError(f"setting {name}: {option} is given twice")
        key = option.replace("-", "_")
        found[key] = values if option in SEVERAL else _typed(name, option, values[0])
    try:
        check_values(AskOptions, found)
    except UsageError as error:
        raise UsageError(f"setting {name}: {error}") from None
    if cards is not None and "cards" in found:
        found["cards"] = tuple(_reference(name, card, cards) for card in found["cards"])
    return found


def _typed(name: SettingName, option: str, value: str) -> Any:
    """The value as a number where the option is one."""
    kinds: Mapping[str, Any] = {key: known.kind for key, known in declared(AskOptions).items()}
    kind = kinds[option.replace("-", "_")]
    number = next((each for each in (int, float) if each is kind or each in get_args(kind)), None)
    if number is None:
        return value
    try:
        return number(value)
    except ValueError:
        what = "a whole number" if number is int else "a number"
        raise UsageError(f"setting {name}: {option} is {value!r}, expected {what}") from None


def _reference(name: SettingName, card: str, cards: Sequence[str]) -> str:
    """The reference (name@version) that a card's name stands for."""
    for reference in cards:
        if card in (reference, reference.partition("@")[0]):
            return reference
    raise UsageError(f"setting {name}: card {card} is not among this run's cards: {', '.join(cards)}")
