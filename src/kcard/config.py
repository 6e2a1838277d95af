"""Settings, in order of precedence: flag, environment, project file, user file, default.

This is the only module that reads the environment. Flags are handled by the command line (kcard.cli.options).
"""

import ipaddress
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from kcard.config_file import (
    TABLES,
    TOP,
    WORDS,
    Setting,
    SettingOrigin,
    concealed,
    project_file,
    read_file,
    typed,
)
from kcard.errors import UsageError

# Engines as users name them: vllm=URL.

ENGINE = "vllm"


def engine_url(spec: str) -> str:
    """Return the URL in vllm=URL. Raises UsageError for anything else."""
    engine, _, url = spec.partition("=")
    try:
        parts = urlsplit(url)
        is_known = engine == ENGINE and parts.scheme in {"http", "https"} and bool(parts.hostname)
    except ValueError:
        is_known = False
    if not is_known:
        raise UsageError(
            f"engine {concealed(spec)!r} is unknown: give {ENGINE}=URL, such as {ENGINE}=http://127.0.0.1:8000"
        )
    return url


def without_shortcut(llm: str) -> tuple[str, str | None]:
    """Return openai:MODEL and its URL on this machine for ollama:MODEL; any other LLM as it is, and None."""
    backend, _, model = llm.partition(":")
    return (f"openai:{model}", OLLAMA_URL) if backend == OLLAMA else (llm, None)


PREFIX = "KCARD_"
CONFIG = "KCARD_CONFIG"
DEBUG = "KCARD_DEBUG"
# What a child process that reads untrusted files may see of the environment.
HARMLESS = ("PATH", "TMPDIR", "TEMP", "TMP", "SYSTEMROOT", "LANG", "LC_ALL", "LC_CTYPE", "PYTHONUTF8")
GGUF_LLMS = {"gguf", "local"}  # in files on this machine
OFFLINE_LLMS = {"embedded", "hf"} | GGUF_LLMS
ENDPOINTS = {"openai", "openai-completions"}
OLLAMA, OLLAMA_URL = "ollama", "http://127.0.0.1:11434/v1"
TRUE = {word for word, is_true in WORDS.items() if is_true}


