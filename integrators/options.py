"""The options of `ask`, of a pipeline and of the baselines."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from kcard.config import engine_url
from kcard.errors import UsageError
from kcard.io import parse_size
from kcard.options import Option, OptionGroup
from kcard.types import Sampling

if TYPE_CHECKING:
    from kcard.interfaces import LLM

Mode = Literal["top-down", "bottom-up", "hybrid", "direct"]
Select = Literal["question", "auto", "explicit"]
Prompts = Literal["grounded", "paper"]
RankBy = Literal["profile", "description"]
Otherwise = Literal["nothing", "genread"]
Preset = Literal["offline", "paper", "modern", "multilingual"]
# Cards are used whenever one fits the question (min_relevance); in the papers' prompts, the LLM decides.
GATE, PAPER_GATE = "always", "self-ask"
# So low because a card used in vain costs "I don't know", one left out an invented answer.
MIN_RELEVANCE = 0.0005


@dataclass(frozen=True, kw_only=True)
class LLMOptions(OptionGroup, panel="The LLM"):
    """How the LLM is asked."""

    llm_window: Annotated[
        int | None, Option("Context window of the endpoint's model, or of a GGUF file, in tokens.", least=1)
    ] = None
    llm_timeout: Annotated[
        float, Option("Time-out of a request to the endpoint, in seconds; each retry has its own.", least=0.1)
    ] = 60.0
    retries: Annotated[int, Option("Maximum retries of a failed request to the endpoint.", least=0)] = 5
    concurrency: Annotated[
        int | None,
        Option(
            "Concurrent requests to the LLM; for hf, prompts per batch.",
            default="4 for endpoints and embedded, 8 for hf on a GPU, else 1",
            least=1,
        ),
    ] = None
    temperature: Annotated[float, Option("Temperature of the LLM.", least=0)] = 0.1
    prompts: Annotated[
        Prompts,
        Option(
            "How the LLM is asked open questions: grounded, for an answer that rests on numbered documents or "
            '"I don\'t know"; paper, in the words of Knowledge Card.'
        ),
    ] = "grounded"
    examples: Annotated[Path | None, Option("In-context examples (JSONL), instead of the built-in ones.")] = (
        None
    )
    strict: Annotated[
        bool, Option("Answer \"I don't know\" unless the cards support every sentence of the LLM's answer.")
    ] = False


@dataclass(frozen=True, kw_only=True)
class GateOptions(OptionGroup, panel="The gate, and the choice of cards"):
    """When cards are used, and which."""

    gate: Annotated[
        str | None,
        Option(
            "Whether cards are needed: always, never, self-ask, self-ask-ensemble, or a fitted gate, by name or file.",
            default="always; with --prompts paper, self-ask unless --cards names some",
        ),
    ] = None
    select: Annotated[
        Select,
        Option(
            "How cards are picked (top-down and hybrid): question, those nearest to the question; auto, those nearest "
            "to what the LLM says it needs; explicit, those that the LLM names."
        ),
    ] = "question"
    shortlist: Annotated[int, Option("Cards that the LLM may choose from (--select explicit).", least=1)] = 20
    max_cards: Annotated[
        int, Option("Maximum number of cards that generate, the nearest first (bottom-up).", least=1)
    ] = 32
    max_iterations: Annotated[int, Option("Rounds of top-down and hybrid.", least=1)] = 1
    margin: Annotated[
        float,
        Option(
            "Use up to two more cards whose scores are within this margin of the best one's (top-down with --select "
            "question or auto; paper: 0).",
            least=0,
        ),
    ] = 0.1
    min_relevance: Annotated[
        float | None,
        Option(
            "Use no card if even the best one fits the question with a lower probability than this.",
            default=f"{MIN_RELEVANCE:g}, 0 if --cards names some",
            least=0,
            most=1,
        ),
    ] = None
    rank_by: Annotated[
        RankBy,
        Option(
            "How cards are matched with a text: profile, by description, subjects and words; description, by the "
            "relevance selector alone (paper)."
        ),
    ] = "profile"
    reuse_cards: Annotated[
        bool, Option("A card may generate again in a later round (top-down and hybrid; paper).")
    ] = False
    otherwise: Annotated[
        Otherwise,
        Option(
            "What the LLM reads where the gate uses no cards: nothing, or genread, a document that it generates itself."
        ),
    ] = "nothing"


@dataclass(frozen=True, kw_only=True)
class GenerationOptions(OptionGroup, panel="What cards generate"):
    """How cards sample their documents."""

    n1: Annotated[int, Option("Documents that each card generates.", least=1)] = 3
    card_tokens: Annotated[int, Option("Maximum length of a document, in tokens.", least=1)] = 100
    card_temperature: Annotated[float, Option("Temperature of the cards.", least=0)] = 0.1
    card_top_k: Annotated[
        int, Option("Cards sample from this many of the most likely tokens; 0: from all (paper).", least=0)
    ] = Sampling.top_k


@dataclass(frozen=True, kw_only=True)
class SelectorOptions(OptionGroup, panel="The selectors"):
    """How the documents that the LLM reads are chosen."""

    selectors: Annotated[Preset, Option("Models of the selectors: see `kcard selectors`.")] = "offline"
    relevance: Annotated[
        str | None, Option("Relevance selector, overrides the preset: NAME or NAME:MODEL.")
    ] = None
    pruner: Annotated[
        str | None,
        Option(
            "Pruning selector: NAME or NAME:MODEL.",
            default="the preset's; with --prompts grounded and --selectors offline, none",
        ),
    ] = None
    checker: Annotated[
        str | None, Option("Factuality selector, overrides the preset: NAME or NAME:MODEL.")
    ] = None
    evidence: Annotated[
        Sequence[str | Path],
        Option(
            "Evidence to check passages against: own (each card's sources), none, a file or folder, or a "
            "name such as wikipedia:de. Repeatable.",
            command_line=list[str],
        ),
    ] = ("own",)
    n2: Annotated[int, Option("Documents that relevance keeps (bottom-up).", least=1)] = 5
    n3: Annotated[int, Option("Documents that factuality keeps (bottom-up).", least=1)] = 3
    factuality_k: Annotated[
        int | None,
        Option(
            "Documents among which factuality draws n3, the best ones (bottom-up); at least n3.",
            default="twice n3",
            least=1,
        ),
    ] = None
    single_document: Annotated[
        bool,
        Option("Keep only the most factual document of a round, looked-up ones included (top-down; paper)."),
    ] = False
    compare_index: Annotated[
        bool,
        Option(
            "Let a card's corpus decide over its model: documents of its index go first unless the model's fit clearly "
            "better, and what the corpus says otherwise is dropped (paper: no).",
            negatable=True,
        ),
    ] = True
    floor: Annotated[
        float,
        Option(
            "Relevance keeps documents with at least this share of the best score (paper: 0).",
            least=0,
            most=1,
        ),
    ] = 0.75
    min_factuality: Annotated[
        float,
        Option("Drop documents whose factuality is known to be lower than this (paper: 0).", least=0, most=1),
    ] = 0.0
    reorder_by_date: Annotated[
        bool, Option("Where cards disagree, put the passage of the newest card first.", negatable=True)
    ] = True
    trust_remote_code: Annotated[bool, Option("Let a selector's model run code from its repository.")] = False


@dataclass(frozen=True, kw_only=True)
class MachineOptions(OptionGroup, panel="The machine"):
    """Where cards and selectors run."""

    device: Annotated[str, Option("Device of cards and selectors: cpu, cuda or cuda:N.")] = "cpu"
    memory: Annotated[
        int | str | None,
        Option(
            "Maximum memory for the weights of cards, such as 2GB.",
            default="half of the device's",
            command_line=str | None,
        ),
    ] = None
    engine: Annotated[
        Sequence[str] | None,
        Option(
            "A vLLM server that runs the cards of its base: vllm=URL. Repeatable, one per base.",
            default="as configured, else none",
            command_line=list[str] | None,
        ),
    ] = None
    engine_places: Annotated[
        int | None,
        Option(
            "Maximum number of adapters that stay loaded on each engine's server.",
            default="the server's --max-loras if known, else 4",
            least=1,
        ),
    ] = None
    seed: Annotated[int, Option("Seed of all sampling.")] = 0


@dataclass(frozen=True, kw_only=True)
class AskOptions(LLMOptions, GateOptions, GenerationOptions, SelectorOptions, MachineOptions):
    """How questions are answered.

    Raises UsageError for a value that is out of range or does not go with another.
    """

    cards: Annotated[
        str | Sequence[str] | None,
        Option(
            "Cards to use: names, references (name@v2), drafts, pools (pool:NAME) or domain subtrees (biomedical/), "
            "comma-separated.",
            default="all",
            command_line=str | None,
            completes="cards",
        ),
    ] = None
    mode: Annotated[
        Mode,
        Option(
            "How cards are used. bottom-up: every card generates, the selectors choose; top-down: the cards that fit "
            "generate (--select); hybrid: several of them, and the selectors choose; direct: no cards."
        ),
    ] = "top-down"
    llm: Annotated[
        "str | LLM | Callable[[str], str] | None",
        Option(
            "The LLM that answers: embedded, local:NAME (kcard llm), gguf:PATH, ollama:MODEL, openai:MODEL, "
            "openai-completions:MODEL (a base model), hf:MODEL.",
            default="as configured, else embedded",
            command_line=str | None,
        ),
    ] = None
    llm_url: Annotated[str | None, Option("URL of an OpenAI-compatible endpoint.")] = None

    def __post_init__(self) -> None:
        if isinstance(self.evidence, str | Path):  # a single one, not a sequence of letters
            object.__setattr__(self, "evidence", (self.evidence,))
        if isinstance(self.engine, str):
            object.__setattr__(self, "engine", (self.engine,))
        super().__post_init__()
        for spec in self.engine or ():
            engine_url(spec)
        if self.device.partition(":")[0] not in ("cpu", "cuda"):
            raise UsageError(f"device {self.device!r} is unknown: choose cpu, cuda or cuda:N")
        _ = self.memory_bytes  # raises UsageError for an invalid size
        if self.factuality_k is not None and self.factuality_k < self.n3:
            raise UsageError(
                f"factuality-k is {self.factuality_k}, less than the {self.n3} documents that are drawn: raise it, or "
                "lower n3"
            )
        if "none" in self.evidence and len(self.evidence) > 1:
            raise UsageError("evidence 'none' can't be combined with other evidence")

    @property
    def card_names(self) -> Sequence[str] | None:
        """Return the cards as a list, parsed from a comma-separated text; None: all."""
        if not isinstance(self.cards, str):
            return self.cards
        names = map(str.strip, self.cards.split(","))
        return [name for name in names if name]

    @property
    def gate_name(self) -> str:
        if self.mode == "direct":
            return "never"
        if self.gate:
            return self.gate
        if self.prompts == "paper" and self.cards is None:
            return PAPER_GATE
        return GATE

    @property
    def pruner_name(self) -> str | None:
        """Return the pruner; None: that of the selectors' preset.

        The prompt `grounded` shows whole passages: an LLM that reads single sentences loses half of its right answers.
        """
        if self.pruner is None and self.prompts == "grounded" and self.selectors == "offline":
            return "none"
        return self.pruner

    @property
    def relevance_threshold(self) -> float:
        """Return the probability that a card must fit a question with; cards that the user names fit by that."""
        if self.min_relevance is not None:
            return self.min_relevance
        if self.cards is None:
            return MIN_RELEVANCE
        return 0.0

    @property
    def memory_bytes(self) -> int | None:
        if isinstance(self.memory, str):
            return parse_size(self.memory)
        return self.memory

    @property
    def sampling(self) -> Sampling:
        """Return the sampling parameters of the cards."""
        return Sampling(self.card_temperature, self.card_tokens, self.card_top_k, self.seed)


# How the papers answer a question. Everything in which kcard's defaults differ is set here.

Paper = Literal["knowledge-card", "thrust", "skr", "adaptive-retrieval"]
ALL_CARDS = 1_000_000  # more than a hub has
# What three of the papers, whose knowledge is one retriever's passages in the order of their scores, have in common.
PASSAGES_AS_RETRIEVED = {
    "mode": "bottom-up",
    "prompts": "paper",
    "min_relevance": 0.0,
    "floor": 0.0,
    "compare_index": False,
    "reorder_by_date": False,
    "relevance": "none",
    "pruner": "none",
    "temperature": 0.0,
}
PAPERS: Mapping[Paper, Mapping[str, Any]] = {
    # Sections 2 and 3 and table 6. Bottom-up asks every card; in top-down the LLM decides, round by round.
    "knowledge-card": {
        "select": "auto",
        "prompts": "paper",
        "min_relevance": 0.0,
        "selectors": "paper",
        "evidence": ("wikipedia",),
        "n1": 3,
        "n2": 5,
        "n3": 3,
        "floor": 0.0,
        "margin": 0.0,
        "reorder_by_date": False,
        "compare_index": False,
        "single_document": True,
        "reuse_cards": True,
        "rank_by": "description",
        "card_top_k": 0,
        "temperature": 0.1,
        "max_iterations": 1,
        "shortlist": ALL_CARDS,
        "max_cards": ALL_CARDS,
    },
    # Section 3: one passage a question.
    "thrust": {**PASSAGES_AS_RETRIEVED, "n1": 1, "n2": 1, "n3": 1},
    # Section 4.3: the top three passages.
    "skr": {**PASSAGES_AS_RETRIEVED, "n1": 3, "n2": 3, "n3": 3},
    # Sections 3 and 5: the top passage.
    "adaptive-retrieval": {**PASSAGES_AS_RETRIEVED, "n1": 1, "n2": 1, "n3": 1},
}


@dataclass(frozen=True, kw_only=True)
class PresetOption(OptionGroup, panel="As in a paper"):
    """The preset of a command that answers questions."""

    preset: Annotated[
        Paper | None, Option("Answer as a paper does, step by step; options that are given override it.")
    ] = None


def with_preset(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return options of AskOptions, completed by those of the paper that `preset` names, if it names one.

    Raises UsageError for an unknown preset.
    """
    own = dict(values)
    preset = own.pop("preset", None)
    if preset is None:
        return own
    if preset not in PAPERS:
        raise UsageError(f"preset {preset!r} is unknown: choose one of {', '.join(PAPERS)}")
    return {**PAPERS[preset], **own}


@dataclass(frozen=True, kw_only=True)
class BaselineOptions(OptionGroup, panel="Baselines"):
    """Options of the baselines: what they search, and how much their LLM reads and generates.

    Raises UsageError for a value that is out of range.
    """

    corpus: Annotated[
        str | Path | None,
        Option(
            "What retrieval searches: a file, a folder, or a name such as wikipedia.",
            default="the cards' source passages",
            command_line=str | None,
        ),
    ] = None
    retriever: Annotated[
        str,
        Option(
            "How retrieval searches: bm25, minilm, contriever, contriever:MODEL or hf:MODEL,pooling=mean."
        ),
    ] = "bm25"
    passages: Annotated[
        int | None, Option("Retrieved passages that the LLM reads.", least=1, default="3; replug 10")
    ] = None
    samples: Annotated[
        int, Option("Texts that the LLM generates for gkp and recitation (their papers: 20).", least=1)
    ] = 5
