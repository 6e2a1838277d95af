"""How a card's model is prompted: prompt styles and the vocabulary of questions.

This module holds no model weights: callers pass the token embedding that one prompt style needs.
"""

import functools
import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kcard.cards.card import PROJECTION, Card
from kcard.cards.fingerprint import Fingerprint, Pair, Probe
from kcard.cards.models.batched.generate import Prompts
from kcard.cards.models.loader import explained
from kcard.cards.passages import clean
from kcard.embedded import minilm
from kcard.errors import CardError
from kcard.interfaces import Array
from kcard.io import write_text
from kcard.text import ORDINALS, analyzer, words
from kcard.types import Passage, Sampling, derive_seed

if TYPE_CHECKING:
    from torch import Tensor

# The words of a question as a fixed-size vector, which a card with an encoder prefix gets along with its embedding.
#
# A sentence embedding blurs names and rare words, by which BM25 finds a passage. Each stem of the corpus is hashed
# to random signs in SIZE dimensions; a question is the idf-weighted sum of its stems' signs, scaled to unit
# length: a random projection of its tf-idf vector (Achlioptas, 2003, "Database-friendly random projections").
# Words that are not in the corpus are ignored.

WORDS = "words.json"
SIZE = 512  # bits of the longest BLAKE2b digest
STEMMER = "english"  # the sentence encoder's language


@dataclass(frozen=True)
class WordSketch:
    """`idf` of every stem of the corpus."""

    idf: Mapping[str, float]

    @classmethod
    def of_corpus(cls, texts: Sequence[str]) -> "WordSketch":
        """Compute idf as in BM25 (Lucene's) over `texts`."""
        frequency = Counter[str]()
        for text in texts:
            frequency.update(stems(text))
        count, idf = len(texts), {}
        for stem, n in sorted(frequency.items()):
            idf[stem] = round(math.log(1 + (count - n + 0.5) / (n + 0.5)), 4)
        return cls(idf)

    @classmethod
    def read(cls, folder: Path) -> "WordSketch":
        """Load that of a card. Raises CardError if its file is damaged or missing."""
        path = folder / WORDS
        try:
            frequencies = json.loads(path.read_text(encoding="utf-8"))["idf"]
            return cls({str(stem): float(idf) for stem, idf in frequencies.items()})
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            message = f"{path} must hold the idf of the card's word stems ({error}): train the card again"
            raise CardError(message) from error

    def write(self, folder: Path) -> None:
        text = json.dumps({"stemmer": STEMMER, "idf": dict(self.idf)}, ensure_ascii=False, indent=0)
        write_text(folder / WORDS, f"{text}\n")

    @cached_property
    def number(self) -> Mapping[str, int]:
        """The index of each stem in the order of `idf`."""
        return {stem: place for place, stem in enumerate(self.idf)}

    def numbers_of(self, text: str) -> list[int]:
        """Return the indices of the distinct stems of a text that are in the corpus, ascending."""
        return sorted(self.number[stem] for stem in stems(text) if stem in self.number)

    def signs(self) -> Array:
        """Return each stem's signs, (stems, SIZE), unit length."""
        return np.stack([_signs(stem) for stem in self.idf])

    def __call__(self, texts: Sequence[str]) -> Array:
        """Sketch `texts` as unit vectors, (n, SIZE); zeros for a text without a known word."""
        sketches = np.zeros((len(texts), SIZE), dtype=np.float32)
        for row, text in zip(sketches, texts, strict=True):
            shared = sorted(stems(text) & self.idf.keys())
            if shared:
                weights = np.array([self.idf[stem] for stem in shared], dtype=np.float32)
                row[:] = weights @ np.stack([_signs(stem) for stem in shared]) / np.linalg.norm(weights)
        return sketches


def stems(text: str) -> set[str]:
    return set(analyzer(STEMMER)(text))


