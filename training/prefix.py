"""A prefix of keys and values in front of a base, to be trained while the base stays as it is: a cartridge.

It begins as the keys and values of the corpus' first tokens, and the very first of them stays as it is, since models
use it as a place to look at when they look for nothing ("Cartridges: Lightweight and general-purpose long context
representations via self-study", Eyuboglu et al., 2025, section 3 and appendix).
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kcard.cards.lm.engine import prefix
from kcard.cards.lm.fallback import past
from kcard.errors import UsageError

if TYPE_CHECKING:
    from kcard.training.finetune import Options

__all__ = ["DEFAULT", "FROZEN", "length", "opening", "resumed", "room", "with_prefix"]

DEFAULT = 128  # tokens, if the model reads four times as many
FROZEN = 1


def length(options: "Options", config: Any) -> int:
    """Most tokens of the prefix. UsageError for more than half of what the model reads."""
    whole = past.room(config)
    if options.prefix_tokens is None:
        return min(DEFAULT, whole // 4)
    if options.prefix_tokens > whole // 2:
        raise UsageError(
            f"prefix_tokens {options.prefix_tokens} leaves too few of the {whole} tokens that {options.base!r} sees at "
            f"once for questions and documents: give {whole // 2} at most"
        )
    return options.prefix_tokens


def room(tokens: int, config: Any) -> int:
    """Tokens that a model reads after a prefix."""
    return past.room(config) - tokens


def opening(texts: Iterable[str], tokenizer: Any, options: "Options", config: Any) -> tuple[int, ...]:
    """The first tokens of the corpus, of which the prefix is made. UsageError where more were asked for than it has."""
    most = length(options, config)
    found = [] if tokenizer.bos_token_id is None else [tokenizer.bos_token_id]
    for text in texts:
        if len(found) >= most:
            break
        found += tokenizer(f"{text}\n", add_special_tokens=False)["input_ids"]
    if options.prefix_tokens is not None and len(found) < most:
        raise UsageError(
            f"prefix_tokens {most}: the corpus has only {len(found)} tokens to begin from: give {len(found)} at most"
        )
    return tuple(found[:most])


def with_prefix(model: Any, tokens: int, first: Sequence[int] = ()) -> Any:
    """The model of peft with a prefix of so many tokens, the keys and values of `first`; without these, of noise.

    Raises UsageError for a model that has no keys and values of one shape in every layer.
    """
    from peft import CartridgeConfig, get_peft_model, initialize_kv_prefix_from_past_key_values

    try:
        shape = past.key_value_shape(model)
    except ValueError as error:
        raise UsageError(f"method prefix: {error}: use method lora") from error
    config = CartridgeConfig(
        task_type="CAUSAL_LM",
        num_virtual_tokens=tokens,
        num_frozen_tokens=min(FROZEN, tokens - 1),
        num_layers=shape.layers,
        token_dim=shape.heads * shape.width,
        num_attention_heads=shape.heads,
    )
    wrapped: Any = get_peft_model(model, config)
    if first:
        initialize_kv_prefix_from_past_key_values(wrapped, past_key_values=_prefilled(model, first))
    return wrapped


def resumed(model: Any, folder: Path) -> Any:
    """The model of peft with the prefix of the card in a folder, to be trained on, which peft can't load so."""
    from safetensors.torch import load_file

    table = load_file(folder / prefix.WEIGHTS)[prefix.TABLE]
    wrapped = with_prefix(model, len(table))
    wrapped.prompt_encoder[wrapped.active_adapter].load_prompt_embeddings(table)
    return wrapped


def _prefilled(model: Any, ids: Sequence[int]) -> Any:
    import torch
    from transformers import DynamicCache

    cache = DynamicCache(config=model.config)
    with torch.no_grad():
        model(input_ids=torch.tensor([ids], device=model.device), past_key_values=cache, use_cache=True)
    return cache
