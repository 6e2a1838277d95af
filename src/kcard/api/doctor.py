"""Check what a question needs: models, machine, hub, endpoints, settings."""

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from kcard import system
from kcard.config import ENDPOINTS, Settings, settings, unknown_variables
from kcard.config_file import Setting
from kcard.errors import KcardError, UsageError, one_line
from kcard.integrators.options import GATE, AskOptions
from kcard.io import shown_size
from kcard.manifest import file_digest
from kcard.options import declared
from kcard.selectors.registry import SelectorChoice
from kcard.system import Later, silence

if TYPE_CHECKING:
    from kcard.hub.registry import Hub

__all__ = ["SECONDS", "BareAsk", "Finding", "Status", "check_llm", "doctor", "unanswered"]


# One thing that `kcard doctor` looked at.

Status = Literal["ok", "warning", "error"]


@dataclass(frozen=True)
class Finding:
    """An error means that a bare `kcard ask` would not work; `remedy` says what to do."""

    name: str
    status: Status
    found: str
    remedy: str = ""


# Whether the LLM that is configured would answer. No question is sent: an endpoint is asked for its models.

SECONDS = 2.0  # how long an endpoint may take


def check_llm(configured: Settings) -> Finding:
    """Look at the configured LLM; only one of an endpoint is asked over the network."""
    llm = configured.llm
    backend, _, model = llm.partition(":")
    known = system.names("kcard.llms")
    if backend not in known:
        return _failed(f"unknown llm {llm!r}", f"choose {', '.join(known)}")
    if backend in ENDPOINTS:
        return _endpoint(model, configured)
    if backend == "hf" and not Path(model).is_dir():
        from huggingface_hub import try_to_load_from_cache

        if try_to_load_from_cache(model, "config.json") is None:
            return Finding(
                "llm", "warning", f"{model} is not on this machine", "the first question downloads it"
            )
    return Finding("llm", "ok", llm)


def unanswered(configured: Settings) -> Finding:
    """What to say when nothing came back in time."""
    return _failed(f"{configured.llm} did not answer in {SECONDS:g} s", "start it, or correct llm_url")


def _endpoint(model: str, configured: Settings) -> Finding:
    try:
        import openai
    except ImportError:
        return _failed("the openai package is not installed", "pip install 'kcard[openai]'")
    try:
        url, key = configured.llm_url, configured.llm_key or "none"
        where = url or "https://api.openai.com/v1"
        with openai.OpenAI(base_url=url, api_key=key, timeout=SECONDS, max_retries=0) as client:
            names = [found.id for found in client.models.list().data]
    except UsageError as error:
        return _failed(str(error), "choose the endpoint yourself")
    except openai.OpenAIError as error:
        return _failed(f"{where}: {one_line(error, 160)}", "start it, correct llm_url, or set OPENAI_API_KEY")
    except (ValueError, TypeError, AttributeError) as error:
        return _failed(f"{where} sent no list of models: {one_line(error, 160)}", "correct llm_url (…/v1)")
    if names and model not in names:
        return Finding(
            "llm", "warning", f"{where} does not list {model!r}", f"it lists {', '.join(names[:5])}"
        )
    return Finding("llm", "ok", f"{model} at {where}; questions and knowledge are sent there")


def _failed(found: str, remedy: str) -> Finding:
    return Finding("llm", "error", found, remedy)


# What `kcard ask` would be given where there is no flag: what is configured, else the defaults.

SELECTORS = ("selectors", "relevance", "pruner", "checker")


@dataclass(frozen=True)
class BareAsk:
    """Values by option, each with its origin."""

    settings: Mapping[str, Setting]

    @classmethod
    def configured(cls, configured: Settings) -> "BareAsk":
        """Raises UsageError for an unknown preset of selectors."""
        defaults = declared(AskOptions)
        found = {
            name: configured.found.get(f"ask.{name}") or Setting(name, defaults[name].default)
            for name in ("mode", "select", "gate", "cards", *SELECTORS, "device")
        }
        llm = configured.found.get("llm", Setting("llm", configured.llm))
        if found["gate"].value is None:
            found["gate"] = Setting("gate", GATE if found["cards"].value is None else "always")
        ask = cls({"llm": Setting("llm", configured.llm, llm.origin), **found})
        _ = ask.choice
        return ask

    def __str__(self) -> str:
        shown = {name: s for name, s in self.settings.items() if s.value or name not in SELECTORS}
        return ", ".join(f"{name} {s.value or 'all'} ({s.origin})" for name, s in shown.items())

    def __getitem__(self, name: str) -> Any:
        return self.settings[name].value

    @property
    def uses_cards(self) -> bool:
        return not (self["mode"] == "direct" or self["gate"] == "never")

    @property
    def cards(self) -> list[str] | None:
        """The selection; None for every card."""
        given: str | list[str] | None = self["cards"]
        return [c.strip() for c in given.split(",")] if isinstance(given, str) else given

    @property
    def models(self) -> tuple[str, ...]:
        """The embedded models without which it can't answer."""
        own = ("encoder", "reader", "memory") if self["llm"] == "embedded" else ()
        if not self.uses_cards:
            return own
        checker = ("checker",) if self.choice.spec("checker") == "minilm" else ()
        return (*own, "encoder", *checker)

    @property
    def choice(self) -> SelectorChoice:
        """The selectors."""
        return SelectorChoice(*(self[name] for name in SELECTORS))


