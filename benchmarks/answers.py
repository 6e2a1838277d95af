"""Who answers best: the embedded reader, kcard with an LLM, the same LLM with the same passages, or plain RAG.

    python -m benchmarks.answers --models DIR --path DATA --manuals-path DIR --fetch --out FILE [--llm NAME ...]
        [--setting NAME ...] [--set NAME ...] [--limit N] [--report] [--samples FILE]

One table. An LLM is a file NAME.gguf in `--models`, served by llama.cpp on all cores (pip install xllamacpp). Cards are
indexes made at the defaults of `kcard train --kind retrieval`, one for each manual. The settings:

reader     kcard without an LLM: the embedded reader
default, top-down, bottom-up, strict
           kcard with the LLM: every option at its default, or this one changed
ten-lines  the LLM gets the passages that kcard kept with default options, numbered, with headings, and a short prompt
rag        what many would write: chunks of 150 words, all-MiniLM-L6-v2, the best five by cosine, a usual prompt

`question_sets` describes the questions and when a reply is right. Every answer is appended to `--out` at once; the same
command goes on after an interruption, and skips answers that are there. `--report` makes the table from the file alone;
it judges every reply anew.
"""

import argparse
import hashlib
import json
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.kinds import hub_with
from benchmarks.model_server import served_gguf
from benchmarks.question_sets import (
    SETS,
    GoldQuestion,
    SetName,
    evenly_spread,
    is_admission,
    judge,
    load_set,
    token_f1,
)
from benchmarks.real_documents import UNANSWERABLE, chunks_of
from kcard.embedded import minilm
from kcard.errors import KcardError
from kcard.integrators.options import AskOptions
from kcard.integrators.pipeline import Pipeline

if TYPE_CHECKING:
    import openai

    from kcard.hub.registry import Hub
    from kcard.interfaces import Array

READER = "reader"
OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "default": {},
    "top-down": {"mode": "top-down"},
    "bottom-up": {"mode": "bottom-up"},
    "strict": {"strict": True},
}
TEN_LINES, RAG = "ten-lines", "rag"
SETTINGS = (READER, *OPTIONS, TEN_LINES, RAG)
LLM_TIMEOUT = 600.0  # seconds; a busy machine reads a prompt for minutes
MAX_REPLY_TOKENS = 256  # as kcard's own
RAG_PASSAGES = 5
ROUND = 10  # questions that each setting answers before the next one has its turn
TEN_LINES_PROMPT = """Documents:

{documents}

Answer the question in one short sentence from these documents only. If they don't hold the answer, say "I don't know".

Question: {question}"""
RAG_PROMPT = """Use the following context to answer the question at the end. If the context does not tell you the
answer, say that you don't know; don't make one up. Use three sentences at most, and keep the answer short.

{documents}

Question: {question}
Helpful answer:"""


@dataclass(frozen=True)
class ShownPassage:
    """A passage that was found. `headings`: those it stands under; `is_kept`: whether the LLM read it."""

    text: str
    headings: list[str]
    is_kept: bool = True


@dataclass(frozen=True)
class Record:
    """An answer as it stands in the file, one a line.

    key        id of the question, setting, LLM
    is_known   whether the one who answers says that it is an answer; for a plain LLM always true
    verdict, f1  see question_sets.judge and token_f1
    citations  (sentence, number of its passage or None if nothing supports it, support)
    tokens     read and written, of all requests about the question; None if unknown
    """

    question: GoldQuestion
    setting: str
    llm: str
    reply: str
    is_known: bool
    passages: list[ShownPassage]
    seconds: float
    verdict: str = ""
    f1: float = 0.0
    tokens: tuple[int, int] | None = None
    calls: int = 1
    citations: list[tuple[str, int | None, float]] | None = None
    confidence: float | None = None

    @property
    def key(self) -> tuple[str, str, str]:
        return self.question.id, self.setting, self.llm

    @property
    def has_section(self) -> bool:
        """Whether a passage of the section that answers the question was kept."""
        section = _plain_heading(self.question.section)
        headings = [heading for p in self.passages if p.is_kept for heading in p.headings]
        return any(_plain_heading(heading.rpartition(" > ")[2]) == section for heading in headings)

    def judged(self) -> "Record":
        """Return the record with the verdict that its reply has now."""
        is_known = self.is_known and not is_admission(self.reply)
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        values |= {
            "verdict": judge(self.question, self.reply, is_known),
            "f1": round(token_f1(self.question, self.reply, is_known), 4),
        }
        return Record(**values)

    def to_line(self) -> str:
        return json.dumps(asdict(self), ensure_ascii=False) + "\n"

    @classmethod
    def from_line(cls, line: str) -> "Record":
        row = json.loads(line)
        gold = tuple(tuple(phrases) for phrases in row["question"]["gold"])
        row["question"] = GoldQuestion(**{**row["question"], "gold": gold})
        row["passages"] = [ShownPassage(**passage) for passage in row["passages"]]
        return cls(**row)


