"""The properties of a repository that come from its files."""

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from kcard.hub.repositories import card_metadata
from kcard.hub.repositories.values import Entry, Mark, Repository
from kcard.hub.server.reading.eval_results import declared_model_index, eval_results, model_index
from kcard.hub.server.reading.repository_json import Json, sibling
from kcard.hub.shared import SharedHub
from kcard.json_values import parse

__all__ = ["at_revision", "details"]

LARGEST_CONFIG = 1_000_000
CONFIG, ADAPTER = "config.json", "adapter_config.json"


def at_revision(hub: SharedHub, repository: Repository, sha: str, tree: Mapping[str, Entry]) -> Repository:
    """The repository with the properties of another commit than the head of main."""
    if sha == repository.head:
        return repository
    shown = card_metadata.read(tree, hub.blobs)
    return dataclasses.replace(
        repository,
        head=sha,
        modified=hub.commits.get(repository, sha).date,
        card=shown.card,
        tags=shown.tags,
        pipeline_tag=shown.pipeline_tag,
        library=shown.library,
        size=shown.size,
    )


def details(
    hub: SharedHub,
    repository: Repository,
    tree: Mapping[str, Entry],
    mark: Mark | None,
    *,
    blobs: bool,
    config: bool,
) -> Json:
    """The files, the metadata of README.md, evaluation results and, with `config`, parts of config.json."""
    card = dict(repository.card)
    known: Json = {
        "siblings": [sibling(entry, blobs) for entry in tree.values()],
        "cardData": card,
        "usedStorage": repository.size,
    }
    if index := model_index(card, repository.name, mark):
        known["model-index"] = index
    if "model-index" in card:
        card["model-index"] = declared_model_index(card)
    if results := eval_results(hub.blobs, tree, mark):
        known["evalResults"] = results
    if config and (found := _config(hub, tree)):
        known["config"] = found
    return known


def _config(hub: SharedHub, tree: Mapping[str, Entry]) -> Json:
    """The fields by which clients choose a class."""
    config = _parsed(hub, tree.get(CONFIG))
    found = {key: config[key] for key in ("architectures", "model_type") if key in config}
    if adapter := _parsed(hub, tree.get(ADAPTER)):
        keys = ("base_model_name_or_path", "task_type", "peft_type")
        found["peft"] = {key: adapter[key] for key in keys if key in adapter}
    return found


def _parsed(hub: SharedHub, entry: Entry | None) -> Mapping[str, Any]:
    """The JSON object in a file; empty if the file is missing, too large or invalid."""
    if entry is None or entry.size > LARGEST_CONFIG:
        return {}
    with hub.blobs.open(entry.sha256) as stream:
        text = stream.read().decode(errors="replace")
    try:
        found = parse(text)
    except (json.JSONDecodeError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
