"""Bulk work in independent pieces, run by Ray Data on a cluster or one after another in this process.

A piece is a call of a function with JSON-ready arguments, and its outcome a row with `result` or `error`.
`complete_rows` stores outcomes in a file, from which an interrupted run can be resumed. Ray is imported only if a
cluster is given.
"""

import json
import logging
import os
import socket
import sys
import threading
import warnings
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing, redirect_stdout, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

from kcard.config import for_other_machines, let_threads_sleep, without_usage_statistics
from kcard.errors import (
    ClusterError,
    KcardError,
    MissingExtra,
    TrainingInterrupted,
    UsageError,
    first_line,
    one_line,
)
from kcard.events import Event, OnEvent
from kcard.io import Row, append_rows, json_line, read_rows, replacing
from kcard.options import Option, OptionGroup, declared
from kcard.version import __version__

RETRIES = 1  # of a piece whose worker was lost
PASSES = 2  # the second, with new workers, is for pieces that a lost node took with it, retries included
MAX_ANSWER_SECONDS = 5.0  # in which the head of a cluster must answer
# How a connection begins in HTTP/2, which gRPC and so Ray's heads speak (RFC 9113, section 3.4): a preface and an empty
# frame of settings (type 4); the server answers with its own.
HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])


@dataclass(frozen=True, kw_only=True)
class RayOptions(OptionGroup, panel="The machine"):
    """Where bulk work runs, and the resources of each worker. Raises UsageError for a value that is out of range."""

    ray: Annotated[
        str | None,
        Option(
            "Run on a Ray cluster: HOST:PORT of its head, auto (the cluster of this machine) or local (start one "
            "for this command)."
        ),
    ] = None
    ray_cpus: Annotated[float, Option("CPU cores of each worker on the cluster.", least=0.1)] = 1.0

    @classmethod
    def pop_from(cls, values: dict[str, Any]) -> "RayOptions | None":
        """Pop these options from those of a command; None if the work runs in this process."""
        options = cls(**{name: values.pop(name) for name in declared(cls)})
        return None if options.ray is None else options


def worker_device(cluster: RayOptions | None, device: str) -> str:
    """Return the name of the device in a worker, which sees only its own GPU."""
    return device if cluster is None or not device.startswith("cuda") else "cuda"


def json_ready(options: Mapping[str, Any]) -> Row:
    """Return the options as JSON has them, paths as texts. Raises UsageError for one that is an object."""

    def text(value: object) -> str:
        if isinstance(value, Path):
            return str(value.expanduser())
        raise UsageError(
            f"{value!r} is an object, which can't be sent to workers: pass its name, such as openai:MODEL"
        )

    ready: Row = json.loads(json.dumps(dict(options), default=text))
    return ready


def complete_rows(
    function: Callable[..., Row],
    rows: Sequence[Row],
    path: Path | None,
    *,
    resume: bool,
    cluster: RayOptions | None,
    device: str,
    on_event: OnEvent,
    check: Callable[[Row], None],
) -> tuple[Row, ...]:
    """Return each row with what the function, called with the row's values by name, returns; or with its `error`.

    path      where the rows are kept, each on disk before the next is looked at; in the end in the order of `rows`
    resume    go on with `path`: leave out what stands there without an error
    on_event  called with the number of rows done (kind cards, since each row is about one)
    check     called with each row before it is kept; where it raises a KcardError, this is the row's error

    Raises UsageError where `path` holds other work or may not be continued, ClusterError, and TrainingInterrupted.
    """
    finished = {} if path is None else _read_finished(path, rows, resume)
    left = [number for number in range(len(rows)) if number not in finished]
    with closing(mapped(function, [rows[number] for number in left], cluster, device)) as outcomes:
        for nth, outcome in outcomes:
            row = rows[left[nth]] | outcome.get("result", outcome)
            try:
                if "error" not in row:
                    check(row)
            except KcardError as error:
                row = rows[left[nth]] | {"error": one_line(error)}
            if path is not None:
                append_rows(path, [row])
            finished[left[nth]] = row
            on_event(Event("cards", done=len(finished), total=len(rows)))
    whole = tuple(finished[number] for number in range(len(rows)))
    if path is not None:
        with replacing(path) as stream:
            stream.writelines(map(json_line, whole))
    return whole


