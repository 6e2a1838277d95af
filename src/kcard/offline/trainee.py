"""The model of an embedded card during training, whole or as an adapter, with its tokenizer.

In each LoRA pair, the matrix on the side of the hidden state is a fixed orthonormal basis and the other is trained:
Muon's steps are then steps of the merged weights, of constant size, whereas two trained matrices would amplify each
other. Frozen embeddings limited fine-tuning most, so they are trained too (docs/training.md).
"""

import json
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from kcard.batching import batched
from kcard.cards.card import PROJECTION, Card
from kcard.cards.models.loader import base_digest, quiet_peft
from kcard.manifest import Base
from kcard.offline.opt import BASE, FOLDER
from kcard.offline.recipe import BOS, EOS, PAD, SPECIAL, Recipe, tokenizer_of
from kcard.system import quiet_loading
from kcard.types import derive_seed

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from torch import Tensor
    from torch.nn import Linear
    from transformers import OPTForCausalLM, PreTrainedTokenizerFast

    from kcard.offline.docids import NoisedQuestions

# The next version of an embedded card inherits the last one's weights, though tokenizer and docids differ.
#
# Shared tokens keep their embeddings, and so do docids of shared passages. Every other token starts from a fresh
# initialisation; in an incremental update, every other docid starts as the mean of its nearest ones.

DocidRows: TypeAlias = Sequence[
    tuple[int, int]
]  # passages that both have: (number now, number in the last version)

TABLE = "model.decoder.embed_tokens.weight"
TIED = "lm_head.weight"
NEAREST, SHARPNESS = 4, 10.0


def docids_of(folder: Path, tokenizer: "PreTrainedTokenizerFast") -> int:
    """Return the number of docids of the card in `folder`, given its tokenizer."""
    return len(_read_weights(folder)[TABLE]) - len(tokenizer)


def initialize_docids(
    model: "OPTForCausalLM", first: int, new: Sequence[int], staying: Sequence[int], passages: "Tensor"
) -> None:
    """Initialise each new docid as the similarity-weighted mean of the nearest passages' docids.

    The card then confuses a new passage with similar ones at first, and needs smaller updates to separate them.

    first         token of passage 0
    new, staying  numbers of the added passages, and of those whose docids the model has
    passages      embeddings of all, (passages, 384)
    """
    import torch

    if not staying or not new:
        return
    table = model.get_input_embeddings().weight
    rows = torch.tensor(staying)
    with torch.no_grad():
        nearest = (passages[list(new)] @ passages[rows].T).topk(min(NEAREST, len(staying)))
        shares = (SHARPNESS * nearest.values).softmax(-1)
        averages = (shares[..., None] * table[first + rows[nearest.indices]]).sum(1)
        table[first + torch.tensor(list(new))] = averages


def _read_weights(folder: Path) -> dict[str, Any]:
    """Read the tensors of a card's model and projection by name."""
    from safetensors.torch import load_file

    tensors = dict(load_file(folder / "model.safetensors"))
    if (folder / PROJECTION).is_file():
        tensors |= {f"projection.{name}": tensor for name, tensor in load_file(folder / PROJECTION).items()}
    return tensors


