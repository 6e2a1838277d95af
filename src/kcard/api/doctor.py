"""doctor: what is there, and whether a bare `kcard ask` would work. It changes nothing and sends no question."""

import sys
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from kcard import machine, plugins
from kcard.api.bare_ask import BareAsk
from kcard.api.finding import Finding, Status
from kcard.api.llm_check import SECONDS, check_llm, unanswered
from kcard.config import Settings, settings, unknown_variables
from kcard.errors import KcardError, UsageError
from kcard.manifest import file_digest
from kcard.reachability import Later, silence
from kcard.sizes import shown_size

if TYPE_CHECKING:
    from kcard.hub.registry import Hub

__all__ = ["Finding", "doctor"]

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
    memory = machine.memory()
    features = ", ".join(machine.features()) or "no vector features known"
    summary = (
        f"{machine.cores()} cores ({features}), memory {_memory(memory.free)} free of {_memory(memory.total)}"
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
    free = machine.free_disk(home)
    summary = f"{shown_size(free)} free under {home}"
    if free < ROOM:
        return Finding("disk", "warning", summary, "make room, or set KCARD_HOME to a folder on another disk")
    return Finding("disk", "ok", summary)


def _models(needed: Iterable[str]) -> Iterable[Finding]:
    """The models that come with kcard, byte for byte."""
    from kcard import encoder, static_embeddings
    from kcard.cards import embedded
    from kcard.llms import memory
    from kcard.reader import network, ranker
    from kcard.selectors import checker

    wanted = set(needed)
    try:
        encoder.folder()
        yield Finding("encoder", "ok", f"{encoder.NAME}, sha256 {encoder.SHA256[:12]}… verified")
    except KcardError as error:
        yield Finding(
            "encoder", "error" if "encoder" in wanted else "warning", str(error), "reinstall the package"
        )
    for name, folder in {
        "static": static_embeddings.WEIGHTS,
        "reader": network.WEIGHTS,
        "ranker": ranker.WEIGHTS,
        "memory": memory.WEIGHTS,
        "checker": checker.WEIGHTS,
        "base": embedded.FOLDER,
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
    summary = "; ".join(f"{group}: {', '.join(plugins.names(f'kcard.{group}'))}" for group in GROUPS)
    return Finding("presets", "ok", summary)


def _selectors(ask: BareAsk, offline: bool) -> Finding:
    """Which presets are on this machine, and whether what was chosen is."""
    from kcard.selectors.listing import missing, presets

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
    known = plugins.names("kcard.gates")
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
