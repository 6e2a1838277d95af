"""The options of the baselines, beside those of asking."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from kcard.option import Option, check_values, documented

__all__ = ["BaselineOptions"]


@documented
@dataclass(frozen=True, kw_only=True)
class BaselineOptions:
    """What the baselines search, and how much they read and write.

    Raises UsageError for a value that is out of range.
    """

    corpus: Annotated[
        str | Path | None,
        Option(
            "What retrieval searches: a file, a folder, or a name such as wikipedia.",
            default="the cards' source passages",
            command_line=str | None,
        ),
    ] = None
    retriever: Annotated[
        str,
        Option(
            "How retrieval searches: bm25, minilm, contriever, contriever:MODEL or hf:MODEL,pooling=mean."
        ),
    ] = "bm25"
    passages: Annotated[
        int | None, Option("Passages that retrieval gives to the LLM.", least=1, default="3; replug 10")
    ] = None
    samples: Annotated[
        int, Option("Texts that gkp and recitation let the LLM write (their papers: 20).", least=1)
    ] = 5

    def __post_init__(self) -> None:
        check_values(BaselineOptions, vars(self))
