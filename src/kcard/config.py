"""Settings, from the environment and the user's config file. Nothing else in kcard reads the environment."""

import os
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kcard.errors import UsageError

__all__ = ["Settings", "settings"]


@dataclass(frozen=True)
class Settings:
    """What the user set. `home` holds the hub and the drafts; `llm` is what `kcard ask` uses by default.

    A remote LLM is used only where `llm` names it: an API key that happens to lie in the environment is
    no choice.
    """

    home: Path
    llm: str = "embedded"
    llm_url: str | None = None
    llm_key: str | None = field(default=None, repr=False)
    offline: bool = False

    @property
    def drafts(self) -> Path:
        return self.home / "drafts"


def settings() -> Settings:
    """Read KCARD_HOME, KCARD_CONFIG (default: KCARD_HOME/config.toml), HF_HUB_OFFLINE and OPENAI_*.

    Raises UsageError for a config file that is not TOML or has an unknown key.
    """
    env = os.environ
    home = Path(env.get("KCARD_HOME") or Path.home() / ".kcard").expanduser().absolute()
    given = _config_file(
        Path(env.get("KCARD_CONFIG") or home / "config.toml"), explicit="KCARD_CONFIG" in env
    )
    return Settings(
        home=home,
        llm=given.get("llm", "embedded"),
        llm_url=given.get("llm_url") or env.get("OPENAI_BASE_URL"),
        llm_key=env.get("OPENAI_API_KEY"),
        offline=env.get("HF_HUB_OFFLINE", "").lower() in {"1", "true", "yes", "on"},
    )


def _config_file(path: Path, explicit: bool) -> dict[str, Any]:
    if not path.exists():
        if explicit:
            raise UsageError(f"KCARD_CONFIG names {path}, which does not exist")
        return {}
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not valid TOML: {error}") from error
    for key, value in data.items():
        if key not in {"llm", "llm_url"} or not isinstance(value, str):
            raise UsageError(f"{path}: {key!r} is not a setting; known are llm and llm_url, both strings")
    return data
