"""Evaluation results in the Hugging Face Hub's formats: self-declared ones, and this hub's own, which are verified.

A repository declares results in .eval_results/*.yaml and in the model-index of its README.md. Whatever those say, this
hub marks only its own figures as verified.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from kcard.errors import HubError
from kcard.hub.checks.front_matter import load_yaml
from kcard.hub.refusals import Refused
from kcard.hub.repositories.figures import Verified
from kcard.hub.repositories.values import Entry, Mark
from kcard.hub.server.reading.repository_json import Json, time
from kcard.hub.store.blobs import Blobs

__all__ = ["declared_model_index", "declared_results", "model_index", "verified_results"]

FOLDER = ".eval_results/"
MOST_FILES = 20
MOST_RESULTS = 200
LARGEST = 100_000  # bytes of a file
CLAIMS = ("verified", "verifyToken")
TASK = "question-answering"
CORPUS = "the card's own corpus"


def declared_results(blobs: Blobs, tree: Mapping[str, Entry]) -> list[Json]:
    """The results of .eval_results/*.yaml.

    Each has `filename`, `verified` and `data`, or `error` instead of `data` for a file that can't be read.
    """
    paths = [path for path in tree if path.startswith(FOLDER) and path.endswith((".yaml", ".yml"))]
    found = [result for path in sorted(paths)[:MOST_FILES] for result in _of_file(blobs, tree[path])]
    return found[:MOST_RESULTS]


def declared_model_index(card: Mapping[str, Any]) -> Any:
    """The model-index of README.md without its claims to be verified."""
    return _unclaimed(card["model-index"])


def model_index(card: Mapping[str, Any], name: str, mark: Mark | None) -> list[Any]:
    """The model-index of README.md without its claims to be verified, and the results that this hub verified."""
    declared = declared_model_index(card) if "model-index" in card else []
    results = [_result(result["data"]) for result in verified_results(mark)]
    own = [{"name": name, "results": results}] if results else []
    return (declared if isinstance(declared, list) else []) + own


def _of_file(blobs: Blobs, entry: Entry) -> Iterator[Json]:
    try:
        if entry.size > LARGEST:
            raise HubError(f"the file has {entry.size} bytes: the limit is {LARGEST}")
        with blobs.open(entry.sha256) as stream:
            found = load_yaml(stream.read().decode(), entry.path)
        if not isinstance(found, list):
            raise HubError("expected a list of results")
        results = [_checked(each) for each in found]
    except (Refused, HubError, UnicodeDecodeError) as error:
        said = " ".join(str(error).split())[:300]
        yield {"filename": entry.path, "verified": False, "error": said}
        return
    yield from ({"filename": entry.path, "verified": False, "data": result} for result in results)


def _checked(result: object) -> Json:
    """A result that clients can read, without its claim to be verified. Raises HubError."""
    dataset = result.get("dataset") if isinstance(result, dict) else None
    if not isinstance(result, dict) or not isinstance(dataset, dict) or "value" not in result:
        raise HubError("a result needs dataset and value")
    if not all(isinstance(dataset.get(key), str) for key in ("id", "task_id")):
        raise HubError("the dataset of a result needs id and task_id")
    if not isinstance(result.get("source", {}), dict):
        raise HubError("the source of a result must be an object")
    return {key: value for key, value in result.items() if key not in CLAIMS}


def verified_results(mark: Mark | None) -> Iterator[Json]:
    """The figures that this hub measured, likewise."""
    if mark is None or (verified := mark.verified) is None:
        return
    for name in ("recall", "faithfulness", "factuality"):
        if (value := getattr(verified, name)) is not None:
            data = {
                "dataset": _dataset(name, verified),
                "value": value,
                "date": time(verified.taken or verified.at if name == "factuality" else verified.at),
                "notes": _notes(name, mark.reference, verified),
            }
            yield {"filename": None, "verified": True, "data": data}


def _notes(name: str, reference: str, verified: Verified) -> str:
    notes = f"{reference}, verified by this hub"
    if name != "factuality" or verified.coverage is None:
        return notes
    shared = "" if verified.independent else "; the evidence is not independent of the card"
    return f"{notes}, over the {verified.judged} documents ({verified.coverage:.0%}) that the evidence covers{shared}"


def _dataset(name: str, verified: Verified) -> Json:
    if name != "factuality":
        return {"id": CORPUS, "task_id": name}
    revision = {"revision": verified.evidence_sha256} if verified.evidence_sha256 else {}
    return {"id": verified.evidence or "evidence", "task_id": name, **revision}


def _result(data: Json) -> Json:
    """A verified result as an entry of a model-index."""
    dataset, metric = data["dataset"], data["dataset"]["task_id"]
    revision = {"revision": dataset["revision"]} if "revision" in dataset else {}
    return {
        "task": {"type": TASK},
        "dataset": {"name": dataset["id"], "type": "kcard", **revision},
        "metrics": [{"type": metric, "name": metric, "value": data["value"], "verified": True}],
    }


def _unclaimed(value: Any) -> Any:
    if isinstance(value, list):
        return [_unclaimed(item) for item in value]
    if isinstance(value, dict):
        return {key: _unclaimed(item) for key, item in value.items() if key not in CLAIMS}
    return value
