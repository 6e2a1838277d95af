"""Add published models and adapters as cards."""

import re
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from kcard import system
from kcard.errors import CardError, UnknownCard, UsageError
from kcard.events import Event, OnEvent, ignore
from kcard.manifest import Base, Manifest, Prompt, Training, seal
from kcard.options import Option, documented

if TYPE_CHECKING:
    from kcard.cards.hugging_face import ModelRepository
    from kcard.hub.db.models import StoredPool, Version
    from kcard.hub.registry import Hub

# Add an adapter on this machine, saved by peft.


def add_adapter(
    path: Path,
    manifest: Manifest,
    hub: "Hub",
    *,
    base: str | None = None,
    corpus: str | Path | None = None,
) -> "Version":
    """Publish the adapter that peft saved in the folder `path` as a card of `hub` (kcard.cards.adapters).

    base    overrides the base that the adapter names, if any
    corpus  the text that it was made of, whose passages and index become part of the card

    Raises UsageError, ModelUnavailable if the base can't be loaded, and CardError for an adapter that is damaged, does
    not fit the base or has no effect on it.
    """
    from transformers import AutoTokenizer

    from kcard.cards.card import finish
    from kcard.cards.fingerprint import write_fingerprint
    from kcard.cards.models.loader import explained
    from kcard.embedded.opt import base_folder
    from kcard.hub.storage import partial_folder
    from kcard.training.corpus import read_corpus
    from kcard.training.output import probe_pairs

    source_text = None if corpus is None else read_corpus(corpus)
    with partial_folder(hub.partial) as folder:
        pinned, record = _write_pairs(path, folder, base)
        # Copy the adapter's own tokenizer if it has one, else that of its base.
        own = path if path.is_dir() and (path / "tokenizer_config.json").is_file() else None
        with explained(CardError, f"the tokenizer of {own or pinned.name} can't be loaded"):
            tokenizer = AutoTokenizer.from_pretrained(
                str(own or base_folder(pinned.name)), revision=pinned.revision if own is None else None,
                trust_remote_code=False,
            )  # fmt: skip
            tokenizer.save_pretrained(folder)
        origin = Training(command=f"kcard add {path}", method="none: added as it is", hyperparameters=record)
        if source_text is not None:
            origin = replace(origin, corpus_sha256=source_text.sha256, passages=len(source_text.passages))
        kind = "model" if source_text is None else "both"
        manifest = replace(manifest, kind=kind, method="lora", base=pinned, training=origin)
        # The fingerprint proves that the adapter does something to its base.
        write_fingerprint(folder, manifest, [] if source_text is None else probe_pairs(source_text.sample, 0))
        finish(folder, manifest, () if source_text is None else source_text.passages)
        return hub.publish(folder)


def _write_pairs(path: Path, folder: Path, base: str | None) -> tuple[Base, Mapping[str, Any]]:
    """Write the LoRA adapter as peft saves one; return its base and its rank and layers."""
    from kcard.cards import adapters
    from kcard.cards.adapters import linears

    pairs = adapters.read_peft(path)
    pinned, layers = linears(require_base(path, base or pairs.base))
    adapters.check_fit(pairs, layers, pinned.name)
    adapters.write_peft(pairs, folder, layers, pinned.name)
    return pinned, {"rank": pairs.rank, "layers": len(pairs.modules)}


def require_base(path: Path, base: str | None) -> str:
    if not base:
        raise UsageError(f"{path} names no base model: pass --base")
    return base


LLM_PREFIX = "llm:"
SELF = "self"


