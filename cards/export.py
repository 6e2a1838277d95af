"""Export cards for vLLM and llama.cpp."""

import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from kcard.cards.card import Card
from kcard.cards.fingerprint import Fingerprint, fingerprint_pairs, read_fingerprint
from kcard.cards.generators import external
from kcard.cards.hugging_face import COMPANIONS, INDEX, SAFE, refuse_code
from kcard.cards.model_limits import refuse_oversized
from kcard.cards.models.loader import SMALL, Loader, base_files, causal_lm, explained, with_adapter
from kcard.cards.models.prompting import VOCABULARY, prompt_ids
from kcard.errors import CardError, ModelUnavailable, UsageError
from kcard.events import OnEvent, note
from kcard.io import parse
from kcard.manifest import MANIFEST, Base, file_digest
from kcard.offline.opt import BASE, base_folder
from kcard.system import quiet_loading

# The engines that cards are exported to, and which cards each of them runs as they were trained.
#
# Engines often silently ignore what they do not support, so a card that one would run wrongly is rejected here.
# Sources: vLLM 0.32 (lora/peft_helper.py, config/lora.py; the models that implement SupportsLoRA), llama.cpp
# (convert_lora_to_gguf.py, conversion/).


@dataclass(frozen=True)
class Engine:
    """The capabilities of an engine.

    name            as the user writes it
    title           as its makers write it
    ranks           allowed maximum ranks; empty: no such setting
    rslora          whether it divides alpha by the root of the rank where the adapter says so
    without         model types (config.json) that it does not run
    without_lora    model types that it runs, but without adapters
    """

    name: str
    title: str
    ranks: tuple[int, ...] = ()
    rslora: bool = False
    without: frozenset[str] = frozenset()
    without_lora: frozenset[str] = frozenset()


VLLM = Engine(
    "vllm",
    "vLLM",
    ranks=(1, 8, 16, 32, 64, 128, 256, 320, 512),
    rslora=True,
    without_lora=frozenset(
        {"bloom", "falcon", "gpt2", "gpt_neox", "gptj", "mpt", "olmo", "phi", "stablelm", "starcoder2"}
    ),
)
LLAMA_CPP = Engine("llama.cpp", "llama.cpp", without=frozenset({"opt"}))
ENGINES: Mapping[str, Engine] = {engine.name: engine for engine in (VLLM, LLAMA_CPP)}


# The files of a card that engines read: weights, configuration, tokenizer. Passages and their index stay behind.

ADAPTER = ("adapter_config.json", "adapter_model.safetensors")
MODEL = ("config.json", "generation_config.json")
TOKENIZER = COMPANIONS - {*ADAPTER, *MODEL}


def copy_tokenizer(card: Card, folder: Path) -> None:
    _copy(card.folder, folder, lambda name: name in TOKENIZER)


def copy_model(source: Path, folder: Path) -> None:
    def is_copied(name: str) -> bool:
        is_weights = name == INDEX or (SAFE.fullmatch(name) is not None and not name.startswith("adapter"))
        return is_weights or name in TOKENIZER or name in MODEL

    _copy(source, folder, is_copied)


def copy_adapter(card: Card, folder: Path, base: str) -> None:
    """Copy the adapter as peft saved it, with the engine's name for its base in its config."""
    _copy(card.folder, folder, lambda name: name in ADAPTER)
    config = json.loads((folder / ADAPTER[0]).read_text(encoding="utf-8"))
    named = {"base_model_name_or_path": base, "revision": card.manifest.base.revision}
    (folder / ADAPTER[0]).write_text(json.dumps(config | named, indent=2), encoding="utf-8")


def copy_base(folder: Path) -> None:
    """Copy the packaged base, which is on no hub."""
    copy_model(Path(base_folder(BASE)), folder)


