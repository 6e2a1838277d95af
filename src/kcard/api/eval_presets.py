"""The papers' settings, each in one word; options that are given take their place."""

from collections.abc import Mapping
from typing import Any, Literal

__all__ = ["PRESETS", "EvalPreset"]

EvalPreset = Literal["knowledge-card", "thrust", "skr", "adaptive-retrieval"]
ALL = 1_000_000  # more cards than a hub has

PRESETS: Mapping[EvalPreset, Mapping[str, Any]] = {
    # Knowledge Card, sections 2 and 3 and table 6. Bottom-up asks every card; in top-down the LLM decides.
    "knowledge-card": {
        "settings": "direct,bottom-up@always,top-down:auto,top-down:explicit",
        "selectors": "paper",
        "evidence": ("wikipedia",),
        "n1": 3,
        "n2": 5,
        "n3": 3,
        "floor": 0.0,
        "margin": 0.0,
        "reorder_by_date": False,
        "temperature": 0.1,
        "max_iterations": 1,
        "shortlist": ALL,
        "max_cards": ALL,
    },
    # Thrust, section 3: all the knowledge, or that of the questions that a gate picks; one passage a question.
    "thrust": {
        "settings": "direct,bottom-up@always,bottom-up@thrust,bottom-up@bm25,bottom-up@random",
        "n1": 1,
        "n2": 1,
        "n3": 1,
        "floor": 0.0,
        "reorder_by_date": False,
        "temperature": 0.0,
    },
    # Self-knowledge guided retrieval, section 4.3: the top three passages, four demonstrations.
    "skr": {
        "settings": "direct,bottom-up@always,bottom-up@skr-prompt,bottom-up@skr-icl,bottom-up@skr-fine-tuned,"
        "bottom-up@skr-knn",
        "shots": 4,
        "n1": 3,
        "n2": 3,
        "n3": 3,
        "floor": 0.0,
        "reorder_by_date": False,
        "temperature": 0.0,
    },
    # Adaptive Retrieval, sections 3 and 5: the top passage, fifteen demonstrations.
    "adaptive-retrieval": {
        "settings": "direct,bottom-up@always,genread,bottom-up@popularity,retrieval/genread@popularity",
        "shots": 15,
        "n1": 1,
        "n2": 1,
        "n3": 1,
        "floor": 0.0,
        "reorder_by_date": False,
        "temperature": 0.0,
    },
}
