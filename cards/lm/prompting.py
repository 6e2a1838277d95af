"""How a card is asked, and how what it wrote is read: its tokenizer, its prompt style, where its documents end.

It knows no weights: the embedding of a token, which one prompt style needs, is given to it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from kcard.answer import Passage
from kcard.cards.format.canaries import Canaries, Canary, Pair
from kcard.cards.format.document import clean
from kcard.cards.format.folder import Card
from kcard.cards.lm import prefix, tokens
from kcard.cards.lm.generation import Prompts
from kcard.cards.lm.loader import explained
from kcard.errors import CardError
from kcard.sampling import Sampling, derive_seed

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Embed", "Prompting", "Scores", "read"]

# Tokens of a canary's continuation that are looked at.
LENGTH = 24
# The embedding, (width,), of a token.
Embed = Callable[[int], "Tensor"]
# Log-probabilities of continuations after prompts.
Scores = Callable[[Prompts, Sequence[Sequence[int]]], list[list[float]]]


@dataclass(frozen=True)
class Prompting:
    """Of one card.

    eos, pad    token ids: a document ends at any eos
    room        most tokens of prompt and document
    projection  in the prompt style encoder-prefix
    """

    card: Card
    tokenizer: Any
    eos: tuple[int, ...]
    pad: int
    room: int
    projection: prefix.Projection | None

    def prompts(
        self, questions: Sequence[str], sampling: Sampling, embed: Embed, embedded: "Tensor | None" = None
    ) -> tuple[Prompts, Sampling]:
        """Prompts that leave room for the document in a model of limited length; it may be shortened.

        embedded  the questions' sentence embeddings, where they are there already
        """
        if self.projection is not None:
            if embedded is None:
                embedded = prefix.embedded(questions)
            prompts = prefix.encode(embed(self.tokenizer.bos_token_id), self.projection, embedded)
            return prompts, replace(sampling, tokens=self.length(sampling))
        # By the model and the settings alone: the longest prompt of a batch must not shorten its neighbours.
        length = self.length(sampling)
        template = self.card.manifest.prompt.template
        return tokens.encode(self.tokenizer, template, questions, self.room - length), replace(
            sampling, tokens=length
        )

    def length(self, sampling: Sampling) -> int:
        """Most tokens of a document."""
        if self.projection is not None:
            return min(sampling.tokens, self.room - self.projection.vectors - 1)
        return min(sampling.tokens, self.room // 2)

    def seeds(self, question: str, documents: int, sampling: Sampling) -> list[int]:
        """One for each document of a question."""
        return [derive_seed(sampling.seed, question, self.card.name, number) for number in range(documents)]

    def passage(self, ids: Sequence[int], ended: bool) -> Passage:
        """What was written, as a document; `ended`: by the model itself."""
        text = self.tokenizer.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return Passage(self.card.name, clean(str(text), ended))

    def measure(
        self, pairs: Sequence[Pair], dtype: object, embed: Embed, card: Scores, base: Scores | None
    ) -> Canaries:
        """The log-probabilities of each text after its question: by the card and, of an adapter, by its base."""
        # Questions that come twice are encoded once.
        questions = [*dict.fromkeys(question for question, _ in pairs)]
        asked, sampling = self.prompts(questions, Sampling(temperature=0, tokens=LENGTH), embed)
        asked = asked.pick([questions.index(question) for question, _ in pairs])
        texts = [self.tokenizer(text, add_special_tokens=False)["input_ids"] for _, text in pairs]
        texts = [ids[: sampling.tokens] for ids in texts]
        by_card = card(asked, texts)
        by_base: list[list[float]] = base(asked, texts) if base is not None else [[] for _ in pairs]
        rows = [
            Canary(question, text, tuple(prompt), tuple(ids), tuple(own), tuple(bare))
            for (question, text), prompt, ids, own, bare in zip(
                pairs, asked.ids or ((),) * len(pairs), texts, by_card, by_base, strict=True
            )
        ]
        return Canaries(str(dtype).removeprefix("torch."), tuple(rows))


def read(card: Card, tokenizer: Any, ends: "int | list[int] | None", room: int, width: int) -> Prompting:
    """The prompting of a card on a model that reads so many tokens of embeddings of that width.

    ends  where the model's generation config says that texts end; the tokenizer may say so, too

    Raises CardError where the card's projection does not fit.
    """
    configured = ends if isinstance(ends, list) else [ends]
    eos = tuple(dict.fromkeys(x for x in (*configured, tokenizer.eos_token_id) if x is not None))
    pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else (eos[0] if eos else 0)
    projection: prefix.Projection | None = None
    if card.manifest.prompt.style == "encoder-prefix":
        if tokenizer.bos_token_id is None:
            raise CardError(
                f"card {card.name!r}: prompt style encoder-prefix needs a tokenizer with a bos token"
            )
        with explained(CardError, f"card {card.name!r}: its projection can't be loaded"):
            projection = prefix.Projection(card, width)
    return Prompting(card, tokenizer, eos, pad, room, projection)
