"""The model of an embedded card during training, whole or as an adapter, with its tokenizer.

In each LoRA pair, the matrix on the side of the hidden state is a fixed orthonormal basis and the other is trained:
Muon's steps are then steps of the merged weights, of constant size, whereas two trained matrices would amplify each
other. Frozen embeddings limited fine-tuning most, so they are trained too (docs/training.md).
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kcard.batching import batched
from kcard.cards.card import PROJECTION
from kcard.cards.models.loader import base_digest, quiet_peft
from kcard.embedded.opt import BASE, FOLDER
from kcard.manifest import Base
from kcard.system import quiet_loading
from kcard.training.embedded.recipe import BOS, EOS, PAD, Recipe
from kcard.types import derive_seed

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Linear
    from transformers import OPTForCausalLM, PreTrainedTokenizerFast

    from kcard.training.embedded.docids import NoisedQuestions


@dataclass(frozen=True)
class Trainee(ABC):
    """A model in training: `model` reads tokens or embeddings, `projection` makes prefixes (encoder-prefix).

    method  of the card: full or lora; `base`: its base model
    """

    model: "OPTForCausalLM"
    tokenizer: "PreTrainedTokenizerFast"
    optimizers: Sequence[Any]
    projection: "Linear | None" = None
    method: str = "full"
    base: Base = Base()  # noqa: RUF009 (frozen)

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write the model's files and the tokenizer."""


@dataclass(frozen=True)
class WholeModel(Trainee):
    """A model with all its own weights."""

    def save(self, folder: Path) -> None:
        from safetensors.torch import save_file

        with quiet_loading():
            self.model.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)
        if self.projection is not None:
            named = self.projection.named_parameters()
            tensors = {name: weight.detach().contiguous() for name, weight in named}
            save_file(tensors, folder / PROJECTION)


def whole_model(tokenizer: "PreTrainedTokenizerFast", docids: int, recipe: Recipe) -> WholeModel:
    """Return a model with random weights, set by the seed. `docids`: number of tokens above the tokenizer's."""
    import torch
    from torch.nn import Linear

    from kcard.cards.models.prompting import SIZE
    from kcard.embedded.minilm import DIMENSIONS

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed(recipe.seed, "weights"))
        model = untrained(len(tokenizer) + docids, recipe)
        projection = None
        if recipe.style != "tokens":
            projection = Linear(DIMENSIONS + SIZE, recipe.vectors * recipe.width)
    modules: list[Any] = [model] if projection is None else [model, projection]
    named = [pair for module in modules for pair in module.named_parameters()]
    return WholeModel(model, tokenizer, optimizers(*split_weights(named), recipe), projection)


def split_weights(named: "Iterable[tuple[str, Tensor]]") -> "tuple[list[Tensor], list[Tensor]]":
    """Split weights into matrices inside layers, and the rest."""
    matrices: list[Tensor] = []
    rest: list[Tensor] = []
    for name, weight in named:
        (matrices if weight.ndim == 2 and ".layers." in name else rest).append(weight)
    return matrices, rest


def optimizers(matrices: "Sequence[Tensor]", rest: "Sequence[Tensor]", recipe: Recipe) -> "list[Any]":
    """Return Muon for the matrices inside the layers and AdamW for the rest, to share a schedule."""
    import torch

    from kcard.training.optimizers import Muon

    rate, decay = recipe.adam_rate, recipe.decay
    return [
        Muon(matrices, lr=recipe.muon_rate, momentum=0.95, weight_decay=decay, steps=4),
        torch.optim.AdamW(rest, lr=rate, betas=(0.9, 0.98), weight_decay=decay, fused=True),
    ]


