"""Check what a question needs: models, machine, hub, endpoints, settings."""

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal

from kcard import system
from kcard.config import (
    ENDPOINTS,
    GGUF_LLMS,
    Settings,
    settings,
    unknown_variables,
    without_shortcut,
)
from kcard.config_file import Setting
from kcard.connections import Later, silence
from kcard.errors import KcardError, UsageError, one_line
from kcard.gguf_file import read_gguf
from kcard.integrators.options import GATE, AskOptions
from kcard.io import shown_size
from kcard.llms.local_models import find_pulled, find_servers, suggestion
from kcard.manifest import file_digest
from kcard.options import declared, documented
from kcard.selectors.registry import SelectorChoice

Status = Literal["ok", "warning", "error"]


@dataclass(frozen=True)
class Finding:
    """The result of one check. `status` error: a bare `kcard ask` would not work; `remedy`: what to do."""

    name: str
    status: Status
    found: str
    remedy: str = ""


# Whether the configured LLM would answer: an endpoint is asked for its list of models, and no question is sent.

TIMEOUT_SECONDS = 2.0  # of an endpoint


def check_llm(configured: Settings) -> Finding:
    """Check the configured LLM; only endpoints are contacted over the network."""
    llm, own_url = without_shortcut(configured.llm)
    backend, _, model = llm.partition(":")
    backends = system.names("kcard.llms")
    if backend not in backends:
        return _llm_error(f"unknown llm {llm!r}", f"choose {', '.join(backends)}")
    # An endpoint must answer, and should list the model.
    if backend in ENDPOINTS:
        import openai

        try:
            url, key = own_url or configured.llm_url, "none" if own_url else configured.llm_key or "none"
            where = url or "https://api.openai.com/v1"
            with openai.OpenAI(base_url=url, api_key=key, timeout=TIMEOUT_SECONDS, max_retries=0) as client:
                names = [each.id for each in client.models.list().data]
        except UsageError as error:
            return _llm_error(str(error), "choose the endpoint yourself")
        except openai.OpenAIError as error:
            return _llm_error(
                f"{where}: {one_line(error, 160)}", "start it, correct llm_url, or set OPENAI_API_KEY"
            )
        except (ValueError, TypeError, AttributeError) as error:
            return _llm_error(
                f"{where} sent no list of models: {one_line(error, 160)}", "correct llm_url (…/v1)"
            )
        if names and model not in names:
            return Finding(
                "llm", "warning", f"{where} does not list {model!r}", f"it lists {', '.join(names[:5])}"
            )
        return Finding("llm", "ok", f"{model} at {where}; questions and knowledge are sent there")
    # A file must be here and readable.
    if backend in GGUF_LLMS:
        try:
            file = read_gguf(find_pulled(model).path if backend == "local" else Path(model).expanduser())
        except KcardError as error:
            return _llm_error(str(error), "kcard llm list")
        return Finding("llm", "ok", f"{llm}: {file.name}, {shown_size(file.size)}, on this computer")
    # Nobody chose one: what could be chosen.
    if "llm" not in configured.found:
        servers = find_servers()
        advice = suggestion()
        if servers:
            advice = f"for sentences: {servers[0].command(servers[0].models[0])}"
        return Finding("llm", "ok", f"{llm}, which extracts and does not reason; {advice}")
    # A local model should be on this machine.
    if backend == "hf" and not Path(model).is_dir():
        from huggingface_hub import try_to_load_from_cache

        if try_to_load_from_cache(model, "config.json") is None:
            return Finding(
                "llm", "warning", f"{model} is not on this machine", "the first question downloads it"
            )
    return Finding("llm", "ok", llm)


def unanswered(configured: Settings) -> Finding:
    """Return the finding for an LLM that did not answer in time."""
    return _llm_error(
        f"{configured.llm} did not answer in {TIMEOUT_SECONDS:g} s", "start it, or correct llm_url"
    )


def _llm_error(problem: str, remedy: str) -> Finding:
    return Finding("llm", "error", problem, remedy)


# The options of a `kcard ask` without flags: the configured ones, else the defaults.

SELECTORS = ("selectors", "relevance", "pruner", "checker")


@dataclass(frozen=True)
class BareAsk:
    """Values by option, each with its origin."""

    settings: Mapping[str, Setting]

    @classmethod
    def configured(cls, configured: Settings) -> "BareAsk":
        """Return what is configured. Raises UsageError for an unknown preset of selectors."""
        defaults = declared(AskOptions)
        options = {
            name: configured.found.get(f"ask.{name}") or Setting(name, defaults[name].default)
            for name in ("mode", "select", "gate", "cards", *SELECTORS, "device")
        }
        llm = configured.found.get("llm", Setting("llm", configured.llm))
        if options["gate"].value is None:
            options["gate"] = Setting("gate", GATE)
        ask = cls({"llm": Setting("llm", configured.llm, llm.origin), **options})
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
        cards: str | list[str] | None = self["cards"]
        if isinstance(cards, str):
            return [name.strip() for name in cards.split(",")]
        return cards

    @property
    def models(self) -> tuple[str, ...]:
        """The embedded models without which it can't answer."""
        names = []
        if self["llm"] == "embedded":
            names += ["encoder", "reader", "memory"]
        if self.uses_cards:
            names.append("encoder")
            if self.choice.spec("checker") == "minilm":
                names.append("checker")
        return tuple(names)

    @property
    def choice(self) -> SelectorChoice:
        """The selectors."""
        return SelectorChoice(*(self[name] for name in SELECTORS))


