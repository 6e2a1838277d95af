"""The command line and the library have the same defaults."""

import inspect

from kcard.cli.ask import ask
from kcard.integrators.pipeline import Pipeline


def test_the_options_of_ask_have_the_defaults_of_the_pipeline() -> None:
    command, library = inspect.signature(ask).parameters, inspect.signature(Pipeline).parameters
    shared = set(command) & set(library) - {"evidence"}
    assert len(shared) >= 14
    assert {n: command[n].default for n in shared} == {n: library[n].default for n in shared}