SUMS = "SHA256SUMS"
EXTRAS = {
    "openai": ("openai",),
    "selectors": ("sentence_transformers", "sentencepiece"),
}
VERSIONS = ("kcard", "onnxruntime", "torch", "transformers", "peft")
GROUPS = ("gates", "relevance", "pruners", "checkers", "llms")
ROOM = 1_000_000_000  # bytes of disk or memory below which a card with its base may not fit


def doctor() -> list[Finding]:
    """Look at everything that `kcard ask` and `kcard train` rely on; takes a few seconds."""
    try:
        configured = settings()
        ask = BareAsk.configured(configured)
    except UsageError as error:
        return [
            Finding("config", "error", str(error), "correct the file or the variable"),
            *_machine(),
            *_models(()),
        ]
    hub_site = Later(lambda: _hub_site(configured), "no answer")
    llm = Later(lambda: check_llm(configured), unanswered(configured))
    checks = [
        _config(configured),
        *_machine(str(ask["device"])),
        _disk(configured.home),
        *_models(ask.models),
    ]
    checks += [
        *_extras(),
        _presets(),
        _selectors(ask, configured.offline),
        _site(configured, hub_site),
        _hub(ask, configured),
    ]
    checks += [llm.result(SECONDS + 1), *_gate(str(ask["gate"])), _terminal()]
    broken = [check.name for check in checks if check.status == "error"]
    remedy = f"fix: {', '.join(broken)}" if broken else ""
    return [*checks, Finding("ask", "error" if broken else "ok", str(ask), remedy)]


def _config(configured: Settings) -> Finding:
    files = sorted({str(s.origin).rpartition(":")[0] for s in configured.found.values() if s.origin.folder})
    found = f"home {configured.home}; " + (", ".join(files) or "no config file")
    if unknown := unknown_variables():
        return Finding(
            "config", "warning", f"{found}; {', '.join(unknown)} have no effect", "see `kcard config`"
        )
    return Finding("config", "ok", found)


def _machine(device: str = "cpu") -> Iterable[Finding]:
    versions = ", ".join(f"{name} {_version(name)}" for name in VERSIONS)
    yield Finding("python", "ok", f"{sys.version.split()[0]}, {versions}")
    memory = system.memory()
    features = ", ".join(system.features()) or "no vector features known"
    summary = (
        f"{system.cores()} cores ({features}), memory {_memory(memory.free)} free of {_memory(memory.total)}"
    )
    if 0 < memory.free < ROOM:
        yield Finding("machine", "warning", summary, "close other programs: loading models may fail")
    else:
        yield Finding("machine", "ok", summary)
    yield _gpu(device)


def _memory(count: int) -> str:
    return shown_size(count) if count else "unknown"


def _gpu(device: str = "cpu") -> Finding:
    try:
        import torch

        count = torch.cuda.device_count()
        names = [torch.cuda.get_device_properties(i) for i in range(count)]
    except (ImportError, OSError, RuntimeError) as error:
        return Finding(
            "gpu", "error", f"torch can't be used: {error}", "reinstall kcard, or torch for this machine"
        )
    summary = ", ".join(f"cuda:{i} {p.name}, {shown_size(p.total_memory)}" for i, p in enumerate(names))
    if device.startswith("cuda") and not names:
        return Finding("gpu", "error", f"none, but the device is {device}", "leave device out")
    return Finding("gpu", "ok", summary or "none; everything runs on the CPU")


def _disk(home: Path) -> Finding:
    free = system.free_disk(home)
    summary = f"{shown_size(free)} free under {home}"
    if free < ROOM:
        return Finding("disk", "warning", summary, "make room, or set KCARD_HOME to a folder on another disk")
    return Finding("disk", "ok", summary)