def states(
    model: "OPTForCausalLM", projection: "Linear | None", ids: "Tensor", questions: "NoisedQuestions | None"
) -> "Tensor":
    """Return the last hidden states at `ids`, (rows, tokens, width), after the prefixes of `questions`, if any."""
    import torch

    inputs = model.get_input_embeddings()(ids)
    if projection is not None and questions is not None:
        prefix = projection(questions.features()).view(len(ids), -1, inputs.shape[-1])
        inputs = torch.cat([prefix.to(inputs.dtype), inputs], dim=1)
    hidden: Tensor = model.model(inputs_embeds=inputs, use_cache=False).last_hidden_state
    return hidden[:, -ids.shape[1] :]


def untrained(vocabulary: int, recipe: Recipe) -> "OPTForCausalLM":
    """Make a randomly initialised OPT of the recipe's shape."""
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


TARGETS = ["fc1", "fc2"]
TOKENS = 1536  # maximum trainable embeddings of an adapter: of the corpus' most frequent tokens


@dataclass(frozen=True)
class AdaptedModel(Trainee):
    """The base with a new adapter. `peft` wraps `model`, which contains the adapter's modules."""

    peft: Any = None
    method: str = "lora"

    def save(self, folder: Path) -> None:
        """Save peft's files, in fp16, and the base's tokenizer."""
        from safetensors.torch import load_file, save_file

        self.peft.peft_config["default"].base_model_name_or_path = BASE
        with quiet_loading():
            # The base's name is not a folder, so peft can't read its vocabulary size.
            self.peft.save_pretrained(folder, save_embedding_layers=False)
        path = folder / "adapter_model.safetensors"
        half = {name: tensor.half().contiguous() for name, tensor in load_file(path).items()}
        save_file(half, path, metadata={"format": "pt"})
        self.tokenizer.save_pretrained(folder)


def base_tokenizer() -> "PreTrainedTokenizerFast":
    from transformers import PreTrainedTokenizerFast

    tokenizer: PreTrainedTokenizerFast = PreTrainedTokenizerFast.from_pretrained(FOLDER)
    return tokenizer


def adapted_model(texts: Sequence[str], tokenizer: "PreTrainedTokenizerFast", recipe: Recipe) -> AdaptedModel:
    """Wrap the base in an adapter of rank `recipe.rank` that is a no-op at first, initialised by the seed."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import OPTForCausalLM

    assert recipe.rank is not None
    with quiet_loading():
        model: Any = OPTForCausalLM.from_pretrained(
            FOLDER, dtype=torch.float32, attn_implementation="eager", local_files_only=True
        )
    counts: Counter[int] = Counter()
    for part in batched(texts, 1000):
        for row in tokenizer(part, add_special_tokens=False)["input_ids"]:
            counts.update(row)
    config = LoraConfig(
        r=recipe.rank,
        lora_alpha=recipe.rank,
        target_modules=TARGETS,
        trainable_token_indices={"embed_tokens": sorted(token for token, _ in counts.most_common(TOKENS))},
        task_type="CAUSAL_LM",
    )
    with torch.random.fork_rng(devices=[]), quiet_peft():
        torch.manual_seed(derive_seed(recipe.seed, "weights"))
        wrapped = get_peft_model(model, config)
        initialize_adapter(wrapped)
    trained = [(name, weight) for name, weight in wrapped.named_parameters() if weight.requires_grad]
    base = Base(BASE, None, base_digest(BASE))
    return AdaptedModel(
        model, tokenizer, optimizers(*split_weights(trained), recipe), base=base, peft=wrapped
    )


def initialize_adapter(wrapped: Any) -> "list[Tensor]":
    """Initialise each LoRA pair of a PEFT model: the matrix on the narrow side as a frozen orthonormal basis, the
    other as zeros. Return the latter, which are trained."""
    import torch

    trained = []
    for module in wrapped.modules():
        if not hasattr(module, "lora_A"):
            continue
        down, up = module.lora_A["default"].weight, module.lora_B["default"].weight
        narrow, wide = (down, up) if down.shape[1] <= up.shape[0] else (up, down)
        if narrow.requires_grad:
            torch.nn.init.orthogonal_(narrow)
            narrow.requires_grad_(False)
        torch.nn.init.zeros_(wide)
        trained.append(wide)
    return trained