@documented
def add(
    source: Annotated[
        str,
        Option(
            "hf:owner/name[@revision]; an adapter on this machine: the folder that peft saved; or an LLM that "
            "generates: llm:self, llm:openai:MODEL ...",
            argument=True,
        ),
    ],
    *,
    description: Annotated[str, Option("One line: what the card knows.")],
    name: Annotated[str | None, Option("The card's name.", default="the repository's")] = None,
    domain: Annotated[str, Option("Its domain, such as biomedical/oncology.")] = "general",
    licence: Annotated[str | None, Option("Its licence.", default="as its model card says")] = None,
    language: Annotated[str | None, Option("Its language.", default="as its model card says")] = None,
    template: Annotated[
        str | None,
        Option("The prompt template, containing {question}.", default="the question alone, as in the paper"),
    ] = None,
    base: Annotated[
        str | None,
        Option("The base model of an adapter on this machine.", default="as its adapter_config.json says"),
    ] = None,
    corpus: Annotated[
        str | Path | None,
        Option(
            "The text that an adapter on this machine was made of; the card gets its passages and their index.",
            command_line=Path | None,
        ),
    ] = None,
    convert: Annotated[
        bool, Option("Accept pickled weights of a repository, read in a child process.")
    ] = False,
    hub: "Hub | None" = None,
) -> "Version":
    """Add a model of the Hugging Face Hub as a card, pinned to its commit; an adapter on this machine; or an LLM that
    generates documents.

    An adapter is read only from safetensors, compared with its base and copied. The weights of a repository are fetched
    when the card is first used; pickled ones are fetched at once, with `convert`, and stored as safetensors. An LLM
    generates documents (GenRead): llm:openai:MODEL, llm:hf:MODEL, llm:embedded, or llm:self, the one that answers.

    Raises UsageError for a wrong argument or a missing repository, ModelUnavailable if the Hub can't be reached,
    CardError for weights that can't be used safely.
    """
    from kcard.cards.adapters import refuse_pickle
    from kcard.cards.card import README, Card
    from kcard.cards.hugging_face import PREFIX, find_repository
    from kcard.cards.model_card import readme
    from kcard.hub.registry import Hub

    # Refuse a pickled adapter before any other check.
    here: Path | None = None
    if not source.startswith((LLM_PREFIX, PREFIX)):
        if convert:
            raise UsageError(
                f"convert: {source} is not a repository of the Hugging Face Hub; local pickles are never opened"
            )
        here = Path(source).expanduser()
        if not here.exists():
            raise UsageError(
                f"source {source!r} does not exist: use a folder, hf:owner/name, hf:owner/name@revision or "
                "llm:LLM"
            )
        refuse_pickle(here)
        if not here.is_dir():
            raise UsageError(f"source {source} is a file: give the folder of an adapter that peft saved")
    if not description.strip():
        raise UsageError(f"{source} needs --description: one line about what the card knows")
    if source.startswith(LLM_PREFIX):
        if template is not None or convert or base or corpus is not None:
            raise UsageError(f"source {source!r}: an LLM card takes no template, conversion, base or corpus")
        # Check the name of the LLM, without loading it.
        llm = source.removeprefix(LLM_PREFIX)
        backend, _, model = llm.partition(":")
        if backend != SELF:
            system.load("kcard.llms", backend)
        if bool(model) == (backend in {SELF, "embedded"}):
            raise UsageError(
                f"source llm:{llm}: use llm:{SELF}, llm:embedded, llm:openai:MODEL or llm:hf:MODEL"
            )
        manifest = Manifest(
            name or _name(llm.replace(":", "/")), description, domain, licence=licence or "unknown"
        )
        # A card without weights, whose manifest names the LLM.
        origin = Training(command=f"kcard add llm:{llm}", method=f"the LLM {llm}")
        manifest = replace(manifest, kind="llm", language=language or "en", base=Base(llm), training=origin)
        hub = hub or Hub()
        with tempfile.TemporaryDirectory() as scratch:
            (Path(scratch) / README).write_text(readme(manifest), encoding="utf-8")
            seal(Path(scratch), manifest)
            return hub.publish(Card.open(scratch).folder)
    if template is not None and "{question}" not in template:
        raise UsageError(f"template {template!r} does not contain {{question}}")
    if here is not None:
        manifest = Manifest(
            name=name or _name(here.resolve().name),
            description=description,
            domain=domain,
            licence=licence or "unknown",
            language=language or "en",
            prompt=Prompt(template=template or "{question}"),
        )
        return add_adapter(here, manifest, hub or Hub(), base=base, corpus=corpus)
    for option, value in (("base", base), ("corpus", corpus)):
        if value is not None:
            raise UsageError(
                f"{option} {value} is only for adapters on this machine: leave it out with {source}"
            )
    repository = find_repository(source.removeprefix(PREFIX))
    manifest = Manifest(
        name=name or _name(repository.name),
        description=description,
        domain=domain,
        licence=licence or repository.licence or "unknown",
        language=language or repository.language or "en",
        prompt=Prompt(template=template or "{question}"),
    )
    return _publish(repository, manifest, convert, hub or Hub())


