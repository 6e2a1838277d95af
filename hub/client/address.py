"""Where a hub answers: its URL in one form only, so that a token is kept and found under one name."""

from urllib.parse import urlsplit

from kcard.errors import UsageError

__all__ = ["HUGGING_FACE", "address", "is_hugging_face"]

HUGGING_FACE = "https://huggingface.co"
PORTS = {"http": 80, "https": 443}


def address(url: str) -> str:
    """The URL with scheme and host in lower case, without a default port and without a slash at its end.

    Raises UsageError for what is no http or https URL, or holds a name, a password, a query or a fragment.
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
    """Whether it is the Hugging Face Hub itself, or any host of its domain."""
    host = urlsplit(url).hostname or ""
    return host in {"huggingface.co", "hf.co"} or host.endswith(".huggingface.co")


def _wrong(url: str) -> UsageError:
    return UsageError(f"hub {url!r}: give the address of a hub, such as https://hub.example.org")
