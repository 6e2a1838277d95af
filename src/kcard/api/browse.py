"""browse: every card of a hub with what its exam and its audits say, filtered and sorted."""

from typing import TYPE_CHECKING, Annotated, Literal

from kcard.option import Option, check_values, documented

if TYPE_CHECKING:
    from kcard.evaluation.browse import CardReport
    from kcard.hub.registry import Hub

__all__ = ["Sort", "browse"]

Sort = Literal["name", "domain", "base", "size", "recall", "lift", "faithfulness", "factuality"]


@documented
def browse(
    name: Annotated[
        str | None, Option("One card, in detail.", default="all", argument=True, completes="published")
    ] = None,
    *,
    text: Annotated[str | None, Option("Only cards with these words.")] = None,
    domain: Annotated[str | None, Option("Only this domain and those below it.")] = None,
    base: Annotated[str | None, Option("Only cards made from this base model.")] = None,
    sort: Annotated[Sort, Option("What to sort by.")] = "name",
    hub: "Hub | None" = None,
) -> "list[CardReport]":
    """The newest version of every card in the hub, or the one that `name` refers to (card, card@v2, ...).

    Raises UnknownCard, and UsageError for an unknown sort. An exam or audit that can't be read is a note.
    """
    check_values(browse, {"sort": sort})
    from kcard.evaluation.browse import SORTS, reports
    from kcard.hub.registry import Hub

    hub = Hub() if hub is None else hub
    chosen = [hub.get(name)] if name is not None else hub.list(text=text, domain=domain, base=base)
    return sorted(reports(hub, chosen), key=SORTS[sort])
