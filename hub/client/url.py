"""Normalised URLs of hubs, under which tokens are stored."""

from urllib.parse import urlsplit

from kcard.errors import UsageError

__all__ = ["HUGGING_FACE", "address", "is_hugging_face"]

HUGGING_FACE = "https://huggingface.co"
PORTS = {"http": 80, "https": 443}


def address(url: str) -> str:
    """The URL with lower-case scheme and host, without a default port or trailing slash.

    Raises UsageError unless it is an http or https URL without user, password, query and fragment.
    """
    try:
        parts = urlsplit(url.strip())
        host, port = parts.hostname, parts.port
    except ValueError:
        raise _wrong(url) from None
    if parts.scheme not in PORTS or not host or parts.username is not None or parts.query or parts.fragment:
        raise _wrong(url)
    shown = f"[{host}]" if ":" in host else host
    where = shown if port in {None, PORTS[parts.scheme]} else f"{shown}:{port}"
    return f"{parts.scheme}://{where}{parts.path.rstrip('/')}"


def is_hugging_face(url: str) -> bool:
    """Whether the host belongs to the Hugging Face Hub."""
    host = urlsplit(url).hostname or ""
    return host in {"huggingface.co", "hf.co"} or host.endswith(".huggingface.co")


def _wrong(url: str) -> UsageError:
    return UsageError(f"invalid hub URL {url!r}: use one such as https://hub.example.org")
