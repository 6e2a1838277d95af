"""Cuts a request down to what its LLM can read, and says what was cut."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from kcard.protocols import LLM, Windowed
from kcard.request import Request

__all__ = ["fit"]

Fits = Callable[[Request], bool]


def fit(request: Request, llm: LLM) -> tuple[Request, str | None]:
    """The request as the LLM can read it, and a note for the user; as it is, and None, where it fits.

    What goes, in this order, until the rest fits: in-context examples, one by one from the first, which is the
    farthest; earlier turns, and then the tail of the question, where they would leave less than half of the window to
    knowledge; knowledge from its end, where the least relevant stands, and of the last passage left its tail; cards to
    choose from, from the end.
    """
    if not isinstance(llm, Windowed) or llm.window is None or llm.count(request) <= llm.window:
        return request, None
    window, cuts = llm.window, []

    def fits(shorter: Request) -> bool:
        return llm.count(shorter) <= window

    if llm.count(replace(request, examples=())) < llm.count(request):
        request, said = _examples(request, fits)
        cuts += [said] if said else []
    if fits(request):
        return request, _note(window, cuts)
    bare = replace(request, knowledge=(), choices=())
    shared = llm.count(bare) < llm.count(
        request
    )  # not so for the embedded reader: it reads each text by itself
    room = window // 2 if shared else window
    if request.turns and llm.count(bare) > room:
        request, bare = replace(request, turns=()), replace(bare, turns=())
        cuts.append("earlier exchanges on the question")
    if llm.count(bare) > room:
        text = request.question
        length = _most(len(text), lambda n: llm.count(replace(bare, question=_head(text, n))) <= room)
        request = replace(request, question=_head(text, max(length, 1)))
        cuts.append(f"the question after its first {len(request.question)} characters")
    for cut in (_knowledge, _choices):
        if not fits(request):
            request, said = cut(request, fits)
            cuts += [said] if said else []
    return request, _note(window, cuts)


def _note(window: int, cuts: Sequence[str]) -> str | None:
    return f"the LLM reads {window} tokens at most; left out: {', '.join(cuts)}" if cuts else None


def _examples(request: Request, fits: Fits) -> tuple[Request, str | None]:
    """Of the examples that are shown, the last ones that fit; the others are not counted."""
    shots = request.shots
    held = _most(len(shots), lambda n: fits(replace(request, examples=shots[len(shots) - n :])))
    request = replace(request, examples=shots[len(shots) - held :])
    return request, f"{len(shots) - held} of {len(shots)} in-context examples" if held < len(shots) else None


def _knowledge(request: Request, fits: Fits) -> tuple[Request, str | None]:
    texts = request.knowledge
    if not texts:
        return request, None
    held = _most(len(texts), lambda n: fits(replace(request, knowledge=texts[:n])))
    if held:
        return replace(request, knowledge=texts[:held]), f"{len(texts) - held} of {len(texts)} passages"
    first = texts[0]
    length = _most(len(first), lambda n: fits(replace(request, knowledge=(_head(first, n),))))
    head = _head(first, length)
    rest = f"{len(texts) - 1} of {len(texts)} passages and " if len(texts) > 1 else ""
    said = f"{rest}the end of the most relevant passage" if head else "all passages"
    return replace(request, knowledge=(head,) if head else ()), said


def _choices(request: Request, fits: Fits) -> tuple[Request, str | None]:
    cards = request.choices
    if request.kind != "choose" or not cards:
        return request, None
    held = max(1, _most(len(cards), lambda n: fits(replace(request, choices=cards[:n]))))
    return replace(request, choices=cards[:held]), f"{len(cards) - held} of {len(cards)} cards to choose from"


def _head(text: str, length: int) -> str:
    """The first `length` characters, cut back to a whole word where there is one."""
    if length >= len(text):
        return text
    head, blank, _ = text[: length + 1].rpartition(" ")
    return head if blank and head.strip() else text[:length]


def _most(count: int, fits: Callable[[int], bool]) -> int:
    """The largest n in 0..count that fits, where all below it do; 0 where none does."""
    low, high = 0, count
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low
