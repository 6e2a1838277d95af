"""Reads a Modelfile as Ollama does (its docs and parser), and fills in the templates that kcard writes."""

import re
from typing import NamedTuple

__all__ = ["Instruction", "read", "rendered"]

INSTRUCTIONS = {"FROM", "PARAMETER", "TEMPLATE", "SYSTEM", "ADAPTER", "LICENSE", "MESSAGE", "REQUIRES"}
ACTION = re.compile(r'\{\{ (?:\.(?P<field>\w+)|"(?P<text>(?:[^"\\]|\\.)*)") \}\}')


class Instruction(NamedTuple):
    name: str
    value: str


def read(text: str) -> list[Instruction]:
    """The instructions in order; ValueError where Ollama would refuse the file.

    A value ends with its line, unless it begins with quotes: then it ends where the line ends with them. Characters
    that don't print are left out, but for line ends and tabs.
    """
    found: list[Instruction] = []
    rest = "".join(c for c in text if c.isprintable() or c in "\n\t")
    while rest := rest.lstrip(" \t\n"):
        if rest.startswith("#"):
            rest = rest.partition("\n")[2]
            continue
        name, _, rest = rest.partition(" ")
        if name.upper() not in INSTRUCTIONS:
            raise ValueError(f"no instruction: {name!r}")
        key = ""
        if name.upper() == "PARAMETER":
            key, _, rest = rest.partition(" ")
        value, rest = _value(rest)
        found.append(Instruction(f"{name.upper()} {key}".strip(), value))
    if not any(instruction.name == "FROM" for instruction in found):
        raise ValueError("no FROM")
    return found


def _value(rest: str) -> tuple[str, str]:
    for end in (i for i, c in enumerate(rest + "\n") if c in "\n \t"):
        value = rest[:end].strip()
        for quotes in ('"""', '"'):
            if value.startswith(quotes):
                if (
                    len(value) >= 2 * len(quotes)
                    and value.endswith(quotes)
                    and rest[end : end + 1] in ("\n", "")
                ):
                    return value[len(quotes) : -len(quotes)], rest[end + 1 :]
                break
        else:
            if rest[end : end + 1] in ("\n", ""):
                return value, rest[end + 1 :]
    raise ValueError(f"quotes without an end: {rest!r}")


def rendered(template: str, prompt: str) -> str:
    """A Go template with the prompt filled in; ValueError for any action but a field or a string."""
    if "{{" in ACTION.sub("", template):
        raise ValueError(f"not understood: {template!r}")

    def fill(found: re.Match[str]) -> str:
        if found["field"] is not None:
            return {"Prompt": prompt}[found["field"]]
        return found["text"].encode("ascii").decode("unicode_escape")

    return ACTION.sub(fill, template)