def _plain_heading(heading: str) -> str:
    return " ".join(heading.casefold().replace("’", "'").split())


class AnswerFile:
    """The records of a JSONL file, which grows by one line per answer. What a killed process left unfinished is cut."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.records: dict[tuple[str, str, str], Record] = {}
        content = path.read_bytes() if path.exists() else b""
        complete = content[: content.rfind(b"\n") + 1]
        if complete != content:
            path.write_bytes(complete)
        for line in complete.decode().splitlines():
            record = Record.from_line(line)
            self.records[record.key] = record

    def add(self, record: Record) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(record.to_line())
        self.records[record.key] = record


# Those who answer.


class Answerer(ABC):
    def prepare(self, corpus: str) -> None:  # noqa: B027
        """Read or make what questions on this corpus need, which is no part of the time of an answer."""

    @abstractmethod
    def answer(self, question: GoldQuestion) -> Record:
        """Return the answer with its passages and cost, not yet judged. Raises KcardError or openai.OpenAIError."""


class Cards(Answerer):
    """kcard with these options, on the card of the question's corpus."""

    def __init__(self, setting: str, llm: str, options: AskOptions, hub_of: "Callable[[str], Hub]") -> None:
        self._setting, self._llm, self._options, self._hub_of = setting, llm, options, hub_of
        self._pipelines: dict[str, Pipeline] = {}

    def prepare(self, corpus: str) -> None:
        if corpus not in self._pipelines:
            self._pipelines[corpus] = Pipeline(self._options, hub=self._hub_of(corpus))

    def answer(self, question: GoldQuestion) -> Record:
        pipeline = self._pipelines[question.corpus]
        begun = time.perf_counter()
        answer = pipeline([question.question])[0]
        seconds = time.perf_counter() - begun
        usage = answer.usage
        tokens = None
        if usage is not None and usage.tokens_in is not None and usage.tokens_out is not None:
            tokens = (usage.tokens_in, usage.tokens_out)
        passages = []
        for passage in answer.passages:
            section = passage.source.section if passage.source else ""
            text = passage.text if passage.pruned is None else passage.pruned
            passages.append(ShownPassage(text, [section] if section else [], passage.kept))
        return Record(
            question,
            self._setting,
            self._llm,
            answer.answer,
            answer.known,
            passages,
            round(seconds, 3),
            tokens=tokens,
            calls=answer.calls,
            citations=[(c.sentence, c.passage, round(c.support, 4)) for c in answer.citations],
            confidence=answer.confidence,
        )


class PassageFinder(ABC):
    """Finds the passages that the prompt of a plain LLM holds."""

    @abstractmethod
    def prepare(self, corpus: str) -> None:
        """See Answerer."""

    @abstractmethod
    def passages(self, question: GoldQuestion) -> list[ShownPassage]:
        """Return the passages, the best one first."""


class Chunks(PassageFinder):
    """The retriever of plain RAG: chunks of each corpus, whose embeddings are kept in the folder `home`."""

    def __init__(self, corpora: Mapping[str, Path], home: Path) -> None:
        self._corpora, self._home = corpora, home
        self._embedded: dict[str, tuple[list[tuple[str, list[str]]], Array]] = {}

    def prepare(self, corpus: str) -> None:
        if corpus in self._embedded:
            return
        chunks = chunks_of(self._corpora[corpus])
        texts = [text for text, _ in chunks]
        # The name tells which texts were embedded, and by what.
        digest = hashlib.sha256("\0".join([minilm.SHA256, *texts]).encode()).hexdigest()
        file = self._home / f"{corpus}-{digest[:16]}.npy"
        if not file.exists():
            self._home.mkdir(parents=True, exist_ok=True)
            np.save(file, minilm.embed(texts))
        self._embedded[corpus] = chunks, np.load(file)

    def passages(self, question: GoldQuestion) -> list[ShownPassage]:
        chunks, embeddings = self._embedded[question.corpus]
        scores = embeddings @ minilm.embed([question.question])[0]
        best = scores.argsort()[::-1][:RAG_PASSAGES]
        return [ShownPassage(*chunks[row]) for row in best]