def _read_finished(path: Path, rows: Sequence[Row], resume: bool) -> dict[int, Row]:
    """Read what an earlier run finished, by the row's number; remove a last line that was cut off."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or not path.stat().st_size:
        return {}
    if not resume:
        raise UsageError(f"{path} already exists: add --resume to continue it, or choose another --output")
    os.truncate(path, path.read_bytes().rfind(b"\n") + 1)
    numbers = {json.dumps(row): number for number, row in enumerate(rows)}
    finished = {}
    for where, line in read_rows(path, "--output"):
        number = numbers.get(json.dumps({key: line.get(key) for key in rows[0]}))
        if number is None:
            raise UsageError(
                f"{where} was made from other input or options: repeat those, or choose another --output"
            )
        if "error" not in line:
            finished[number] = line
    return finished


def mapped(
    function: Callable[..., Any], pieces: Sequence[Row], cluster: RayOptions | None, device: str
) -> Generator[tuple[int, Row], None, None]:
    """Yield (number of a piece, its `result` or `error`), each as soon as it is there; closing it stops the rest.

    device  of the models; on a cluster, a worker with cuda has a GPU of its own

    Raises what _mapped_by_ray raises and, in this process, TrainingInterrupted.
    """
    if cluster is not None and pieces:
        yield from _mapped_by_ray(function, pieces, cluster, float(device.startswith("cuda")))
        return
    for number, piece in enumerate(pieces):
        yield number, _perform(function, piece, here=True)


def _perform(function: Callable[..., Any], piece: Row, *, here: bool) -> Row:
    try:
        return {"result": function(**piece)}
    except KcardError as error:
        if here and isinstance(error, TrainingInterrupted):
            raise
        return {"error": one_line(error)}
    except Exception as error:  # noqa: BLE001 - a bug, or memory that is short: the other pieces go on
        return {"error": f"{type(error).__name__}: {one_line(error)}"}


class _Worker:
    """An actor of Ray Data. It does a piece at a time, in the folder of the command, and keeps the models it loads."""

    def __init__(self, function: Callable[..., Any], folder: str, version: str) -> None:
        self._function, self._version = function, version
        let_threads_sleep()
        with suppress(OSError):
            os.chdir(folder)

    def __call__(self, batch: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
        number, piece = json.loads(batch["item"][0])
        if self._version == __version__:
            outcome = _perform(self._function, piece, here=False)
        else:
            outcome = {"error": f"the worker has kcard {__version__}, not {self._version}: install the same"}
        return {"item": [json.dumps([number, outcome])]}


def _mapped_by_ray(
    function: Callable[..., Any], pieces: Sequence[Row], cluster: RayOptions, gpus: float
) -> Generator[tuple[int, Row], None, None]:
    """Run `mapped` on a cluster; a program that is already connected to one stays so.

    Raises MissingExtra without the extra `ray`, and ClusterError where there is no such cluster, where no node of it
    has what a worker needs, and where it is lost.
    """
    if find_spec("ray") is None:
        raise MissingExtra("--ray needs ray: pip install 'kcard[ray]'")
    without_usage_statistics()
    import ray
    import ray.data

    ours = not ray.is_initialized()
    with redirect_stdout(sys.stderr):  # where Ray says which workers it lost; stdout is for data
        if ours:
            logging.getLogger("ray.data").setLevel(logging.CRITICAL)
            _connect(cluster.ray or "auto")
        threads = {*threading.enumerate()}
        try:
            left = dict(enumerate(pieces))
            for _ in range(PASSES):
                with closing(_pass(function, left, cluster, gpus)) as outcomes:
                    for number, outcome in outcomes:
                        del left[number]
                        yield number, outcome
                if not left:
                    return
            lost = f"its worker was lost {PASSES * (RETRIES + 1)} times, perhaps because memory ran out"
            for number in left:
                yield number, {"error": lost}
        except ray.exceptions.RayError as error:
            why = str(error).strip().splitlines()[-1]  # below the traceback of a worker that can't begin
            raise ClusterError(
                f"the Ray cluster failed ({why.strip()}); finished results are kept"
            ) from error
        finally:
            # Disconnect once Ray Data's threads have ended.
            if ours:
                for thread in {*threading.enumerate()} - threads:
                    if thread.name != "Prefetcher":  # which only sleeps
                        thread.join(MAX_ANSWER_SECONDS)
                ray.shutdown()


def _pass(
    function: Callable[..., Any], pieces: Mapping[int, Row], cluster: RayOptions, gpus: float
) -> Generator[tuple[int, Row], None, None]:
    """Have workers do these pieces; yield the outcomes as they arrive, without those of lost workers."""
    import ray
    import ray.data

    # As many workers as the nodes have room for.
    slots = 0
    for node in ray.nodes():
        has = node["Resources"] if node["Alive"] else {}
        places = has.get("CPU", 0) / cluster.ray_cpus
        if gpus:
            places = min(places, has.get("GPU", 0) / gpus)
        slots += int(places)
    if not slots:
        needs = f"{cluster.ray_cpus:g} CPU cores" + (" and a GPU" if gpus else "")
        raise ClusterError(f"no node of the Ray cluster has {needs}: lower --ray-cpus, or add nodes")
    # A block for each piece, so that it is a task of its own and comes back as soon as it is done.
    items = [json.dumps(item) for item in pieces.items()]
    data = ray.data.from_items(items, override_num_blocks=len(items))
    data.context.enable_progress_bars = False
    data.context.max_errored_blocks = -1  # a piece that ends its workers costs only itself
    pool = ray.data.ActorPoolStrategy(size=min(slots, len(items)), max_tasks_in_flight_per_actor=1)
    with warnings.catch_warnings(action="ignore"):  # max_task_retries has no other place
        done = data.map_batches(
            _Worker,
            fn_constructor_args=(function, str(Path.cwd()), __version__),
            batch_size=1,
            batch_format="numpy",
            compute=pool,
            num_cpus=cluster.ray_cpus,
            num_gpus=gpus,
            runtime_env={"env_vars": for_other_machines()},
            max_task_retries=RETRIES,
        )
    batches: Any = iter(done.iter_batches(batch_size=None, prefetch_batches=0, batch_format="numpy"))
    with closing(batches):  # Ray Data's threads must end before Ray is shut down
        for batch in batches:
            yield from map(json.loads, batch["item"])


def _connect(address: str) -> None:
    """Connect to a cluster. Raises ClusterError within seconds, where Ray itself would try for two minutes."""
    import ray

    if address not in {"auto", "local"}:
        host, _, port = address.rpartition(":")
        if not host or "/" in host or not port.isdecimal():
            raise ClusterError(
                f"--ray {address}: expected HOST:PORT of the cluster's head on a machine of the cluster, auto or local"
            )
        try:
            with socket.create_connection((host, int(port)), MAX_ANSWER_SECONDS) as connection:
                connection.sendall(HELLO)
                answer = connection.recv(9)
        except (OSError, OverflowError) as error:
            raise ClusterError(
                f"--ray {address}: no answer ({error}): start a cluster with `ray start --head`, or name its head"
            ) from None
        if answer[3:4] != HELLO[-6:-5]:
            raise ClusterError(f"--ray {address}: that is not the head of a Ray cluster")
    here: dict[str, Any] = {"include_dashboard": False} if address == "local" else {}
    try:
        ray.init(address, log_to_driver=False, logging_level=logging.ERROR, **here)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise ClusterError(f"--ray {address}: {first_line(error)}") from error
