"""What an embedded card recites: a text and, if it has docids, those that follow in its passage, each after its docid.

The answer to a question often stands in the sentence after the one that is nearest to it, and a card that goes on says
both. Since every text follows its own docid, it is learned once, wherever a recital begins.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from kcard.training.docids import DocIds
from kcard.training.recipe import Recipe
from kcard.training.tokenizer import EOS

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

__all__ = ["Recital", "ids_of"]


@dataclass(frozen=True)
class Recital:
    """Of the texts of a corpus.

    ids      their tokens
    goes_on  of each, whether the next one follows it in its passage
    room     most tokens of an example
    most     texts in one example, at most
    """

    ids: Sequence[Sequence[int]]
    goes_on: Sequence[bool]
    docids: DocIds
    room: int
    most: int

    @classmethod
    def tokenized(
        cls,
        texts: Sequence[str],
        tokenizer: "PreTrainedTokenizerFast",
        docids: DocIds,
        recipe: Recipe,
        goes_on: Sequence[bool] = (),
    ) -> "Recital":
        """`goes_on` empty: none goes on."""
        room = recipe.positions - recipe.vectors - 3
        ids = [ids[: room * 2 // 3] for ids in ids_of(tokenizer, texts)]
        follows = goes_on if docids.count and goes_on else [False] * len(ids)
        return cls(ids, follows, docids, room, recipe.recited)

    @property
    def asked(self) -> int:
        """Most tokens of a question that is read as text."""
        return self.room - self.room * 2 // 3

    def of(self, row: int, count: int = 1) -> tuple[int, ...]:
        """The text `row`, without its docid, and the next ones up to `count` in all, as far as there is room.

        Then comes the docid of the one that would follow, or </s> where the passage ends.
        """
        found, last = [*self.ids[row]], row
        while self.goes_on[last]:
            last += 1
            found += self.docids.of(last)
            if last == row + count or len(found) + len(self.ids[last]) >= self.room:
                return tuple(found)
            found += self.ids[last]
        return (*found, EOS)

    def parts(self, rng: Random) -> Iterator[tuple[int, int]]:
        """(first text, how many), each text being in one part; where passages are parted is drawn."""
        row = 0
        while row < len(self.ids):
            first, most = row, rng.randint(1, self.most)
            while self.goes_on[row] and row + 1 < first + most:
                row += 1
            row += 1
            yield first, row - first


def ids_of(tokenizer: "PreTrainedTokenizerFast", texts: Sequence[str]) -> list[list[int]]:
    found = tokenizer(list(texts), add_special_tokens=False)["input_ids"]
    return [list(ids) if text else [] for ids, text in zip(found, texts, strict=True)]
