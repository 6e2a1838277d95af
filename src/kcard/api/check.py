"""check: does this evidence support that claim? One claim; for a file of them see pairs_file.py."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from kcard.answer import Source
from kcard.errors import UsageError
from kcard.option import Option, documented

if TYPE_CHECKING:
    from kcard.protocols import Checker, Evidence, Verdict

__all__ = ["Checked", "check", "deciding", "open_checker", "verdict_of"]

TEXTS = 3  # that a search of evidence gives; the paper's k


@dataclass(frozen=True)
class Checked:
    """A claim, and the evidence that decides about it.

    score       how far it is supported, in [0, 1]; None where no evidence was found, which is neither 0 nor a pass
    window      the part of the source that decided
    source      None where no evidence was found; without a file where the text was given as such
    refutation  the probability that the window refutes the claim; None where the checker does not tell
    """

    claim: str
    score: float | None = None
    window: str = ""
    source: Source | None = None
    refutation: float | None = None

    @property
    def verdict(self) -> str:
        """supported, refuted, or not covered by the evidence; not supported, where the checker does not tell these two
        apart."""
        return verdict_of(self.score, self.refutation)

    def to_json(self) -> dict[str, Any]:
        """As `kcard check --json` prints it."""
        source = self.source
        return {
            "claim": self.claim,
            "score": self.score,
            "refutation": self.refutation,
            "verdict": self.verdict,
            "window": self.window,
            "source": {"text": source.text, "file": source.file, "line": source.line} if source else None,
        }


@documented
def check(
    claim: Annotated[str, Option("The claim.", argument=True)],
    evidence: Annotated[
        Sequence[str | Path],
        Option(
            "Where to search evidence: a file or folder of text, wikipedia, or a registered name. Repeatable.",
            command_line=list[str],
        ),
    ] = (),
    *,
    texts: Annotated[
        Sequence[str], Option("Evidence, given as text. Repeatable.", flag="--text", command_line=list[str])
    ] = (),
    checker: Annotated[
        "str | Checker", Option("The checker; `kcard selectors` lists them.", command_line=str)
    ] = "minilm",
    device: Annotated[str, Option("Device of the checker: cpu, cuda or cuda:N.")] = "cpu",
    trust_remote_code: Annotated[bool, Option("Let the checker run code from its repository.")] = False,
    report: Callable[[str], None] | None = None,
) -> Checked:
    """Check a claim against evidence that is searched and against texts that are read as they are; the best decides.

    `report` is called with a sentence where a model is fetched.

    Raises:
        UsageError for an empty claim, no evidence or an unknown name, CorpusError, ModelUnavailable.
    """
    from kcard.protocols import Pair
    from kcard.selectors.evidence.registry import open_evidence
    from kcard.selectors.verdicts import verdicts

    if not claim.strip():
        raise UsageError("the claim is empty")
    if isinstance(evidence, (str, Path)) or isinstance(texts, str):
        raise UsageError("evidence and texts must be lists: put a single value in brackets")
    if not evidence and not texts:
        raise UsageError("a claim needs evidence: give a file, a folder, a named source or a text")
    corpora: list[Evidence] = [open_evidence(str(spec)) for spec in evidence]
    found = [*(Source(text) for text in texts), *(s for c in corpora for s in c.find(claim, TEXTS))]
    sources = list({source.text: source for source in reversed(found) if source.text.strip()}.values())[::-1]
    if not sources:
        return Checked(claim)
    judge = open_checker(checker, device, trust_remote_code, report)
    judged = verdicts(judge, [Pair(claim, source.text) for source in sources])
    best = deciding(claim, judged)
    return Checked(claim, judged[best].score, judged[best].window, sources[best], judged[best].refutation)


def verdict_of(score: float | None, refutation: float | None) -> str:
    """What a score and a probability of refutation mean, in words."""
    from kcard.selectors.checker import REFUTED, SUPPORTED

    if score is not None and score >= SUPPORTED:
        return "supported"
    if score is not None and refutation is None:
        return "not supported"
    return "refuted" if refutation is not None and refutation >= REFUTED else "not covered"


def deciding(claim: str, judged: "Sequence[Verdict]") -> int:
    """The place of the verdict that decides about a claim: the one with most support, unless another text contradicts
    it; where none supports, the one that refutes most.
    """
    from kcard.selectors.checker import SUPPORTED, contradicted
    from kcard.selectors.windows import covered

    best = max(range(len(judged)), key=lambda at: judged[at].score)
    if judged[best].refutation is None:
        return best
    by_refutation = sorted(
        range(len(judged)), key=lambda at: (judged[at].refutation or 0.0, judged[at].score), reverse=True
    )
    if judged[best].score < SUPPORTED:
        return by_refutation[0]
    share = covered(claim, judged[best].window)
    for at in by_refutation:
        other, refutation = judged[at], judged[at].refutation or 0.0
        if other.score < SUPPORTED and contradicted(
            judged[best].score, share, refutation, covered(claim, other.window)
        ):
            return at
    return best


def open_checker(
    checker: "str | Checker",
    device: str = "cpu",
    trust_remote_code: bool = False,
    report: Callable[[str], None] | None = None,
) -> "Checker":
    """The checker of that name, which remembers what it said; one of your own as it is, unless it names itself."""
    from kcard.selectors.cached import cached
    from kcard.selectors.registry import Loading
    from kcard.selectors.registry import checker as named

    if isinstance(checker, str):
        loading = Loading(device=device, trust_remote_code=trust_remote_code, report=report)
        return cached(named(checker, loading))
    return cached(checker)
