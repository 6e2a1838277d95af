"""A local LLM behind kcard, beside llama.cpp's own server and transformers.

    python -m benchmarks.local_llm --models FILE.gguf ... [--hf FOLDER ...] [--threads 1] [--questions 3] [--cpu]
        [--out FILE]

The card is an index of a manual of 600 kB. For each model, all processes stay loaded and get each question in turn, so
that other load on the machine affects all; no prompt is sent to a process twice, since it would be in its cache.

- cold ask: a process that answers one question, from its start (the second of two, so that its files are in memory); of
  llama.cpp, the server's start with its first reply
- warm ask: a question to a pipeline that is loaded, with search, LLM and the check of the answer; of llama.cpp, the
  reply alone to the prompt that kcard sends
- first word, reads, writes: of the reply to that prompt, streamed. Tokens read a second are those of the prompt by the
  seconds to the first word, tokens written those after the first by the seconds after it
- memory: the peak of the process, of kcard with llama.cpp and the card

On a busy machine, --cpu counts the seconds of the processor instead of those of the clock; with one thread and nothing
else to do they are about the same. Linux only.

Prints medians as a table, and writes all figures to --out as JSON.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.laptop import ask_about, machine, write_manual
from benchmarks.model_server import gguf_server

ROOT = Path(__file__).resolve().parents[1]
COLUMNS = ("cold ask, s", "warm ask, s", "first word, s", "reads, tokens/s", "writes, tokens/s", "memory, MB")
TOKENS = 64  # of a reply that is streamed
CARD = "manual"

Figures = dict[str, list[float]]


class Timed:
    """Seconds to the first piece of a reply and to its end, by a clock."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._started = clock()
        self.first = 0.0

    def piece(self) -> None:
        self.first = self.first or self._clock() - self._started

    @property
    def seconds(self) -> float:
        return self._clock() - self._started

    def figures(self, tokens_in: int, tokens_out: int) -> dict[str, float]:
        rest = self.seconds - self.first
        return {
            "first word, s": self.first,
            "reads, tokens/s": tokens_in / self.first,
            "writes, tokens/s": (tokens_out - 1) / rest if tokens_out > 1 else 0.0,
        }


# Kcard, in a process of its own that answers lines of JSON.


def answer_lines(spec: str, threads: int, clock: Callable[[], float]) -> None:
    """Be that process: load the pipeline, then do what each line says, until there are no more."""
    import resource

    if spec.startswith("hf:"):
        import torch

        torch.set_num_threads(threads)
    from kcard.integrators.pipeline import Pipeline
    from kcard.llms.prompts import messages
    from kcard.types import Reply

    pipeline = Pipeline(llm=spec, cards=CARD, temperature=0.0)
    llm: Any = pipeline.llm
    llm.max_tokens = TOKENS
    print(flush=True)
    for line in sys.stdin:
        task, question = json.loads(line)
        result: Any = None
        if task == "ask":
            timed = Timed(clock)
            pipeline([question])
            result = {"warm ask, s": timed.seconds}
        else:
            (prepared,) = pipeline.prepared([question])
            request = pipeline._request(prepared)  # type: ignore[arg-type]
            if task == "messages":
                result = messages(request)
            else:
                timed = Timed(clock)
                for piece in llm.stream(request):
                    if isinstance(piece, Reply):
                        result = timed.figures(piece.tokens_in or 0, piece.tokens_out or 0)
                    else:
                        timed.piece()
        if task == "memory":
            result = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
        print(json.dumps(result), flush=True)


