"""study: questions and statements about a corpus, written by an LLM, for a card to learn from."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from kcard.config import settings
from kcard.errors import LLMError, UsageError
from kcard.options import Option, check_values, documented

if TYPE_CHECKING:
    from kcard.interfaces import LLM, Checker
    from kcard.training.study_writer import StudyTotals

__all__ = ["study"]

REPLIES = ".replies.jsonl"  # behind the name of the file
TEMPERATURE = 0.1
BYTES_A_TOKEN = 4  # of UTF-8, for prose in most scripts
REPLY_TOKENS = {"questions": 300, "statements": 250, "links": 80}


@documented
def study(
    corpus: Annotated[
        str | Path,
        Option(
            "What a card is to learn: a file, a folder or a data set, as for training.", command_line=Path
        ),
    ],
    output: Annotated[Path | str, Option("File for the study material, JSON lines.", command_line=Path)],
    *,
    llm: Annotated[
        "str | LLM | Callable[[str], str] | None",
        Option(
            "The LLM that writes it: openai:MODEL or hf:MODEL.",
            default="as configured",
            command_line=str | None,
        ),
    ] = None,
    llm_url: Annotated[str | None, Option("URL of an OpenAI-compatible endpoint.")] = None,
    retries: Annotated[int, Option("How often to retry a failing request to the endpoint.", least=0)] = 5,
    llm_timeout: Annotated[
        float, Option("Seconds that the endpoint may take for one request, and for each try.", least=0.1)
    ] = 300.0,
    concurrency: Annotated[int, Option("Requests to the LLM at a time.", least=1)] = 4,
    tasks: Annotated[
        Sequence[str],
        Option(
            "What to write: questions, statements, links (questions about two passages). Repeatable.",
            default="all",
            flag="--task",
            command_line=list[str],
        ),
    ] = (),
    limit: Annotated[int | None, Option("Passages at most, spread over the corpus.", least=1)] = None,
    field: Annotated[str | None, Option("The corpus' field or column, as in training.")] = None,
    checker: Annotated[
        "str | Checker", Option("The checker of statements; `kcard selectors` lists them.", command_line=str)
    ] = "minilm",
    force: Annotated[bool, Option("Write the file anew; replies that were kept are used again.")] = False,
    report: Callable[[str], None] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> "StudyTotals":
    """Have an LLM write study material about each passage of a corpus, and keep what the passage supports.

    Replies are kept in OUTPUT.replies.jsonl as they come, so that none is asked for twice: the same command goes on
    after an interruption, and asks only about new and changed passages after the corpus has changed.

    `report` is called with sentences, `progress` with (requests done, requests in all).

    Raises UsageError for wrong arguments, a file that is there without `force`, and an LLM that can't write;
    CorpusError; LLMError after several failures in a row, and where nothing in the replies is of use. What was replied
    is kept then.
    """
    numbers = {"retries": retries, "llm_timeout": llm_timeout, "concurrency": concurrency, "limit": limit}
    check_values(study, numbers)
    from kcard.api.check import open_checker
    from kcard.integrators.assembly import Endpoint, make_llm
    from kcard.llms.prompts import messages
    from kcard.offline.llm import EmbeddedLLM, SpanReader
    from kcard.text import detect
    from kcard.training.corpus import read_corpus
    from kcard.training.study import write_study
    from kcard.training.study_writer import KINDS, Replies, StudyTotals, ask, assignments, collect

    target, say = Path(output).expanduser(), report or (lambda _: None)
    chosen = [task for task in KINDS if task in tasks or not tasks]
    if unknown := [task for task in tasks if task not in KINDS]:
        raise UsageError(f"task {unknown[0]!r} is unknown: choose from {', '.join(KINDS)}")
    if target.exists() and not force:
        raise UsageError(f"{target} already exists: choose another file, or replace it with --force")
    endpoint = Endpoint(url=llm_url, retries=retries, timeout=llm_timeout, report=say)
    writer = make_llm(llm, TEMPERATURE, endpoint)
    # Who items are said to be written by.
    name = llm or settings().llm if llm is None or isinstance(llm, str) else type(writer).__name__
    if isinstance(writer, EmbeddedLLM) or name.startswith("openai-completions:"):
        raise UsageError(
            f"the LLM {name} writes no study material: name a chat model, such as --llm openai:MODEL"
        )
    judge = open_checker(checker)
    content = read_corpus(Path(corpus), field)
    for remark in content.remarks():
        say(remark)
    step = 1 if limit is None else -(-len(content.passages) // limit)
    requests = [*assignments(content.passages[::step], chosen)]
    if not requests:
        raise UsageError(f"{corpus}: no passage is long enough to ask about")
    language = detect([passage.text for passage in content.passages])
    replies = Replies.read(target.with_name(target.name + REPLIES), name)
    # What it will cost, roughly, before anything is asked.
    missing = [assignment for assignment in requests if replies.row(assignment) is None]
    sent = [message["content"] for assignment in missing for message in messages(assignment.request)]
    tokens_in = sum(len(text.encode()) for text in sent) // BYTES_A_TOKEN
    tokens_out = sum(REPLY_TOKENS[assignment.task] for assignment in missing)
    say(
        f"{len(missing):,} requests to make ({len(requests) - len(missing):,} replies are there), about "
        f"{tokens_in:,} tokens to read and {tokens_out:,} to write"
    )
    outcome = ask(requests, writer, replies, concurrency, progress)
    material = collect(requests, replies, judge, SpanReader(), language)
    if not material.items:
        if outcome.failed == outcome.made and not outcome.kept:
            raise LLMError(outcome.why)
        why = ", ".join(f"{reason} {count:,}" for reason, count in material.left_out.items())
        first = " ".join(next(iter(replies)).text.split())[:80]
        raise LLMError(
            f"nothing that {replies.by} replied is of use ({why}); the first reply begins {first!r}: choose another "
            f"LLM (--llm); the replies are in {replies.path}, delete it to ask this one again"
        )
    write_study(target, material.items)
    return StudyTotals.of(outcome, material)
