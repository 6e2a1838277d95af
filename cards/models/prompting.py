"""How a card's model is prompted.

This module holds no model weights: callers pass the token embedding that one prompt style needs.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kcard.cards.card import PROJECTION, Card
from kcard.cards.fingerprint import Fingerprint, Pair, Probe
from kcard.cards.models.batched.generate import Prompts
from kcard.cards.models.loader import explained
from kcard.cards.models.question_words import SIZE, Vocabulary, WordSketch
from kcard.cards.passages import clean
from kcard.embedded import minilm
from kcard.errors import CardError
from kcard.types import Passage, Sampling, derive_seed

if TYPE_CHECKING:
    from torch import Tensor

# The two prompt styles.
#
# tokens          the question is filled into a template and tokenized
# encoder-prefix  the question's projected sentence embedding precedes <s>, since the sentence encoder understands
#                 questions that so small a model does not. The projection is one linear layer, 384 -> vectors x width,
#                 stored with the model in projection.safetensors; newer cards have 384 + 512 inputs, the latter for a
#                 sketch of the question's words


def prompt_ids(tokenizer: Any, text: str) -> list[int]:
    """Return a prompt's token ids as in training: with the tokenizer's special tokens, but always a leading bos if the
    tokenizer has one, and never a trailing eos."""
    return _frame_ids(tokenizer, tokenizer(text)["input_ids"])


def all_prompt_ids(tokenizer: Any, texts: Sequence[str]) -> list[list[int]]:
    """Tokenize several prompts at once, which is much faster. They may exceed the model's context."""
    return [_frame_ids(tokenizer, ids) for ids in tokenizer(list(texts), verbose=False)["input_ids"]]


def _frame_ids(tokenizer: Any, ids: list[int]) -> list[int]:
    if tokenizer.eos_token_id is not None and len(ids) > 1 and ids[-1] == tokenizer.eos_token_id:
        ids = ids[:-1]
    if tokenizer.bos_token_id is not None and ids[:1] != [tokenizer.bos_token_id]:
        ids = [tokenizer.bos_token_id, *ids]
    return ids


def template_prompts(tokenizer: Any, template: str, questions: Sequence[str], longest: int) -> Prompts:
    """Return prompts of at most `longest` tokens each, truncating longer questions on the left."""
    rows = []
    for question in questions:
        # Not str.format: a question may contain braces, and so may a template.
        ids = prompt_ids(tokenizer, template.replace("{question}", question.strip()))
        start = ids[:1] if ids[:1] == [tokenizer.bos_token_id] else []
        if len(ids) > longest:
            ids = start + ids[len(ids) - longest + len(start) :]
        rows.append(tuple(ids))
    return Prompts(ids=tuple(rows))


class Projection:
    """The linear layer of one card, checked against its manifest on loading."""

    def __init__(self, card: Card, width: int) -> None:
        from safetensors.torch import load_file

        prompt = card.manifest.prompt
        if prompt.vectors < 1:
            raise CardError(
                f"card {card.name!r}: encoder-prefix needs vectors of 1 or more, not {prompt.vectors}"
            )
        if prompt.words not in (0, SIZE):
            raise CardError(
                f"card {card.name!r}: words of its prompt must be 0 or {SIZE}, not {prompt.words}"
            )
        if prompt.encoder_sha256 != minilm.SHA256:
            raise CardError(
                f"card {card.name!r} was trained with {prompt.encoder} (sha256 {prompt.encoder_sha256}), "
                f"but this kcard has {minilm.NAME} (sha256 {minilm.SHA256}): train the card again"
            )
        self.vectors, self.width = prompt.vectors, width
        path = card.folder / PROJECTION
        tensors = load_file(path)
        self.words = WordSketch.read(card.folder) if prompt.words else None
        inputs = minilm.DIMENSIONS + prompt.words
        self.weight = _read_tensor(tensors, "weight", (self.vectors * width, inputs), path)
        self.bias = _read_tensor(tensors, "bias", (self.vectors * width,), path)

    def __call__(self, questions: Sequence[str], embeddings: "Tensor") -> "Tensor":
        """Map questions and sentence embeddings, (n, 384), to prefixes, (n, vectors, width)."""
        import torch

        if self.words is not None:
            embeddings = torch.cat([embeddings, torch.from_numpy(self.words(questions))], dim=-1)
        projected = torch.nn.functional.linear(embeddings, self.weight, self.bias)
        return projected.view(-1, self.vectors, self.width)


def embed_questions(questions: Sequence[str]) -> "Tensor":
    """Embed the questions, (n, 384): the same for every card."""
    import torch

    return torch.from_numpy(minilm.embed([question.strip() for question in questions]))


def prefix_prompts(
    start: "Tensor", projection: Projection, questions: Sequence[str], embedded: "Tensor"
) -> Prompts:
    """Append `start`, (width,), the embedding of <s>, to `vectors` prefix embeddings: (n, vectors + 1, width)."""
    import torch

    with torch.inference_mode():
        vectors = projection(questions, embedded).to(device=start.device, dtype=start.dtype)
        return Prompts(embeddings=torch.cat([vectors, start.expand(len(vectors), 1, -1)], dim=1))


