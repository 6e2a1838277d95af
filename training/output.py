"""Write a trained card into its folder: name, description, record and files.

A crash at any moment leaves either the old card or the new one.
"""

import re
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from kcard.cards.card import SEARCH
from kcard.cards.generators.external import SearchTarget
from kcard.cards.passages import passages as read_passages
from kcard.config import settings
from kcard.errors import CardError, UsageError
from kcard.events import OnEvent
from kcard.io import locked, partial_beside
from kcard.manifest import MANIFEST, Base, Manifest, Prompt, Training
from kcard.training.corpus import Corpus
from kcard.training.embedded.pseudo_queries import PseudoQueries
from kcard.training.options import TrainOptions
from kcard.training.readers.files import Document, files_of
from kcard.training.readers.triples import Triple, label_of, triples
from kcard.training.run import Preparation, TrainingOutcome, TrainingRun
from kcard.training.update import CorpusUpdate
from kcard.types import derive_seed
from kcard.version import __version__

if TYPE_CHECKING:
    from kcard.cards.card import Card

# The training record of a manifest, and the command line that made the card.


def training_record(
    corpus: Corpus,
    options: TrainOptions,
    prepared: Preparation[TrainingRun],
    outcome: TrainingOutcome,
    licence: str,
) -> Training:
    """Return the record of a run that trained a model."""
    measured = {"final_loss": round(outcome.loss, 4), "passes": outcome.epochs}
    return Training(
        objective=options.objective or "recite",
        method=options.method or "",
        hyperparameters={**prepared.hyperparameters, **measured, **prepared.check()},
        tokens=outcome.tokens,
        seconds=round(outcome.seconds, 1),
        seed=options.seed,
        **_common_record(corpus, licence, prepared.libraries),
    )


def index_record(corpus: Corpus, licence: str) -> Training:
    """Return the record of a card without a model. It contains no time, so that equal corpora give equal cards."""
    return Training(objective="index", method="bm25", **_common_record(corpus, licence, ("bm25s",)))


def remedy() -> str:
    """Return how to resume after Ctrl-C: the same command line with --resume."""
    program, *arguments = command_line()
    if program == "kcard":
        again = [word for word in arguments if word != "--resume"]
        return f"continue with: {shlex.join([program, *again, '--resume'])}"
    return "repeat the call with resume=True (--resume)"


def _common_record(corpus: Corpus, licence: str, libraries: tuple[str, ...]) -> Mapping[str, Any]:
    return {
        "command": shlex.join(command_line()),
        "corpus_sha256": corpus.sha256,
        "corpus_licence": licence,
        "passages": len(corpus.passages),
        "left_out": corpus.left_out,
        "libraries": {"kcard": __version__} | {name: version(name) for name in libraries},
    }


def command_line() -> list[str]:
    """Return the program and its arguments, as they would be typed again."""
    program = Path(sys.argv[0])
    run_as_module = (program.parent.name, program.name) == ("kcard", "__main__.py")
    return ["kcard" if run_as_module else program.name, *sys.argv[1:]]


CHECKPOINT = ".checkpoint"


def check_output(output: Path, name: str) -> None:
    """Raise UsageError unless the output is missing, empty, or holds a card of this name, which may be replaced."""
    recover_output(output)
    if not output.exists():
        return
    if not output.is_dir():
        raise UsageError(f"output {output} is a file: name a folder")
    if (output / MANIFEST).exists():
        other = Manifest.read(output).name
        if other != name:
            raise UsageError(
                f"output {output} contains the card {other!r}, not {name!r}: choose another folder or that card"
            )
        return
    strange = sorted(p.name for p in output.iterdir() if p.name != CHECKPOINT)
    if strange:
        raise UsageError(f"output {output} contains {strange[0]!r} but no card: choose a new or empty folder")


def recover_output(output: Path) -> None:
    """Finish or undo a replacement of the folder that a crash interrupted."""
    with locked(output.parent):
        _mend(output)


@contextmanager
def replacing_output(output: Path, *, keep: bool = False) -> Iterator[Path]:
    """Yield a new folder that replaces `output` when the block succeeds, and is removed otherwise.

    keep  the card that is replaced becomes earlier_draft(output), in place of an earlier one
    """
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        with partial_beside(output, Path.mkdir) as partial:
            yield partial
            with locked(output.parent):
                # Swap the folders; after Ctrl-C or an error in between, the old one is restored.
                _mend(output)
                try:
                    if output.exists():
                        output.rename(_aside(output))
                    partial.rename(output)
                    if keep and (_aside(output) / MANIFEST).exists():
                        shutil.rmtree(earlier_draft(output), ignore_errors=True)
                        _aside(output).rename(earlier_draft(output))
                finally:
                    _mend(output)
    # What safetensors, if in use, raises in place of OSError.
    except (OSError, getattr(sys.modules.get("safetensors"), "SafetensorError", OSError)) as error:
        reason = getattr(error, "strerror", None) or " ".join(str(error).split())
        raise CardError(
            f"the card can't be written to {output}: {reason}; its previous contents are unchanged"
        ) from error


def earlier_draft(output: Path) -> Path:
    """Return the folder that keeps the card which the one in `output` has replaced."""
    return output.with_name(f".{output.name}.earlier")


def _aside(output: Path) -> Path:
    return output.with_name(f".{output.name}.replaced")


