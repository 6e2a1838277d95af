"""Prompts: templates, wordings and few-shot examples.

What they say is data, in prompts.toml: kcard's own wording, in which open questions are asked by default
(Request.grounded), and those of the papers: Knowledge Card's (section 2.3 and tables 9 to 11), for "need" also SKR's
(section 3.2), for "document" GenRead's, for "knowledge" those of generated knowledge prompting, for "recite" RECITE's.

In the papers' wordings every external text (questions, knowledge, names and descriptions of cards, options) stands on a
line of its own; in kcard's own, documents keep their lines. Control tokens of chat models ("<|im_start|>", "[INST]"
...) are broken up, and lines that look like a part of the prompt are marked, so that no text can impersonate another
part.
"""

import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypedDict

from kcard.errors import LLMError, UsageError
from kcard.interfaces import LLM
from kcard.io import build, read_rows
from kcard.llms.parsing import from_text, named_option
from kcard.types import Choice, Example, Kind, Reply, Request

# The ways to ask an LLM whether it needs more information: three of Knowledge Card, then five of SKR, then these as
# they stand in the paper (section 3.2), on the question's own line.


@dataclass(frozen=True)
class Wording:
    """One way to ask.

    replies    the demonstrations' replies for yes and for no; None: those of the examples
    is_inline  whether question and `ask` are one line, as in SKR: "Who ...? Q: Do you ...? A:"
    """

    ask: str
    yes_needs: bool = True
    replies: tuple[str, str] | None = None
    is_inline: bool = False

    def needed(self, yes: float | None) -> float | None:
        """Return the probability that more is needed, given that of a yes."""
        if yes is None or self.yes_needs:
            return yes
        return 1 - yes

    def demonstrated(self, reply: str) -> str:
        """Convert an example's reply, whose yes means that more is needed, to a reply to this wording."""
        needs = from_text(reply)
        if self.replies is None or needs is None:
            return reply
        positive, negative = self.replies
        if needs:
            return positive
        return negative


# What is said, with the reasons: prompts.toml.
_TABLES = tomllib.loads(Path(__file__).with_name("prompts.toml").read_text(encoding="utf-8"))
GROUNDED_PROMPTS: Mapping[str, str] = {name: text.strip() for name, text in _TABLES["grounded"].items()}
PAPER: Mapping[str, str] = {name: text for name, text in _TABLES["paper"].items() if isinstance(text, str)}
REWRITE: Mapping[str, str] = {name: text.strip() for name, text in _TABLES["rewrite"].items()}
SYSTEM: Mapping[str, str] = _TABLES["paper"]["system"] | {"rewrite": REWRITE["system"]}
NEED_WORDINGS = tuple(build(Wording, row) for row in _TABLES["need"])
NEED_WORDINGS += tuple(
    replace(wording, is_inline=True) for wording in NEED_WORDINGS if wording.ask.startswith("Q: ")
)
WRITING_PROMPTS = {
    "document": PAPER["document"] + "\n\n{}\n\n",
    "knowledge": "Input: {}\nKnowledge:",
    "recite": "Question: {}\n\n" + PAPER["recite"],
}


# In-context examples: the built-in ones (examples.jsonl) or a user's own file of the same form.

BUILT_IN = Path(__file__).resolve().with_name("examples.jsonl")


def load(path: Path | str | None = None) -> tuple[Example, ...]:
    """Load examples from a JSONL file, one object per line: kind, question, reply and, optionally, knowledge (a list).

    None: the built-in ones. Raises UsageError, which names the file, the line and what is wrong with it.
    """
    if path is None:
        path = BUILT_IN
    examples = []
    for where, row in read_rows(Path(path), "examples"):
        try:
            example = build(Example, row)
        except TypeError as error:
            raise UsageError(f"{where}: {error}") from None
        for key in ("question", "reply"):
            if not getattr(example, key).strip():
                raise UsageError(f"{where}: {key!r} must be a non-empty text")
        examples.append(example)
    if not examples:
        raise UsageError(
            f"examples {path} contains no examples: write one JSON object per line, or leave out --examples"
        )
    return tuple(examples)


CONTROL = re.compile(
    r"<[|｜][^<>]{1,60}[|｜]>|</?(?:s|bos|eos|pad|unk|mask|start_of_turn|end_of_turn)>|\[/?INST\]|<</?SYS>>",
    re.IGNORECASE,
)
BRACKETS = str.maketrans("()", "[]")
# A line of a document that looks like a part of the prompt: the number of a document, or the question.
FRAME = re.compile(r"^(?=\s*(?:\[\d+\]|Question:|Answer:))", re.MULTILINE | re.IGNORECASE)