SUMS = "SHA256SUMS"
VERSIONS = ("kcard", "onnxruntime", "torch", "transformers", "peft")
GROUPS = ("gates", "relevance", "pruners", "checkers", "llms")
MIN_FREE_BYTES = 1_000_000_000  # of disk or memory; with less, a card with its base may not fit


@documented
def doctor() -> list[Finding]:
    """Check everything that `kcard ask` and `kcard train` rely on; this takes a few seconds."""
    try:
        configured = settings()
        ask = BareAsk.configured(configured)
    except UsageError as error:
        return [
            Finding("config", "error", str(error), "correct the file or the variable"),
            *check_machine(),
            *check_models(()),
        ]

    # The Hugging Face Hub and the LLM are asked in the background while the rest is checked.
    def silence_of_hugging_face() -> str:
        if configured.offline:
            return ""
        from huggingface_hub import constants

        return silence(constants.ENDPOINT, TIMEOUT_SECONDS)

    hub_site = Later(silence_of_hugging_face, "no answer")
    llm = Later(lambda: check_llm(configured), unanswered(configured))

    # The configuration, the machine and its disk.
    files = sorted({str(s.origin).rpartition(":")[0] for s in configured.found.values() if s.origin.folder})
    summary = f"home {configured.home}; " + (", ".join(files) or "no config file")
    checks = [Finding("config", "ok", summary)]
    unknown = unknown_variables()
    if unknown:
        summary += f"; {', '.join(unknown)} have no effect"
        checks = [Finding("config", "warning", summary, "see `kcard config`")]
    checks += check_machine(str(ask["device"]))
    free = system.free_disk(configured.home)
    summary = f"{shown_size(free)} free under {configured.home}"
    if free < MIN_FREE_BYTES:
        remedy = "make room, or set KCARD_HOME to a folder on another disk"
        checks.append(Finding("disk", "warning", summary, remedy))
    else:
        checks.append(Finding("disk", "ok", summary))
    checks += check_models(ask.models)

    # The extras, what the entry points offer, and the selectors.
    checks.append(check_extras())
    summary = "; ".join(f"{group}: {', '.join(system.names(f'kcard.{group}'))}" for group in GROUPS)
    checks += [Finding("presets", "ok", summary), check_selectors(ask, configured.offline)]

    # The Hugging Face Hub and the local hub.
    problem = hub_site.result(TIMEOUT_SECONDS)
    if configured.offline:
        checks.append(Finding("hugging-face", "ok", "not checked: HF_HUB_OFFLINE is set"))
    elif problem:
        remedy = "only cards with a base from there need it; set HF_HUB_OFFLINE=1 to skip this check"
        checks.append(Finding("hugging-face", "warning", f"can't be reached: {problem}", remedy))
    else:
        checks.append(Finding("hugging-face", "ok", "reachable"))
    checks.append(check_hub(ask, configured))

    # The LLM, the gate and the terminal.
    checks.append(llm.result(TIMEOUT_SECONDS + 1))
    gates = system.names("kcard.gates")
    if str(ask["gate"]) not in gates:
        checks.append(
            Finding("gate", "error", f"unknown gate {str(ask['gate'])!r}", f"choose {', '.join(gates)}")
        )
    summary = f"{'a terminal' if sys.stdout.isatty() else 'no terminal'}, encoding {sys.stdout.encoding}"
    if "utf" not in (sys.stdout.encoding or "").lower():
        remedy = "set PYTHONUTF8=1 to print all languages"
        checks.append(Finding("terminal", "warning", summary, remedy))
    else:
        checks.append(Finding("terminal", "ok", summary))

    broken = [check.name for check in checks if check.status == "error"]
    remedy = f"fix: {', '.join(broken)}" if broken else ""
    return [*checks, Finding("ask", "error" if broken else "ok", str(ask), remedy)]


def check_extras() -> Finding:
    """List the extras that are installed, and those that are not."""
    installed: list[str] = []
    absent: list[str] = []
    for extra, packages in system.requirements().items():
        if extra and extra not in system.FOR_DEVELOPERS:
            is_installed = all(system.has_package(package) for package in packages)
            (installed if is_installed else absent).append(extra)
    summary = f"installed: {', '.join(installed) or 'none'}"
    if absent:
        summary += f"; not installed: {', '.join(absent)} (pip install 'kcard[NAME]')"
    return Finding("extras", "ok", summary)