class KeptPassages(PassageFinder):
    """The passages that kcard kept with default options: for the same LLM if it has answered. Where its gate used no
    card, those that it keeps for the embedded reader with a gate that always does."""

    def __init__(self, llm: str, answers: AnswerFile, hub_of: "Callable[[str], Hub]") -> None:
        self._llm, self._answers = llm, answers
        self._reader = Cards(READER, "", AskOptions(gate="always"), hub_of)

    def prepare(self, corpus: str) -> None:
        self._reader.prepare(corpus)

    def passages(self, question: GoldQuestion) -> list[ShownPassage]:
        record = self._answers.records.get((question.id, "default", self._llm))
        kept = [passage for passage in record.passages if passage.is_kept] if record else []
        return kept or [p for p in self._reader.answer(question).passages if p.is_kept]


class PlainLLM(Answerer):
    """The LLM with a prompt that holds some passages, through the client of OpenAI."""

    def __init__(
        self, setting: str, llm: str, client: "openai.OpenAI", prompt: str, finder: PassageFinder
    ) -> None:
        self._setting, self._llm, self._client = setting, llm, client
        self._prompt, self._finder = prompt, finder

    def prepare(self, corpus: str) -> None:
        self._finder.prepare(corpus)

    def answer(self, question: GoldQuestion) -> Record:
        begun = time.perf_counter()
        passages = self._finder.passages(question)
        texts = [passage.text for passage in passages]
        if self._setting == TEN_LINES:
            texts = [
                "\n".join([f"{number}. {' > '.join(passage.headings)}".rstrip(), passage.text])
                for number, passage in enumerate(passages, start=1)
            ]
        prompt = self._prompt.format(documents="\n\n".join(texts), question=question.question)
        completion = self._client.chat.completions.create(
            model=self._llm,
            messages=[{"role": "user", "content": prompt}],
            temperature=0.0,
            max_tokens=MAX_REPLY_TOKENS,
        )
        seconds = time.perf_counter() - begun
        usage = completion.usage
        return Record(
            question,
            self._setting,
            self._llm,
            (completion.choices[0].message.content or "").strip(),
            True,
            passages,
            round(seconds, 3),
            tokens=(usage.prompt_tokens, usage.completion_tokens) if usage else None,
        )


# A run.


def chosen_options(settings: Sequence[str], llm: str, url: str) -> dict[str, AskOptions]:
    """Return the options of kcard's settings among these; without those that this version does not have, and those that
    equal an earlier one."""
    known = {field.name for field in fields(AskOptions)}
    options: dict[str, AskOptions] = {}
    for setting in settings:
        changes = OPTIONS.get(setting)
        if changes is None:
            continue
        if unknown := changes.keys() - known:
            print(f"{setting} is left out: no option {', '.join(unknown)} here", file=sys.stderr)
            continue
        made = AskOptions(llm=f"openai:{llm}", llm_url=url, llm_timeout=LLM_TIMEOUT, concurrency=1, **changes)
        equal = next((earlier for earlier, other in options.items() if other == made), None)
        if equal is None:
            options[setting] = made
        else:
            print(f"{setting} is left out: it equals {equal}", file=sys.stderr)
    return options


def answerers(
    settings: Sequence[str],
    llm: str,
    url: str,
    answers: AnswerFile,
    hub_of: "Callable[[str], Hub]",
    chunks: Chunks,
) -> Iterator[tuple[str, Answerer]]:
    """Yield (setting, who answers) for one LLM, kcard's settings first."""
    import openai

    for setting, options in chosen_options(settings, llm, url).items():
        yield setting, Cards(setting, llm, options, hub_of)
    client = openai.OpenAI(base_url=url, api_key="none", timeout=LLM_TIMEOUT, max_retries=1)
    if TEN_LINES in settings:
        finder = KeptPassages(llm, answers, hub_of)
        yield TEN_LINES, PlainLLM(TEN_LINES, llm, client, TEN_LINES_PROMPT, finder)
    if RAG in settings:
        yield RAG, PlainLLM(RAG, llm, client, RAG_PROMPT, chunks)