class Message(TypedDict):
    """One chat message; `role`: system, user or assistant."""

    role: str
    content: str


def render(request: Request) -> str:
    """Render the request as one text that a language model continues: examples, then the transcript so far.

    A reply follows on the same line if the prompt ends with a colon, as "Answer:" does, else on the next line, as in
    the paper's tables 10 and 11; the text then ends with a line break.
    """
    parts = []
    if is_grounded(request):
        parts += [message["content"] for message in messages(request)]
        return "\n\n".join([*parts, PAPER["answer"]])
    if request.kind == "knowledge" and request.shots:
        parts.append(f"{PAPER['knowledge']} Examples:")
    elif request.kind == "knowledge":
        parts.append(PAPER["knowledge"])
    for example in request.shots:
        parts.append(_spoken([(_prompt(request, example), _example_reply(request, example))]))
    return "\n\n".join([*parts, _spoken(_exchanges(request))])


def messages(request: Request) -> list[Message]:
    """Render the request as a chat: the task, each example as a turn, then the transcript so far, turn by turn."""
    exchanges: list[tuple[str, str]] = []
    if is_grounded(request):
        task = GROUNDED_PROMPTS["system"]
        if not request.knowledge:
            task = GROUNDED_PROMPTS["system_alone"]
        for example in request.shots:
            exchanges.append((grounded(_line(example.question), example.knowledge), example.reply))
        exchanges.append((grounded(_line(request.question), request.knowledge, request.headings), ""))
    else:
        task = SYSTEM[request.kind]
        if request.kind == "answer" and request.choices:
            task = f"{SYSTEM['answer'].partition(' Reply')[0]} {PAPER['letter']}"
        for example in request.shots:
            exchanges.append((_prompt(request, example), _example_reply(request, example)))
        exchanges += _exchanges(request)
    turns: list[Message] = [{"role": "system", "content": task}]
    for prompt, replied in exchanges[:-1]:
        turns.append({"role": "user", "content": prompt})
        turns.append({"role": "assistant", "content": replied})
    return [*turns, {"role": "user", "content": exchanges[-1][0]}]


def is_grounded(request: Request) -> bool:
    """Return whether the request is asked in kcard's own wording: open questions, unless the user wants a paper's."""
    return request.grounded and request.kind == "answer" and not request.choices


def grounded(question: str, knowledge: Sequence[str], headings: Sequence[str] = ()) -> str:
    """Return numbered documents, the question, and how to answer it; without documents, the question alone.

    A document keeps its lines, but those that look like another part of the prompt are marked as quoted.
    headings  the heading that each document begins with ("heading: text"), "" for none; it gets a line of its own
    """
    if not knowledge:
        return GROUNDED_PROMPTS["alone"].format(question=_line(question))
    return GROUNDED_PROMPTS["documents"].format(
        documents=numbered(knowledge, headings), question=_line(question)
    )


def numbered(knowledge: Sequence[str], headings: Sequence[str] = ()) -> str:
    """Return the documents with their numbers, from [1]; see `grounded`."""
    documents = []
    for number, text in enumerate(knowledge, 1):
        opening = f"[{number}] "
        if headings and headings[number - 1]:
            heading = headings[number - 1]
            text = text.removeprefix(f"{heading}: ")
            opening += f"{_line(heading)}\n"
        lines = [line.rstrip() for line in without_control(text).splitlines() if line.strip()]
        documents.append(opening + FRAME.sub("> ", "\n".join(lines)))
    return "\n\n".join(documents)


def _spoken(exchanges: Sequence[tuple[str, str]]) -> str:
    """Join prompts and replies to one text, up to where the last reply, if it is empty, would begin."""
    texts = []
    for prompt, reply in exchanges:
        gap = "\n"
        if prompt.endswith("\n") or (prompt.endswith(":") and not reply):
            gap = ""
        elif prompt.endswith(":"):
            gap = " "
        texts.append(f"{prompt}{gap}{reply}")
    return "\n".join(texts)


def _exchanges(request: Request) -> list[tuple[str, str]]:
    """Return prompt and reply of each earlier turn, then the present prompt, whose reply is empty.

    With turns, the question comes first and knowledge where it was added (tables 10 and 11); without turns, knowledge
    comes before the question (table 9).
    """
    if not request.turns or request.kind in WRITING_PROMPTS:
        return [(_prompt(request), "")]
    exchanges, lines, first = [], [*_question(request.question, _options(request))], 0
    for turn in request.turns:
        if turn.reply.strip():
            ask = _ask(turn.kind, turn.template, turn.choices)
            exchanges.append(("\n".join([*lines, ask]), _reply(turn.kind, turn.reply, turn.template)))
            lines = []
        lines += _knowledge(request.knowledge[first : first + turn.documents])
        first += turn.documents
    ask = _ask(request.kind, request.template, request.choices)
    return [*exchanges, ("\n".join([*lines, ask]), "")]


