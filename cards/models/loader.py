"""Load the models of cards with transformers and peft, within a memory budget."""

import json
import warnings
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kcard import system
from kcard.cards.card import Card
from kcard.cards.model_limits import check_memory, check_rules, check_tokenizer, refuse_oversized
from kcard.embedded.opt import BASE, PlainTokenizer, base_folder
from kcard.errors import CardError, KcardError, ModelUnavailable, UsageError, first_line
from kcard.io import shown_size
from kcard.manifest import Base, file_digest, weights_digest
from kcard.system import quiet_loading

if TYPE_CHECKING:
    from kcard.cards.models.vllm_engines import Engines
    from kcard.interfaces import LLM

# The memory budget of cards: when it is exceeded, the least used entries are evicted.

DEFAULT_MEMORY_SHARE = 0.5  # of the device's memory
MAX_COUNTED_USES = 1000  # uses after which all use counts are halved


class ModelCache:
    """Loaded models by key. `budget`: bytes of weights; None: half of the device's memory.

    Entries used least often are evicted first; ties go by least recent use. Use counts survive eviction.

    used    bytes of all entries
    """

    def __init__(self, budget: int | None = None, device: str = "cpu") -> None:
        if budget is not None and budget < 1:
            raise UsageError(f"memory is {budget}: it must be at least 1 byte, or left out")
        self._budget, self._device, self._is_fixed = budget, device, budget is not None
        self.used = self._total = 0
        self._entries: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()
        self._uses: Counter[Hashable] = Counter()

    @property
    def limit(self) -> int:
        """Bytes."""
        if self._budget is None:
            self._budget = int(device_bytes(self._device) * DEFAULT_MEMORY_SHARE)
        return self._budget

    def check(self, what: str, size: int) -> None:
        """Raise ModelUnavailable for what does not fit alone: into the budget, or the device if none was given."""
        needed = f"{what} needs {shown_size(size)} for its weights, but"
        if self._is_fixed and size > self.limit:
            raise ModelUnavailable(
                f"{needed} --memory is {shown_size(self.limit)}: set --memory to {size} bytes or more"
            )
        if not self._is_fixed and size > device_bytes(self._device):
            there = shown_size(device_bytes(self._device))
            raise ModelUnavailable(f"{needed} device {self._device} has {there}: use a larger device")

    def __contains__(self, key: Hashable) -> bool:
        return key in self._entries

    def get(self, key: Hashable) -> Any:
        """Return the value of a key, marking it as most recently used; None if missing."""
        if key not in self._entries:
            return None
        self._entries.move_to_end(key)
        value, size = self._entries[key]
        self._count_use(key, size)
        return value

    def peek(self, key: Hashable) -> Any:
        """Get without counting a use."""
        return self._entries.get(key, (None, 0))[0]

    def put(self, key: Hashable, value: Any, size: int) -> None:
        """Store a value under a key, as the most recently used."""
        self.drop(key)
        self._entries[key] = (value, size)
        self.used += size
        self._count_use(key, size)
        self._evict(self.limit, key)

    def make_room(self, size: int) -> None:
        """Evict until `size` more bytes fit."""
        self._evict(self.limit - size)

    def drop(self, key: Hashable) -> None:
        self.used -= self._entries.pop(key, (None, 0))[1]

    def _count_use(self, key: Hashable, size: int) -> None:
        if not size:
            return
        self._uses[key] += 1
        self._total += 1
        if self._total > MAX_COUNTED_USES:
            self._uses = Counter({used: times // 2 for used, times in self._uses.items() if times > 1})
            self._total = self._uses.total()

    def _evict(self, limit: int, protected: Hashable = None) -> None:
        """Evict the least used entries, except `protected`, until the limit is met. Entries without size stay."""
        if self.used <= limit:
            return
        sized = [key for key, (_, size) in self._entries.items() if size and key != protected]
        for key in sorted(sized, key=lambda key: self._uses[key]):
            if self.used > limit:
                self.drop(key)


def device_bytes(device: str) -> int:
    """Return the device's memory."""
    if device != "cpu":
        import torch

        return int(torch.cuda.get_device_properties(device).total_memory)
    import os

    if not hasattr(os, "sysconf"):  # Windows
        return 16 * 1024**3
    return int(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))


MAX_ROWS = 256
MAX_FLOAT32_PARAMETERS = 50_000_000
# Adapters are not named like their cards: peft turns the names into module names, which may not contain dots.
FIRST_ADAPTER = "card0"
# Files that determine a tokenizer; the config names its class.
TOKENIZERS = (
    "tokenizer",
    "special_tokens",
    "added_tokens",
    "vocab",
    "merges",
    "spiece",
    "chat_template",
    "config.json",
)


@dataclass(frozen=True)
class LoadedModel:
    """A model and, for a LoRA card, the name of its adapter in it."""

    model: Any
    adapter: str | None = None

    def activate(self) -> Any:
        """Return the model with this card's adapter active."""
        if self.adapter is not None and self.model.active_adapter != self.adapter:
            self.model.set_adapter(self.adapter)
        return self.model

    @contextmanager
    def bare(self) -> Iterator[Any]:
        """Yield the model with its adapters disabled while the block lasts."""
        with ExitStack() as stack:
            # peft raises ValueError if the model has no adapters left: then it is bare already.
            with suppress(ValueError):
                stack.enter_context(self.model.disable_adapter())
            yield self.model


@dataclass
class Loader:
    """The models loaded so far, on one device. `rows`: maximum rows per batch of any card.

    llm      resolves the LLM that a card of kind llm names, if allowed; None if cards may not use LLMs
    memory   bytes for the weights; None: half of the device's memory
    groups   of cards that run together, and their stacks (kcard.cards.models.stack)
    engines  servers that run the cards of their bases (kcard.cards.models.vllm_engines)
    """

    device: str = "cpu"
    rows: int = MAX_ROWS
    llm: "Callable[[str], LLM] | None" = None
    memory: int | None = None
    engines: "Engines | None" = None
    groups: dict[Hashable, Any] = field(default_factory=dict)
    cache: ModelCache = field(init=False)
    _bases: dict[Hashable, Any] = field(default_factory=dict)
    _digests: dict[tuple[str, str | None], str | None] = field(default_factory=dict)
    _spare: dict[Hashable, Any] = field(default_factory=dict)
    _tokenizers: dict[Hashable, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.cache = ModelCache(self.memory, self.device)

    def full(self, card: Card) -> LoadedModel:
        """Load a whole model from the folder. Raises CardError if transformers can't load it."""
        return LoadedModel(self._spare.pop(card.folder, None) or self.model(card))

    def model(self, card: Card) -> Any:
        """Load the card's own model, or its adapter's base, as a transformers model; not cached."""
        if card.manifest.is_adapter:
            return self._base(card)
        with explained(CardError, f"card {card.name!r}: {card.folder} can't be loaded"):
            refuse_oversized(card.folder, f"card {card.name!r}")
            check_memory(card.folder)
            return self._to_device(causal_lm(card.folder, None, local=True))

    def release(self, card: Card, model: Any) -> None:
        """Hand back what `model` returned, for the card's next `full` or `lora`."""
        base = card.manifest.base
        self._spare[(base.name, base.revision) if card.manifest.is_adapter else card.folder] = model

    def tokenizer(self, card: Card) -> Any:
        """Load a tokenizer, shared by equal files. Raises CardError if it can't be loaded."""
        files = card.manifest.files
        same = tuple(sorted((name, files[name]) for name in files if name.startswith(TOKENIZERS)))
        key: Hashable = same or card.folder
        if key not in self._tokenizers:
            with explained(CardError, f"card {card.name!r}: its tokenizer can't be loaded"):
                check_tokenizer(card.folder)
                tokenizer: Any = PlainTokenizer.read(card.folder)
                if tokenizer is None:
                    from transformers import AutoTokenizer

                    tokenizer = AutoTokenizer.from_pretrained(
                        card.folder, local_files_only=True, trust_remote_code=False
                    )
                    fast = getattr(tokenizer, "backend_tokenizer", None)
                    if fast is not None:
                        check_rules(fast.to_str())  # of vocab.txt, tokenizer.model, ...
                self._tokenizers[key] = tokenizer
        return self._tokenizers[key]

    def lora(self, card: Card) -> LoadedModel:
        """Load the card's adapter on its base, which is loaded once for all its cards that train tokens, and once for
        those that don't, since peft can't mix the two."""
        base = card.manifest.base
        misfit = f"card {card.name!r}: its adapter does not fit the base model {_base_name(base)}"
        with explained(CardError, misfit):
            config = json.loads((card.folder / "adapter_config.json").read_text(encoding="utf-8"))
            key = (base.name, base.revision, bool(config.get("trainable_token_indices")))
        if key not in self._bases:
            whole = self._spare.pop(key[:2], None) or self._base(card)
            with explained(CardError, misfit):
                model = with_adapter(whole, card.folder)
            self._bases[key] = model.eval()
            return LoadedModel(model, FIRST_ADAPTER)
        self.check_digest(card)
        model = self._bases[key]
        name = f"card{len(model.peft_config)}"
        with explained(CardError, misfit):
            model.add_adapter(name, adapter_config(card.folder))
            model.load_adapter(card.folder, adapter_name=name)
        return LoadedModel(model, name)

    def base(self, card: Card) -> LoadedModel:
        """Load the unmodified model that the card was made from. Raises ModelUnavailable if it is unavailable."""
        return LoadedModel(self._base(card))

    def _base(self, card: Card) -> Any:
        base = card.manifest.base
        if not base.name:
            raise CardError(f"card {card.name!r} needs a base model, but its manifest names none")
        needed = f"card {card.name!r} needs the base model {_base_name(base)}, which can't be loaded"
        with explained(ModelUnavailable, needed):
            model = causal_lm(base_folder(base.name), base.revision, local=False)
        self.check_digest(card)
        return self._to_device(model)

    def check_digest(self, card: Card) -> None:
        """Raise ModelUnavailable if the base's weights are not the card's. Each base is read once."""
        base = card.manifest.base
        if base.sha256 is None:
            return
        key = (base.name, base.revision)
        if key not in self._digests:
            self._digests[key] = base_digest(*key)
        digest = self._digests[key]
        if digest != base.sha256:
            remedy = "fetch the revision that the card names"
            if base.name == BASE:
                remedy = "install the kcard that it was trained with, or train it again"
            here = f"{digest[:12]}…" if digest else "none"
            raise ModelUnavailable(
                f"card {card.name!r} needs the base model {_base_name(base)} with sha256 {base.sha256[:12]}…, but "
                f"this machine has {here}: {remedy}"
            )

    def _to_device(self, model: Any) -> Any:
        """Move to the device, in fp32 if the model is small or the CPU has no bf16, else in bf16."""
        import torch
        from transformers import GenerationConfig

        count = sum(p.numel() for p in model.parameters())
        dtype = torch.float32 if in_single_precision(count, self.device) else torch.bfloat16
        # Of the model's own generation settings keep only eos: a repetition penalty, for example, would change
        # the samples.
        ends = model.generation_config.eos_token_id
        model.generation_config = GenerationConfig(eos_token_id=ends)
        return model.to(device=self.device, dtype=dtype).eval()


def in_single_precision(count: int, device: str) -> bool:
    """Return whether a model with `count` parameters runs in float32 on the device, not bfloat16."""
    if count < MAX_FLOAT32_PARAMETERS or device != "cpu":
        return count < MAX_FLOAT32_PARAMETERS
    return not system.multiplies_bf16()


def with_adapter(base: Any, folder: Path) -> Any:
    from peft import PeftModel

    with quiet_peft():
        return PeftModel.from_pretrained(
            base, folder, adapter_name=FIRST_ADAPTER, config=adapter_config(folder)
        )


def adapter_config(folder: Path, *, is_trainable: bool = False) -> Any:
    """Load the config of a LoRA adapter for peft, with exact names for patterns. Raises ValueError."""
    from peft import PeftConfig

    from kcard.cards.models.batched import lora

    exact = lora.exact_config(folder)
    config: Any = PeftConfig.from_pretrained(str(folder))
    for key, value in exact.items():
        setattr(config, key, value)
    config.inference_mode = not is_trainable
    return config


@contextmanager
def quiet_peft() -> Iterator[None]:
    """Silence peft's use of a name that transformers 5 deprecates, which users can't change."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*is_gradient_checkpointing", FutureWarning)
        yield


def base_digest(name: str, revision: str | None = None) -> str | None:
    """Return the sha256 of a base's weights, as manifests record it; None if no weights file is on this machine."""
    folder = base_files(name, revision)
    if folder is None:
        return None
    for pattern in ("*.safetensors", "pytorch_model*.bin"):
        files = [*folder.glob(pattern)]
        if files:
            return weights_digest({path.name: file_digest(path) for path in files})
    return None


def base_files(name: str, revision: str | None) -> Path | None:
    """Return the local folder of a base's files; None if there is none."""
    if Path(base_folder(name)).is_dir():
        return Path(base_folder(name))
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(name, revision=revision, local_files_only=True))
    except (LocalEntryNotFoundError, HFValidationError):
        return None


def causal_lm(where: str | Path, revision: str | None, local: bool) -> Any:
    """Load a causal language model with transformers. `local`: from this machine only."""
    from transformers import AutoModelForCausalLM

    chosen: dict[str, Any] = {"revision": revision} if revision else {}
    with quiet_loading() if Path(where).is_dir() else nullcontext():
        return AutoModelForCausalLM.from_pretrained(
            where, dtype="auto", local_files_only=local, trust_remote_code=False, **chosen
        )


def _base_name(base: Base) -> str:
    if base.revision:
        return f"{base.name!r} at revision {base.revision}"
    return repr(base.name)


@contextmanager
def explained(kind: type[KcardError], what: str) -> Iterator[None]:
    """Turn whatever transformers, peft and tokenizers raise for a model's files into a one-line error."""
    try:
        yield
    except (KcardError, MemoryError):
        raise
    except Exception as error:
        # Damaged or unusual files raise any of twenty types; that of tokenizers is Exception itself.
        raise kind(f"{what}: {first_line(error)}") from error
