"""The embedded networks on onnxruntime: graphs shipped with kcard, with external weights.

A graph is a few kilobytes of arithmetic (recipes/graphs). Weights are supplied at load time, so networks that were
trained from all-MiniLM-L6-v2 share its word embeddings, on disk and in memory. onnxruntime imports in a fraction of
torch's time, and no question to a retrieval card needs torch.
"""

import functools
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from kcard.config import thread_count, without_usage_statistics
from kcard.errors import ModelUnavailable

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

GRAPHS = Path(__file__).resolve().parent / "graphs"
WEIGHTS_FOLDER = Path(__file__).resolve().parent / "weights"

Weights = Mapping[str, npt.NDArray[Any]]
Inputs = Mapping[str, npt.NDArray[Any]]


class Network:
    """One graph with its weights. Thread-safe."""

    def __init__(self, graph: str, weights: Weights) -> None:
        """Load `graph`, the name of a file in GRAPHS, with its weights.

        weights  float32 or int8, by their names in the graph. They must not be changed later: they are used in place
        """
        without_usage_statistics()
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
        """Run the graph and return its outputs in order."""
        outputs: list[npt.NDArray[Any]] = self._session.run(None, inputs)
        return outputs

    def run_all(self, inputs: Sequence[Inputs]) -> "list[list[npt.NDArray[Any]]]":
        """Run the graph for each of `inputs` on thread_count() threads and return the outputs of each.

        Each thread runs whole inputs. Intra-op threads would synchronise after every matrix product, which on a busy
        machine takes many times as long as the arithmetic. Inputs are not batched: a batch is no faster on a CPU,
        needs padding, and makes results depend on each other.
        """
        if len(inputs) < 2 or thread_count() < 2:
            return [self(**each) for each in inputs]
        return list(_threads(os.getpid()).map(lambda each: self(**each), inputs))


@functools.cache
def _threads(process: int) -> ThreadPoolExecutor:
    """Return the process's thread pool; a forked child gets its own."""
    del process
    return ThreadPoolExecutor(thread_count(), thread_name_prefix="kcard-network")


def read_weights(path: Path) -> dict[str, npt.NDArray[Any]]:
    """Read weights by name, float32 or int8. Raises ModelUnavailable if the file is missing or damaged."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        saved = load_file(path)
    except (OSError, SafetensorError) as error:
        raise ModelUnavailable(
            f"{path}, which comes with kcard, can't be read ({type(error).__name__}): reinstall kcard"
        ) from error
    return {name: w if w.dtype == np.int8 else w.astype(np.float32) for name, w in saved.items()}


def log_softmax(logits: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Return log-probabilities over the last axis."""
    shifted = logits - logits.max(-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(-1, keepdims=True)), np.float32)


def token_row(ids: Sequence[int], begin: int) -> Inputs:
    """Return the network inputs for a pair of texts, shape (1, t); tokens from `begin` on have segment 1."""
    types = np.zeros((1, len(ids)), np.int32)
    types[:, begin:] = 1
    return {"ids": np.array([ids], np.int32), "types": types}