@dataclass(frozen=True)
class Settings:
    """The user's settings. `found` holds the strongest setting of each key that is set anywhere.

    home      holds the hub and the drafts
    llm       the answering LLM, such as embedded, local:NAME or openai:MODEL. A remote LLM is used only if the
              user chose it: an API key in the environment is not a choice, and neither is a file that came with
              a cloned project, unless the user trusts its folder
    llm_url   URL of an OpenAI-compatible endpoint
    llm_threads   threads of an LLM in a GGUF file; None: one for each physical core
    engine    servers that run cards, such as vllm=http://127.0.0.1:8000 (kcard.cards.models.vllm_engines)
    hub_url   the default hub of `kcard publish` and `kcard pull`; None: the local one
    cache_mb  maximum size of the cache of embeddings and scores, in MB; 0: no cache
    log       whether the questions of ask and chat are logged (kcard.question_log)
    offline   whether HF_HUB_OFFLINE is set
    hub_evidence   evidence for `kcard audit --unverified`; empty: none
    database_url, blobs_url   database and file store of the hub in `home`; None: both are in `home`

    `home`, `cache_mb`, `llm`, `llm_url` and `engine` raise UsageError for a value of the wrong type; the latter three
    also for a remote endpoint that only an untrusted project chose.
    """

    found: Mapping[str, Setting]
    llm_key: str | None = field(default=None, repr=False)
    engine_key: str | None = field(default=None, repr=False)
    base_url: str | None = None
    offline: bool = False

    def value(self, key: str) -> Any:
        """Return a setting outside of tables with its type, or its default. Raises UsageError for another type."""
        kind, default = TOP[key]
        return typed(self.found[key], kind) if key in self.found else default

    @property
    def home(self) -> Path:
        home: Path = self.value("home")
        return home.absolute()

    @property
    def drafts(self) -> Path:
        return self.home / "drafts"

    @property
    def cache_mb(self) -> int:
        size: int = self.value("cache_mb")
        if size < 0:
            raise UsageError(
                f"{self.found['cache_mb'].origin}: cache_mb is {size}, but must be 0 (no cache) or more"
            )
        return size

    @property
    def log(self) -> bool:
        return bool(self.value("log"))

    @property
    def llm_threads(self) -> int | None:
        threads: int | None = self.value("llm_threads")
        if threads is not None and threads < 1:
            raise UsageError(
                f"{self.found['llm_threads'].origin}: llm_threads is {threads}, but must be 1 or more"
            )
        return threads

    @property
    def hub_url(self) -> str | None:
        return self.value("hub_url") or None

    @property
    def database_url(self) -> str | None:
        return self.value("database_url") or None

    @property
    def blobs_url(self) -> str | None:
        return self.value("blobs_url") or None

    @property
    def hub_evidence(self) -> tuple[str, ...]:
        specs: list[str] = self.value("hub_evidence") or []
        if not specs:
            return ()
        # A file's relative paths start from its folder; names of evidence stay as they are.
        folder = self.found["hub_evidence"].origin.folder
        paths = []
        for spec in specs:
            if folder is not None and (folder / spec).exists() and spec:
                paths.append(str(folder / spec))
            elif spec:
                paths.append(spec)
        return tuple(paths)

    @property
    def llm(self) -> str:
        llm: str = self.value("llm") or "embedded"
        backend = llm.partition(":")[0]
        is_local = backend in {OLLAMA, *OFFLINE_LLMS}
        if backend in ENDPOINTS:
            is_local = is_on_this_machine(self.value("llm_url") or self.base_url)
        if not is_local:
            self._refuse_strangers("llm", llm)
        if backend == "gguf":
            self._refuse_strangers("llm", llm, "would run a file that may have come with the project")
        return llm

    @property
    def llm_url(self) -> str | None:
        url: str | None = self.value("llm_url")
        if url and not is_on_this_machine(url):
            self._refuse_strangers("llm_url", url)
        return url or self.base_url

    @property
    def engine(self) -> tuple[str, ...]:
        specs: list[str] = self.value("engine") or []
        for spec in specs:
            if not is_on_this_machine(spec.partition("=")[2]):
                self._refuse_strangers("engine", spec)
        return tuple(specs)

    def _refuse_strangers(
        self, key: str, value: str, reason: str = "would send questions to a remote service"
    ) -> None:
        if key not in self.found:
            return
        origin = self.found[key].origin
        if origin.kind != "project" or origin.folder is None:
            return
        trusted: list[Path] = self.value("trust") or []
        if any(origin.folder.resolve().is_relative_to(path.resolve()) for path in trusted):
            return
        flag = f"--{key.replace('_', '-')}"
        raise UsageError(
            f"{origin}: {key} {value!r} {reason}, which a project file may not choose: "
            f"pass {flag}, or set trust = ['{origin.folder}'] in {user_file()}"
        )


def settings() -> Settings:
    """Read KCARD_*, OPENAI_API_KEY, OPENAI_BASE_URL, VLLM_API_KEY, HF_HUB_OFFLINE and the two files.

    The user's file is config.toml under KCARD_HOME (default: ~/.kcard), or what KCARD_CONFIG names; the
    project's is looked for from the current directory upwards. Raises UsageError for a file that can't be read,
    is not TOML or has an unknown key.
    """
    env = os.environ
    values = {"home": Setting("home", str(_home()))}

    # The user's file, which must exist where it is named.
    path = user_file()
    if path.exists():
        values |= read_file(path, "user")
    elif env.get(CONFIG):
        raise UsageError(f"{CONFIG} names {path}, which does not exist")

    # The project's file.
    try:
        project = project_file(Path.cwd())
    except FileNotFoundError:  # the current directory was deleted
        project = None
    if project is not None:
        values |= read_file(project, "project")

    # The environment.
    for name, value in env.items():
        key = _key(name)
        if name.startswith(PREFIX) and value and (key in TOP or "." in key):
            text = value.replace(os.pathsep, ",") if key == "trust" else value
            values[key] = Setting(key, text, SettingOrigin("environment", name))

    return Settings(
        found=values,
        llm_key=env.get("OPENAI_API_KEY"),
        engine_key=env.get("VLLM_API_KEY"),
        base_url=env.get("OPENAI_BASE_URL") or None,
        offline=env.get("HF_HUB_OFFLINE", "").lower() in TRUE,
    )


