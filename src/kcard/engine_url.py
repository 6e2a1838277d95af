"""Engines as users name them: vllm=URL."""

from urllib.parse import urlsplit

from kcard.errors import UsageError
from kcard.setting import concealed

__all__ = ["engine_url"]

ENGINE = "vllm"


def engine_url(spec: str) -> str:
    """The URL in vllm=URL; UsageError for anything else."""
    engine, _, url = spec.partition("=")
    try:
        parts = urlsplit(url)
        known = engine == ENGINE and parts.scheme in {"http", "https"} and bool(parts.hostname)
    except ValueError:
        known = False
    if not known:
        raise UsageError(
            f"engine {concealed(spec)!r} is unknown: give {ENGINE}=URL, such as {ENGINE}=http://127.0.0.1:8000"
        )
    return url