class KcardProcess:
    """Such a process, from outside."""

    def __init__(self, spec: str, threads: int, cpu: bool) -> None:
        command = [sys.executable, "-m", "benchmarks.local_llm", "--answer", spec, "--threads", str(threads)]
        command += ["--cpu"] * cpu
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
        )
        self._read()

    def do(self, task: str, question: str = "-") -> Any:
        assert self._process.stdin is not None
        print(json.dumps([task, question]), file=self._process.stdin, flush=True)
        return json.loads(self._read())

    def close(self) -> None:
        self._process.terminate()
        self._process.wait()

    def _read(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("the process of kcard has ended: see above")
        return line


def cold_ask(spec: str, question: str, cpu: bool) -> float:
    """Seconds of one `kcard ask`, its files being in memory from a run before."""
    seconds = 0.0
    for _ in range(2):
        command = [sys.executable, "-m", "kcard", "ask", question, "--cards", CARD, "--llm", spec]
        timed = Timed(children_cpu_seconds if cpu else time.perf_counter)
        subprocess.run(command, check=True, capture_output=True, cwd=ROOT)
        seconds = timed.seconds
    return seconds


def children_cpu_seconds() -> float:
    """The processor's seconds of the processes that this one has started and that have ended."""
    times = os.times()
    return times.children_user + times.children_system


# Llama.cpp's server, by plain HTTP.


def complete(url: str, messages: Sequence[Any], clock: Callable[[], float]) -> dict[str, float]:
    """Stream a reply to these messages; return its figures, and its seconds as those of a warm ask."""
    body = {"messages": messages, "temperature": 0, "max_tokens": TOKENS, "stream": True}
    body["stream_options"] = {"include_usage": True}
    request = urllib.request.Request(
        f"{url}/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    timed = Timed(clock)
    usage: dict[str, int] = {}
    with urllib.request.urlopen(request) as response:
        for line in response:
            data = line.removeprefix(b"data:").strip()
            if not line.startswith(b"data:") or data == b"[DONE]":
                continue
            chunk = json.loads(data)
            usage = chunk.get("usage") or usage
            if chunk["choices"] and chunk["choices"][0]["delta"].get("content"):
                timed.piece()
    figures = timed.figures(usage["prompt_tokens"], usage["completion_tokens"])
    return figures | {"warm ask, s": timed.seconds}


def cpu_seconds(process_id: int) -> float:
    """The processor's seconds of a process so far."""
    fields = Path(f"/proc/{process_id}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def peak_memory(process_id: int) -> float:
    """The most memory that a process has had, in MB."""
    lines = Path(f"/proc/{process_id}/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1000


# A model, measured in all ways.


def measured_gguf(
    model: Path, threads: int, cpu: bool, questions: Sequence[str], log: Path
) -> Iterator[tuple[str, Figures]]:
    """Measure kcard and llama.cpp's server with the model; the questions are asked, then streamed."""
    spec, (first, *rest) = f"gguf:{model}", questions
    ours, theirs = new_figures(), new_figures()
    ours["cold ask, s"].append(cold_ask(spec, first, cpu))
    with ExitStack() as stack:
        kcard = stack.enter_context(running(spec, threads, cpu))
        prompts = {question: kcard.do("messages", question) for question in questions}
        for _ in range(2):
            started = time.perf_counter()
            with gguf_server(model, log, threads) as (url, process_id):
                complete(url, prompts[first], time.perf_counter)
                seconds = cpu_seconds(process_id) if cpu else time.perf_counter() - started
        theirs["cold ask, s"].append(seconds)
        url, process_id = stack.enter_context(gguf_server(model, log, threads))
        clock = partial(cpu_seconds, process_id) if cpu else time.perf_counter
        complete(url, prompts[first], clock)
        kcard.do("ask", first)
        half = len(rest) // 2
        for question in rest[:half]:
            add(ours, kcard.do("ask", question))
            theirs["warm ask, s"].append(complete(url, prompts[question], clock)["warm ask, s"])
        for question in rest[half:]:
            add(ours, kcard.do("stream", question))
            streamed = complete(url, prompts[question], clock)
            del streamed["warm ask, s"]
            add(theirs, streamed)
        ours["memory, MB"].append(kcard.do("memory"))
        theirs["memory, MB"].append(peak_memory(process_id))
    yield f"kcard, {model.stem}", ours
    yield f"llama.cpp's server, {model.stem}", theirs


def measured_transformers(folder: Path, threads: int, cpu: bool, questions: Sequence[str]) -> Figures:
    spec, (first, *rest) = f"hf:{folder}", questions
    figures = new_figures()
    figures["cold ask, s"].append(cold_ask(spec, first, cpu))
    with running(spec, threads, cpu) as kcard:
        kcard.do("ask", first)
        half = len(rest) // 2
        for question in rest[:half]:
            add(figures, kcard.do("ask", question))
        for question in rest[half:]:
            add(figures, kcard.do("stream", question))
        figures["memory, MB"].append(kcard.do("memory"))
    return figures


@contextmanager
def running(spec: str, threads: int, cpu: bool) -> Iterator[KcardProcess]:
    process = KcardProcess(spec, threads, cpu)
    try:
        yield process
    finally:
        process.close()


def new_figures() -> Figures:
    return {name: [] for name in COLUMNS}


def add(figures: Figures, more: dict[str, float]) -> None:
    for name, value in more.items():
        figures[name].append(value)


def table(rows: dict[str, Figures]) -> str:
    """Return the medians as Markdown."""
    lines = [f"| | {' | '.join(COLUMNS)} |", "|---" * (len(COLUMNS) + 1) + "|"]
    for name, figures in rows.items():
        cells = []
        for column in COLUMNS:
            value = statistics.median(figures[column])
            cells.append(f"{value:.2f}" if column.endswith(", s") else f"{value:.0f}")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", type=Path, nargs="+", default=[], help="GGUF files")
    parser.add_argument("--hf", type=Path, nargs="+", default=[], help="folders of models for transformers")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--questions", type=int, default=3, help="asked, and as many streamed")
    parser.add_argument("--cpu", action="store_true", help="count the seconds of the processor")
    parser.add_argument("--out", type=Path, help="JSON with all figures")
    parser.add_argument("--answer", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.answer:
        answer_lines(args.answer, args.threads, time.process_time if args.cpu else time.perf_counter)
        return
    with tempfile.TemporaryDirectory() as scratch:
        home, number = Path(scratch) / "home", str(args.threads)
        os.environ |= {"KCARD_HOME": str(home), "KCARD_LLM_THREADS": number, "OMP_NUM_THREADS": number}
        os.environ |= {"KCARD_LOG": "off", "HF_HUB_OFFLINE": "1"}
        manual = write_manual(Path(scratch) / "manual")
        train = ["train", "--corpus", str(manual), "--kind", "retrieval", "--name", CARD, "--no-exam"]
        for words in (train, ["publish", CARD]):
            subprocess.run([sys.executable, "-m", "kcard", *words], check=True, capture_output=True, cwd=ROOT)
        questions = ask_about(manual, 1)[0][: 2 * args.questions + 1]
        rows: dict[str, Figures] = {}
        for model in args.models:
            log = Path(scratch) / "log"
            rows |= dict(measured_gguf(model, args.threads, args.cpu, questions, log))
            write(args.out, args.threads, rows)
        for folder in args.hf:
            rows[f"kcard with transformers, {folder.name}"] = measured_transformers(
                folder, args.threads, args.cpu, questions
            )
            write(args.out, args.threads, rows)
    print(table(rows))


def write(path: Path | None, threads: int, rows: dict[str, Figures]) -> None:
    """Write the figures so far."""
    if path is not None:
        report = {"machine": machine(None), "threads": threads, "figures": rows}
        path.write_text(json.dumps(report, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