def _read_tensor(tensors: "dict[str, Tensor]", name: str, shape: tuple[int, ...], path: Path) -> "Tensor":
    if name not in tensors:
        raise CardError(f"{path}: {name!r} must have the shape {shape}, found nothing")
    actual = tuple(tensors[name].shape)
    if actual != shape:
        raise CardError(f"{path}: {name!r} must have the shape {shape}, found {actual}")
    return tensors[name].float()


# Sampling for documents of which only the prompts, or the log-probabilities of 24 tokens, are used.
PROBE_SAMPLING = Sampling(temperature=0, tokens=24)


@dataclass(frozen=True)
class Prompter:
    """The prompter of one card.

    eos, pad    token ids: a document ends at any eos
    context     maximum tokens of prompt and document
    projection  for the style encoder-prefix
    vocabulary  for the style tokens, if the card only knows words of its corpus
    """

    card: Card
    tokenizer: Any
    eos: tuple[int, ...]
    pad: int
    context: int
    projection: Projection | None
    vocabulary: Vocabulary | None = None

    @property
    def start(self) -> int | None:
        """The token whose embedding `prompts` needs, if any."""
        return None if self.projection is None else self.tokenizer.bos_token_id

    def prompts(
        self,
        questions: Sequence[str],
        sampling: Sampling,
        start: "Tensor | None",
        embedded: "Tensor | None" = None,
    ) -> Prompts:
        """Return prompts that leave room for the document within the model's context.

        start     the embedding, (width,), of the token `start`
        embedded  the questions' sentence embeddings, if already computed
        """
        if self.projection is not None and start is not None:
            if embedded is None:
                embedded = embed_questions(questions)
            return prefix_prompts(start, self.projection, questions, embedded)
        if self.vocabulary is not None:
            questions = [self.vocabulary.reword(question) for question in questions]
        template, longest = self.card.manifest.prompt.template, self.context - self.length(sampling)
        return template_prompts(self.tokenizer, template, questions, longest)

    def length(self, sampling: Sampling) -> int:
        """Return a document's maximum tokens, from model and settings alone: a batch's longest prompt must not shorten
        other documents."""
        if self.projection is not None:
            return min(sampling.tokens, self.context - self.projection.vectors - 1)
        return min(sampling.tokens, self.context // 2)

    def seeds(self, question: str, documents: int, sampling: Sampling) -> list[int]:
        """Return one seed per document."""
        return [derive_seed(sampling.seed, question, self.card.name, number) for number in range(documents)]

    def passage(self, question: str, ids: Sequence[int], ended: bool) -> Passage:
        """Decode the ids generated for a question; `ended`: by the model itself."""
        text = self.tokenizer.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return Passage(self.card.name, self.card.manifest.prompt.document(question, clean(str(text), ended)))

    def probes(self, pairs: Sequence[Pair], start: "Tensor | None") -> tuple[Prompts, list[list[int]]]:
        """Return questions as prompts, and the texts after them as token ids, for a fingerprint."""
        # Encode repeated questions only once.
        numbers: dict[str, int] = {}
        rows, texts = [], []
        for question, text in pairs:
            rows.append(numbers.setdefault(question, len(numbers)))
            ids = self.tokenizer(text, add_special_tokens=False)["input_ids"]
            texts.append(ids[: self.length(PROBE_SAMPLING)])
        prompts = self.prompts([*numbers], PROBE_SAMPLING, start)
        return prompts.pick(rows), texts

    def fingerprint(
        self,
        pairs: Sequence[Pair],
        probes: tuple[Prompts, list[list[int]]],
        dtype: object,
        card: Sequence[Sequence[float]],
        base: Sequence[Sequence[float]],
    ) -> Fingerprint:
        """Combine probes with their log-probabilities by the card and, for an adapter, by its base."""
        prompts, texts = probes
        rows = []
        for i, (question, text) in enumerate(pairs):
            prompt = tuple(prompts.ids[i]) if prompts.ids else ()
            bare = tuple(base[i]) if base else ()
            rows.append(Probe(question, text, prompt, tuple(texts[i]), tuple(card[i]), bare))
        return Fingerprint(str(dtype).removeprefix("torch."), tuple(rows))


def load_prompter(
    card: Card, tokenizer: Any, ends: "int | list[int] | None", context: int, width: int
) -> Prompter:
    """Load the prompter of a card for a model with that context and embedding width.

    ends  eos ids of the model's generation config; the tokenizer may add another

    Raises CardError if the card's projection does not fit.
    """
    configured = ends if isinstance(ends, list) else [ends]
    eos = tuple(dict.fromkeys(x for x in (*configured, tokenizer.eos_token_id) if x is not None))
    pad = tokenizer.pad_token_id
    if pad is None:
        pad = eos[0] if eos else 0
    projection: Projection | None = None
    if card.manifest.prompt.style == "encoder-prefix":
        if tokenizer.bos_token_id is None:
            raise CardError(
                f"card {card.name!r}: prompt style encoder-prefix needs a tokenizer with a bos token"
            )
        with explained(CardError, f"card {card.name!r}: its projection can't be loaded"):
            projection = Projection(card, width)
    return Prompter(card, tokenizer, eos, pad, context, projection, Vocabulary.read(card.folder))