def _models(needed: Iterable[str]) -> Iterable[Finding]:
    """The models that come with kcard, byte for byte."""
    from kcard.offline import checker, llm, minilm, opt, reader, static

    wanted = set(needed)
    try:
        minilm.folder()
        yield Finding("encoder", "ok", f"{minilm.NAME}, sha256 {minilm.SHA256[:12]}… verified")
    except KcardError as error:
        yield Finding(
            "encoder", "error" if "encoder" in wanted else "warning", str(error), "reinstall the package"
        )
    for name, folder in {
        "static": static.WEIGHTS,
        "reader": reader.READER_WEIGHTS,
        "ranker": reader.RANKER_WEIGHTS,
        "memory": llm.WEIGHTS,
        "checker": checker.WEIGHTS,
        "base": opt.FOLDER,
    }.items():
        severity: Status = "error" if name in wanted else "warning"
        if problem := _fault(folder):
            yield Finding(name, severity, problem, "reinstall kcard")
        else:
            yield Finding(name, "ok", f"embedded, sha256 of every file verified ({name}/{SUMS})")


def _fault(folder: Path) -> str:
    """What differs from the folder's own list of digests; empty where nothing does."""
    try:
        lines = (folder / SUMS).read_text(encoding="ascii").splitlines()
        for digest, name in (line.split(maxsplit=1) for line in lines):
            if file_digest(folder / name) != digest:
                return f"{folder / name} differs from the release"
    except OSError as error:
        return f"{error.filename}: {error.strerror}"
    return ""


def _extras() -> Iterable[Finding]:
    for extra, modules in EXTRAS.items():
        missing = [name for name in modules if find_spec(name) is None]
        summary = f"extra {extra}: " + (f"not installed ({', '.join(missing)})" if missing else "installed")
        remedy = f"pip install 'kcard[{extra}]' if you want it" if missing else ""
        yield Finding(extra, "warning" if missing else "ok", summary, remedy)


def _presets() -> Finding:
    summary = "; ".join(f"{group}: {', '.join(system.names(f'kcard.{group}'))}" for group in GROUPS)
    return Finding("presets", "ok", summary)


def _selectors(ask: BareAsk, offline: bool) -> Finding:
    """Which presets are on this machine, and whether what was chosen is."""
    from kcard.selectors.checkpoints import missing, presets

    summary = "; ".join(
        f"{one.preset.name}: {'ready' if not one.missing else f'{len(one.missing)} models missing'}"
        for one in presets()
    )
    lacking = missing(ask.choice) if ask.uses_cards else ()
    if not lacking:
        return Finding("selectors", "ok", summary)
    found = f"{summary}; chosen, but not on this machine: {', '.join(lacking)}"
    if offline:
        return Finding(
            "selectors", "error", found, "unset HF_HUB_OFFLINE once, or choose --selectors offline"
        )
    return Finding("selectors", "warning", found, "they are downloaded on first use")


def _hub_site(configured: Settings) -> str:
    if configured.offline:
        return ""
    from huggingface_hub import constants

    return silence(constants.ENDPOINT, SECONDS)


def _site(configured: Settings, found: Later[str]) -> Finding:
    if configured.offline:
        return Finding("hugging-face", "ok", "not checked: HF_HUB_OFFLINE is set")
    if problem := found.result(SECONDS):
        remedy = "only cards with a base from there need it; set HF_HUB_OFFLINE=1 to skip this check"
        return Finding("hugging-face", "warning", f"can't be reached: {problem}", remedy)
    return Finding("hugging-face", "ok", "reachable")


def _hub(ask: BareAsk, configured: Settings) -> Finding:
    status: Status = "error" if ask.uses_cards else "warning"
    if configured.database_url is None and not (configured.home / "hub" / "hub.db").exists():
        return Finding(
            "hub", status, "no card is published yet", "kcard train --corpus PATH, then kcard publish"
        )
    try:
        from kcard.hub.registry import Hub

        hub = Hub(configured.home)
        held, chosen, missing = hub.info(), hub.resolve(ask.cards), _missing(hub)
    except KcardError as error:
        return Finding("hub", status, str(error), "correct `cards`, or repair the hub (kcard verify)")
    summary = f"{held.cards} cards in {held.versions} versions, {shown_size(held.size)}; {len(chosen)} would be used"
    if missing:
        return Finding(
            "hub",
            status,
            f"{summary}; files are missing in {', '.join(missing)}",
            "kcard verify, then publish again",
        )
    return Finding("hub", "ok", summary)


def _missing(hub: "Hub") -> list[str]:
    """The newest versions of which a file is gone; bytes are not read (`kcard verify` reads them)."""
    return [v.reference for v in hub.list() if not all(map(hub.blobs.holds, v.files.values()))]


def _gate(name: str) -> Iterable[Finding]:
    known = system.names("kcard.gates")
    if name not in known:
        yield Finding("gate", "error", f"unknown gate {name!r}", f"choose {', '.join(known)}")


def _terminal() -> Finding:
    summary = f"{'a terminal' if sys.stdout.isatty() else 'no terminal'}, encoding {sys.stdout.encoding}"
    if "utf" not in (sys.stdout.encoding or "").lower():
        return Finding("terminal", "warning", summary, "set PYTHONUTF8=1 to print all languages")
    return Finding("terminal", "ok", summary)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "missing"
