"""Top-down: the LLM asks for one card at a time (Knowledge Card, section 2.3 and algorithm 2)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kcard.answer import Passage
from kcard.integrators.choice import CardChoice
from kcard.integrators.gathered import Gathered, distinct
from kcard.integrators.selectors import Selectors
from kcard.protocols import LLM, Writer
from kcard.request import Example, Request
from kcard.sampling import Sampling, derive_seed
from kcard.selectors.factuality import judge

__all__ = ["TopDown"]


@dataclass(frozen=True)
class TopDown:
    """In each round one card writes n1 documents and the most factual one is kept.

    Whether the first round takes place is the gate's decision, made before. Before each further one the
    LLM is asked again whether it needs more; after the last permitted round it is not. Documents are not
    pruned and the best is taken, not drawn (algorithm 2).
    """

    writer: Writer
    selectors: Selectors
    sampling: Sampling
    llm: LLM
    choice: CardChoice
    examples: tuple[Example, ...] = ()
    n1: int = 3
    max_iterations: int = 1

    def gather(self, questions: Sequence[str]) -> list[Gathered]:
        """One Gathered a question, passages in the order of the rounds."""
        found = [Gathered() for _ in questions]
        going = list(range(len(questions)))
        for round_number in range(self.max_iterations):
            if round_number:
                going = [i for i in going if self._needs_more(questions[i], found[i])]
            chosen: dict[int, str] = {}
            for i in going:
                card, note = self.choice.choose(questions[i])
                found[i] = replace(found[i], notes=found[i].notes + ((note,) if note else ()))
                if card is not None:
                    chosen[i] = card
            self._write(questions, chosen, found, round_number)
            going = list(chosen)
        return found

    def _needs_more(self, question: str, found: Gathered) -> bool:
        request = Request("need", question, knowledge=found.knowledge, examples=self.examples)
        yes = self.llm.reply(request).yes
        return yes is None or yes > 0.5

    def _write(
        self, questions: Sequence[str], chosen: dict[int, str], found: list[Gathered], nth: int
    ) -> None:
        """Let each chosen card write once for all its questions, and keep the best document of each."""
        seed = derive_seed(self.sampling.seed, "round", nth) if nth else self.sampling.seed
        sampling = replace(self.sampling, seed=seed)
        written: dict[int, list[Passage]] = {}
        for card in sorted(set(chosen.values())):
            rows = [i for i, name in chosen.items() if name == card]
            passages = self.writer.write([questions[i] for i in rows], [card], self.n1, sampling)
            written.update(zip(rows, passages, strict=True))
        flat = [(i, p) for i, passages in written.items() for p in distinct(passages)]
        judged = judge(
            [p for _, p in flat], self.selectors.evidence, self.selectors.checker, with_summary=False
        )
        for i in written:
            own = [p for (row, _), p in zip(flat, judged, strict=True) if row == i]
            best = max(range(len(own)), key=lambda j: (_known(own[j]), -j), default=None)
            marked = tuple(replace(p, kept=j == best) for j, p in enumerate(own))
            found[i] = replace(found[i], passages=found[i].passages + marked)


def _known(passage: Passage) -> float:
    """Unknown factuality ranks below every known one."""
    return -1.0 if passage.factuality is None else passage.factuality