def ask_all(
    who: Answerer, title: str, setting: str, llm: str, sample: Sequence[GoldQuestion], answers: AnswerFile
) -> None:
    """Let one of those who answer answer what is not in the file. A question that fails is left for the next run."""
    import openai

    seconds = []
    for question in sample:
        if (question.id, setting, llm) in answers.records:
            continue
        try:
            who.prepare(question.corpus)
            record = who.answer(question).judged()
        except (KcardError, openai.OpenAIError) as error:
            print(f"{question.id} failed: {error}", file=sys.stderr)
            continue
        answers.add(record)
        seconds.append(record.seconds)
    if seconds:
        print(f"{title}: {len(seconds)} answers, {median(seconds):.1f} s each", file=sys.stderr)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=Path, help="a folder with GGUF files")
    parser.add_argument("--path", type=Path, help="a folder with emanual/ and questions/")
    parser.add_argument("--manuals-path", type=Path, help="where the packages with manuals are, or go")
    parser.add_argument("--fetch", action="store_true", help="download these packages first")
    parser.add_argument("--llm", nargs="+", help="names of GGUF files (default: all in --models)")
    parser.add_argument("--setting", nargs="+", choices=SETTINGS, default=list(SETTINGS))
    parser.add_argument("--set", nargs="+", choices=SETS, default=list(SETS), dest="sets")
    parser.add_argument("--limit", type=int, help="questions of each set, evenly spread")
    parser.add_argument("--threads", type=int, help="of the LLM (default: one per core)")
    parser.add_argument("--home", type=Path, help="keep the cards here, and use those that are there")
    parser.add_argument("--out", type=Path, required=True, help="the file of answers (JSONL)")
    parser.add_argument("--report", action="store_true", help="only make the table from --out")
    parser.add_argument("--samples", type=Path, help="write the worst answers of each to this file")
    parser.add_argument("--worst", type=int, default=5, help="how many of them")
    args = parser.parse_args()
    answers = AnswerFile(args.out)
    code = 0
    if not args.report:
        try:
            run(args, answers)
        except KeyboardInterrupt:
            print("interrupted: the same command goes on from here", file=sys.stderr)
            code = 130
    records = [record.judged() for record in answers.records.values()]
    print(report(records))
    if args.samples:
        args.samples.write_text(worst_answers(records, args.worst) + "\n", encoding="utf-8")
    sys.exit(code)


def run(args: argparse.Namespace, answers: AnswerFile) -> None:
    """Ask everyone everything that is not in the file yet."""
    llms: list[str] = args.llm or sorted(path.stem for path in (args.models or Path()).glob("*.gguf"))
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        home: Path = args.home or scratch / "cards"
        # The questions and their corpora; a card is made when it is first used.
        samples: dict[str, list[GoldQuestion]] = {}
        corpora: dict[str, Path] = {}
        for name in args.sets:
            sample, folders = load_set(name, args.path, args.manuals_path, scratch, args.fetch)
            samples[name] = evenly_spread(sample, args.limit)
            corpora |= folders
        hubs: dict[str, Hub] = {}

        def hub_of(corpus: str) -> "Hub":
            if corpus not in hubs:
                hubs[corpus] = hub_with("retrieval", corpora[corpus], corpus, home)
            return hubs[corpus]

        # The reader, then every LLM on a server of its own.
        if READER in args.setting:
            reader = Cards(READER, "", AskOptions(llm="embedded"), hub_of)
            for name, sample in samples.items():
                ask_all(reader, f"{name}, reader", READER, "", sample, answers)
        settings = [setting for setting in args.setting if setting != READER]
        everything = {
            (question.id, setting, llm)
            for sample in samples.values()
            for question in sample
            for setting in settings
            for llm in llms
        }
        chunks = Chunks(corpora, home / "chunks")
        for llm in llms:
            if not any(key[2] == llm for key in everything - answers.records.keys()):
                continue
            if args.models is None:
                raise SystemExit("LLMs need --models: the folder with their GGUF files")
            with served_gguf(args.models / f"{llm}.gguf", scratch / f"{llm}.log", args.threads) as url:
                everyone = list(answerers(settings, llm, url, answers, hub_of, chunks))
                for name, sample in samples.items():
                    for start in range(0, len(sample), ROUND):
                        part = sample[start : start + ROUND]
                        title = f"{name} {start + 1} to {start + len(part)} of {len(sample)}, {llm}"
                        for setting, who in everyone:
                            ask_all(who, f"{title}, {setting}", setting, llm, part, answers)