def _weight_shapes(tensors: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Return shapes without the number of tokens or the tied head."""
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items() if name != TIED}
    return shapes | {TABLE: shapes[TABLE][1:]}


# The tokenizer of a card's last version, adapted to added and removed texts.
#
# A BPE retrained on nearly the same texts splits many words differently, so a model would have to relearn all of its
# passages. This one splits every word of an old text as before. Tokens that no text needs any more are dropped: they
# may be names that only a removed text had.

Merge = tuple[str, str]


def prune_and_extend_tokenizer(
    last: "PreTrainedTokenizerFast", texts: Sequence[str], added: Sequence[str], vocabulary: int
) -> "PreTrainedTokenizerFast":
    """Adapt the tokenizer `last` to `texts`, which include `added`, with at most `vocabulary` tokens.

    `last` comes from train_tokenizer or from this function. Words of `added` get new merges as far as there is room.
    """
    from tokenizers import Tokenizer, pre_tokenizers

    model: Tokenizer = last.backend_tokenizer
    description: dict[str, Any] = json.loads(model.to_str())
    merges: list[Merge] = [(first, second) for first, second in description["model"]["merges"]]
    # Keep the tokens of the texts, and all tokens from which these are merged.
    encodings = model.encode_batch([*texts], add_special_tokens=False)
    needed = {token for encoding in encodings for token in encoding.tokens}
    for pair in reversed(merges):  # the parts of a merge are merged before it
        if "".join(pair) in needed:
            needed.update(pair)
    needed_merges = [pair for pair in merges if "".join(pair) in needed]
    # Learn merges for the added texts, as far as the vocabulary has room.
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    room = vocabulary - len({*SPECIAL, *alphabet, *map("".join, needed_merges)})
    pruned = _with_merges(description, alphabet, needed_merges)
    learned = _learn_merges(pruned, added, room)
    return tokenizer_of(
        _with_merges(description, alphabet, [*needed_merges, *learned]) if learned else pruned
    )


def _with_merges(
    description: dict[str, Any], alphabet: Iterable[str], merges: Sequence[Merge]
) -> "Tokenizer":
    """Make the described tokenizer with these merges and the vocabulary that follows from them."""
    from tokenizers import Tokenizer

    tokens = dict.fromkeys([*SPECIAL, *alphabet, *map("".join, merges)])
    vocabulary = {token: number for number, token in enumerate(tokens)}
    model = {**description["model"], "vocab": vocabulary, "merges": [list(pair) for pair in merges]}
    return Tokenizer.from_str(json.dumps({**description, "model": model}))


def _learn_merges(model: "Tokenizer", texts: Sequence[str], most: int) -> list[Merge]:
    """Learn at most `most` BPE merges, each of the most frequent adjacent pair in the words of the texts."""
    words = Counter(word for text in texts for word, _ in model.pre_tokenizer.pre_tokenize_str(text))
    split = {word: [token.value for token in model.model.tokenize(word)] for word in words}
    merges: list[Merge] = []
    while len(merges) < most:
        pairs: Counter[Merge] = Counter()
        for word, tokens in split.items():
            for pair in pairwise(tokens):
                pairs[pair] += words[word]
        if not pairs:
            break
        best = max(pairs, key=lambda pair: (pairs[pair], pair))
        merges.append(best)
        for word, tokens in split.items():
            joined: list[str] = []
            for token in tokens:
                if joined and (joined[-1], token) == best:
                    joined[-1] += token
                else:
                    joined.append(token)
            split[word] = joined
    return merges


# An embedded card before its first step: a whole model from scratch, and its optimizers.


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
    def mismatch(self, folder: Path) -> str:
        """Return why it can't continue from the card in `folder`; empty if it can. Tokens may differ."""

    @abstractmethod
    def inherit(self, folder: Path, docids: DocidRows | None = None) -> None:
        """Copy the weights of the card in `folder`, which must have the same shape, and the embeddings of tokens that
        both have. `docids`: which of them to copy; None: the first ones of both."""

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write the model's files and the tokenizer."""


@dataclass(frozen=True)
class WholeModel(Trainee):
    """A model with all its own weights."""

    def mismatch(self, folder: Path) -> str:
        same = _weight_shapes(self._weights()) == _weight_shapes(_read_weights(folder))
        return "" if same else "the card's model has another shape"

    def inherit(self, folder: Path, docids: DocidRows | None = None) -> None:
        import torch
        from transformers import AutoTokenizer

        was: Any = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
        old, now = was.get_vocab(), self.tokenizer.get_vocab()
        weights, modules = _read_weights(folder), self._weights()
        before, table = weights[TABLE], modules[TABLE]
        shared = [(now[token], row) for token, row in old.items() if token in now]
        first, first_before = len(self.tokenizer), len(was)
        if docids is None:
            docids = [(at, at) for at in range(min(len(before) - first_before, len(table) - first))]
        with torch.no_grad():
            for name, weight in modules.items():
                if name not in {TABLE, TIED}:
                    weight.copy_(weights[name])
            table[[row for row, _ in shared]] = before[[row for _, row in shared]]
            table[[first + at for at, _ in docids]] = before[[first_before + at for _, at in docids]]

    def save(self, folder: Path) -> None:
        from safetensors.torch import save_file

        with quiet_loading():
            self.model.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)
        if self.projection is not None:
            named = self.projection.named_parameters()
            tensors = {name: weight.detach().contiguous() for name, weight in named}
            save_file(tensors, folder / PROJECTION)

    def _weights(self) -> dict[str, Any]:
        projection = {} if self.projection is None else dict(self.projection.named_parameters())
        named: dict[str, Any] = dict(self.model.named_parameters())
        return named | {f"projection.{name}": weight for name, weight in projection.items()}


