"""The help of commands with many options: `--help` shows the few that most people need, `--help-all` all of them."""

import inspect
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperArgument, TyperCommand

from kcard.cli.output import echo

ALL = "kcard.help_all"  # in the context's meta
OTHERS = "Other options"
LONGEST_SENTENCE = 1000  # characters of what a command does
FLAG_COLUMNS = 26  # of a list of options, beside what they mean

# By command, the options that most people need.
FIRST: Mapping[str, Sequence[str]] = {
    "ask": ("corpus", "cards", "mode", "llm", "llm_url", "trace", "json_"),
    "chat": ("cards", "mode", "llm", "llm_url"),
    "serve": ("cards", "mode", "llm", "llm_url", "host", "port", "keys"),
    "eval": ("path", "settings", "limit", "cards", "llm", "llm_url", "json_"),
    "train": (
        *("corpus", "name", "description", "base", "kind", "minutes"),
        *("update", "exam", "resume", "estimate", "json_"),
    ),
    "train-many": ("base", "kind", "minutes", "exam", "resume", "json_"),
}

ASKING: Mapping[str, Sequence[str]] = {
    "The LLM": ("llm_window", "llm_timeout", "retries", "concurrency", "temperature", "examples", "strict"),
    "As in a paper": ("preset", "prompts"),
    "The gate, and the choice of cards": (
        "gate",
        "select",
        "shortlist",
        "max_cards",
        "max_iterations",
        "margin",
        "min_relevance",
        "rank_by",
        "reuse_cards",
        "otherwise",
    ),
    "What cards generate": ("n1", "card_tokens", "card_temperature", "card_top_k"),
    "The selectors": (
        "selectors",
        "relevance",
        "pruner",
        "checker",
        "evidence",
        "n2",
        "n3",
        "factuality_k",
        "single_document",
        "compare_index",
        "floor",
        "min_factuality",
        "reorder_by_date",
        "trust_remote_code",
    ),
    "The machine": ("device", "memory", "engine", "engine_places", "seed", "ray", "ray_cpus"),
}
TRAINING: Mapping[str, Sequence[str]] = {
    "The corpus": ("field", "readers", "study", "exam_evidence"),
    "The card": ("domain", "licence", "language", "knowledge_date", "evidence", "output", "yes", "config"),
    "The model, and what it learns": (
        "preset",
        "method",
        "objective",
        "rank",
        "prompt_style",
        "epochs",
        "learning_rate",
        "batch_size",
        "block",
        "teacher_top_k",
        "teacher_temperature",
        "seed",
    ),
    "The machine": (
        "device",
        "micro_batch",
        "gradient_checkpointing",
        "optimizer",
        "dtype",
        "processes",
        "ray",
        "ray_cpus",
    ),
}
# By command, the headings of its other options.
HEADINGS: Mapping[str, Mapping[str, Sequence[str]]] = {
    "ask": {
        "One question": ("choices", "stream"),
        "Files of questions": ("input_", "output", "batch", "resume"),
        **ASKING,
    },
    "chat": ASKING,
    "serve": {
        "The endpoint": (
            *("also", "allowed_hosts", "allowed_origins", "name", "waiting", "timeout", "cache"),
            *("largest", "proxies", "grace", "log_format"),
        ),
        **ASKING,
    },
    "eval": {
        "The comparison": (
            "analysis",
            "shots",
            "price_in",
            "price_out",
            "resume",
            "rerun",
            "results",
        ),
        "Baselines": ("corpus", "retriever", "passages", "samples"),
        **ASKING,
    },
    "train": TRAINING,
    "train-many": TRAINING,
}


class LongCommand(TyperCommand):
    """A command whose help comes in two lengths, by FIRST and HEADINGS."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        arguments, options = [], {}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None and isinstance(param, TyperArgument):
                arguments.append(record)
            elif record is not None:
                options[str(param.name)] = record
        command = str(self.name)
        first = [name for name in (*FIRST[command], "help_all", "help") if name in options]
        sections = {"Arguments": arguments, "Options": [options.pop(name) for name in first]}
        headings = {
            heading: [options.pop(name) for name in names if name in options]
            for heading, names in HEADINGS[command].items()
        }
        headings[OTHERS] = [*options.values()]
        headings = {heading: records for heading, records in headings.items() if records}
        if ctx.meta.get(ALL):
            sections |= headings
        for heading, records in sections.items():
            if records:
                with formatter.section(heading):
                    formatter.write_dl(records)
        if not ctx.meta.get(ALL):
            count = sum(map(len, headings.values()))
            names = "; ".join(heading[0].lower() + heading[1:] for heading in headings)
            formatter.write_paragraph()
            formatter.write_text(
                f"{count} more options: {names}. `{ctx.command_path} --help-all` shows them."
            )


def tree(ctx: typer.Context, names: Sequence[str]) -> str:
    """Return the help of the commands of a group, in this order: each with its first sentence, its arguments and its
    options in a line each."""
    group: Any = ctx.command
    formatter = ctx.make_formatter()
    for name in names:
        command = group.get_command(ctx, name)
        path = f"{ctx.command_path} {name}"
        own = typer.Context(command, parent=ctx, info_name=name)
        usage = "" if hasattr(command, "commands") else f" {' '.join(command.collect_usage_pieces(own))}"
        with formatter.section(f"{path}{usage}"):
            formatter.write_text(command.get_short_help_str(LONGEST_SENTENCE))
            records = [param.get_help_record(own) for param in command.get_params(own)]
            rows = [(record[0], _first_line(record[1], formatter.width)) for record in records if record]
            if rows:
                formatter.write_dl(rows, col_max=FLAG_COLUMNS)
        if hasattr(command, "commands"):
            formatter.write(tree(own, command.list_commands(own)))
    return str(formatter.getvalue())


def _first_line(text: str, width: int) -> str:
    """Return as much of an option's help as fits beside its name."""
    sentence = " ".join(text.split())
    return textwrap.shorten(sentence, width - FLAG_COLUMNS - 4, placeholder=" …", break_on_hyphens=False)


def _show_all(ctx: typer.Context, is_requested: bool) -> None:
    if is_requested and not ctx.resilient_parsing:
        ctx.meta[ALL] = True
        echo(ctx.get_help())
        raise typer.Exit


HelpAll = Annotated[
    bool,
    typer.Option("--help-all", callback=_show_all, is_eager=True, help="Show every option and exit."),
]


def register_long(app: typer.Typer, function: Callable[..., None], name: str | None = None) -> None:
    """Add a command whose help comes in two lengths."""

    def command(**values: Any) -> None:
        del values["help_all"]
        function(**values)

    parameters = inspect.signature(function).parameters
    help_all = inspect.Parameter(
        "help_all", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=HelpAll
    )
    command.__signature__ = inspect.Signature([*parameters.values(), help_all])  # type: ignore[attr-defined]
    command.__annotations__ = {**function.__annotations__, "help_all": HelpAll}
    command.__name__, command.__doc__ = function.__name__, function.__doc__
    app.command(name, cls=LongCommand)(command)