@functools.lru_cache(maxsize=20_000)
def _signs(stem: str) -> Array:
    digest = hashlib.blake2b(stem.encode(), digest_size=SIZE // 8).digest()
    bits = np.unpackbits(np.frombuffer(digest, np.uint8)).astype(np.float32)
    signs: Array = (2 * bits - 1) / np.float32(math.sqrt(SIZE))
    return signs


# Rewords a question with the vocabulary that a card was trained on.
#
# A small model does not know words missing from its corpus: if the corpus says "chose" and "5th", it can't read "pick"
# and "fifth". Such words are replaced by the nearest corpus word by the sentence encoder's word embeddings, or dropped,
# as words were dropped from the questions that the card was trained on.

VOCABULARY = "vocabulary.json"
COMMON = 5  # minimum passages with a word for it to be a replacement
NEAR = 0.6  # cosine from which words count as equivalent: plurals, inflected verbs, synonyms
FIGURES = ORDINALS | {
    "one": "1", "two": "2", "three": "3", "four": "4", "five": "5", "six": "6", "seven": "7", "eight": "8", "nine": "9",
    "ten": "10", "eleven": "11", "twelve": "12",
}  # fmt: skip
SAME = FIGURES | {figure: word for word, figure in FIGURES.items()}


@dataclass(frozen=True)
class Vocabulary:
    """`all_words`: every word that the card was trained on, in lower case; `common`: possible replacements for others:
    no names, no figures."""

    all_words: frozenset[str]
    common: tuple[str, ...]

    @classmethod
    def of(cls, texts: Iterable[str], asking: Iterable[str]) -> "Vocabulary":
        """Collect the words of passages and those of the questions about them (`asking`)."""
        count, written = Counter[str](), Counter[str]()
        for text in texts:
            count.update(set(words(text)))
            written.update(set(re.findall(r"[^\W\d_]+", text)))
        common = (word for word, n in count.items() if n >= COMMON and written[word] * 2 > n)
        return cls(frozenset(count) | frozenset(asking), tuple(sorted(common)))

    @classmethod
    def read(cls, folder: Path) -> "Vocabulary | None":
        """Load a card's vocabulary; None if it has none."""
        path = folder / VOCABULARY
        if not path.is_file():
            return None
        data = json.loads(path.read_text(encoding="utf-8"))
        return cls(frozenset((*data["common"], *data["other"])), tuple(data["common"]))

    def write(self, folder: Path) -> None:
        other = sorted(self.all_words.difference(self.common))
        text = json.dumps({"common": self.common, "other": other}, ensure_ascii=False, indent=0)
        write_text(folder / VOCABULARY, f"{text}\n")

    def reword(self, question: str) -> str:
        """Return the question in words of the corpus; unchanged if none of its words is known."""
        tokens = question.split()
        reworded = [self._reword_token(token) for token in tokens]
        # Names are runs of capitalized words, excluding the first word of the question.
        start = 1
        for capital, run in groupby(tokens[1:], lambda token: token[0].isupper()):
            end = start + sum(1 for _ in run)
            if capital and None in reworded[start:end]:  # drop a name entirely unless all of it is known
                reworded[start:end] = [None] * (end - start)
            start = end
        return " ".join(token for token in reworded if token) or question

    def _reword_token(self, token: str) -> str | None:
        """Return its replacement; None to drop it. Figures stay, since another year is another question."""
        parts = words(token)
        if not parts or any(part in self.all_words for part in parts):
            return token
        if len(parts) == 1 and parts[0] in SAME:
            same = SAME[parts[0]]
            return token.lower().replace(parts[0], same) if same in self.all_words else token
        if any(part[0].isdigit() for part in parts):
            return token
        if len(parts) > 1 or token[0].isupper() or not self.common:
            return None
        # Choose the common word nearest in meaning.
        cosines = self.common_vectors @ minilm.word_vectors(parts)[0]
        best = int(cosines.argmax())
        return self.common[best] if cosines[best] >= NEAR else None

    @cached_property
    def common_vectors(self) -> Array:
        """(common, 384)"""
        return minilm.word_vectors(self.common)


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
    # Not str.format: a question may contain braces, and so may a template.
    rows = [prompt_ids(tokenizer, template.replace("{question}", question.strip())) for question in questions]
    for number, ids in enumerate(rows):
        if len(ids) > longest:
            begins = ids[0] == tokenizer.bos_token_id
            rows[number] = [ids[0], *ids[len(ids) - longest + 1 :]] if begins else ids[-longest:]
    return Prompts(ids=tuple(map(tuple, rows)))


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
    if name not in tensors or tuple(tensors[name].shape) != shape:
        actual = tuple(tensors[name].shape) if name in tensors else "nothing"
        raise CardError(f"{path}: {name!r} must have the shape {shape}, found {actual}")
    return tensors[name].float()


# Sampling for documents of which only the prompts, or the log-probabilities of 24 tokens, are used.
PROBED = Sampling(temperature=0, tokens=24)


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
            texts.append(ids[: self.length(PROBED)])
        prompts = self.prompts([*numbers], PROBED, start)
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
