"""Pickled weights become safetensors, in a child process: this one never opens a pickle."""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from kcard.cards.format.code import refuse_code
from kcard.cards.format.importing.repository import PICKLE_INDEX, Repository, fetch
from kcard.errors import CardError, first_line
from kcard.quiet import quiet_loading

__all__ = ["convert"]

SECONDS = 3600
# Nothing of ours: no token, no proxy, no path.
ENVIRONMENT = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}


def convert(repository: Repository, target: Path) -> None:
    """Fetch a repository whose weights are pickles and write it into `target` with safetensors instead.

    Raises ModelUnavailable where it can't be fetched, CardError where a file holds anything but tensors.
    """
    index = [PICKLE_INDEX] if PICKLE_INDEX in repository.files and not repository.adapter else []
    wanted = [*repository.companions, *repository.pickles, *index]
    folder = fetch(repository.name, repository.revision, {path: repository.files[path] for path in wanted})
    refuse_code(folder, repository.name)
    for path in repository.companions:
        shutil.copyfile(folder / path, target / path)
    _unpickle(repository, folder, target)
    if not repository.adapter:
        _check(repository, target)


def _check(repository: Repository, folder: Path) -> None:
    """Raise CardError where a weight is missing: transformers would fill it with noise and only warn."""
    from transformers import AutoModelForCausalLM

    try:
        with quiet_loading():
            loaded: Any = AutoModelForCausalLM.from_pretrained(
                folder,
                local_files_only=True,
                trust_remote_code=False,
                output_loading_info=True,
                dtype="auto",
            )
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        raise CardError(
            f"{repository.name} is no causal language model that transformers loads: {first_line(error)}"
        ) from error
    if missing := sorted(loaded[1]["missing_keys"]):
        raise CardError(
            f"{repository.name} lacks {len(missing)} weights of its own model, such as {missing[0]}"
        )


def _unpickle(repository: Repository, source: Path, target: Path) -> None:
    # -I: the child sees no PYTHON* variable and nothing of the folder it runs in.
    module = [sys.executable, "-I", "-m", "kcard.cards.format.importing.unpickling"]
    done = subprocess.run(
        [*module, str(source), str(target), *repository.pickles],
        env=None if sys.platform == "win32" else ENVIRONMENT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["out of memory or time"]
        raise CardError(f"{repository.name} was not converted: {lines[-1]}")
