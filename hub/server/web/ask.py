"""Ask cards of a hub in the browser."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias

from anyio import to_thread
from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from kcard.errors import CardError
from kcard.hub.accounts import Identity
from kcard.hub.errors import Invalid, NotThere, Refused
from kcard.hub.server.asking import AskableCard, Candidates, Unanswered, all_cards, ask, one_card
from kcard.hub.server.dependencies import HubDep, OptionsDep, VisitorDep
from kcard.hub.server.limits import Buckets, network, while_connected
from kcard.hub.server.responses import status_of
from kcard.hub.server.web.forms import Form, VisitorFormDep
from kcard.hub.server.web.render import page
from kcard.hub.shared import SharedHub
from kcard.hub.values import Mark

__all__ = [
    "LONGEST",
    "OF_CLIENT",
    "AnswerView",
    "NearestPassage",
    "PassageView",
    "QuestionLimit",
    "SentenceView",
    "answer_view",
    "router",
]


ANSWER_VIEWS_LONGEST = 4000  # characters of a shown text
MOST = 40  # passages, sentences or notes


@dataclass(frozen=True)
class PassageView:
    """A passage, and what the selectors made of it; scores in [0, 1], None: not measured.

    card       None: unknown
    place      file, line and section of the corpus; "" if a model wrote it
    evidence   the text that it was checked against, if that is another one
    """

    card: AskableCard | None
    mark: Mark | None
    text: str
    kept: bool
    faithfulness: float | None
    factuality: float | None
    place: str
    evidence: str


@dataclass(frozen=True)
class SentenceView:
    """A sentence of the answer and the number of the passage that supports it, from 1; None: no passage does."""

    text: str
    passage: int | None
    support: float


@dataclass(frozen=True)
class NearestPassage:
    """What comes nearest to an answer that is not known, and the number of its passage."""

    text: str
    place: str
    passage: int | None


@dataclass(frozen=True)
class AnswerView:
    """An answer. `sentences` is empty if no card was asked, or the answer is not known (then there is `nearest`)."""

    text: str
    confidence: float | None
    gate: str
    score: float | None
    fired: bool
    seconds: float | None
    sentences: Sequence[SentenceView]
    passages: Sequence[PassageView]
    nearest: NearestPassage | None
    notes: Sequence[str]

    @property
    def unsupported(self) -> bool:
        """Whether there is an answer, but no passage that supports it."""
        is_answered = self.nearest is None and (bool(self.sentences) or not self.fired)
        return is_answered and all(sentence.passage is None for sentence in self.sentences)


def answer_view(
    answer: Mapping[str, Any], cards: Sequence[AskableCard], marks: Mapping[int, Mark]
) -> AnswerView:
    """The answer of some cards, as JSON. `marks` are those of the cards' repositories."""
    by_name = {card.name: card for card in cards}
    passages = [_passage(one, by_name, marks) for one in _rows(answer.get("passages"))]
    gate = answer.get("gate")
    gate = gate if isinstance(gate, dict) else {}
    return AnswerView(
        text=_text(answer.get("answer")),
        confidence=_share(answer.get("confidence")),
        gate=_text(gate.get("name")),
        score=_number(gate.get("score")),
        fired=gate.get("fired") is True,
        seconds=_number(answer.get("seconds")),
        sentences=[_sentence(one, len(passages)) for one in _rows(answer.get("citations"))],
        passages=passages,
        nearest=_nearest(answer.get("nearest"), passages),
        notes=[_text(note) for note in _list(answer.get("notes"))],
    )


def _passage(one: dict[str, Any], cards: Mapping[str, AskableCard], marks: Mapping[int, Mark]) -> PassageView:
    card = cards.get(_text(one.get("card")))
    text, evidence = _text(one.get("text")), one.get("evidence")
    supported = _text(evidence.get("text")) if isinstance(evidence, dict) else ""
    return PassageView(
        card=card,
        mark=None if card is None else marks.get(card.repository.id),
        text=text,
        kept=one.get("kept") is True,
        faithfulness=_share(one.get("faithfulness")),
        factuality=_share(one.get("factuality")),
        place=_place(one.get("source")),
        evidence=supported if supported != text else "",
    )


def _sentence(one: dict[str, Any], passages: int) -> SentenceView:
    index = one.get("passage")
    passage = index + 1 if isinstance(index, int) and 0 <= index < passages else None
    return SentenceView(_text(one.get("sentence")), passage, _share(one.get("support")) or 0.0)


def _nearest(one: object, passages: Sequence[PassageView]) -> NearestPassage | None:
    if not isinstance(one, dict) or not _text(one.get("text")):
        return None
    text = _text(one["text"])
    containing = (i for i, passage in enumerate(passages, 1) if passage.kept and text in passage.text)
    return NearestPassage(text, _place(one), next(containing, None))


def _place(source: object) -> str:
    if not isinstance(source, dict) or not _text(source.get("file")):
        return ""
    section = _text(source.get("section"))
    line = _number(source.get("line"))
    where = _text(source["file"]) + (f":{line:.0f}" if line else "")
    return where + (f", {section}" if section else "")


