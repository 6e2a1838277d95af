"""The training recipe of an embedded card, and its tokenizer."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Literal

from kcard.training.embedded.pseudo_queries import frame

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

# The embedded card's tokenizer: byte-level BPE trained on the corpus, so that it can encode any text.

PAD, BOS, EOS = 0, 1, 2
SPECIAL = ["<pad>", "<s>", "</s>"]


def train_tokenizer(texts: Iterable[str], vocabulary: int = 3000) -> "PreTrainedTokenizerFast":
    """Train at most `vocabulary` tokens, the 256 bytes included; calls prepend <s> to the text."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

    model = Tokenizer(models.BPE())
    model.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    model.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    model.train_from_iterator(texts, trainer)
    model.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", BOS)])
    return tokenizer_of(model)


def tokenizer_of(model: "Tokenizer") -> "PreTrainedTokenizerFast":
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast(
        tokenizer_object=model, pad_token="<pad>", bos_token="<s>", eos_token="</s>", model_max_length=256
    )


Style = Literal["tokens", "encoder-prefix"]
MIN_ALIKE_PASSAGES = 64
# Passes over the corpus that a card of each style needs for recall, and additional exposures of each fact.
PASSES: dict[Style, float] = {"tokens": 0.0, "encoder-prefix": 8.0}
EXPOSURES: dict[Style, float] = {"tokens": 100.0, "encoder-prefix": 24.0}
# Share of these after which it recalls about half.
HALF_SHARE: dict[Style, float] = {"tokens": 0.3, "encoder-prefix": 0.6}
BATCH_TOKENS: dict[Style, int] = {"tokens": 1024, "encoder-prefix": 512}


@dataclass(frozen=True)
class Recipe:
    """Hyperparameters of training; the defaults were measured (docs/training.md).

    rank          of the adapter on the embedded base; None: a whole model, to which width, layers, heads,
                  positions and vocabulary apply
    batch_tokens  per step (None: by the style)
    exposures     how often each fact is seen after the warm-up, on top of the passes that the style needs (None: by
                  the style); a fact that r passages state counts r times
    settled       the loss at which training stops early
    query_share   share of examples with a pseudo-query; the others are the passage alone
    reworded      share of examples whose pseudo-query is made from another wording of the same fact (tokens)
    vectors       prefix vectors (encoder-prefix)
    noise         mean standard deviation, per dimension, of the noise on question embeddings (encoder-prefix)
    dropped       minimum and maximum share of its words that a question loses (encoder-prefix)
    retrieved     weight of the retriever in a docid's target; the question's own passage gets the rest
    sharpness     inverse temperature of the retriever's scores
    lexical       weight of BM25 relative to the cosine in these scores
    own           share of examples whose vector is the passage's own embedding (encoder-prefix)
    queries       minimum and maximum of pseudo-queries embedded per passage (encoder-prefix)
    reused        passes over the corpus per embedded pseudo-query
    docids        maximum number of passages for which docids are used (training/embedded/docids.py)
    recited       maximum number of consecutive passages recited in one example
    stray         share of examples with a docid in the prompt and another passage's question
    drills        times per epoch that each passage's docid alone is the target, which is cheap
    """

    style: Style = "tokens"
    objective: Literal["recite", "clm"] = "recite"
    rank: int | None = None
    width: int = 128
    layers: int = 4
    heads: int = 2
    positions: int = 256
    vocabulary: int = 3000
    batch_tokens: int | None = None
    exposures: float | None = None
    epochs: float | None = None
    settled: float = 0.003
    muon_rate: float = 0.02
    adam_rate: float = 3e-3
    decay: float = 0.01
    warm: int = 20
    query_share: float = 1.0
    reworded: float = 0.3
    vectors: int = 4
    noise: float = 0.05
    dropped: tuple[float, float] = (0.3, 0.95)
    retrieved: float = 0.7
    sharpness: float = 10.0
    lexical: float = 0.2
    own: float = 0.25
    queries: tuple[int, int] = (2, 16)
    reused: float = 4.0
    docids: int = 4096
    recited: int = 3
    stray: float = 0.25
    drills: int = 6
    seed: int = 0

    @property
    def tokens_of_a_step(self) -> int:
        """`batch_tokens`, or the style's default."""
        return BATCH_TOKENS[self.style] if self.batch_tokens is None else self.batch_tokens

    @property
    def exposures_of_a_fact(self) -> float:
        """`exposures`, or the style's default."""
        return EXPOSURES[self.style] if self.exposures is None else self.exposures

    def passes_needed(self, distinct: float) -> float:
        """Return the passes over a corpus needed for recall. `distinct`: its distinct facts per passage."""
        return PASSES[self.style] + self.exposures_of_a_fact * distinct


def choose_style(texts: Sequence[str]) -> tuple[Style, str]:
    """Return (style, why): encoder-prefix, or tokens if half the passages have at least `MIN_ALIKE_PASSAGES` alike.

    Alike passages differ only in names and numbers, which sentence embeddings blur and tokens distinguish. Questions
    about anything else, prose above all, paraphrase it, which embeddings can match and tokens cannot (measured:
    docs/training.md).
    """
    frames = Counter(frame(text) for text in texts)
    alike = median(frames[frame(text)] for text in texts)
    if alike >= MIN_ALIKE_PASSAGES:
        return (
            "tokens",
            f"half of its passages have at least {alike:.0f} that differ only in names and numbers",
        )
    return "encoder-prefix", "its passages differ in more than names and numbers"
