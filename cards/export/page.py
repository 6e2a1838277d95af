"""README.md of an export: for whoever runs the engine, who may never have heard of kcard."""

from collections.abc import Iterator, Sequence

from kcard.cards.export.engines import Engine
from kcard.cards.export.local import CREATE
from kcard.cards.export.prepared import Prepared
from kcard.cards.export.requests import asking, probing, tokenizing
from kcard.cards.export.scripts import START
from kcard.sampling import Sampling

__all__ = ["page"]

ABOUT = (
    "Knowledge cards are small language models that write what they learned from one corpus, to be read by a larger "
    "one. What they write can be wrong: have it checked before it is used."
)
STARTING = {
    "vllm": "`sh start.sh` starts vLLM on port 8000; `PYTHON` names a Python that has vLLM, if not `python3`.",
    "sglang": "`sh start.sh` starts SGLang on port 30000; `PYTHON` names a Python that has SGLang, if not `python3`.",
    "llama.cpp": "`sh start.sh` starts `llama-server` on port 8080; `LLAMA_SERVER` names it, if it is not on the path.",
    "ollama": "`sh create.sh` makes the models; then `ollama run {name}` asks one.",
}
CHAT = (
    "A card is no chat model: it continues a prompt. Any other prompt than its own, such as a chat template, gives "
    "worse documents."
)
PROMPT = "The prompt is {template} with your question in place of `{{question}}`."
BEFORE = " The prompt begins with {before}, because the engine does not add this token itself."
REWORDS = (
    " The card knows only the words of its corpus. kcard puts questions into these first, an engine does not: ask in "
    "the corpus' own words."
)
OLLAMA = " The Modelfile does this: send the bare question."
TOKENS = (
    "llama.cpp has tokenizers of its own. This must give the tokens that the card was trained to read, `{ids}`; if it "
    "gives others, send token ids as `prompt`."
)
CHECK = (
    "An engine that does not apply an adapter does not say so: it answers as the base does. The tables hold a few "
    "prompts, the token that comes next with the card, and its natural log-probability with and without the card, "
    "recorded when the card was made. In float32 the engine's values agree to two decimals, in 16 bits or with a "
    "quantised base to one or less."
)
UNCHECKED = (
    "{name} carries no fingerprint that shows this (it comes from elsewhere, or its model is sure of nothing): compare "
    "a document at temperature 0 with the one that kcard writes."
)


def page(cards: Sequence[Prepared], engine: Engine, sampling: Sampling) -> str:
    """The whole text."""
    title = cards[0].name if len(cards) == 1 else f"{len(cards)} knowledge cards"
    start = STARTING[engine.name].format(name=cards[0].name)
    sections = [f"# {title} for {engine.title}", ABOUT, _table(cards), "## Start", start]
    sections += [_code(CREATE if engine.name == "ollama" else START), "## Ask", CHAT]
    for card in cards:
        sections += [*_heading(card, cards), *_asking(card, cards, engine, sampling)]
    sections += ["## Check that a card is applied", CHECK]
    for card in cards:
        sections += [*_heading(card, cards), *_checking(card, cards, engine)]
    return "\n\n".join(sections) + "\n"


def _code(script: str) -> str:
    return f"```bash\nsh {script}\n```"


def _heading(card: Prepared, cards: Sequence[Prepared]) -> Iterator[str]:
    if len(cards) > 1:
        yield f"### {card.name}"


def _table(cards: Sequence[Prepared]) -> str:
    rows = [
        "| card | description | version (sha256) | form | base | licence | knowledge up to |",
        "|---" * 7 + "|",
    ]
    for card in cards:
        manifest = card.card.manifest
        base = "@".join(part for part in (card.base.name, card.base.revision) if part) or "-"
        date = manifest.knowledge_date or "-"
        cells = (card.name, manifest.description, card.sha256[:12], card.form, base, manifest.licence, date)
        rows.append("| " + " | ".join(map(_cell, cells)) + " |")
    return "\n".join(rows)


def _asking(card: Prepared, cards: Sequence[Prepared], engine: Engine, sampling: Sampling) -> Iterator[str]:
    words = PROMPT.format(template=_literal(card.prompt.template))
    if engine.name == "ollama":
        words += OLLAMA
    elif card.prompt.before:
        words += BEFORE.format(before=_literal(card.prompt.before))
    yield words + (REWORDS if card.rewords else "")
    yield f"```bash\n{asking(card, cards, engine, sampling)}\n```"
    if engine.name == "llama.cpp":
        yield TOKENS.format(ids=list(card.prompt.ids)) + f"\n\n```bash\n{tokenizing(card, engine)}\n```"


def _checking(card: Prepared, cards: Sequence[Prepared], engine: Engine) -> Iterator[str]:
    rows = [row for row in card.expected if row.text or engine.name != "ollama"]
    if not rows:
        yield UNCHECKED.format(name=card.name)
        return
    lines = ["| prompt | next token | with the card | without it |", "|---|---|---:|---:|"]
    for row in rows:
        base = "-" if row.base is None else _nats(row.base)
        prompt = _literal(row.text) if row.text else f"tokens `{list(row.ids)}`"
        lines.append(f"| {_cell(prompt)} | {_cell(_literal(row.token))} | {_nats(row.card)} | {base} |")
    yield "\n".join(lines)
    yield f"The first of them:\n\n```bash\n{probing(card, cards, engine, rows[0])}\n```"


def _nats(value: float) -> str:
    return f"{value:.2f}".replace("-0.00", "0.00")


def _literal(text: str) -> str:
    """A text as Python writes it, in code type."""
    fence = "``" if "`" in text else "`"
    return f"{fence}{text!r}{fence}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
