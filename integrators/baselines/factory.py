"""The baselines by name, ready to answer."""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from kcard.errors import UsageError
from kcard.integrators.assembly import chosen_cards, endpoint_of, make_llm
from kcard.integrators.baselines.baseline import Baseline
from kcard.integrators.baselines.options import BaselineOptions
from kcard.integrators.baselines.retriever import BM25, card_passages, corpus_retriever, retriever
from kcard.integrators.metered import Metered
from kcard.integrators.options import AskOptions
from kcard.protocols import Answerer, Evidence

if TYPE_CHECKING:
    from kcard.hub.registry import Hub

__all__ = ["BASELINES", "CARDS_AND_RETRIEVAL", "baseline"]

CARDS_AND_RETRIEVAL = "cards+retrieval"
BASELINES = ("retrieval", "genread", "gkp", "recitation", "replug", CARDS_AND_RETRIEVAL)
PASSAGES, ENSEMBLED = 3, 10  # REPLUG's paper ensembles ten


def baseline(
    name: str,
    options: AskOptions | None = None,
    baseline_options: BaselineOptions | None = None,
    *,
    hub: "Hub | None" = None,
    report: Callable[[str], None] | None = None,
) -> Answerer:
    """The baseline of that name.

    options  of asking; of these a baseline reads the LLM's, the examples, and cards for their passages; cards+retrieval
             reads all
    hub      where the cards are; None: the hub under KCARD_HOME

    Raises UsageError for an unknown name or a wrong value, CorpusError, HubError and ModelUnavailable.
    """
    options = options or AskOptions()
    baseline_options = baseline_options or BaselineOptions()
    if name not in BASELINES:
        raise UsageError(f"baseline {name!r} is unknown: choose one of {', '.join(BASELINES)}")
    if name == CARDS_AND_RETRIEVAL:
        from kcard.integrators.pipeline import Pipeline

        found = _retriever(options, baseline_options, hub, report)
        options = replace(options, mode="bottom-up")
        return Pipeline(options, hub=hub, report=report, retriever=found)
    return _alone(name, options, baseline_options, hub, report)


def _alone(
    name: str,
    options: AskOptions,
    baseline_options: BaselineOptions,
    hub: "Hub | None",
    report: Callable[[str], None] | None,
) -> Baseline:
    from kcard.integrators.baselines.genread import GenRead
    from kcard.integrators.baselines.gkp import Surest, statements
    from kcard.integrators.baselines.recitation import Majority, recitations
    from kcard.integrators.baselines.replug import Replug
    from kcard.integrators.baselines.retrieval import Retrieval
    from kcard.integrators.baselines.together import Together
    from kcard.llms.examples import load

    endpoint = endpoint_of(options, report)
    llm = Metered(make_llm(options.llm, options.temperature, endpoint), options.concurrency)
    examples = load(options.examples)
    if name == "genread":
        return Baseline(name, llm, GenRead(), Together(), examples)
    if name == "gkp":
        return Baseline(name, llm, statements(baseline_options.samples), Surest(), examples)
    if name == "recitation":
        return Baseline(name, llm, recitations(baseline_options.samples), Majority(), examples)
    found = _retriever(options, baseline_options, hub, report)
    if name == "replug":
        reading = Replug(relative=baseline_options.retriever == BM25)
        return Baseline(
            name, llm, Retrieval(found, baseline_options.passages or ENSEMBLED), reading, examples
        )
    return Baseline(name, llm, Retrieval(found, baseline_options.passages or PASSAGES), Together(), examples)


def _retriever(
    options: AskOptions,
    baseline_options: BaselineOptions,
    hub: "Hub | None",
    report: Callable[[str], None] | None,
) -> Evidence:
    if baseline_options.corpus is not None:
        return corpus_retriever(str(baseline_options.corpus), baseline_options.retriever)
    cards, _ = chosen_cards(options.card_names, hub)
    return retriever(card_passages(cards, report), baseline_options.retriever, "cards")