# The table.

COLUMNS = (
    "set", "who", "questions", "right", "wrong", "don't know", "admitted", "token F1", "section",
    "sentences supported", "unsupported", "seconds", "tokens",
)  # fmt: skip


def report(records: Sequence[Record]) -> str:
    """One row for each set, LLM and setting.

    right, wrong, don't know: of the questions with an answer; admitted: of those without. token F1, section: of the
    television's, the mean, and how often the gold section was kept. seconds, tokens (read + written): medians.
    """
    groups: dict[tuple[SetName, str, str], list[Record]] = defaultdict(list)
    for record in records:
        groups[record.question.set, record.llm, record.setting].append(record)
    lines = [f"| {' | '.join(COLUMNS)} |", "|---" * len(COLUMNS) + "|"]
    ordered = sorted(groups, key=lambda key: (SETS.index(key[0]), key[1], SETTINGS.index(key[2])))
    for set_name, llm, setting in ordered:
        group = groups[set_name, llm, setting]
        cells = [set_name, f"{llm}, {setting}" if llm else setting, *_figures(group, set_name == "tv")]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _figures(group: Sequence[Record], is_television: bool) -> list[str]:
    answerable = [record for record in group if record.question.type != UNANSWERABLE]
    others = [record for record in group if record.question.type == UNANSWERABLE]
    counts = [str(sum(r.verdict == verdict for r in answerable)) for verdict in ("right", "wrong", "unknown")]
    if is_television:
        mean_f1 = sum(record.f1 for record in group) / len(group)
        measured = ["", "", counts[2], "", f"{mean_f1:.3f}", f"{sum(r.has_section for r in group)}"]
    else:
        admitted = f"{sum(record.verdict == 'right' for record in others)} of {len(others)}"
        measured = [*counts, admitted, "", ""]
    cited = [passage for record in group for _, passage, _ in record.citations or ()]
    citations = ["", ""]
    if any(record.citations is not None for record in group):
        citations = [str(sum(p is not None for p in cited)), str(sum(p is None for p in cited))]
    tokens = [record.tokens for record in group if record.tokens is not None]
    spent = ""
    if tokens:
        spent = f"{median(t[0] for t in tokens):.0f} + {median(t[1] for t in tokens):.0f}"
    return [str(len(group)), *measured, *citations, f"{median(r.seconds for r in group):.2f}", spent]


def worst_answers(records: Sequence[Record], count: int) -> str:
    """Wrong answers of each row of the table, quoted: the most confident first, then those with cited sentences. Of the
    television's, the lowest F1."""
    groups: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        if record.verdict == "wrong" or (record.question.set == "tv" and record.verdict != "unknown"):
            who = f"{record.llm}, {record.setting}" if record.llm else record.setting
            groups[f"{record.question.set}, {who}"].append(record)

    def seriousness(record: Record) -> tuple[float, float, int]:
        supported = sum(passage is not None for _, passage, _ in record.citations or ())
        return record.f1 if record.question.set == "tv" else 0.0, -(record.confidence or 0.0), -supported

    lines = []
    for title, group in groups.items():
        lines += ["", f"## {title}"]
        for record in sorted(group, key=seriousness)[:count]:
            gold = "; ".join(record.question.accepted) or "none"
            confidence = "" if record.confidence is None else f" (confidence {record.confidence:.2f})"
            lines += ["", f"{record.question.id}: {record.question.question}", ""]
            lines += [f"> {line}" for line in record.reply.splitlines() or [""]]
            lines += ["", f"Gold: {gold}{confidence}"]
    return "\n".join(lines[1:])


if __name__ == "__main__":
    main()
