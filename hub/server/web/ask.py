"""The page that asks a hub's cards, and the view of an answer."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias

from anyio import to_thread
from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from kcard.errors import CardError
from kcard.hub.db.models import VersionRow
from kcard.hub.errors import Invalid, NotFound, Refused
from kcard.hub.server.dependencies import HubDep, OptionsDep, VisitorDep
from kcard.hub.server.limits import Buckets, cancel_on_disconnect, network_of
from kcard.hub.server.questions import (
    AskableCard,
    Candidates,
    Unanswered,
    ask_question,
    find_all_cards,
    find_one_card,
)
from kcard.hub.server.responses import status_of
from kcard.hub.server.web.render import Form, VisitorFormDep, page
from kcard.hub.services import HubServices

ANSWER_VIEWS_LONGEST = 4000  # characters of a shown text
MOST = 40  # passages, sentences or notes


@dataclass(frozen=True)
class PassageView:
    """A passage and the decisions of the selectors; scores in [0, 1], None: not measured.

    card       None: unknown
    place      file, line and section of the corpus; "" if a model generated it
    evidence   the text that it was checked against, if that is a different one
    """

    card: AskableCard | None
    summary: VersionRow | None
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
    """The text nearest to an answer that no card knows, and the number of its passage."""

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
        """Whether there is an answer, but no passage supports it."""
        is_answered = self.nearest is None and (bool(self.sentences) or not self.fired)
        return is_answered and all(sentence.passage is None for sentence in self.sentences)


def answer_view(
    answer: Mapping[str, Any], cards: Sequence[AskableCard], summaries: Mapping[int, VersionRow]
) -> AnswerView:
    """Return the view of an answer in the form of Answer.to_json. `summaries` are those of the cards' repositories."""
    by_name = {card.name: card for card in cards}
    passages = [_make_passage(passage, by_name, summaries) for passage in _read_rows(answer.get("passages"))]
    sentences = []
    for citation in _read_rows(answer.get("citations")):
        index = citation.get("passage")
        passage = index + 1 if isinstance(index, int) and 0 <= index < len(passages) else None
        support = _read_share(citation.get("support")) or 0.0
        sentences.append(SentenceView(_read_text(citation.get("sentence")), passage, support))
    nearest: NearestPassage | None = None
    source = answer.get("nearest")
    if isinstance(source, dict) and _read_text(source.get("text")):
        text = _read_text(source["text"])
        containing = (i for i, passage in enumerate(passages, 1) if passage.kept and text in passage.text)
        nearest = NearestPassage(text, _describe_place(source), next(containing, None))
    gate = answer.get("gate")
    gate = gate if isinstance(gate, dict) else {}
    return AnswerView(
        text=_read_text(answer.get("answer")),
        confidence=_read_share(answer.get("confidence")),
        gate=_read_text(gate.get("name")),
        score=_read_number(gate.get("score")),
        fired=gate.get("fired") is True,
        seconds=_read_number(answer.get("seconds")),
        sentences=sentences,
        passages=passages,
        nearest=nearest,
        notes=[_read_text(note) for note in _read_list(answer.get("notes"))],
    )


def _make_passage(
    passage: dict[str, Any], cards: Mapping[str, AskableCard], summaries: Mapping[int, VersionRow]
) -> PassageView:
    card = cards.get(_read_text(passage.get("card")))
    text, evidence = _read_text(passage.get("text")), passage.get("evidence")
    supported = _read_text(evidence.get("text")) if isinstance(evidence, dict) else ""
    return PassageView(
        card=card,
        summary=None if card is None else summaries.get(card.repository.id),
        text=text,
        kept=passage.get("kept") is True,
        faithfulness=_read_share(passage.get("faithfulness")),
        factuality=_read_share(passage.get("factuality")),
        place=_describe_place(passage.get("source")),
        evidence=supported if supported != text else "",
    )


def _describe_place(source: object) -> str:
    if not isinstance(source, dict) or not _read_text(source.get("file")):
        return ""
    section = _read_text(source.get("section"))
    line = _read_number(source.get("line"))
    where = _read_text(source["file"]) + (f":{line:.0f}" if line else "")
    return where + (f", {section}" if section else "")


def _read_rows(value: object) -> list[dict[str, Any]]:
    return [row for row in _read_list(value) if isinstance(row, dict)]