def _rows(value: object) -> list[dict[str, Any]]:
    return [one for one in _list(value) if isinstance(one, dict)]


def _list(value: object) -> list[Any]:
    return value[:MOST] if isinstance(value, list) else []


def _text(value: object) -> str:
    text = value if isinstance(value, str) else ""
    return text if len(text) <= ANSWER_VIEWS_LONGEST else text[:ANSWER_VIEWS_LONGEST] + "…"


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) and abs(value) < 1e9 else None


def _share(value: object) -> float | None:
    number = _number(value)
    return None if number is None else min(1.0, max(0.0, number))


# Ask a question of one card, or of all that the visitor may download. The hub must be served with ask workers.
#
# A question costs processor time: it is limited in length and in number, and given up when the client leaves.

router = APIRouter(include_in_schema=False)

LONGEST = 500  # characters of a question
MOST_UNUSABLE = 3
OF_CLIENT = 10  # questions a minute of an account or address; five times as many at once

logger = logging.getLogger("kcard.hub.asking")


class QuestionLimit:
    """Raises TooMany for questions beyond the limit. `counts`: the file that the workers share, if they do."""

    def __init__(self, counts: str | None = None) -> None:
        self._clients = Buckets(OF_CLIENT, counts)

    def take(self, client: str) -> None:
        """Count a question."""
        self._clients.require(f"question of {client}", "questions")


async def _socket(options: OptionsDep) -> str:
    """Where the processes are asked. Raises NotThere on a hub without any."""
    if options.asking is None:
        raise NotThere(
            "object", "this hub answers no questions: ask its cards with `kcard ask` on your machine"
        )
    return options.asking


SocketDep: TypeAlias = Annotated[str, Depends(_socket)]


@router.get("/ask")
def question_page(
    _socket: SocketDep, hub: HubDep, visitor: VisitorDep, card: str = "", question: str = ""
) -> Response:
    """The form, for one card or for all."""
    candidates = one_card(hub, card, visitor.identity) if card.strip() else None
    return _page(Form({"card": card, "question": question[:LONGEST]}), candidates)


@router.post("/ask")
async def answer_page(
    request: Request, hub: HubDep, form: VisitorFormDep, socket: SocketDep, visitor: VisitorDep
) -> Response:
    """The answer, with its passages and what was decided on the way to it."""
    identity, candidates = visitor.identity, None
    client = f"address {network(request.scope)}" if identity is None else f"account {identity.name}"
    limit: QuestionLimit = request.app.state.question_limit
    try:
        question = _question(form)
        limit.take(client)
        candidates = await to_thread.run_sync(_candidates, hub, form.text("card"), question, identity)
        async with while_connected(request):
            candidates, answer = await _answered(
                hub, socket, client, question, candidates, one=bool(form.text("card"))
            )
        marks = await to_thread.run_sync(hub.publications.marks, [card.repository.id for card in candidates])
        return _page(form, candidates, answer_view(answer, candidates.cards, marks))
    except (Refused, CardError) as error:
        form.errors["question"], form.status = str(error), status_of(error)
        seconds = getattr(error, "seconds", None)
        return _page(form, candidates, headers=None if seconds is None else {"Retry-After": f"{seconds:.0f}"})


async def _answered(
    hub: SharedHub, socket: str, client: str, question: str, candidates: Candidates, *, one: bool
) -> tuple[Candidates, Mapping[str, Any]]:
    """The answer, and the cards without those that can't be opened, which fail only where they are named."""
    while True:
        versions = {card.renamed_version.reference: card for card in candidates}
        try:
            answer = await ask(
                socket,
                client,
                question,
                [card.renamed_version for card in candidates],
                lambda name, of=versions: hub.registry.folder(of[name].version.reference),  # type: ignore[misc]
                gate="always" if one else None,
            )
        except Unanswered as error:
            unusable = versions.get(error.card or "")
            if one or unusable is None or len(candidates.unusable) == MOST_UNUSABLE:
                raise
            logger.warning("%s can't be asked: %s", unusable.version.reference, error)
            candidates = candidates.without(unusable)
        else:
            return candidates, answer


def _question(form: Form) -> str:
    """The question: of a suggestion's button, else as typed. Raises Invalid."""
    question = " ".join((form.text("suggestion") or form.text("question")).split())
    form.values = {**form.values, "question": question[:LONGEST]}
    if not question:
        raise Invalid("type a question")
    if len(question) > LONGEST:
        raise Invalid(f"the question has {len(question)} characters: the limit is {LONGEST}")
    return question


def _candidates(hub: SharedHub, card: str, question: str, identity: Identity | None) -> Candidates:
    return one_card(hub, card, identity) if card else all_cards(hub, question, identity)


def _page(
    form: Form,
    candidates: Candidates | None,
    answer: AnswerView | None = None,
    headers: dict[str, str] | None = None,
) -> Response:
    card = candidates.cards[0] if candidates is not None and form.text("card") else None
    return page(
        "ask.html",
        form.status,
        headers,
        form=form,
        card=card,
        asked=candidates,
        answer=answer,
        longest=LONGEST,
        here="ask",
    )
