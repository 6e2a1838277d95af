"""The embedded networks on onnxruntime: graphs that kcard ships, with weights that lie elsewhere.

A graph is a few kilobytes of arithmetic (recipes/graphs); its weights are supplied when it is loaded, so that the
networks that kcard trained from all-MiniLM-L6-v2 share its word embeddings, on disk and in memory. Importing
onnxruntime takes a fraction of the time that torch takes, and no question to a retrieval card needs torch.
"""

import functools
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from kcard.batches import by_tokens
from kcard.config import thread_count
from kcard.errors import ModelUnavailable

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

__all__ = ["GRAPHS", "Network", "padded_rows", "read_weights", "split_batches"]

GRAPHS = Path(__file__).resolve().parent / "graphs"

Weights = Mapping[str, npt.NDArray[np.float32]]
Inputs = Mapping[str, npt.NDArray[Any]]
BATCH_TOKENS = 2048
LEAST_TOKENS = 256  # fewer are not worth a thread of their own


class Network:
    """One graph with its weights. Threads may run it at the same time."""

    def __init__(self, graph: str, weights: Weights) -> None:
        """Load `graph`, the name of a file in GRAPHS, with every weight that it lacks.

        weights  float32, by their names in the graph. They must not be changed later: they are used where they are
        """
        self._weights = weights
        self._session = self._load(GRAPHS / f"{graph}.onnx")

    def __call__(self, **inputs: "npt.NDArray[Any]") -> "list[npt.NDArray[Any]]":
        """Run the graph; its outputs in their order."""
        outputs: list[npt.NDArray[Any]] = self._session.run(None, inputs)
        return outputs

    def run_all(self, batches: Sequence[Inputs]) -> "list[list[npt.NDArray[Any]]]":
        """Run the graph for each batch, on as many threads as thread_count says; the outputs of each.

        A thread runs a whole batch. Where several share every product instead, they wait for each other after each,
        which on a machine with other work takes many times as long as the arithmetic.
        """
        if len(batches) < 2 or thread_count() < 2:
            return [self(**batch) for batch in batches]
        return list(_threads(os.getpid()).map(lambda batch: self(**batch), batches))

    def _load(self, graph: Path) -> "InferenceSession":
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 3
        names = list(self._weights)
        values = [onnxruntime.OrtValue.ortvalue_from_numpy(self._weights[name]) for name in names]
        options.add_external_initializers(names, values)
        return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])


@functools.cache
def _threads(process: int) -> ThreadPoolExecutor:
    """The threads of a process; a forked child has none of its parent's."""
    del process
    return ThreadPoolExecutor(thread_count(), thread_name_prefix="kcard-network")


def read_weights(path: Path) -> dict[str, npt.NDArray[np.float32]]:
    """Read weights as float32; those kept in steps of 8 bits (`.steps`, int8, and `.scale`) have their own names.

    Raises ModelUnavailable where the file is missing or damaged.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        saved = load_file(path)
    except (OSError, SafetensorError) as error:
        raise ModelUnavailable(
            f"{path}, which comes with kcard, can't be read ({type(error).__name__}): reinstall kcard"
        ) from error
    return {
        name.removesuffix(".steps"): value * saved[f"{name.removesuffix('.steps')}.scale"].astype(np.float32)
        if name.endswith(".steps")
        else value.astype(np.float32)
        for name, value in saved.items()
        if not name.endswith(".scale")
    }


def split_batches(lengths: Sequence[int]) -> list[list[int]]:
    """Split rows of so many tokens into batches of like length for run_all: the indices of each batch.

    A batch has at most BATCH_TOKENS, padding included, and where there is enough to do every thread has one.
    """
    share = -(-sum(lengths) // thread_count())
    return list(by_tokens(lengths, max(LEAST_TOKENS, min(BATCH_TOKENS, share))))


def padded_rows(rows: Sequence[Sequence[int]], fill: int = 0) -> "npt.NDArray[np.int32]":
    """Rows of unlike length as one array, (n, longest), `fill` behind their ends."""
    array = np.full((len(rows), max(map(len, rows))), fill, np.int32)
    for place, row in enumerate(rows):
        array[place, : len(row)] = row
    return array