def _read_list(value: object) -> list[Any]:
    return value[:MOST] if isinstance(value, list) else []


def _read_text(value: object) -> str:
    text = value if isinstance(value, str) else ""
    return text if len(text) <= ANSWER_VIEWS_LONGEST else text[:ANSWER_VIEWS_LONGEST] + "…"


def _read_number(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) and abs(value) < 1e9 else None


def _read_share(value: object) -> float | None:
    number = _read_number(value)
    return None if number is None else min(1.0, max(0.0, number))


# Ask a question of one card, or of all that the visitor may download. The hub must be served with ask workers.
#
# A question costs processor time, so its length and the number of questions are limited, and it is cancelled when the
# client disconnects.

router = APIRouter(include_in_schema=False)

LONGEST = 500  # characters of a question
MOST_UNUSABLE = 3
OF_CLIENT = 10  # questions a minute of an account or address; five times as many at once

logger = logging.getLogger("kcard.hub.asking")


class QuestionLimit:
    """Raises TooManyRequests for questions beyond the limit. `counts`: the file that the workers share, if they do."""

    def __init__(self, counts: str | None = None) -> None:
        self._clients = Buckets(OF_CLIENT, counts)

    def take(self, client: str) -> None:
        """Count a question."""
        self._clients.require(f"question of {client}", "questions")


async def get_socket(options: OptionsDep) -> str:
    """Return the socket of the processes that answer. Raises NotFound on a hub without any."""
    if options.asking is None:
        raise NotFound(
            "object", "this hub answers no questions: ask its cards with `kcard ask` on your machine"
        )
    return options.asking


SocketDep: TypeAlias = Annotated[str, Depends(get_socket)]


@router.get("/ask")
def question_page(
    _socket: SocketDep, hub: HubDep, visitor: VisitorDep, card: str = "", question: str = ""
) -> Response:
    """Show the form, for one card or for all."""
    candidates = find_one_card(hub, card, visitor.identity) if card.strip() else None
    return render_ask_page(Form({"card": card, "question": question[:LONGEST]}), candidates)


@router.post("/ask")
async def answer_page(
    request: Request, hub: HubDep, form: VisitorFormDep, socket: SocketDep, visitor: VisitorDep
) -> Response:
    """Show the answer, with its passages and the decisions behind it."""
    identity, candidates = visitor.identity, None
    client = f"address {network_of(request.scope)}" if identity is None else f"account {identity.name}"
    limit: QuestionLimit = request.app.state.question_limit
    try:
        # The question of a suggestion's button, else the typed one.
        question = " ".join((form.text("suggestion") or form.text("question")).split())
        form.values = {**form.values, "question": question[:LONGEST]}
        if not question:
            raise Invalid("type a question")
        if len(question) > LONGEST:
            raise Invalid(f"the question has {len(question)} characters: the limit is {LONGEST}")
        # The cards that may answer, and their answer.
        limit.take(client)
        card = form.text("card")
        if card:
            candidates = await to_thread.run_sync(find_one_card, hub, card, identity)
        else:
            candidates = await to_thread.run_sync(find_all_cards, hub, question, identity)
        async with cancel_on_disconnect(request):
            candidates, answer = await _ask_candidates(
                hub, socket, client, question, candidates, one=bool(card)
            )
        summaries = await to_thread.run_sync(
            hub.publications.summarize, [candidate.repository.id for candidate in candidates]
        )
        return render_ask_page(form, candidates, answer_view(answer, candidates.cards, summaries))
    except (Refused, CardError) as error:
        form.errors["question"], form.status = str(error), status_of(error)
        seconds = getattr(error, "seconds", None)
        return render_ask_page(
            form, candidates, headers=None if seconds is None else {"Retry-After": f"{seconds:.0f}"}
        )


async def _ask_candidates(
    hub: HubServices, socket: str, client: str, question: str, candidates: Candidates, *, one: bool
) -> tuple[Candidates, Mapping[str, Any]]:
    """Return the answer, and the candidates without cards that can't be opened; for a named card, raise Unanswered."""
    while True:
        versions = {card.renamed_version.reference: card for card in candidates}
        try:
            answer = await ask_question(
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


def render_ask_page(
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
        candidates=candidates,
        answer=answer,
        longest=LONGEST,
        here="ask",
    )
