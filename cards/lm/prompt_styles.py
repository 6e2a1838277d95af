"""The two prompt styles.

tokens          the question is filled into a template and tokenised
encoder-prefix  the question's sentence embedding, projected, stands before <s>. So small a model can't tell what a
                question means; the sentence encoder can. The projection is one linear layer, 384 -> vectors x width,
                kept beside the model in projection.safetensors; of newer cards 384 + 512, the latter for a sketch of
                the question's words
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kcard.cards.format.folder import PROJECTION, Card
from kcard.cards.lm.engine.batch import Prompts
from kcard.cards.lm.word_sketch import SIZE, WordSketch
from kcard.errors import CardError

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Projection", "all_prompt_ids", "embedded", "prefix_prompts", "prompt_ids", "template_prompts"]


def prompt_ids(tokenizer: Any, text: str) -> list[int]:
    """Token ids of a prompt, as in training: the tokenizer's own special tokens, but one that begins the text
    wherever the tokenizer has a bos token, and none that ends it."""
    return _framed(tokenizer, tokenizer(text)["input_ids"])


def all_prompt_ids(tokenizer: Any, texts: Sequence[str]) -> list[list[int]]:
    """The ids of several prompts, made at once, which is much faster. They may be longer than the model reads."""
    return [_framed(tokenizer, ids) for ids in tokenizer(list(texts), verbose=False)["input_ids"]]


def _framed(tokenizer: Any, ids: list[int]) -> list[int]:
    if tokenizer.eos_token_id is not None and len(ids) > 1 and ids[-1] == tokenizer.eos_token_id:
        ids = ids[:-1]
    if tokenizer.bos_token_id is not None and ids[:1] != [tokenizer.bos_token_id]:
        ids = [tokenizer.bos_token_id, *ids]
    return ids


def template_prompts(tokenizer: Any, template: str, questions: Sequence[str], longest: int) -> Prompts:
    """Prompts of at most `longest` tokens each: of a longer question the first words are left out."""
    # Not str.format: a question may contain braces, and so may a template.
    rows = [prompt_ids(tokenizer, template.replace("{question}", question.strip())) for question in questions]
    return Prompts(ids=tuple(tuple(_shortened(row, longest, tokenizer.bos_token_id)) for row in rows))


def _shortened(ids: list[int], longest: int, bos: int | None) -> list[int]:
    if len(ids) <= longest:
        return ids
    return ids[-longest:] if ids[0] != bos else [ids[0], *ids[len(ids) - longest + 1 :]]


class Projection:
    """The linear layer of one card, checked against the card's manifest when it is read."""

    def __init__(self, card: Card, width: int) -> None:
        from safetensors.torch import load_file

        from kcard import encoder

        _check_encoder(card)
        self.vectors, self.width = card.manifest.prompt.vectors, width
        path = card.folder / PROJECTION
        tensors = load_file(path)
        self.words = WordSketch.read(card.folder) if card.manifest.prompt.words else None
        inputs = encoder.DIMENSIONS + card.manifest.prompt.words
        self.weight = _tensor(tensors, "weight", (self.vectors * width, inputs), path)
        self.bias = _tensor(tensors, "bias", (self.vectors * width,), path)

    def __call__(self, questions: Sequence[str], embeddings: "Tensor") -> "Tensor":
        """Questions and their sentence embeddings, (n, 384) -> (n, vectors, width) prefix embeddings."""
        import torch

        if self.words is not None:
            embeddings = torch.cat([embeddings, torch.from_numpy(self.words(questions))], dim=-1)
        found = torch.nn.functional.linear(embeddings, self.weight, self.bias)
        return found.view(-1, self.vectors, self.width)


def embedded(questions: Sequence[str]) -> "Tensor":
    """Sentence embeddings, (n, 384): the same for every card."""
    import torch

    from kcard import encoder

    return torch.from_numpy(encoder.embed([question.strip() for question in questions]))


def prefix_prompts(
    start: "Tensor", projection: Projection, questions: Sequence[str], embedded: "Tensor"
) -> Prompts:
    """Prompts of `vectors` prefix embeddings and `start`, (width,), the embedding of <s>: (n, vectors + 1, width)."""
    import torch

    with torch.inference_mode():
        vectors = projection(questions, embedded).to(device=start.device, dtype=start.dtype)
        return Prompts(embeddings=torch.cat([vectors, start.expand(len(vectors), 1, -1)], dim=1))


def _check_encoder(card: Card) -> None:
    from kcard import encoder

    prompt = card.manifest.prompt
    if prompt.vectors < 1:
        raise CardError(
            f"card {card.name!r}: encoder-prefix needs vectors of 1 or more, not {prompt.vectors}"
        )
    if prompt.words not in (0, SIZE):
        raise CardError(f"card {card.name!r}: words of its prompt must be 0 or {SIZE}, not {prompt.words}")
    if prompt.encoder_sha256 != encoder.SHA256:
        raise CardError(
            f"card {card.name!r} was trained with {prompt.encoder} (sha256 {prompt.encoder_sha256}), "
            f"but this kcard has {encoder.NAME} (sha256 {encoder.SHA256}): train the card again"
        )


def _tensor(tensors: "dict[str, Tensor]", name: str, shape: tuple[int, ...], path: Path) -> "Tensor":
    if name not in tensors or tuple(tensors[name].shape) != shape:
        found = tuple(tensors[name].shape) if name in tensors else "nothing"
        raise CardError(f"{path}: {name!r} must have the shape {shape}, found {found}")
    return tensors[name].float()
