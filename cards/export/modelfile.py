"""Ollama's Modelfile (docs/modelfile of its repository): base, adapter, and the card's own way of being asked."""

import re
from collections.abc import Sequence

from kcard.cards.export.prompt import PLACE, TextPrompt
from kcard.sampling import Sampling

__all__ = ["modelfile"]

QUOTES = '"""'
PARTS = re.compile(r'([{"]|[^\x20-\x7e\n\t])')
SPECIAL = {"{": '{{ "{" }}', '"': '{{ "\\"" }}'}


def modelfile(
    model: str, adapter: str | None, prompt: TextPrompt, sampling: Sampling, ends: Sequence[str], context: int
) -> str:
    """The Modelfile of one card.

    model, adapter  files beside the Modelfile, or for `model` a name in Ollama
    ends            texts at which a document ends
    context         most tokens of prompt and document
    """
    lines = [f"FROM {model}", *([f"ADAPTER {adapter}"] if adapter else [])]
    lines.append(f"TEMPLATE {QUOTES}{_template(prompt)}{QUOTES}")
    parameters: list[tuple[str, object]] = [
        ("temperature", sampling.temperature),
        ("top_k", sampling.top_k),
        ("top_p", 1.0),
        ("min_p", 0.0),
        ("repeat_penalty", 1.0),
        ("num_predict", sampling.tokens),
        ("num_ctx", context),
        *(("stop", f'"{end}"') for end in ends if '"' not in end and end.isprintable()),
    ]
    return "\n".join([*lines, *(f"PARAMETER {name} {value}" for name, value in parameters)]) + "\n"


def _template(prompt: TextPrompt) -> str:
    """As a Go template, in which a question takes the place of {{ .Prompt }}."""
    before, *rest = (prompt.before + prompt.template).split(PLACE)
    return _literal(before) + "".join("{{ .Prompt }}" + _literal(part) for part in rest)


def _literal(text: str) -> str:
    """Text that comes through a Modelfile and a Go template as it is: what they would change is a Go string."""
    return "".join(SPECIAL.get(part) or _escaped(part) for part in PARTS.split(text))


def _escaped(part: str) -> str:
    # A Modelfile's reader leaves out what does not print.
    shown = part.isprintable() or part in "\n\t" or len(part) != 1
    return part if shown else f'{{{{ "\\U{ord(part):08x}" }}}}'
