"""How a card is asked, and how what it wrote is read: its tokenizer, its prompt style, where its documents end.

It knows no weights: the embedding of a token, which one prompt style needs, is given to it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kcard.answer import Passage
from kcard.cards.format.document import clean
from kcard.cards.format.fingerprint import Fingerprint, Pair, Probe
from kcard.cards.format.folder import Card
from kcard.cards.lm import prompt_styles
from kcard.cards.lm.engine.batch import Prompts
from kcard.cards.lm.loader import explained
from kcard.cards.lm.vocabulary import Vocabulary
from kcard.errors import CardError
from kcard.sampling import Sampling, derive_seed

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["PROBED", "Prompting", "read"]

# How documents are written of which only the prompts, or the log-probabilities of 24 tokens, are looked at.
PROBED = Sampling(temperature=0, tokens=24)


@dataclass(frozen=True)
class Prompting:
    """Of one card.

    eos, pad    token ids: a document ends at any eos
    context     most tokens of prompt and document
    projection  in the prompt style encoder-prefix
    vocabulary  in the prompt style tokens, where the card knows no words but those of its corpus
    """

    card: Card
    tokenizer: Any
    eos: tuple[int, ...]
    pad: int
    context: int
    projection: prompt_styles.Projection | None
    vocabulary: Vocabulary | None = None

    @property
    def start(self) -> int | None:
        """The token whose embedding `prompts` needs, if it needs one."""
        return None if self.projection is None else self.tokenizer.bos_token_id

    def prompts(
        self,
        questions: Sequence[str],
        sampling: Sampling,
        start: "Tensor | None",
        embedded: "Tensor | None" = None,
    ) -> Prompts:
        """Prompts that leave space for the document in a model of limited length.

        start     the embedding, (width,), of the token `start`
        embedded  the questions' sentence embeddings, where they are there already
        """
        if self.projection is not None and start is not None:
            if embedded is None:
                embedded = prompt_styles.embedded(questions)
            return prompt_styles.prefix_prompts(start, self.projection, questions, embedded)
        if self.vocabulary is not None:
            questions = [self.vocabulary.reworded(question) for question in questions]
        template, longest = self.card.manifest.prompt.template, self.context - self.length(sampling)
        return prompt_styles.template_prompts(self.tokenizer, template, questions, longest)

    def length(self, sampling: Sampling) -> int:
        """Most tokens of a document: by the model and the settings alone, since the longest prompt of a batch must not
        shorten its neighbours."""
        if self.projection is not None:
            return min(sampling.tokens, self.context - self.projection.vectors - 1)
        return min(sampling.tokens, self.context // 2)

    def seeds(self, question: str, documents: int, sampling: Sampling) -> list[int]:
        """One for each document of a question."""
        return [derive_seed(sampling.seed, question, self.card.name, number) for number in range(documents)]

    def passage(self, question: str, ids: Sequence[int], ended: bool) -> Passage:
        """What was written for a question, as a document; `ended`: by the model itself."""
        text = self.tokenizer.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return Passage(self.card.name, self.card.manifest.prompt.document(question, clean(str(text), ended)))

    def probes(self, pairs: Sequence[Pair], start: "Tensor | None") -> tuple[Prompts, list[list[int]]]:
        """Questions as prompts, and the texts after them as token ids: what a fingerprint measures."""
        # Questions that come twice are encoded once.
        questions = [*dict.fromkeys(question for question, _ in pairs)]
        asked = self.prompts(questions, PROBED, start)
        texts = [self.tokenizer(text, add_special_tokens=False)["input_ids"] for _, text in pairs]
        return (
            asked.pick([questions.index(question) for question, _ in pairs]),
            [ids[: self.length(PROBED)] for ids in texts],
        )

    def fingerprint(
        self,
        pairs: Sequence[Pair],
        probes: tuple[Prompts, list[list[int]]],
        dtype: object,
        card: Sequence[Sequence[float]],
        base: Sequence[Sequence[float]],
    ) -> Fingerprint:
        """card, base: the log-probabilities of the probes; of the base only where the card is an adapter."""
        asked, texts = probes
        none: tuple[()] = ()
        rows = [
            Probe(question, text, tuple(prompt), tuple(ids), tuple(own), tuple(bare))
            for (question, text), prompt, ids, own, bare in zip(
                pairs, asked.ids or [none] * len(pairs), texts, card, base or [none] * len(pairs), strict=True
            )
        ]
        return Fingerprint(str(dtype).removeprefix("torch."), tuple(rows))


def read(card: Card, tokenizer: Any, ends: "int | list[int] | None", context: int, width: int) -> Prompting:
    """The prompting of a card on a model that reads so many tokens of embeddings of that width.

    ends  where the model's generation config says that texts end; the tokenizer may say so, too

    Raises CardError where the card's projection does not fit.
    """
    configured = ends if isinstance(ends, list) else [ends]
    eos = tuple(dict.fromkeys(x for x in (*configured, tokenizer.eos_token_id) if x is not None))
    pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else (eos[0] if eos else 0)
    projection: prompt_styles.Projection | None = None
    if card.manifest.prompt.style == "encoder-prefix":
        if tokenizer.bos_token_id is None:
            raise CardError(
                f"card {card.name!r}: prompt style encoder-prefix needs a tokenizer with a bos token"
            )
        with explained(CardError, f"card {card.name!r}: its projection can't be loaded"):
            projection = prompt_styles.Projection(card, width)
    return Prompting(card, tokenizer, eos, pad, context, projection, Vocabulary.read(card.folder))
