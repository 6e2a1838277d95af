"""Evaluation results in the Hugging Face Hub's formats: self-declared ones, and this hub's own, which are verified.

A repository declares results in .eval_results/*.yaml and in the model-index of its README.md. Whatever these claim,
only figures that this hub measured are marked as verified.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from kcard.errors import HubError
from kcard.hub.checks.metadata import load_yaml
from kcard.hub.db.models import Version
from kcard.hub.errors import Refused
from kcard.hub.server.responses import Json, format_time
from kcard.hub.storage import Blobs
from kcard.hub.values import Entry

FOLDER = ".eval_results/"
MAX_FILES = 20
MAX_RESULTS = 200
MAX_FILE_BYTES = 100_000
MAX_ERROR_CHARACTERS = 300
CLAIMS = ("verified", "verifyToken")
TASK = "question-answering"
CORPUS = "the card's own corpus"


def declared_results(blobs: Blobs, tree: Mapping[str, Entry]) -> list[Json]:
    """Return the results of .eval_results/*.yaml.

    Each has `filename`, `verified` and `data`, or `error` instead of `data` for a file that can't be read.
    """
    paths = sorted(path for path in tree if path.startswith(FOLDER) and path.endswith((".yaml", ".yml")))
    results: list[Json] = []
    for path in paths[:MAX_FILES]:
        try:
            for data in _read_results(blobs, tree[path]):
                results.append({"filename": path, "verified": False, "data": data})
        except (Refused, HubError, UnicodeDecodeError) as error:
            message = " ".join(str(error).split())[:MAX_ERROR_CHARACTERS]
            results.append({"filename": path, "verified": False, "error": message})
    return results[:MAX_RESULTS]


def _read_results(blobs: Blobs, entry: Entry) -> list[Json]:
    """Return the results in a file that clients can read, without their claims. Raises HubError."""
    if entry.size > MAX_FILE_BYTES:
        raise HubError(f"the file has {entry.size} bytes: the limit is {MAX_FILE_BYTES}")
    with blobs.open(entry.sha256) as stream:
        content = load_yaml(stream.read().decode(), entry.path)
    if not isinstance(content, list):
        raise HubError("expected a list of results")
    results = []
    for result in content:
        dataset = result.get("dataset") if isinstance(result, dict) else None
        if not isinstance(dataset, dict) or "value" not in result:
            raise HubError("a result needs dataset and value")
        if not isinstance(dataset.get("id"), str) or not isinstance(dataset.get("task_id"), str):
            raise HubError("the dataset of a result needs id and task_id")
        if not isinstance(result.get("source", {}), dict):
            raise HubError("the source of a result must be an object")
        results.append({key: value for key, value in result.items() if key not in CLAIMS})
    return results


def verified_results(summary: Version | None) -> Iterator[Json]:
    """Yield the figures that this hub measured, in the form of `declared_results`."""
    verified = None if summary is None else summary.verified
    if summary is None or verified is None:
        return
    for name in ("recall", "faithfulness", "factuality"):
        value = getattr(verified, name)
        if value is None:
            continue
        dataset: Json = {"id": CORPUS, "task_id": name}
        notes = f"{summary.reference}, verified by this hub"
        measured_at = verified.at
        if name == "factuality":
            dataset["id"] = verified.evidence or "evidence"
            if verified.evidence_sha256:
                dataset["revision"] = verified.evidence_sha256
            if verified.coverage is not None:
                notes += f", over the {verified.judged} documents ({verified.coverage:.0%}) that the evidence covers"
                if not verified.independent:
                    notes += "; the evidence is not independent of the card"
            measured_at = verified.taken or verified.at
        data = {"dataset": dataset, "value": value, "date": format_time(measured_at), "notes": notes}
        yield {"filename": None, "verified": True, "data": data}


def make_model_index(card: Mapping[str, Any], name: str, summary: Version | None) -> list[Any]:
    """Return the model-index of README.md without claims to be verified, and the results that this hub verified."""
    declared = drop_claims(card.get("model-index"))
    index = declared if isinstance(declared, list) else []
    results: list[Json] = []
    for result in verified_results(summary):
        data = result["data"]
        dataset = {"name": data["dataset"]["id"], "type": "kcard"}
        if "revision" in data["dataset"]:
            dataset["revision"] = data["dataset"]["revision"]
        figure = data["dataset"]["task_id"]
        metric = {"type": figure, "name": figure, "value": data["value"], "verified": True}
        results.append({"task": {"type": TASK}, "dataset": dataset, "metrics": [metric]})
    if results:
        index.append({"name": name, "results": results})
    return index


def drop_claims(value: Any) -> Any:
    """Return a value of the metadata without what claims to be verified, at any depth."""
    if isinstance(value, list):
        return [drop_claims(item) for item in value]
    if isinstance(value, dict):
        return {key: drop_claims(item) for key, item in value.items() if key not in CLAIMS}
    return value
