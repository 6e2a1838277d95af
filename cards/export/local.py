"""What llama.cpp and Ollama are started with: GGUF files, start.sh, and a Modelfile for each card."""

from collections.abc import Callable, Sequence
from pathlib import Path

from kcard.cards.export.converting import convert
from kcard.cards.export.engines import Engine
from kcard.cards.export.gguf import Converter
from kcard.cards.export.modelfile import modelfile
from kcard.cards.export.prepared import Prepared
from kcard.cards.export.scripts import START, write_script
from kcard.cards.lm.loader import Loader
from kcard.sampling import Sampling

__all__ = ["CREATE", "write"]

CREATE = "create.sh"
CONTEXT = 4096  # tokens of prompt and document, where the model reads more


def write(
    cards: Sequence[Prepared],
    engine: Engine,
    folder: Path,
    converter: Converter,
    base: str | None,
    sampling: Sampling,
    report: Callable[[str], None],
) -> None:
    """Write GGUF files and what runs them into `folder`; see kcard.cards.export.converting for `base`."""
    weights = convert(cards, folder, converter, base, report)
    names = ", ".join(card.name for card in cards)
    if engine.name == "ollama":
        for card in cards:
            made = modelfile(
                weights.model,
                weights.adapters.get(card.name),
                card.prompt,
                sampling,
                _ends(card),
                _context(card),
            )
            (folder / f"{card.name}.Modelfile").write_text(made, encoding="utf-8")
        commands = [[["ollama", "create", card.name, "-f", f"{card.name}.Modelfile"]] for card in cards]
        write_script(folder / CREATE, f"Makes models of Ollama: {names}.", commands, passed_on=False)
        return
    parts = [["${LLAMA_SERVER:-llama-server}", "-m", weights.model]]
    parts += [["--lora", path] for path in weights.adapters.values()]
    if weights.adapters:
        # Requests say which card is to answer. The server's cache of prompts, which does not know adapters, gives one
        # card's keys and values to another that is asked the same.
        parts += [["--lora-init-without-apply"], ["--cache-ram", "0"]]
    comment = f"Starts llama.cpp with {names}. Further options are passed on, such as --port 8081."
    write_script(folder / START, comment, [parts], passed_on=True)


def _ends(card: Prepared) -> list[str]:
    tokenizer = Loader().tokenizer(card.card)
    eos = tokenizer.eos_token_id
    return [] if eos is None else [str(tokenizer.decode([eos], skip_special_tokens=False))]


def _context(card: Prepared) -> int:
    return min(int(card.config.get("max_position_embeddings") or CONTEXT), CONTEXT)
