"""Loading models without a word on stderr: no progress bar for what takes a moment, no load report."""

from collections.abc import Iterator
from contextlib import contextmanager

from kcard.errors import ModelUnavailable, one_line

__all__ = ["loading", "quiet_loading"]


@contextmanager
def quiet_loading() -> Iterator[None]:
    """Silence transformers' loading messages below errors; what the user had set is restored after."""
    from transformers.utils import logging

    shown, verbosity = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if shown:
            logging.enable_progress_bar()


@contextmanager
def loading(what: str) -> Iterator[None]:
    """Quiet loading of what a user named; ModelUnavailable, which names it, where transformers can't load it."""
    try:
        with quiet_loading():
            yield
    except (OSError, ValueError, KeyError) as error:
        raise ModelUnavailable(
            f"{what} can't be loaded: name a folder with config.json and weights, or a model of a reachable hub "
            f"({one_line(error, 160)})"
        ) from error
