"""Load the base model to be trained, with a fresh adapter if that is trained instead of its weights."""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kcard.cards.models.loader import adapter_config, base_digest, explained
from kcard.errors import CardError, ModelUnavailable, UsageError, first_line
from kcard.manifest import Base
from kcard.system import quiet_loading
from kcard.training.execution import Execution, bf16, forked_rng
from kcard.types import derive_seed

if TYPE_CHECKING:
    from kcard.training.finetune import Options

PATH_PREFIXES = ("/", "./", "../", "~")  # of folders; an id of the Hub begins with a letter or digit


@dataclass(frozen=True)
class WeightSource:
    """The source of weights and tokenizer: the base alone, or a card whose own weights are trained further, an adapter
    as an adapter, a whole model as a whole one.

    folder    of the card, with its tokenizer
    base      that the card was made from, and its next version will be
    passages  that it has learned; each epoch replays as many as there are new ones
    """

    folder: Path | None = None
    base: Base = Base()  # noqa: RUF009 (frozen)
    passages: Sequence[str] = ()

    def weights(self, options: "Options") -> tuple[str, str]:
        """Return the name or folder of the weights that are loaded first, and their revision."""
        if self.folder is not None and options.method == "full":
            return str(self.folder), "main"
        return options.base, self.base.revision or "main"


@contextmanager
def _loading(name: str) -> Iterator[None]:
    """Load silently from a folder, and raise ModelUnavailable if that fails."""
    if name.startswith(PATH_PREFIXES) and not Path(name).is_dir():
        raise ModelUnavailable(f"base model {name!r}: there is no such folder")
    try:
        with quiet_loading() if Path(name).is_dir() else nullcontext():
            yield
    except (OSError, ValueError, KeyError, ImportError) as error:
        raise ModelUnavailable(
            f"base model {name!r} can't be loaded: {first_line(error)} "
            "(give a folder or a reachable hub id, or use base embedded)"
        ) from error


def load_tokenizer(options: "Options", origin: WeightSource) -> Any:
    """Load the tokenizer. Raises ModelUnavailable, and UsageError for one without an end-of-text token."""
    from transformers import AutoTokenizer

    name = str(origin.folder or options.base)
    with _loading(name):
        tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=False)
    if tokenizer.eos_token_id is None:
        raise UsageError(
            f"base {options.base!r} has a tokenizer without an end-of-text token: choose another"
        )
    return tokenizer


def load_config(options: "Options", origin: WeightSource) -> Any:
    """Load the model's configuration, without its weights. Raises ModelUnavailable."""
    from transformers import AutoConfig

    name, revision = origin.weights(options)
    with _loading(name):
        return AutoConfig.from_pretrained(name, revision=revision, trust_remote_code=False)


def check_vocabulary(tokenizer: Any, config: Any, base: str) -> None:
    """Raise UsageError if texts can have tokens for which the model has no embedding. Special tokens, which texts lack,
    may be more than it has."""
    rows = getattr(config.get_text_config(), "vocab_size", None)
    if rows is None or len(tokenizer) <= rows:
        return
    special = {number for number, token in tokenizer.added_tokens_decoder.items() if token.special}
    if any(number >= rows and number not in special for number in tokenizer.get_vocab().values()):
        raise UsageError(
            f"base {base!r}: its tokenizer has {len(tokenizer):,} tokens, its embeddings have {rows:,} rows: resize "
            "the model (resize_token_embeddings of transformers) and save it again, or choose another base"
        )


def room_of(config: Any) -> int:
    """Return the size of the model's context window in tokens."""
    return int(getattr(config, "max_position_embeddings", None) or 2048)


def load_model(
    options: "Options",
    execution: Execution,
    origin: WeightSource,
    device: str,
    *,
    bare: bool = False,
) -> Any:
    """Load the model with its trainable weights.

    Trained weights have the dtype of the options; the frozen base of an adapter is bf16 on a GPU. With `bare`, the
    model is built as it is trained on `device`, but without data, on torch's device "meta". Raises ModelUnavailable,
    and UsageError for a model that can't compute activations again.
    """
    import torch
    from transformers import AutoModelForCausalLM

    frozen = options.method != "full" and device != "cpu" and bf16(device)
    dtype = torch.bfloat16 if frozen else getattr(torch, options.dtype)
    name, revision = origin.weights(options)
    with torch.device("meta") if bare else nullcontext():
        if bare:
            config = load_config(options, origin)
            model: Any = AutoModelForCausalLM.from_config(config, dtype=dtype, trust_remote_code=False)
            origin = WeightSource()
        else:
            with _loading(name):
                model = AutoModelForCausalLM.from_pretrained(
                    name, dtype=dtype, revision=revision, trust_remote_code=False
                )
        if execution.checkpointing:
            _checkpoint_activations(model)
        if not bare:
            model = model.to(torch.device(device))
        if options.method == "full":
            return model
        return _add_adapter(model, options, origin)


def base_of(name: str, model: Any) -> Base:
    """Return the base as a manifest names it."""
    revision = getattr(model.config, "_commit_hash", None)
    where = str(Path(name).absolute()) if Path(name).is_dir() else name
    return Base(where, revision, base_digest(where, revision))


def _add_adapter(model: Any, options: "Options", origin: WeightSource) -> Any:
    """Wrap the model with a fresh adapter on every linear layer but the output head, or that of the card that is
    trained further."""
    import torch
    from peft import LoraConfig, PeftModel, get_peft_model

    config = LoraConfig(
        r=options.rank,
        lora_alpha=2 * options.rank,
        lora_dropout=0.0,
        target_modules="all-linear",
        task_type="CAUSAL_LM",
    )
    with forked_rng(model.device), warnings.catch_warnings():
        # peft uses a name that transformers 5 deprecates, which users can't change.
        warnings.filterwarnings("ignore", ".*is_gradient_checkpointing", FutureWarning)
        if origin.folder is not None:
            with explained(CardError, f"the adapter in {origin.folder} can't be read"):
                config = adapter_config(origin.folder, is_trainable=True)
            return PeftModel.from_pretrained(model, origin.folder, is_trainable=True, config=config)
        torch.manual_seed(derive_seed(options.seed, "weights"))
        return get_peft_model(model, config)


def _checkpoint_activations(model: Any) -> None:
    if not model.supports_gradient_checkpointing:
        raise UsageError(
            f"gradient_checkpointing: transformers does not support it for {type(model).__name__}: leave it out, and "
            "use a smaller micro_batch"
        )
    with warnings.catch_warnings():
        # transformers 4 does not know the name that replaces it in transformers 5.
        warnings.filterwarnings("ignore", ".*gradient_checkpointing_enable", FutureWarning)
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
