"""The model of an embedded card during training, whole or as an adapter, with its tokenizer.

In each LoRA pair, the matrix on the side of the hidden state is a fixed orthonormal basis and the other is trained:
Muon's steps are then steps of the merged weights, of constant size, whereas two trained matrices would amplify each
other. Frozen embeddings limited fine-tuning most, so they are trained too (docs/training.md).
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn import Linear

from kcard.batching import batched
from kcard.cards.card import PROJECTION
from kcard.cards.models.loader import base_digest, quiet_peft
from kcard.cards.models.question_words import SIZE
from kcard.embedded.minilm import DIMENSIONS
from kcard.embedded.opt import BASE, FOLDER
from kcard.manifest import Base
from kcard.system import quiet_loading
from kcard.training.embedded.muon import MuonWithAdamW
from kcard.training.embedded.recipe import BOS, EOS, PAD, Recipe
from kcard.types import derive_seed

if TYPE_CHECKING:
    from transformers import OPTForCausalLM, PreTrainedTokenizerFast

    from kcard.training.embedded.docids import NoisedQuestions


class Trainee(torch.nn.Module):
    """A model in training, with all its own weights.

    model       reads tokens or embeddings; `projection` makes prefixes (encoder-prefix)
    method      of the card: full or lora; `base`: its base model
    """

    method = "full"
    base = Base()
    _keys_to_ignore_on_save = None  # which the Trainer reads of a model that it loads from a checkpoint

    def __init__(
        self,
        model: "OPTForCausalLM",
        tokenizer: "PreTrainedTokenizerFast",
        projection: Linear | None = None,
    ) -> None:
        super().__init__()
        self.model, self.tokenizer, self.projection = model, tokenizer, projection

    def forward(self, ids: Tensor, questions: "NoisedQuestions | None") -> Tensor:
        """Return the last hidden states at `ids`, (rows, tokens, width), after the prefixes of `questions`, if any."""
        inputs = self.model.get_input_embeddings()(ids)
        if self.projection is not None and questions is not None:
            prefix = self.projection(questions.features()).view(len(ids), -1, inputs.shape[-1])
            inputs = torch.cat([prefix.to(inputs.dtype), inputs], dim=1)
        hidden: Tensor = self.model.model(inputs_embeds=inputs, use_cache=False).last_hidden_state
        return hidden[:, -ids.shape[1] :]

    def state_dict(self, *_: Any, **__: Any) -> dict[str, Tensor]:  # type: ignore[override]
        """Return the weights that training changes, each once, for checkpoints."""
        return {name: weight.detach() for name, weight in self.named_parameters() if weight.requires_grad}

    def optimizer(self, recipe: Recipe) -> MuonWithAdamW:
        """Return a new optimizer of the trained weights."""
        return optimizer(self.named_parameters(), recipe)

    def save(self, folder: Path) -> None:
        """Write the model's files and the tokenizer."""
        with quiet_loading():
            self.model.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)
        if self.projection is not None:
            named = self.projection.named_parameters()
            tensors = {name: weight.detach().contiguous() for name, weight in named}
            save_file(tensors, folder / PROJECTION)


def whole_model(tokenizer: "PreTrainedTokenizerFast", docids: int, recipe: Recipe) -> Trainee:
    """Return a model with random weights, set by the seed. `docids`: number of tokens above the tokenizer's."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed(recipe.seed, "weights"))
        model = untrained(len(tokenizer) + docids, recipe)
        projection = None
        if recipe.style != "tokens":
            projection = Linear(DIMENSIONS + SIZE, recipe.vectors * recipe.width)
    return Trainee(model, tokenizer, projection)


def optimizer(named: Iterable[tuple[str, Tensor]], recipe: Recipe) -> MuonWithAdamW:
    """Return Muon for the matrices inside the layers and AdamW for the rest."""
    matrices: list[Tensor] = []
    rest: list[Tensor] = []
    for name, weight in named:
        if weight.requires_grad:
            (matrices if weight.ndim == 2 and ".layers." in name else rest).append(weight)
    return MuonWithAdamW(matrices, rest, recipe.muon_rate, recipe.adam_rate, recipe.decay)


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


ADAPTED_LAYERS = ["fc1", "fc2"]
MAX_TRAINED_TOKENS = 1536  # maximum trainable embeddings of an adapter: of the corpus' most frequent tokens


class AdaptedModel(Trainee):
    """The base with a new adapter. `peft` wraps `model`, which contains the adapter's modules."""

    method = "lora"

    def __init__(self, model: "OPTForCausalLM", tokenizer: "PreTrainedTokenizerFast", peft: Any) -> None:
        super().__init__(model, tokenizer)
        self.peft = peft
        self.base = Base(BASE, None, base_digest(BASE))

    def save(self, folder: Path) -> None:
        """Save peft's files, in fp16, and the base's tokenizer."""
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
        target_modules=ADAPTED_LAYERS,
        trainable_token_indices={
            "embed_tokens": sorted(token for token, _ in counts.most_common(MAX_TRAINED_TOKENS))
        },
        task_type="CAUSAL_LM",
    )
    with torch.random.fork_rng(devices=[]), quiet_peft():
        torch.manual_seed(derive_seed(recipe.seed, "weights"))
        wrapped = get_peft_model(model, config)
        initialize_adapter(wrapped)
    return AdaptedModel(model, tokenizer, wrapped)


def initialize_adapter(wrapped: Any) -> list[Tensor]:
    """Initialise each LoRA pair of a PEFT model: the matrix on the narrow side as a frozen orthonormal basis, the
    other as zeros. Return the latter, which are trained."""
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
