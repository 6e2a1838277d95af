"""Talking to a hub through huggingface_hub: its client, set up for one hub, and its errors in one line."""

import errno
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from kcard.errors import HubError, KcardError, UnknownCard, UsageError, one_line
from kcard.hub.client.address import is_hugging_face

if TYPE_CHECKING:
    from huggingface_hub import HfApi

__all__ = ["status", "talk"]

LOGIN = "`kcard login --hub {url}`"


@contextmanager
def talk(url: str, token: str | None, *, progress: bool = False) -> "Iterator[HfApi]":
    """The client of a hub. What goes wrong inside the block becomes a HubError of one line.

    progress  whether huggingface_hub shows its bars on stderr

    Its switches for Xet, for bars and for warnings are those of the whole process: they are as before when the
    block ends. Hubs other than the Hugging Face Hub get large files by plain LFS, which is the faster way.
    """
    from huggingface_hub import HfApi, constants, utils
    from huggingface_hub.utils.logging import get_verbosity, set_verbosity

    bars: Any = utils  # its functions for bars are not exported in a way that a type checker sees
    hidden = bars.are_progress_bars_disabled()
    xet, verbosity = constants.HF_HUB_DISABLE_XET, get_verbosity()
    # Without a token of this hub none is sent: by itself the client would send the user's of huggingface.co.
    api = HfApi(endpoint=url, token=token or False, library_name="kcard")
    constants.HF_HUB_DISABLE_XET = xet or not is_hugging_face(url)
    set_verbosity(logging.ERROR)
    if not progress and not hidden:
        bars.disable_progress_bars()
    try:
        yield api
    except _failures() as error:
        raise _explained(url, token, error) from error
    finally:
        constants.HF_HUB_DISABLE_XET = xet
        set_verbosity(verbosity)
        if not progress and not hidden:
            bars.enable_progress_bars()


def _failures() -> tuple[type[Exception], ...]:
    """What the client raises: for much that a server refuses it has no error of its own, but these."""
    from huggingface_hub.errors import HfHubHTTPError

    # The first are the errors of the HTTP library that it uses, whichever that is in its version.
    return (*HfHubHTTPError.__bases__, RuntimeError, ValueError)


def status(error: BaseException) -> int | None:
    """The HTTP status that an error of the client stands for; None where there was no answer."""
    from huggingface_hub.errors import HfHubHTTPError

    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, HfHubHTTPError):
            return int(cause.response.status_code)
        cause = cause.__cause__ or cause.__context__
    return None


def _explained(url: str, token: str | None, error: Exception) -> KcardError:
    from huggingface_hub.errors import (
        GatedRepoError,
        HFValidationError,
        OfflineModeIsEnabled,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    cause = _root(error)
    if isinstance(cause, OfflineModeIsEnabled):
        return HubError(f"HF_HUB_OFFLINE is set, so {url} is not asked: unset it")
    if isinstance(cause, HFValidationError):
        return UsageError(f"{one_line(cause)}: use namespace/name")
    code, said = status(error), _said(cause)
    login = LOGIN.format(url=url)
    if isinstance(cause, GatedRepoError):
        return HubError(f"{url} gives these files out on request only: {said}")
    if isinstance(cause, RevisionNotFoundError):
        return UnknownCard(f"{url}: no such version, branch or commit: {said}")
    if code == 401:
        if token is None:
            return HubError(f"{url} wants to know who asks: {login}")
        return HubError(f"{url} does not accept your token ({said}): {login} with another one")
    if isinstance(cause, RepositoryNotFoundError):
        return UnknownCard(
            f"{url} has no such repository, or it is private and your token can't read it: {said}"
        )
    if code is not None:
        return HubError(f"{url} {'failed' if code >= 500 else 'refused'} ({code}): {said}")
    if isinstance(cause, OSError) and cause.filename is not None:
        return HubError(f"{cause.filename}: {cause.strerror or cause}")
    if isinstance(cause, OSError) and cause.errno == errno.ENOSPC:
        return HubError(f"the disk is full: free some space and try again ({one_line(cause)})")
    if isinstance(cause, ValueError | RuntimeError) and not isinstance(cause, OSError):
        return HubError(f"{url}: {one_line(cause)}")
    return HubError(f"{url} does not answer ({one_line(cause)}): see that the hub runs there, and try again")


def _root(error: BaseException) -> BaseException:
    """What the client wrapped: the answer of the server, or why there was none."""
    from huggingface_hub.errors import HfHubHTTPError

    wrapped = error.__cause__
    if isinstance(error, HfHubHTTPError) or wrapped is None:
        return error
    return _root(wrapped)


def _said(error: BaseException) -> str:
    """The server's own words, or the client's."""
    answer = getattr(error, "response", None)
    said = getattr(error, "server_message", None) or (answer and answer.headers.get("X-Error-Message"))
    return " ".join(said.split())[:300] if said else one_line(error)
