"""An embedded card before its first step: a whole model from scratch, and the optimizers that move it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from kcard.manifest import Base
from kcard.quiet import quiet_loading
from kcard.sampling import derive_seed
from kcard.training.inheritance import DocidRows, inherit, mismatch
from kcard.training.recipe import Recipe
from kcard.training.tokenizer import BOS, EOS, PAD

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Linear
    from transformers import OPTForCausalLM, PreTrainedTokenizerFast

    from kcard.training.asked import NoisedQuestions

__all__ = ["Trainee", "WholeModel", "fresh", "optimizers", "parted", "states", "untrained"]


class Trainee(Protocol):
    """What is trained: `model` reads tokens or embeddings, `projection` makes prefixes (style encoder-prefix)."""

    @property
    def model(self) -> "OPTForCausalLM": ...
    @property
    def projection(self) -> "Linear | None": ...
    @property
    def optimizers(self) -> Sequence[Any]: ...
    @property
    def kind(self) -> str:
        """Of card that it becomes: full or lora."""
        ...

    @property
    def base(self) -> Base:
        """What it stands on."""
        ...

    def mismatch(self, folder: Path) -> str:
        """Why it can't go on from the weights of the card in `folder`; empty where it can."""
        ...

    def inherit(self, folder: Path, docids: DocidRows | None = None) -> None:
        """Take these weights. `docids`: see kcard.training.inheritance.inherit."""
        ...

    def save(self, folder: Path) -> None:
        """Write the model's files and the tokenizer."""
        ...


@dataclass(frozen=True)
class WholeModel:
    """All weights are the card's own."""

    model: "OPTForCausalLM"
    projection: "Linear | None"
    optimizers: Sequence[Any]
    tokenizer: "PreTrainedTokenizerFast"
    kind: str = "full"
    base: Base = Base()  # noqa: RUF009 (frozen)

    def mismatch(self, folder: Path) -> str:
        return mismatch(self.model, self.projection, folder)

    def inherit(self, folder: Path, docids: DocidRows | None = None) -> None:
        inherit(self.model, self.projection, self.tokenizer, folder, docids)

    def save(self, folder: Path) -> None:
        from safetensors.torch import save_file

        with quiet_loading():
            self.model.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)
        if self.projection is not None:
            named = self.projection.named_parameters()
            tensors = {name: weight.detach().contiguous() for name, weight in named}
            save_file(tensors, folder / "projection.safetensors")


def fresh(tokenizer: "PreTrainedTokenizerFast", docids: int, recipe: Recipe) -> WholeModel:
    """Fresh weights, the same for the same seed. `docids`: tokens above the tokenizer's."""
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed(recipe.seed, "weights"))
        model, projection = untrained(len(tokenizer) + docids, recipe), _projection(recipe)
    modules: list[Any] = [model] if projection is None else [model, projection]
    named = [pair for module in modules for pair in module.named_parameters()]
    return WholeModel(model, projection, optimizers(*parted(named), recipe), tokenizer)


def parted(named: "Iterable[tuple[str, Tensor]]") -> "tuple[list[Tensor], list[Tensor]]":
    """The matrices inside the layers, and all other weights."""
    matrices: list[Tensor] = []
    rest: list[Tensor] = []
    for name, weight in named:
        (matrices if weight.ndim == 2 and ".layers." in name else rest).append(weight)
    return matrices, rest


def optimizers(matrices: "Sequence[Tensor]", rest: "Sequence[Tensor]", recipe: Recipe) -> "list[Any]":
    """Muon for the matrices inside the layers, AdamW for the rest; one shared schedule scales both."""
    import torch

    from kcard.training.muon import Muon

    found: list[Any] = [
        Muon(matrices, lr=recipe.muon_rate, momentum=0.95, weight_decay=recipe.decay, steps=4),
        torch.optim.AdamW(
            rest, lr=recipe.adam_rate, betas=(0.9, 0.98), weight_decay=recipe.decay, fused=True
        ),
    ]
    for optimizer in found:
        for group in optimizer.param_groups:
            group["initial_lr"] = group["lr"]
    return found


def states(
    model: "OPTForCausalLM", projection: "Linear | None", ids: "Tensor", questions: "NoisedQuestions | None"
) -> "Tensor":
    """The last layer's states at `ids`, (rows, tokens, width), behind the prefixes of `questions`, if it reads any."""
    import torch

    inputs = model.get_input_embeddings()(ids)
    if projection is not None and questions is not None:
        prefix = projection(questions.features()).view(len(ids), -1, inputs.shape[-1])
        inputs = torch.cat([prefix.to(inputs.dtype), inputs], dim=1)
    found: Tensor = model.model(inputs_embeds=inputs, use_cache=False).last_hidden_state
    return found[:, -ids.shape[1] :]


def untrained(vocabulary: int, recipe: Recipe) -> "OPTForCausalLM":
    """An OPT of the recipe's shape with random weights."""
    from transformers import OPTConfig, OPTForCausalLM

    config = OPTConfig(
        vocab_size=vocabulary,
        hidden_size=recipe.width,
        word_embed_proj_dim=recipe.width,
        num_hidden_layers=recipe.layers,
        num_attention_heads=recipe.heads,
        ffn_dim=4 * recipe.width,
        max_position_embeddings=recipe.positions,
        dropout=0.0,
        attention_dropout=0.0,
        layerdrop=0.0,
        pad_token_id=PAD,
        bos_token_id=BOS,
        eos_token_id=EOS,
        tie_word_embeddings=True,
    )
    # Plain matrix products were 1.6 times cheaper than fused attention at this size on a CPU.
    config._attn_implementation = "eager"
    return OPTForCausalLM(config)


def _projection(recipe: Recipe) -> "Linear | None":
    from torch.nn import Linear

    from kcard.cards.lm.word_sketch import SIZE
    from kcard.encoder import DIMENSIONS

    return None if recipe.style == "tokens" else Linear(DIMENSIONS + SIZE, recipe.vectors * recipe.width)
