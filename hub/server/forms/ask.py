"""Ask a question of one card, or of all that the visitor may download. The hub must be served with ask workers.

A question costs processor time: it is limited in length and in number, and given up when the client leaves.
"""

import logging
from collections.abc import Mapping
from typing import Annotated, Any, TypeAlias

from anyio import to_thread
from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from kcard.errors import CardError
from kcard.hub.accounts.identity import Identity
from kcard.hub.refusals import Invalid, NotThere, Refused
from kcard.hub.server.asking.candidates import Candidates, all_cards, one_card
from kcard.hub.server.asking.connection import Unanswered, ask
from kcard.hub.server.dependencies import HubDep, OptionsDep
from kcard.hub.server.errors import status_of
from kcard.hub.server.forms.form import Form, VisitorFormDep
from kcard.hub.server.limits import Buckets, network, while_connected
from kcard.hub.server.page.answer_views import AnswerView, answer_view
from kcard.hub.server.page.render import page
from kcard.hub.server.visitor import VisitorDep
from kcard.hub.shared import SharedHub

__all__ = ["LONGEST", "OF_CLIENT", "QuestionLimit", "router"]

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
    asked = one_card(hub, card, visitor.identity) if card.strip() else None
    return _page(Form({"card": card, "question": question[:LONGEST]}), asked)


@router.post("/ask")
async def answer_page(
    request: Request, hub: HubDep, form: VisitorFormDep, socket: SocketDep, visitor: VisitorDep
) -> Response:
    """The answer, with its passages and what was decided on the way to it."""
    identity, asked = visitor.identity, None
    client = f"address {network(request.scope)}" if identity is None else f"account {identity.name}"
    limit: QuestionLimit = request.app.state.question_limit
    try:
        question = _question(form)
        limit.take(client)
        asked = await to_thread.run_sync(_candidates, hub, form.text("card"), question, identity)
        async with while_connected(request):
            asked, found = await _answered(hub, socket, client, question, asked, one=bool(form.text("card")))
        marks = await to_thread.run_sync(hub.publications.marks, [card.repository.id for card in asked])
        return _page(form, asked, answer_view(found, asked.cards, marks))
    except (Refused, CardError) as error:
        form.errors["question"], form.status = str(error), status_of(error)
        seconds = getattr(error, "seconds", None)
        return _page(form, asked, headers=None if seconds is None else {"Retry-After": f"{seconds:.0f}"})


async def _answered(
    hub: SharedHub, socket: str, client: str, question: str, asked: Candidates, *, one: bool
) -> tuple[Candidates, Mapping[str, Any]]:
    """The answer, and the cards without those that can't be opened, which fail only where they are named."""
    while True:
        versions = {card.named.reference: card for card in asked}
        try:
            found = await ask(
                socket,
                client,
                question,
                [card.named for card in asked],
                lambda name, of=versions: hub.registry.folder(of[name].version.reference),  # type: ignore[misc]
                gate="always" if one else None,
            )
        except Unanswered as error:
            unusable = versions.get(error.card or "")
            if one or unusable is None or len(asked.unusable) == MOST_UNUSABLE:
                raise
            logger.warning("%s can't be asked: %s", unusable.version.reference, error)
            asked = asked.without(unusable)
        else:
            return asked, found


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
    asked: Candidates | None,
    answer: AnswerView | None = None,
    headers: dict[str, str] | None = None,
) -> Response:
    card = asked.cards[0] if asked is not None and form.text("card") else None
    return page(
        "ask.html",
        form.status,
        headers,
        form=form,
        card=card,
        asked=asked,
        answer=answer,
        longest=LONGEST,
        here="ask",
    )
