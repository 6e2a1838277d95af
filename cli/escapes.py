"""Escapes control characters in whatever rich prints, after its layout, where its own colours are not text yet."""

from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderHook, RenderResult
from rich.segment import Segment

from kcard.errors import printable


class Escaping(RenderHook):
    """A console's render hook."""

    def process_renderables(self, renderables: Iterable[ConsoleRenderable]) -> list[ConsoleRenderable]:
        """Wrap each, so that it is rendered with its text escaped."""
        return [_Escaped(renderable) for renderable in renderables]


class _Escaped:
    def __init__(self, inner: ConsoleRenderable) -> None:
        self._inner = inner

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for text, style, control in console.render(self._inner, options):
            yield Segment(text if control else printable(text), style, control)