def add_published(
    *, convert: bool = False, hub: "Hub | None" = None, on_event: OnEvent = ignore
) -> "StoredPool":
    """Register the 26 cards published with the Knowledge Card paper, as the pool "published".

    Cards that exist already, at the current commit and with the same description and prompt, are skipped, so an
    interrupted run can be repeated. `on_event` is called with the number of finished cards (kind adding). Raises what
    `add` raises; if a repository needs converting and `convert` is not set, before anything is registered.
    """
    from kcard.cards.hugging_face import POOL, PUBLISHED, TEMPLATE, find_repository
    from kcard.hub.registry import Hub

    hub = hub or Hub()
    repositories = [(card, find_repository(card.repository)) for card in PUBLISHED]
    pickled = [repository for _, repository in repositories if not repository.weights and repository.pickles]
    if pickled and not convert:
        size = sum(r.sizes[path] for r in pickled for path in r.pickles)
        raise CardError(
            f"{len(pickled)} of the {len(repositories)} published cards have their weights only as pickles, such as "
            f"{pickled[0].name}: --convert fetches them ({size / 1e9:.0f} GB) and stores them as safetensors"
        )
    names = []
    for done, (card, repository) in enumerate(repositories, 1):
        manifest = Manifest(
            name=_name(repository.name),
            description=card.description,
            domain=card.domain,
            licence=repository.licence or "unknown",
            prompt=Prompt(template=TEMPLATE),
        )
        if not is_published(hub, manifest, repository):
            _publish(repository, manifest, convert, hub)
        names.append(manifest.name)
        on_event(Event("adding", done=done, total=len(PUBLISHED)))
    pools = {pool.name for pool in hub.pools.list()}
    return hub.pools.add(POOL, names) if POOL in pools else hub.pools.create(POOL, names)


def is_published(hub: "Hub", manifest: Manifest, repository: "ModelRepository") -> bool:
    """Return whether the hub has this card, at this commit and with this description and prompt."""
    try:
        published = hub.get(manifest.name).manifest
    except UnknownCard:
        return False
    if (published.base.name, published.base.revision) != (repository.name, repository.revision):
        return False
    return (published.description, published.prompt) == (manifest.description, manifest.prompt)


def _name(repository: str) -> str:
    return re.sub(r"[^a-z0-9._-]+", "-", repository.rpartition("/")[2].lower()).strip("-._") or "card"


def _publish(repository: "ModelRepository", manifest: Manifest, convert: bool, hub: "Hub") -> "Version":
    from kcard.cards.card import REFERENCE
    from kcard.cards.generators.external import ModelReference
    from kcard.cards.hugging_face import CONFIGS, fetch, refuse_code
    from kcard.cards.hugging_face import convert as convert_weights
    from kcard.hub.storage import partial_folder

    itself = Base(repository.name, repository.revision, repository.digest)
    # Refer to safe weights, which are fetched when the card is first used.
    if repository.weights:
        if configs := {path: repository.files[path] for path in CONFIGS if path in repository.files}:
            refuse_code(fetch(repository.name, repository.revision, configs), repository.name)
        reference = ModelReference.to(repository, _base(repository))
        with tempfile.TemporaryDirectory() as scratch:
            (Path(scratch) / REFERENCE).write_text(reference.to_json(), encoding="utf-8")
            return _seal_and_publish(
                Path(scratch), replace(manifest, kind="reference", base=itself), repository, hub
            )
    if not repository.pickles:
        raise CardError(
            f"{repository.name} at {repository.revision[:12]} has no weights that transformers or peft can load "
            f"(model.safetensors, adapter_model.safetensors): choose another repository"
        )
    if not convert:
        raise CardError(
            f"{repository.name} has its weights only as pickles ({repository.pickles[0]}), which can run code: "
            "--convert opens them in a child process and stores them as safetensors"
        )
    base = _base(repository)
    method = "full" if base is None else "lora"
    with partial_folder(hub.partial) as folder:
        convert_weights(repository, folder)
        stored = replace(manifest, kind="model", method=method, base=base or itself)
        return _seal_and_publish(folder, stored, repository, hub)


def _base(repository: "ModelRepository") -> Base | None:
    """Return the model that an adapter belongs to, pinned; None for a whole model."""
    if not repository.adapter:
        return None
    from kcard.cards.hugging_face import adapter_base, find_repository

    base = find_repository(adapter_base(repository))
    return Base(base.name, base.revision, base.digest)


def _seal_and_publish(
    folder: Path, manifest: Manifest, repository: "ModelRepository", hub: "Hub"
) -> "Version":
    from kcard.cards.card import README, Card
    from kcard.cards.model_card import readme

    origin = Training(
        command=f"kcard add hf:{repository.name}@{repository.revision}", method="none: added as it is"
    )
    manifest = replace(manifest, training=origin)
    (folder / README).write_text(readme(manifest), encoding="utf-8")
    seal(folder, manifest)
    return hub.publish(Card.open(folder).folder)