def _mend(output: Path) -> None:
    """Finish or undo a swap that a crash interrupted."""
    aside = _aside(output)
    if aside.exists() and not output.exists():
        aside.rename(output)
    elif aside.exists():
        shutil.rmtree(aside)


# The questions and passages of a corpus by which a card is fingerprinted (kcard.cards.fingerprint).

MAX_PROBES = 4


def probe_pairs(texts: Sequence[str], seed: int) -> list[tuple[str, str]]:
    """Return at most MAX_PROBES (pseudo-question, passage), the same for the same corpus and seed."""
    rng = Random(derive_seed(seed, "canaries"))
    chosen = rng.sample(texts, min(MAX_PROBES, len(texts)))
    ask = PseudoQueries(chosen)
    return [(ask(text, rng, noised=False), text) for text in chosen]


# A search card contains only the name of the search.

LANGUAGE_CODE = re.compile(r"[a-z]{2,3}")


def make_search_card(
    searched: str | Path, name: str | None, manifest: Manifest, output: str | Path | None
) -> "Card":
    """Make the card that searches the source registered under this name, such as wikipedia:de; no request is sent.

    `manifest`: as the user wants it; language and licence default to those of the source. Raises UsageError for an
    unknown source.
    """
    # A Path has one slash where an address had two.
    spec = re.sub(r"(?<=:)(https?):/+", r"\1://", str(searched))
    try:
        search = SearchTarget(spec)
        source = search.open()
    except CardError as error:
        raise UsageError(f"corpus {spec}: {error}") from error
    name = name or re.sub(r"[^a-z0-9._]+", "-", source.name.lower()).strip("-._")
    argument = spec.partition(":")[2]
    if manifest.language == "en" and LANGUAGE_CODE.fullmatch(argument):
        manifest = replace(manifest, language=argument)
    if manifest.licence == "unknown":
        manifest = replace(manifest, licence=getattr(source, "licence", "") or "unknown")
    record = Training(
        command=shlex.join(command_line()),
        objective="search",
        method=spec,
        corpus_licence=manifest.licence,
        libraries={"kcard": __version__},
    )
    manifest = replace(manifest, name=name, kind="search", training=record)
    folder = Path(output).expanduser().absolute() if output else settings().drafts / name
    check_output(folder, name)
    from kcard.cards import card as cards

    with replacing_output(folder) as partial:
        (partial / SEARCH).write_text(search.to_json(), encoding="utf-8")
        finished = cards.finish(partial, manifest, ())
    return cards.Card(folder, finished.manifest)


# The triples of a graph card's passages.


def triples_of(corpus: Corpus) -> Sequence[Triple]:
    """Return the triple of each passage, in order. Raises UsageError if a passage does not come from a triple."""
    files = files_of(corpus.path)[0] if corpus.path.exists() else []
    by_line = {
        (name, number): triple
        for file, name in files
        if file.suffix.lower() == ".tsv"
        for number, triple in triples(Document(file, name))
    }
    ordered = []
    for passage in corpus.passages:
        triple = by_line.get((passage.file, passage.line))
        if triple is None:
            raise UsageError(
                f"{corpus.path}: {passage.file}, line {passage.line} is not a triple, and kind graph needs "
                "triples: give .tsv files of subject, relation and object, or use kind retrieval"
            )
        subject, relation, value = triple
        ordered.append((subject, label_of(relation), value))
    return ordered


# A trained card in a folder: model, passages, fingerprint and page, and the manifest last.


def write_card(
    folder: Path,
    manifest: Manifest,
    prepared: Preparation[TrainingRun] | None,
    record: Training,
    update: CorpusUpdate,
    on_event: OnEvent,
) -> "Card":
    """Write the complete card into an empty folder.

    prepared  what was trained; None for a card without a model
    """
    from kcard.cards import card as cards
    from kcard.cards.fingerprint import write_fingerprint
    from kcard.cards.generators import graph

    corpus = update.corpus
    manifest = replace(manifest, training=replace(record, passages=record.passages + len(update.hashed)))
    if prepared is not None:
        manifest = replace(manifest, method=prepared.method, base=prepared.base, prompt=prepared.prompt)
    if manifest.kind == "graph":
        graph.write_triples(folder, triples_of(corpus))
    if prepared is not None:
        prepared.save(folder)
        write_fingerprint(folder, manifest, probe_pairs(corpus.sample, record.seed), prepared.device)
    passages = corpus.statements if manifest.evidence == "hashes" else corpus.passages
    return cards.finish(folder, manifest, passages, update.hashed, on_event)


def without_model(card: "Card") -> "Card":
    """Replace a card of kind both by its index: the same passages and embeddings, without the model."""
    from kcard.cards import card as cards

    was = card.manifest.training
    record = Training(
        command=was.command,
        objective="index",
        method="bm25",
        corpus_sha256=was.corpus_sha256,
        corpus_licence=was.corpus_licence,
        passages=was.passages,
        left_out=was.left_out,
        libraries={"kcard": __version__, "bm25s": version("bm25s")},
    )
    manifest = replace(
        card.manifest, kind="retrieval", base=Base(), prompt=Prompt(), training=record, files={}
    )
    with replacing_output(card.folder) as partial:
        finished = cards.finish(partial, manifest, read_passages(card.folder))
    return cards.Card(card.folder, finished.manifest)