def unified_qa(request: Request) -> str:
    """Render the request in UnifiedQA's form: question, options and context in lower case, separated by a backslash and
    an n (Khashabi et al., 2020, section 3.1). It has no examples."""
    if request.kind != "answer":
        parts = _prompt(request).splitlines()
    else:
        options = [f"({_line(option.name)}) {_line(option.description)}" for option in request.choices]
        parts = [_line(request.question), " ".join(options), " ".join(map(_line, request.knowledge))]
    return r" \n ".join(filter(None, parts)).lower()


def _example_reply(request: Request, example: Example) -> str:
    """Return the example's reply; of an option, its letter."""
    if request.kind == "need":
        return _reply(request.kind, example.reply, request.template)
    return _line(named_option(example.reply, example.choices) or example.reply)


def _reply(kind: Kind, reply: str, template: int) -> str:
    """Return the reply on one line; reversed for a wording whose yes means the opposite."""
    if kind == "need":
        reply = NEED_WORDINGS[template].demonstrated(reply)
    return _line(reply)


def _prompt(request: Request, example: Example | None = None) -> str:
    """Return knowledge, question and task as one text, of the request or of an example."""
    knowledge, question, options = request.knowledge, request.question, _options(request)
    if example is not None:
        knowledge, question = example.knowledge, example.question
        if request.kind != "choose":
            options = example.choices
    if request.kind == "rewrite":
        spoken = "\n".join(map(_line, reversed(knowledge)))
        return f"{spoken}\n\nNext question: {_line(question)}\n\n{REWRITE['ask']}"
    if request.kind in WRITING_PROMPTS:
        return WRITING_PROMPTS[request.kind].format(_line(question))
    ask = _ask(request.kind, request.template, request.choices)
    lines = _question(question, options)
    if request.kind == "need" and NEED_WORDINGS[request.template].is_inline:
        return "\n".join([*_knowledge(knowledge), " ".join([_line(question), *lines[1:], ask])])
    return "\n".join([*_knowledge(knowledge), *lines, ask])


def _knowledge(texts: Sequence[str]) -> list[str]:
    if not texts:
        return []
    return [f"Knowledge: {' '.join(map(_line, texts))}"]


def _question(question: str, options: Sequence[Choice]) -> list[str]:
    listed = [f"{_line(option.name)}. {_line(option.description)}" for option in options]
    return [f"Question: {_line(question)}", *listed]


def _options(request: Request) -> tuple[Choice, ...]:
    """Return the question's options; the choices of a `choose` request are cards."""
    if request.kind == "choose":
        return ()
    return request.choices


def _ask(kind: Kind, template: int, cards: Sequence[Choice]) -> str:
    if kind == "need":
        return NEED_WORDINGS[template].ask
    if kind == "what":
        return PAPER["what"]
    if kind != "choose":
        return PAPER["answer"]
    # Brackets in a description become square, so that it can't forge a further card.
    sources = []
    for card in cards:
        name, description = _line(card.name), _line(card.description)
        if description != name:
            name = f"{name} ({description.translate(BRACKETS)})"
        sources.append(name)
    return f"{PAPER['choose']} {', '.join(sources)}."


def _line(text: str) -> str:
    """Put the text on one line, without control tokens: every line break and run of blanks becomes one space."""
    return " ".join(without_control(text).split())


def without_control(text: str, tokens: Sequence[str] = ()) -> str:
    """Insert a blank into every control token of the text: the widely used ones, and `tokens`."""
    text = CONTROL.sub(lambda match: f"{match[0][0]} {match[0][1:]}", text)
    for token in tokens:
        text = text.replace(token, f"{token[0]} {token[1:]}")
    return text


class FunctionLLM(LLM):
    """An LLM made from a function: `complete` takes a prompt, examples included, and returns its continuation."""

    def __init__(self, complete: Callable[[str], str]) -> None:
        self._complete = complete
        self.announcement = f"LLM: the function {getattr(complete, '__name__', repr(complete))}"

    def reply(self, request: Request) -> Reply:
        """Return the reply. Raises LLMError if the function does not return a text; its own errors pass through."""
        text = self._complete(render(request))
        if not isinstance(text, str):
            raise LLMError(
                f"the LLM function returned {type(text).__name__}, not a string: return the reply as a string"
            )
        if request.kind != "need":
            return Reply(text)
        return Reply(text, NEED_WORDINGS[request.template].needed(from_text(text)))
