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

from kcard.config import thread_count
from kcard.errors import ModelUnavailable

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

__all__ = ["GRAPHS", "Network", "read_weights", "token_row"]

GRAPHS = Path(__file__).resolve().parent / "graphs"

Weights = Mapping[str, npt.NDArray[Any]]
Inputs = Mapping[str, npt.NDArray[Any]]


class Network:
    """One graph with its weights. Threads may run it at the same time."""

    def __init__(self, graph: str, weights: Weights) -> None:
        """Load `graph`, the name of a file in GRAPHS, with every weight that it lacks.

        weights  float32 or int8, by their names in the graph. They must not be changed later: they are used where they
                 are
        """
        import onnxruntime

        self._weights = weights
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 3
        names = list(weights)
        values = [onnxruntime.OrtValue.ortvalue_from_numpy(weights[name]) for name in names]
        options.add_external_initializers(names, values)
        path, providers = GRAPHS / f"{graph}.onnx", ["CPUExecutionProvider"]
        self._session: InferenceSession = onnxruntime.InferenceSession(path, options, providers=providers)

    def __call__(self, **inputs: "npt.NDArray[Any]") -> "list[npt.NDArray[Any]]":
        """Run the graph; its outputs in their order."""
        outputs: list[npt.NDArray[Any]] = self._session.run(None, inputs)
        return outputs

    def run_all(self, inputs: Sequence[Inputs]) -> "list[list[npt.NDArray[Any]]]":
        """Run the graph for each of `inputs`, on as many threads as thread_count says; the outputs of each.

        A thread runs a whole one. Where several share every product instead, they wait for each other after each,
        which on a machine with other work takes many times as long as the arithmetic. Texts are run one by one: a
        batch is no faster on a processor, pads them, and makes their numbers depend on each other.
        """
        if len(inputs) < 2 or thread_count() < 2:
            return [self(**each) for each in inputs]
        return list(_threads(os.getpid()).map(lambda each: self(**each), inputs))


@functools.cache
def _threads(process: int) -> ThreadPoolExecutor:
    """The threads of a process; a forked child has none of its parent's."""
    del process
    return ThreadPoolExecutor(thread_count(), thread_name_prefix="kcard-network")


def read_weights(path: Path) -> dict[str, npt.NDArray[Any]]:
    """Read weights by name, float32 or int8. Raises ModelUnavailable where the file is missing or damaged."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        saved = load_file(path)
    except (OSError, SafetensorError) as error:
        raise ModelUnavailable(
            f"{path}, which comes with kcard, can't be read ({type(error).__name__}): reinstall kcard"
        ) from error
    return {name: w if w.dtype == np.int8 else w.astype(np.float32) for name, w in saved.items()}


def token_row(ids: Sequence[int], begin: int) -> Inputs:
    """The inputs of a pair of texts as one row of tokens, shape (1, t), of which those from `begin` on are the second
    text's."""
    types = np.zeros((1, len(ids)), np.int32)
    types[:, begin:] = 1
    return {"ids": np.array([ids], np.int32), "types": types}
