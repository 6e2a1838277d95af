"""An adapter on the embedded base: LoRA on the MLPs, and the corpus' tokens with embeddings of their own.

Half of each LoRA pair, the one that reads or writes the model's state, is a fixed orthonormal basis and the other is
trained: Muon's steps are then steps of the weights themselves, of the same size throughout, where two trained halves
grow each other. Embeddings that were frozen held fine-tuning back most (docs/training.md).
"""

import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kcard.batches import batched
from kcard.cards.embedded import BASE, FOLDER
from kcard.cards.format.folder import Card
from kcard.cards.lm.loader import base_digest
from kcard.manifest import Base
from kcard.quiet import quiet_loading
from kcard.sampling import derive_seed
from kcard.training.inheritance import DocidRows
from kcard.training.recipe import Recipe
from kcard.training.trainee import optimizers, parted

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import OPTForCausalLM, PreTrainedTokenizerFast

__all__ = ["TARGETS", "Adapted", "adapted", "base_tokenizer", "begin", "quiet_peft"]

TARGETS = ["fc1", "fc2"]
TOKENS = 1536  # embeddings of its own that an adapter has at most: those of the corpus' most frequent tokens
ROWS = "trainable_tokens_delta"


@dataclass(frozen=True)
class Adapted:
    """The base with a fresh adapter. `peft` wraps `model`, which has the adapter's modules in it."""

    model: "OPTForCausalLM"
    peft: Any
    optimizers: Sequence[Any]
    tokenizer: "PreTrainedTokenizerFast"
    base: Base
    projection: None = None
    kind: str = "lora"

    def mismatch(self, folder: Path) -> str:
        """Empty where the card in `folder` has an adapter of this rank on this base; its tokens may be others."""
        if Card.open(folder).manifest.base != self.base:
            return "the card's adapter is for another version of the base"
        same = _shapes(self._tensors()) == _shapes(_read(folder))
        return "" if same else "the card's adapter has another shape"

    def inherit(self, folder: Path, docids: DocidRows | None = None) -> None:
        """The halves as they are, and the embeddings of the tokens that both have."""
        import torch

        del docids  # it has none

        was = _tokens(folder)
        now = {token: row for row, token in enumerate(_indices(self.peft.peft_config["default"]))}
        shared = [(now[token], row) for row, token in enumerate(was) if token in now]
        weights = _read(folder)
        with torch.no_grad():
            for name, weight in self._tensors().items():
                if ROWS in name:
                    weight[[row for row, _ in shared]] = weights[name][[row for _, row in shared]].to(
                        weight.dtype
                    )
                else:
                    weight.copy_(weights[name])

    def save(self, folder: Path) -> None:
        """peft's files, in fp16, and the base's tokenizer."""
        from safetensors.torch import save_file

        self.peft.peft_config["default"].base_model_name_or_path = BASE
        with quiet_loading():
            # The base's name is not a folder, so peft can't look up its vocabulary.
            self.peft.save_pretrained(folder, save_embedding_layers=False)
        half = {name: tensor.half().contiguous() for name, tensor in _read(folder).items()}
        save_file(half, folder / "adapter_model.safetensors", metadata={"format": "pt"})
        self.tokenizer.save_pretrained(folder)

    def _tensors(self) -> dict[str, Any]:
        """The adapter's weights by their names in its file."""
        from peft import get_peft_model_state_dict

        return dict(get_peft_model_state_dict(self.peft))


def base_tokenizer() -> "PreTrainedTokenizerFast":
    """The embedded base's."""
    from transformers import PreTrainedTokenizerFast

    found: PreTrainedTokenizerFast = PreTrainedTokenizerFast.from_pretrained(FOLDER)
    return found


def adapted(texts: Sequence[str], tokenizer: "PreTrainedTokenizerFast", recipe: Recipe) -> Adapted:
    """The base with an adapter of rank `recipe.rank` that changes nothing yet, the same for the same seed."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import OPTForCausalLM

    assert recipe.rank is not None
    with quiet_loading():
        model: Any = OPTForCausalLM.from_pretrained(
            FOLDER, dtype=torch.float32, attn_implementation="eager", local_files_only=True
        )
    config = LoraConfig(
        r=recipe.rank,
        lora_alpha=recipe.rank,
        target_modules=TARGETS,
        trainable_token_indices={"embed_tokens": _frequent(texts, tokenizer)},
        task_type="CAUSAL_LM",
    )
    with torch.random.fork_rng(devices=[]), quiet_peft():
        torch.manual_seed(derive_seed(recipe.seed, "weights"))
        wrapped = get_peft_model(model, config)
        begin(wrapped)
    trained = [(name, weight) for name, weight in wrapped.named_parameters() if weight.requires_grad]
    found = optimizers(*parted(trained), recipe)
    return Adapted(model, wrapped, found, tokenizer, Base(BASE, None, base_digest(BASE)))


def begin(wrapped: Any) -> "list[Tensor]":
    """Fill each LoRA pair of a model of peft: the half on the narrow side a fixed orthonormal basis, the other zero.
    The latter are trained, and given back."""
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


@contextmanager
def quiet_peft() -> Iterator[None]:
    """peft asks transformers by a name that transformers 5 deprecates; the user can do nothing about it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*is_gradient_checkpointing", FutureWarning)
        yield


def _frequent(texts: Sequence[str], tokenizer: "PreTrainedTokenizerFast") -> list[int]:
    counts: Counter[int] = Counter()
    for part in batched(texts, 1000):
        for row in tokenizer(part, add_special_tokens=False)["input_ids"]:
            counts.update(row)
    return sorted(token for token, _ in counts.most_common(TOKENS))


def _tokens(folder: Path) -> list[int]:
    """The tokens that the adapter in a folder has embeddings for, in their order."""
    from peft import LoraConfig

    return _indices(LoraConfig.from_pretrained(str(folder)))


def _indices(config: Any) -> list[int]:
    found: list[int] = config.trainable_token_indices["embed_tokens"]
    return found


def _shapes(tensors: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Of all but the tokens' embeddings."""
    return {name: tuple(tensor.shape) for name, tensor in tensors.items() if ROWS not in name}


def _read(folder: Path) -> dict[str, Any]:
    from safetensors.torch import load_file

    path = folder / "adapter_model.safetensors"
    return dict(load_file(path)) if path.is_file() else {}