def for_other_machines() -> dict[str, str]:
    """Return the environment variables with which processes on other machines use the same hub, cache, LLM and engines.

    Secrets are not among them, nor URLs that hold one: each machine has its own OPENAI_API_KEY and KCARD_DATABASE_URL.
    """
    ours = settings()
    variables = {
        "KCARD_HOME": str(ours.home),
        "KCARD_CACHE_MB": str(ours.cache_mb),
        "KCARD_LLM": ours.llm,
        "KCARD_LLM_URL": ours.llm_url,
        "KCARD_ENGINE": ",".join(ours.engine),
        "KCARD_DATABASE_URL": ours.database_url,
        "KCARD_BLOBS_URL": ours.blobs_url,
        "HF_HUB_OFFLINE": "1" if ours.offline else None,
    }
    return {name: value for name, value in variables.items() if value and concealed(value) == value}


def without_secrets() -> dict[str, str]:
    """Return the environment of a child process that reads what is not trusted: where packages, programs and temporary
    files are, and how names are encoded."""
    environment = {name: os.environ[name] for name in HARMLESS if name in os.environ}
    return environment | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


def without_usage_statistics() -> None:
    """Disable what Ray and onnxruntime send to their makers, unless their own variables are set.

    Has no effect on an onnxruntime that is imported already, nor on a cluster that others started.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")


def debug() -> bool:
    """Return whether to show the traceback of a bug (KCARD_DEBUG)."""
    return os.environ.get(DEBUG, "").lower() in TRUE


def let_threads_sleep() -> None:
    """Make waiting OpenMP threads sleep, unless OMP_WAIT_POLICY is set.

    If other processes use the cores too, spinning threads take several times the CPU time and the wall time
    (docs/performance.md). Has no effect once torch is imported.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def thread_count() -> int:
    """Return the threads for the embedded networks: OMP_NUM_THREADS, as for torch, else the cores of this process."""
    count = os.environ.get("OMP_NUM_THREADS", "")
    if count.isdecimal() and int(count):
        return int(count)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def launch() -> tuple[int, int, int]:
    """Return (rank, count, rank on this machine) of the processes that `accelerate launch` or torchrun started.

    (0, 1, 0) if neither did.
    """
    rank, count, local = (os.environ.get(name) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
    return int(rank or 0), int(count or 1), int(local or 0)


def user_file() -> Path:
    """Return the path of the user's own config file, which need not exist."""
    return Path(os.environ.get(CONFIG) or _home() / "config.toml").expanduser().absolute()


def unknown_variables() -> list[str]:
    """Return the names in the environment that begin like ours and set nothing."""
    names = []
    for name in sorted(os.environ):
        if name.startswith(PREFIX) and name not in {CONFIG, DEBUG}:
            key = _key(name)
            if key not in TOP and "." not in key:
                names.append(name)
    return names


def _home() -> Path:
    home = os.environ.get("KCARD_HOME")
    if home:
        return Path(home)
    try:
        return Path.home() / ".kcard"
    except RuntimeError:
        raise UsageError("there is no home directory: set KCARD_HOME to a folder for cards") from None


def _key(name: str) -> str:
    """Map KCARD_LLM_URL to llm_url, KCARD_ASK_N1 to ask.n1."""
    rest = name.removeprefix(PREFIX).lower()
    table, _, key = rest.partition("_")
    if key and table in TABLES:
        return f"{table}.{key}"
    return rest


def is_on_this_machine(url: str | None) -> bool:
    """Return whether a URL certainly leads to this machine."""
    if not url or "\\" in url:
        return False
    try:
        parts = urlsplit(url)
        if parts.username is not None or parts.hostname is None:
            return False
        return parts.hostname == "localhost" or ipaddress.ip_address(parts.hostname).is_loopback
    except ValueError:
        return False
