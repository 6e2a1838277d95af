"""The description of the API: OpenAPI for programs, and a page without scripts for people."""

from collections.abc import Iterator
from dataclasses import dataclass

from fastapi import APIRouter, FastAPI, Request
from fastapi.openapi.utils import get_openapi
from starlette.responses import Response

from kcard.hub.server.responses import Json
from kcard.hub.server.web.render import page

__all__ = ["describe", "router"]

router = APIRouter(include_in_schema=False)

# Descriptions of parameters by name, for endpoints that give none.
PARAMETERS = {
    "address": "The account's part of the upload URL.",
    "author": "Namespace of the repositories.",
    "blobs": "Include the size and hashes of each file.",
    "branch": "Branch name.",
    "cardData": "Include the metadata of README.md.",
    "config": "Include parts of config.json.",
    "create_pr": "Not supported: 501 if set.",
    "cursor": "Start of the page, from the Link header of the one before.",
    "expand": "Properties to return, or whether to return more of each item.",
    "expand[]": "Properties to return.",
    "full": "Include all properties.",
    "gated": "Whether the repositories are gated.",
    "limit": "Page size.",
    "name": "Name of the repository within its namespace.",
    "namespace": "User or organisation that owns the repository.",
    "number": "Number of the part, from 1.",
    "oid": "sha256 of the file.",
    "organisation": "Name of the organisation.",
    "path": "Path of a file or folder in the repository.",
    "pipeline_tag": "Task of the repositories.",
    "recursive": "Include subfolders.",
    "revision": "Branch, tag or commit, quoted as one segment.",
    "search": "Words of the name or a tag.",
    "securityStatus": "Include the security status.",
    "status": "pending, accepted or rejected.",
    "tag": "Tag name.",
    "ticket": "Ticket from the upload URL.",
    "types": "models or datasets.",
    "user": "Name of the user.",
}
REFUSAL = "#/components/responses/Refusal"
# Any operation may return these: invalid input, missing or invalid token, too many requests.
ANYWHERE = ("400", "401", "429")
OF_REPOSITORIES = ("403", "404")
VALIDATION_ERROR = "422"  # FastAPI's default; this server returns 400 instead
REFUSED: Json = {
    "description": "Refused; X-Error-Message has the reason, X-Error-Code a code for programs.",
    "headers": {
        "X-Error-Code": {
            "description": "RepoNotFound, RevisionNotFound, EntryNotFound or GatedRepo, if applicable.",
            "schema": {"type": "string"},
        },
        "X-Error-Message": {"description": "The reason, in one line.", "schema": {"type": "string"}},
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
    """An operation, as the page shows it."""

    method: str
    path: str
    summary: str
    description: str
    parameters: tuple[tuple[str, str], ...]
    answers: tuple[tuple[str, str], ...]


def describe(app: FastAPI) -> None:
    """Add error responses, the token scheme and parameter descriptions to the application's OpenAPI."""

    def openapi() -> Json:
        if app.openapi_schema is None:
            schema = get_openapi(
                title=app.title, version=app.version, description=app.description, routes=app.routes
            )
            components = schema.setdefault("components", {})
            components.setdefault("responses", {})["Refusal"] = REFUSED
            components["securitySchemes"] = {"token": BEARER}
            schema["security"] = [{}, {"token": []}]
            for path, _, operation in iterate_operations(schema):
                answers = operation["responses"]
                answers.pop(VALIDATION_ERROR, None)
                for status in (*ANYWHERE, *(OF_REPOSITORIES if "{name}" in path else ())):
                    answers.setdefault(status, {"$ref": REFUSAL})
                for parameter in operation.get("parameters", ()):
                    text = PARAMETERS.get(parameter["name"])
                    if text and not parameter.get("description"):
                        parameter["description"] = text
            app.openapi_schema = schema
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]


@router.get("/docs")
def docs(request: Request) -> Response:
    """Show the description as a page."""
    app: FastAPI = request.app
    operations = [
        Operation(
            method=method.upper(),
            path=path,
            summary=operation.get("summary", ""),
            description=operation.get("description", ""),
            parameters=tuple(
                (parameter["name"], parameter.get("description", ""))
                for parameter in operation.get("parameters", ())
            ),
            answers=tuple(
                (status, answer["description"])
                for status, answer in sorted(operation["responses"].items())
                if "$ref" not in answer
            ),
        )
        for path, method, operation in iterate_operations(app.openapi())
    ]
    return page("openapi.html", title=app.title, operations=operations, here="")


def iterate_operations(schema: Json) -> Iterator[tuple[str, str, Json]]:
    for path, methods in schema["paths"].items():
        for method, operation in methods.items():
            yield path, method, operation