def whole_model(tokenizer: "PreTrainedTokenizerFast", docids: int, recipe: Recipe) -> WholeModel:
    """Return a model with random weights, set by the seed. `docids`: number of tokens above the tokenizer's."""
    import torch
    from torch.nn import Linear

    from kcard.cards.models.prompting import SIZE
    from kcard.offline.minilm import DIMENSIONS

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
ROWS = "trainable_tokens_delta"


@dataclass(frozen=True)
class AdaptedModel(Trainee):
    """The base with a new adapter. `peft` wraps `model`, which contains the adapter's modules."""

    peft: Any = None
    method: str = "lora"

    def mismatch(self, folder: Path) -> str:
        if Card.open(folder).manifest.base != self.base:
            return "the card's adapter is for another version of the base"
        same = _shapes(self._tensors()) == _shapes(_read_adapter(folder))
        return "" if same else "the card's adapter has another shape"

    def inherit(self, folder: Path, docids: DocidRows | None = None) -> None:
        import torch
        from peft import LoraConfig

        del docids  # it has none

        # The tokens with embeddings in the folder's adapter, in order.
        was = _indices(LoraConfig.from_pretrained(str(folder)))
        now = {token: row for row, token in enumerate(_indices(self.peft.peft_config["default"]))}
        shared = [(now[token], row) for row, token in enumerate(was) if token in now]
        weights = _read_adapter(folder)
        with torch.no_grad():
            for name, weight in self._tensors().items():
                if ROWS in name:
                    weight[[row for row, _ in shared]] = weights[name][[row for _, row in shared]].to(
                        weight.dtype
                    )
                else:
                    weight.copy_(weights[name])

    def save(self, folder: Path) -> None:
        """Save peft's files, in fp16, and the base's tokenizer."""
        from safetensors.torch import save_file

        self.peft.peft_config["default"].base_model_name_or_path = BASE
        with quiet_loading():
            # The base's name is not a folder, so peft can't read its vocabulary size.
            self.peft.save_pretrained(folder, save_embedding_layers=False)
        half = {name: tensor.half().contiguous() for name, tensor in _read_adapter(folder).items()}
        save_file(half, folder / "adapter_model.safetensors", metadata={"format": "pt"})
        self.tokenizer.save_pretrained(folder)

    def _tensors(self) -> dict[str, Any]:
        from peft import get_peft_model_state_dict

        return dict(get_peft_model_state_dict(self.peft))


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


def _indices(config: Any) -> list[int]:
    indices: list[int] = config.trainable_token_indices["embed_tokens"]
    return indices


def _shapes(tensors: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Return shapes, except of token embeddings."""
    return {name: tuple(tensor.shape) for name, tensor in tensors.items() if ROWS not in name}


def _read_adapter(folder: Path) -> dict[str, Any]:
    from safetensors.torch import load_file

    path = folder / "adapter_model.safetensors"
    return dict(load_file(path)) if path.is_file() else {}
