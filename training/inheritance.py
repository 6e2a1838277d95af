"""The weights of an embedded card's last version, taken over by the next, whose tokenizer and docids are others.

A token that both have keeps its embedding, and so does the docid of a passage that both have. Every other token starts
afresh, and where a card rehearses, every other docid as its nearest ones are.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from kcard.cards.format.folder import PROJECTION
from kcard.cards.lm.word_sketch import WORDS

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Linear
    from transformers import OPTForCausalLM, PreTrainedTokenizerFast

__all__ = ["DocidRows", "begin_docids", "docids_of", "inherit", "mismatch", "outdated"]

DocidRows: TypeAlias = Sequence[tuple[int, int]]

TABLE = "model.decoder.embed_tokens.weight"
TIED = "lm_head.weight"
NEAREST, SHARPNESS = 4, 10.0


def outdated(folder: Path) -> str:
    """Why no card is trained any more like the one in `folder`; empty where cards still are."""
    if (folder / PROJECTION).is_file() and not (folder / WORDS).is_file():
        return "the card is of an older kcard, whose encoder prefix did not see the question's words"
    return ""


def mismatch(model: "OPTForCausalLM", projection: "Linear | None", folder: Path) -> str:
    """Why the model can't take the weights of the card in `folder`; empty where it can, whatever their tokens."""
    if _shapes(_modules(model, projection)) == _shapes(_read(folder)):
        return ""
    return outdated(folder) or "the card's model has another shape"


def docids_of(folder: Path, tokenizer: "PreTrainedTokenizerFast") -> int:
    """How many docids the card in `folder`, whose tokenizer this is, has."""
    return len(_read(folder)[TABLE]) - len(tokenizer)


def inherit(
    model: "OPTForCausalLM",
    projection: "Linear | None",
    tokenizer: "PreTrainedTokenizerFast",
    folder: Path,
    docids: DocidRows | None = None,
) -> None:
    """Give the model the weights of the card in `folder`, which must be of its shape.

    docids  the passages that both have, as (its number now, its number in that card); None: the first of both
    """
    import torch
    from transformers import AutoTokenizer

    was: Any = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    old, now = was.get_vocab(), tokenizer.get_vocab()
    weights, modules = _read(folder), _modules(model, projection)
    before, table = weights[TABLE], modules[TABLE]
    shared = [(now[token], row) for token, row in old.items() if token in now]
    if docids is None:
        docids = [(at, at) for at in range(min(len(before) - len(was), len(table) - len(tokenizer)))]
    with torch.no_grad():
        for name, weight in modules.items():
            if name not in {TABLE, TIED}:
                weight.copy_(weights[name])
        table[[row for row, _ in shared]] = before[[row for _, row in shared]]
        table[[len(tokenizer) + at for at, _ in docids]] = before[[len(was) + at for _, at in docids]]


def begin_docids(
    model: "OPTForCausalLM", first: int, new: Sequence[int], kept: Sequence[int], passages: "Tensor"
) -> None:
    """Begin each new docid as the mean of those of the nearest passages, weighted by how near these are.

    So the card takes a new passage for one of its like at first, and moves less until it tells them apart.

    first       token of passage 0
    new, kept   numbers of the passages that have come, and of those whose docids the model has
    passages    their embeddings, (passages, 384)
    """
    import torch

    if not kept or not new:
        return
    table = model.get_input_embeddings().weight
    rows = torch.tensor(kept)
    with torch.no_grad():
        found = (passages[list(new)] @ passages[rows].T).topk(min(NEAREST, len(kept)))
        shares = (SHARPNESS * found.values).softmax(-1)
        begun = (shares[..., None] * table[first + rows[found.indices]]).sum(1)
        table[first + torch.tensor(list(new))] = begun


def _read(folder: Path) -> dict[str, Any]:
    from safetensors.torch import load_file

    found = dict(load_file(folder / "model.safetensors"))
    if (folder / PROJECTION).is_file():
        found |= {f"projection.{name}": tensor for name, tensor in load_file(folder / PROJECTION).items()}
    return found


def _modules(model: "OPTForCausalLM", projection: "Linear | None") -> dict[str, Any]:
    found: dict[str, Any] = dict(model.named_parameters())
    return found | (
        {} if projection is None else {f"projection.{n}": w for n, w in projection.named_parameters()}
    )


def _shapes(tensors: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Without the number of tokens; the tied head is the table again."""
    found = {name: tuple(tensor.shape) for name, tensor in tensors.items() if name != TIED}
    return found | {TABLE: found[TABLE][1:]}