def check_machine(device: str = "cpu") -> Iterable[Finding]:
    versions = []
    for package in VERSIONS:
        try:
            versions.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            versions.append(f"{package} missing")
    yield Finding("python", "ok", f"{sys.version.split()[0]}, {', '.join(versions)}")
    memory = system.memory()
    features = ", ".join(system.features()) or "no vector features known"
    summary = (
        f"{system.cores()} cores ({features}), memory {_memory(memory.free)} free of {_memory(memory.total)}"
    )
    if 0 < memory.free < MIN_FREE_BYTES:
        yield Finding("machine", "warning", summary, "close other programs: loading models may fail")
    else:
        yield Finding("machine", "ok", summary)
    try:
        import torch

        count = torch.cuda.device_count()
        gpus = [torch.cuda.get_device_properties(i) for i in range(count)]
    except (ImportError, OSError, RuntimeError) as error:
        remedy = "reinstall kcard, or torch for this machine"
        yield Finding("gpu", "error", f"torch can't be used: {error}", remedy)
        return
    summary = ", ".join(f"cuda:{i} {gpu.name}, {shown_size(gpu.total_memory)}" for i, gpu in enumerate(gpus))
    if device.startswith("cuda") and not gpus:
        yield Finding("gpu", "error", f"none, but the device is {device}", "leave device out")
    else:
        yield Finding("gpu", "ok", summary or "none; everything runs on the CPU")


def _memory(count: int) -> str:
    return shown_size(count) if count else "unknown"


def check_models(needed: Iterable[str]) -> Iterable[Finding]:
    """Verify the models that come with kcard, byte for byte."""
    from kcard.embedded import minilm, opt, reader
    from kcard.embedded import static_embeddings as static
    from kcard.llms import embedded_llm as llm
    from kcard.selectors import minilm_checker as checker

    required = set(needed)
    try:
        minilm.folder()
        yield Finding("encoder", "ok", f"{minilm.NAME}, sha256 {minilm.SHA256[:12]}… verified")
    except KcardError as error:
        yield Finding(
            "encoder", "error" if "encoder" in required else "warning", str(error), "reinstall the package"
        )
    for name, folder in {
        "static": static.WEIGHTS,
        "reader": reader.READER_WEIGHTS,
        "ranker": reader.RANKER_WEIGHTS,
        "memory": llm.WEIGHTS,
        "checker": checker.WEIGHTS,
        "base": opt.FOLDER,
    }.items():
        severity: Status = "error" if name in required else "warning"
        problem = _digest_mismatch(folder)
        if problem:
            yield Finding(name, severity, problem, "reinstall kcard")
        else:
            yield Finding(name, "ok", f"embedded, sha256 of every file verified ({name}/{SUMS})")


def _digest_mismatch(folder: Path) -> str:
    """Return what differs from the list of digests in the folder; empty if nothing does."""
    try:
        lines = (folder / SUMS).read_text(encoding="ascii").splitlines()
        for digest, name in (line.split(maxsplit=1) for line in lines):
            if file_digest(folder / name) != digest:
                return f"{folder / name} differs from the release"
    except OSError as error:
        return f"{error.filename}: {error.strerror}"
    return ""


def check_selectors(ask: BareAsk, offline: bool) -> Finding:
    """Report which presets are on this machine, and whether those that were chosen are."""
    from kcard.selectors.checkpoints import missing, presets

    states = []
    for one in presets():
        state = f"{len(one.missing)} models missing" if one.missing else "ready"
        states.append(f"{one.preset.name}: {state}")
    summary = "; ".join(states)
    lacking = missing(ask.choice) if ask.uses_cards else ()
    if not lacking:
        return Finding("selectors", "ok", summary)
    summary = f"{summary}; chosen, but not on this machine: {', '.join(lacking)}"
    if offline:
        return Finding(
            "selectors", "error", summary, "unset HF_HUB_OFFLINE once, or choose --selectors offline"
        )
    return Finding("selectors", "warning", summary, "they are downloaded on first use")


def check_hub(ask: BareAsk, configured: Settings) -> Finding:
    status: Status = "error" if ask.uses_cards else "warning"
    empty = Finding(
        "hub", status, "no card is published yet", "kcard train --corpus PATH, then kcard publish"
    )
    if configured.database_url is None and not (configured.home / "hub" / "hub.db").exists():
        return empty
    try:
        from kcard.hub.registry import Hub

        hub = Hub(configured.home)
        info = hub.info()
        if not info.cards:
            return empty
        selection = hub.select(ask.cards, drafts=True)
        used = len(selection.versions) + len(selection.drafts)
        # Only whether the files of the newest versions exist: `kcard verify` reads their bytes.
        missing = []
        for card in hub.list():
            if not all(map(hub.blobs.holds, card.files.values())):
                missing.append(card.reference)
    except KcardError as error:
        return Finding("hub", status, str(error), "correct `cards`, or repair the hub (kcard verify)")
    summary = f"{info.cards} cards in {info.versions} versions, {shown_size(info.size)}; {used} would be used"
    if missing:
        return Finding(
            "hub",
            status,
            f"{summary}; files are missing in {', '.join(missing)}",
            "kcard verify, then publish again",
        )
    return Finding("hub", "ok", summary)
