"""The counts that a card's files name, compared with its passages.

Readers allocate by what a file claims: a search makes a score for every row that an index says it has. Whoever made the
card may be hostile, so the claims are checked wherever a card arrives: on publication, on pull, and before an index is
loaded.
"""

import json
import re
from base64 import b64decode
from collections.abc import Callable, Collection, Mapping
from typing import Any, BinaryIO

from kcard.errors import DamagedCard

__all__ = ["check_counts", "check_profile"]

PASSAGES, GRAPH, ROUTING = "passages.jsonl", "graph.tsv", "routing.json"
PARAMS, WORDS = "index/params.index.json", "index/vocab.index.json"
ROWS, STARTS, SCORES = (f"index/{part}.csc.index.npy" for part in ("indices", "indptr", "data"))
EMBEDDINGS = "index/embeddings.npy"
SHAPE = re.compile(rb"\x93NUMPY\x01\x00..\{[^}]*'shape': \((\d{1,15}), ?(?:(\d{1,5}),?)?\)", re.DOTALL)
LONGEST = 64 << 20  # bytes of a JSON file
CENTROID, MOST_CENTROIDS, MOST_TERMS = (
    384,
    32,
    2048,
)  # of a routing.json; its centroids are bytes, its terms 4 bytes


def check_counts(card: str, files: Collection[str], opened: Callable[[str], BinaryIO]) -> None:
    """Raise DamagedCard, which names the file, unless every count in the card's files is that of its passages.

    files   the paths of the card's files
    opened  opens one of them as a stream
    """
    try:
        indexed = [path for path in (PARAMS, EMBEDDINGS, GRAPH) if path in files]
        count = _lines(PASSAGES, files, opened) if indexed else 0
        if PARAMS in files:
            _require(PARAMS, _json(PARAMS, opened).get("num_docs"), count, "passages")
            words = len(_json(WORDS, opened)) if WORDS in files else 0
            _require(STARTS, _shape(STARTS, files, opened)[0], words + 1, "words and an end")
            entries = _shape(SCORES, files, opened)[0]
            _require(ROWS, _shape(ROWS, files, opened)[0], entries, "scores")
        if EMBEDDINGS in files:
            _require(EMBEDDINGS, _shape(EMBEDDINGS, files, opened)[0], count, "passages")
        if GRAPH in files:
            _require(GRAPH, _lines(GRAPH, files, opened), count, "passages")
        if ROUTING in files:
            check_profile(_json(ROUTING, opened))
    except (ValueError, RecursionError) as error:
        raise DamagedCard(f"card {card!r} is damaged: {error}: train the card again") from error


def check_profile(profile: Mapping[str, Any]) -> None:
    """Raise ValueError for a routing.json with more centroids or terms than a card has."""
    for key, size, most in (("centroids", CENTROID, MOST_CENTROIDS), ("terms", 4, MOST_TERMS)):
        text = profile.get(key, "")
        if not isinstance(text, str) or len(b64decode(text)) > size * most:
            raise ValueError(f"{ROUTING} has more than {most} {key}")


def _require(path: str, claimed: object, count: int, what: str) -> None:
    if type(claimed) is not int or claimed != count:
        raise ValueError(f"{path} is of {str(claimed)[:20]} rows, but the card has {count} {what}")


def _lines(path: str, files: Collection[str], opened: Callable[[str], BinaryIO]) -> int:
    """The lines that are not blank; 0 without the file."""
    if path not in files:
        return 0
    with opened(path) as stream:
        return sum(not line.isspace() for line in stream)


def _json(path: str, opened: Callable[[str], BinaryIO]) -> dict[str, Any]:
    with opened(path) as stream:
        text = stream.read(LONGEST + 1)
    if len(text) > LONGEST:
        raise ValueError(f"{path} has more than {LONGEST} bytes")
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not JSON: {str(error)[:100]}") from None
    if not isinstance(value, dict):
        raise ValueError(f"{path} is not a JSON object")
    return value


def _shape(path: str, files: Collection[str], opened: Callable[[str], BinaryIO]) -> tuple[int, int]:
    """Rows and columns of an array, by its header."""
    if path not in files:
        raise ValueError(f"{path} is missing")
    with opened(path) as stream:
        header = SHAPE.match(stream.read(256))
    if header is None:
        raise ValueError(f"{path} is not a numpy array of a card's index")
    return int(header[1]), int(header[2] or 1)
