"""What the API can do: as OpenAPI for programs, and as a page for people, in which no script runs."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

from fastapi import APIRouter, FastAPI, Request
from fastapi.openapi.utils import get_openapi
from starlette.responses import Response

from kcard.hub.server.page.pages import page

__all__ = ["describe", "router"]

Json: TypeAlias = dict[str, Any]

router = APIRouter(include_in_schema=False)

# What a name in a path or a query means, wherever it stands and its endpoint says nothing else.
PARAMETERS = {
    "address": "The address that the write token was given with.",
    "author": "Only those of this user or organisation.",
    "blobs": "Tell the size and digest of each file too.",
    "branch": "The branch.",
    "cardData": "Tell the metadata of the README.md too.",
    "config": "Taken and not needed.",
    "create_pr": "There are no pull requests here: 501 where it is set.",
    "cursor": "Where the page before ended, as its Link header has it.",
    "expand": "Which properties to tell, or whether to tell more of each.",
    "expand[]": "Which properties to tell.",
    "full": "Tell everything of each.",
    "gated": "Only those that are gated, or are not.",
    "limit": "At most so many.",
    "name": "The repository's name within its namespace.",
    "namespace": "The user or organisation that the repository belongs to.",
    "number": "Which part, from 1.",
    "oid": "The sha256 of the file.",
    "organisation": "The organisation's name.",
    "path": "The path of a file or folder in the repository.",
    "pipeline_tag": "Only those for this task.",
    "recursive": "Everything under the folder.",
    "revision": "A branch, a tag or a commit, quoted as one segment.",
    "search": "Words that are in the name or a tag.",
    "securityStatus": "Taken and not needed: whatever is stored was checked.",
    "status": "pending, accepted or rejected.",
    "tag": "The tag.",
    "ticket": "What the hub gave out for this one upload.",
    "types": "models or datasets.",
    "user": "The user's name.",
    "xorb": "The hash of the xorb.",
}
REFUSAL = "#/components/responses/Refusal"
# May come from anywhere: what was sent is wrong, a token is missing or not valid, there have been too many requests.
ANYWHERE = ("400", "401", "429")
OF_REPOSITORIES = ("403", "404")
NOT_OURS = "422"  # FastAPI promises it; here what it means is 400
REFUSED: Json = {
    "description": "Refused; X-Error-Code says why to programs, X-Error-Message to people.",
    "headers": {
        "X-Error-Code": {
            "description": "RepoNotFound, RevisionNotFound, EntryNotFound or GatedRepo, where it is one of these.",
            "schema": {"type": "string"},
        },
        "X-Error-Message": {"description": "The reason, in a line.", "schema": {"type": "string"}},
    },
    "content": {
        "application/json": {
            "schema": {
                "type": "object",
                "properties": {"error": {"type": "string"}},
                "required": ["error"],
            }
        }
    },
}
BEARER: Json = {"type": "http", "scheme": "bearer", "description": "A token of this hub: kc_..."}


@dataclass(frozen=True)
class Operation:
    """A method of a path, as the page shows it."""

    method: str
    path: str
    summary: str
    description: str
    parameters: tuple[tuple[str, str], ...]
    answers: tuple[tuple[str, str], ...]


def describe(app: FastAPI) -> None:
    """Have the application describe itself whole: its refusals, its tokens, every parameter."""

    def openapi() -> Json:
        if app.openapi_schema is None:
            app.openapi_schema = _completed(
                get_openapi(
                    title=app.title, version=app.version, description=app.description, routes=app.routes
                )
            )
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]


@router.get("/docs")
def docs(request: Request) -> Response:
    """The description as a page."""
    described: FastAPI = request.app
    return page("description.html", title=described.title, operations=list(_shown(described.openapi())))


def _completed(schema: Json) -> Json:
    components = schema.setdefault("components", {})
    components.setdefault("responses", {})["Refusal"] = REFUSED
    components["securitySchemes"] = {"token": BEARER}
    schema["security"] = [{}, {"token": []}]
    for path, _, operation in _operations(schema):
        answers = operation["responses"]
        answers.pop(NOT_OURS, None)
        for status in (*ANYWHERE, *(OF_REPOSITORIES if "{name}" in path else ())):
            answers.setdefault(status, {"$ref": REFUSAL})
        for parameter in operation.get("parameters", ()):
            known = PARAMETERS.get(parameter["name"])
            if known and not parameter.get("description"):
                parameter["description"] = known
    return schema


def _shown(schema: Json) -> Iterator[Operation]:
    for path, method, operation in _operations(schema):
        yield Operation(
            method=method.upper(),
            path=path,
            summary=operation.get("summary", ""),
            description=operation.get("description", ""),
            parameters=tuple(
                (found["name"], found.get("description", "")) for found in operation.get("parameters", ())
            ),
            answers=tuple(
                (status, found["description"])
                for status, found in sorted(operation["responses"].items())
                if "$ref" not in found
            ),
        )


def _operations(schema: Json) -> Iterator[tuple[str, str, Json]]:
    for path, methods in schema["paths"].items():
        for method, operation in methods.items():
            yield path, method, operation