def _copy(source: Path, folder: Path, is_copied: Callable[[str], bool]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for path in sorted(source.iterdir()):
        if path.is_file() and is_copied(path.name):
            shutil.copyfile(path, folder / path.name)


# An adapter as peft saved it: what an engine must apply, and why it might not.

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
# Initializations that leave the base unchanged, so that the saved pairs are the whole adapter.
BEGINNINGS = ("gaussian", "eva", "orthogonal", "mica", "lora_ga")
PREFIX = "base_model.model."
# Parts of tensor names of LoRA pairs and of features that the config declares.
RECOGNIZED = (".lora_A.", ".lora_B.", "lora_embedding", "lora_magnitude_vector", "trainable_tokens", ".bias")
# Features of peft's LoRA beyond a pair of matrices for each linear layer.
FEATURES: Mapping[str, str] = {
    "trainable_token_indices": "its own token embeddings",
    "modules_to_save": "its own whole layers (modules_to_save)",
    "use_dora": "DoRA",
    "lora_bias": "biases",
    "rank_pattern": "ranks that differ between layers",
    "alpha_pattern": "scales that differ between layers",
    "alora_invocation_tokens": "aLoRA",
    "layer_replication": "repeated layers",
    "target_parameters": "LoRA on single parameters",
    "use_qalora": "QALoRA",
    "use_bdlora": "block-diagonal LoRA",
}


@dataclass(frozen=True)
class PeftAdapter:
    """A LoRA adapter. `pairs`: number of matrix pairs, one per adapted linear layer; `extras`: its other features, in
    words."""

    rank: int
    alpha: float
    rslora: bool
    pairs: int
    extras: tuple[str, ...]


def read_adapter(folder: Path) -> PeftAdapter:
    """Load the adapter in a card's folder, reading only the names of its tensors. Raises CardError if unreadable."""
    from safetensors import safe_open

    try:
        config = parse((folder / CONFIG).read_text(encoding="utf-8"))
        with safe_open(folder / WEIGHTS, framework="numpy") as tensors:
            names = list(tensors.keys())
        rank, alpha = int(config["r"]), float(config["lora_alpha"])
    except Exception as error:  # safetensors raises its own type
        raise CardError(
            f"the adapter in {folder} can't be read: {error!r}: fetch or train it again"
        ) from error
    pairs = [name for name in names if name.endswith(".lora_A.weight")]
    rslora = bool(config.get("use_rslora"))
    return PeftAdapter(rank, alpha, rslora, len(pairs), tuple(_extras(config, names)))


def _extras(config: Mapping[str, Any], names: list[str]) -> Iterator[str]:
    if config.get("peft_type", "LORA") != "LORA":
        yield f"the method {config['peft_type']}"
    for key, words in FEATURES.items():
        if config.get(key):
            yield words
    if config.get("bias", "none") != "none" and not config.get("lora_bias"):
        yield "biases"
    initialization = config.get("init_lora_weights", True)
    if isinstance(initialization, str) and initialization.lower() not in BEGINNINGS:
        yield f"a base that {initialization} has changed"
    if any("lora_embedding" in name or ".lm_head." in name for name in names):
        yield "LoRA on embeddings or the head"
    if others := [name for name in names if not any(part in name for part in RECOGNIZED)]:
        yield f"tensors that are not LoRA pairs, such as {others[0].removeprefix(PREFIX)}"


def misfits(adapter: PeftAdapter, engine: Engine, model_type: str | None) -> list[str]:
    """Return why the engine would not apply the adapter as trained, in words; empty if it would.

    model_type  of the base, as its config.json names it; None if that is not on this machine
    """
    reasons = [f"it has {extra}" for extra in adapter.extras]
    if adapter.rslora and not engine.rslora:
        reasons.append("it is scaled by rsLoRA")
    if engine.ranks and adapter.rank > engine.ranks[-1]:
        reasons.append(f"its rank is {adapter.rank}, more than {engine.ranks[-1]}")
    if model_type in engine.without_lora:
        reasons.append(f"its base is a model of type {model_type}")
    return reasons


# How to prompt an engine so that the card reads the tokens that it was trained on.
#
# Engines tokenize a text with the tokenizer's own special tokens; kcard's prompts begin with the bos token whenever the
# tokenizer has one (kcard.cards.models.prompting). If the tokenizer does not add it, the text must contain it.

QUESTION = "What is known about this?"
PLACE = "{question}"
LIKELY = -0.7  # natural logarithm of about one half: above it, the token is the card's likeliest
SHIFT = 1.0  # nats by which an adapter must shift a token to show that it is applied
ROWS = 4


@dataclass(frozen=True)
class TextPrompt:
    """How a question becomes the text sent to an engine.

    before    text of the bos token, if the engine would omit it
    template  of the card
    """

    before: str
    template: str


@dataclass(frozen=True)
class Expected:
    """The card's next token after a prompt, by its fingerprint.

    text       the prompt; empty if no text gives these tokens
    ids        its token ids
    token      the likeliest next token
    card       its natural log-probability
    base       the same without the adapter; None for a whole model
    """

    text: str
    ids: tuple[int, ...]
    token: str
    card: float
    base: float | None


def text_prompt(name: str, tokenizer: Any, template: str, reference: Fingerprint | None) -> TextPrompt:
    """Return the prompt's form as text. Raises CardError if no text gives the prompts."""
    question = QUESTION if reference is None else min((row.question for row in reference.rows), key=len)
    filled = template.replace(PLACE, question.strip())
    trained_ids = prompt_ids(tokenizer, filled)
    bos = tokenizer.bos_token_id
    texts = ["", *([tokenizer.decode([bos], skip_special_tokens=False)] if bos is not None else [])]
    for before in texts:
        if list(tokenizer(before + filled)["input_ids"]) == trained_ids:
            return TextPrompt(before, template)
    raise CardError(
        f"card {name!r}: an engine that is sent text would read other tokens than the card was trained on, because "
        "its tokenizer adds special tokens differently: use kcard serve"
    )


def expected(tokenizer: Any, reference: Fingerprint | None) -> list[Expected]:
    """Return the most telling token of each fingerprint row; at most ROWS, none without a fingerprint."""
    rows = [] if reference is None else reference.rows
    examples = []
    for row in rows:
        # Choose the place where the card's token is likely and its base's probability lowest.
        places = [i for i in range(len(row.card)) if row.card[i] > LIKELY]
        if row.base:
            shifts = [own - bare for own, bare in zip(row.card, row.base, strict=True)]
            place = max((i for i in places if shifts[i] >= SHIFT), key=lambda i: shifts[i], default=None)
        else:
            place = max(places, key=lambda i: (row.card[i], i), default=None)
        if place is None:
            continue
        ids = (*row.prompt, *row.continuation[:place])
        token = str(tokenizer.decode([row.continuation[place]], skip_special_tokens=False))
        base = row.base[place] if row.base else None
        # Find a text that the tokenizer turns into these ids; empty if there is none.
        text = ""
        plain = list(ids[1:]) if ids[:1] == (tokenizer.bos_token_id,) else list(ids)
        for candidate in (plain, list(ids)):
            decoded = str(
                tokenizer.decode(candidate, skip_special_tokens=False, clean_up_tokenization_spaces=False)
            )
            if list(tokenizer(decoded)["input_ids"]) == list(ids):
                text = decoded
                break
        examples.append(Expected(text, ids, token, row.card[place], base))
    return examples[:ROWS]


# A LoRA card merged into its base, for engines that can't apply the adapter.
#
# The merged model is loaded again and compared with the card by its fingerprint.


def merge(card: Card, folder: Path) -> None:
    """Write the card's base, with its adapter merged in, and the tokenizer into `folder`; verify that it acts as the
    card.

    Computed in float32, stored in the base's dtype, small models in float32.

    Raises ModelUnavailable if the base is unavailable, CardError if the adapter does not fit it or the merged model
    does not act as the card.
    """
    import torch

    base = card.manifest.base
    with explained(
        ModelUnavailable, f"card {card.name!r} needs the base model {base.name!r}, which can't be loaded"
    ):
        whole = causal_lm(base_folder(base.name), base.revision, local=False)
    Loader().check_digest(card)
    dtype = torch.float32 if sum(p.numel() for p in whole.parameters()) < SMALL else whole.dtype
    with (
        explained(CardError, f"card {card.name!r}: its adapter can't be merged into {base.name!r}"),
        quiet_loading(),
    ):
        merged = with_adapter(whole.float(), card.folder).merge_and_unload(safe_merge=True)
        merged.to(dtype).save_pretrained(folder)
    del whole, merged
    copy_tokenizer(card, folder)
    _prove_merge(card, folder)


def _prove_merge(card: Card, folder: Path) -> None:
    """Compare the merged model with the card's fingerprint, or with the card as it is now if it has none."""
    from kcard.cards.models.transformers_backend import CausalCard

    reference = read_fingerprint(card.folder)
    if reference is None:
        reference = CausalCard(card, Loader()).measure(fingerprint_pairs(card.manifest, []))
    # A merged model has no base to compare.
    reference = replace(reference, rows=tuple(replace(row, base=()) for row in reference.rows))
    merged = Card(folder, replace(card.manifest, method="full", base=Base()))
    words = card.folder / VOCABULARY
    if words.is_file():  # the words that the fingerprint's questions are put into; no engine reads them
        shutil.copyfile(words, folder / VOCABULARY)
    reference.check(CausalCard(merged, Loader()).measure(reference.pairs), card.name, card.manifest.base.name)
    (folder / VOCABULARY).unlink(missing_ok=True)


WHOLE = "add --merge to export the card as a whole model"
SERVE = "use kcard serve"


@dataclass(frozen=True)
class ExportableCard:
    """One card as the engine gets it.

    card      its model files lie in `card.folder`; those of a reference have been fetched
    sha256    of its manifest, which names the version
    adapter   what the engine applies to the base; None if it gets a whole model
    merged    whether the whole model is an adapter merged into its base
    config    of the model or of the base (config.json); empty if that is not on this machine
    prompt    how it is prompted
    expected  what it generates, by its fingerprint
    """

    card: Card
    sha256: str
    adapter: PeftAdapter | None
    merged: bool
    config: Mapping[str, Any]
    prompt: TextPrompt
    expected: Sequence[Expected]

    @property
    def name(self) -> str:
        return self.card.name

    @property
    def form(self) -> Literal["adapter", "merged", "whole"]:
        if self.adapter is not None:
            return "adapter"
        return "merged" if self.merged else "whole"

    @property
    def rewords(self) -> bool:
        """Whether kcard rewords questions with the corpus' vocabulary first, which no engine does."""
        return (self.card.folder / VOCABULARY).is_file()

    @property
    def base(self) -> Base:
        return self.card.manifest.base

    @property
    def base_argument(self) -> str:
        """The adapter's base as passed to an engine: the name on a hub, or a folder."""
        if self.base.name == BASE:
            return "./base"
        folder = Path(self.base.name)
        return str(folder.resolve()) if folder.is_dir() else self.base.name


def prepare(card: Card, engine: Engine, merge: bool) -> ExportableCard:
    """Check that the engine can run the card, merged if `merge`.

    Raises CardError, naming an alternative, if the card has no weights, its prompt is not text, or the engine does not
    run its architecture or would not apply its adapter as trained; ModelUnavailable if the target of a reference can't
    be fetched.
    """
    sha256 = file_digest(card.folder / MANIFEST)
    # Kinds and prompts that no engine runs.
    kind, prompt = card.manifest.kind, card.manifest.prompt
    if not card.manifest.method and kind != "reference":
        raise CardError(
            f"card {card.name!r} of kind {kind} has no weights that {engine.title} could run: {SERVE}, which "
            "runs every kind of card"
        )
    if prompt.style != "tokens":
        raise CardError(
            f"card {card.name!r}: its prompts are vectors of a sentence encoder ({prompt.style}), which "
            f"{engine.title} can't compute from a question: {SERVE}, or train it with --prompt-style tokens"
        )
    # Fetch what a reference refers to, and read the model's config.
    card = external.resolve_reference(card) if card.manifest.kind == "reference" else card
    refuse_code(card.folder, f"card {card.name!r}", card.manifest.files)
    refuse_oversized(card.folder, f"card {card.name!r}")
    base = card.manifest.base
    source = base_files(base.name, base.revision) if card.manifest.method == "lora" else card.folder
    config: dict[str, Any] = {}
    if source is not None:
        with suppress(OSError, ValueError):
            data = json.loads((source / "config.json").read_text(encoding="utf-8"))
            config = data if isinstance(data, dict) else {}
    # Architectures and adapters that this engine does not run.
    adapter = read_adapter(card.folder) if card.manifest.method == "lora" else None
    model_type = config.get("model_type")
    if model_type in engine.without:
        raise CardError(
            f"card {card.name!r}: {engine.title} does not run models of type {model_type}: export it to vllm, or "
            f"{SERVE}"
        )
    if adapter is not None and not merge and (reasons := misfits(adapter, engine, model_type)):
        raise CardError(
            f"card {card.name!r}: {engine.title} would not apply its adapter as it was trained, because "
            f"{' and '.join(reasons)}: {WHOLE}"
        )
    # How to prompt it, and what it must then generate.
    reference = read_fingerprint(card.folder)
    tokenizer = Loader().tokenizer(card)
    return ExportableCard(
        card,
        sha256,
        None if merge else adapter,
        merge and adapter is not None,
        config,
        text_prompt(card.name, tokenizer, card.manifest.prompt.template, reference),
        expected(tokenizer, reference),
    )


def check_together(cards: Sequence[ExportableCard], engine: Engine) -> None:
    """Raise UsageError unless one server can run all cards: adapters of one base, or one whole model."""
    names = ", ".join(card.name for card in cards)
    if len({card.name for card in cards}) < len(cards):
        raise UsageError(f"two of the cards have the same name: {names}")
    if len(cards) == 1:
        return
    if whole := [card.name for card in cards if card.adapter is None]:
        raise UsageError(
            f"{engine.title} serves one whole model at a time, and {', '.join(whole)} "
            f"{'is' if len(whole) == 1 else 'are'} whole: export such cards one by one"
        )
    if len(bases := {(card.base.name, card.base.revision): card.name for card in cards}) > 1:
        listed = ", ".join(f"{card} on {base[0]}" for base, card in bases.items())
        raise UsageError(f"the cards have different bases ({listed}): export those of one base at a time")
    # Tokenizers are compared by the file that holds the vocabulary.
    vocabularies = set()
    for files, name in ((card.card.manifest.files, card.name) for card in cards):
        vocabularies.add(
            files.get("tokenizer.json") or files.get("tokenizer.model") or files.get("vocab.json") or name
        )
    if len(vocabularies) > 1:
        raise UsageError(f"the tokenizers of {names} differ: export the cards one by one")


# The files and command for vLLM: adapters on their base, or one whole model.

MAX_LORAS = 8  # adapters per batch; further cards take turns


def write_vllm(cards: Sequence[ExportableCard], folder: Path, on_event: OnEvent) -> list[str]:
    """Write the cards' weights and the tokenizer into `folder`; return the command that starts vLLM there."""
    # The weights: adapters, or one whole model.
    for card in cards:
        if card.adapter is not None:
            copy_adapter(card.card, folder / "adapters" / card.name, card.base_argument)
        elif card.merged:
            on_event(note(f"merging {card.name} into its base {card.base.name}"))
            merge(card.card, folder / "model")
        else:
            copy_model(card.card.folder, folder / "model")
    # Adapters share a tokenizer, and the packaged base if they are made from it.
    first = cards[0]
    if first.adapter is not None:
        copy_tokenizer(first.card, folder / "tokenizer")
        if first.config:  # vLLM also reads the model type there
            (folder / "tokenizer" / "config.json").write_text(
                json.dumps(dict(first.config)), encoding="utf-8"
            )
        if first.base.name == BASE:
            copy_base(folder / "base")
    # A base's own sampling settings, such as a repetition penalty, are not the cards'.
    options = ["--generation-config", "vllm"]
    # Small models and bases run in float32, as in kcard.
    weights = [path for part in ("model", "base") for path in (folder / part).glob("*.safetensors")]
    if 0 < sum(path.stat().st_size for path in weights) < 4 * SMALL:
        options = ["--dtype", "float32", *options]
    # The command.
    if first.adapter is None:
        return ["vllm", "serve", "./model", "--served-model-name", first.name, *options]
    rank = max(card.adapter.rank for card in cards if card.adapter is not None)
    pinned = ["--revision", first.base.revision] if first.base.revision else []
    return [
        *("vllm", "serve", first.base_argument, "--enable-lora"),
        *("--max-lora-rank", str(min(allowed for allowed in VLLM.ranks if allowed >= rank))),
        *("--max-loras", str(min(len(cards), MAX_LORAS))),
        *("--lora-modules", *(f"{card.name}=./adapters/{card.name}" for card in cards)),
        *pinned,
        *("--tokenizer", "./tokenizer"),
        *options,
    ]
