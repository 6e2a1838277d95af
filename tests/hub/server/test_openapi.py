"""Whatever fits the API's description, and much that does not, is answered without an error of the server's own."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import Case, GenerationMode
from schemathesis.core.result import Ok

from tests.hub.shared_hub import Shared, shared_hub

# Names that lead somewhere; without them nearly every request would end at "there is no repository".
REAL = {
    "types": ["models", "datasets"],
    "namespace": ["bob", "lab"],
    "name": ["card", "gated"],
    "revision": ["main", "v1", "side"],
    "path": ["config.json", "folder", "folder/a.txt", "model.safetensors"],
    "branch": ["main", "side", "new"],
    "tag": ["v1", "v2"],
    "user": ["bob"],
    "organisation": ["lab"],
    "status": ["pending", "accepted"],
}
WHO = (None, "bob:read", "bob", "ada:admin")
SERVER_ERRORS = range(500, 600)
NOT_BUILT = 501


@schemathesis.serializer("application/x-ndjson", "application/octet-stream")
def lines(_context: schemathesis.SerializationContext, value: Any) -> bytes:
    """Bytes as they are; else one line of JSON for each item."""
    if isinstance(value, bytes | str):
        return value.encode() if isinstance(value, str) else value
    items = value if isinstance(value, list) else [value]
    return "\n".join(json.dumps(item) for item in items).encode()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    with shared_hub(tmp_path_factory.mktemp("hub")) as shared:
        for name in ("bob/card", "bob/gated", "lab/card"):
            shared.create(name, gated="manual" if "gated" in name else "no")
            files = {
                "config.json": b"{}",
                "folder/a.txt": b"a",
                "README.md": b"---\ntags: [a]\n---\n# A card\n",
            }
            commit = shared.put(name, files)
            repository = shared.hub.repositories.get("model", name)
            shared.hub.refs.create_branch(repository, "side", commit.sha)
            shared.hub.refs.create_tag(repository, "v1", commit.sha)
        yield shared


def explore(shared: Shared, examples: int) -> list[str]:
    """What went wrong: operation, status, and the request."""
    schema = schemathesis.openapi.from_url(f"{shared.url}/openapi.json")
    wrong: list[str] = []
    for result in schema.get_all_operations():
        assert isinstance(result, Ok)
        operation = result.ok()
        fitting, other = (operation.as_strategy(generation_mode=mode) for mode in GenerationMode)
        with_case = given(case=fitting | other, data=st.data())
        bounded = settings(
            max_examples=examples,
            deadline=None,
            database=None,
            derandomize=True,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        bounded(with_case(lambda case, data: _ask(shared, case, data, wrong)))()
    return wrong


def _ask(shared: Shared, case: Case[Any], data: st.DataObject, wrong: list[str]) -> None:
    for name in list(case.path_parameters or {}):
        if name in REAL and data.draw(st.integers(0, 4)):
            case.path_parameters[name] = data.draw(st.sampled_from(REAL[name]))
    who = data.draw(st.sampled_from(WHO))
    headers: dict[str, Any] = {} if who is None else {"Authorization": f"Bearer {shared.tokens[who]}"}
    answer = case.call(headers=headers)
    if answer.status_code in SERVER_ERRORS and answer.status_code != NOT_BUILT:
        wrong.append(f"{answer.status_code} {case.as_curl_command()} {answer.text[:200]}")


@pytest.mark.slow
def test_no_request_ends_in_an_error_of_the_server(shared: Shared) -> None:
    assert explore(shared, examples=60) == []
