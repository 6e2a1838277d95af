"""Runs every command of the installed kcard with each of its options, on a terminal and off it.

python walk.py --folder FOLDER --json RESULTS [--prepare] [--cases CASES] [--jobs N]

Commands run in forks of this process, which has imported everything before; each in a copy of FOLDER, which --prepare
fills with a hub of one card, questions, records of a gate and a run of `kcard eval`. Needs kcard, nothing else.
"""

import argparse
import json
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple, get_args

SERVER = Path(__file__).resolve().parents[1] / "openai_script.py"
TYPED = "Who found Triton?\n"  # what a command reads that reads from its standard input
PATIENCE = 120.0  # seconds until a command is interrupted; an audit with Ray takes 45
WATCHING = 10.0  # the same for one that follows a folder until it is
SERVING = re.compile(r"serving on (http://\S+)")
NOWHERE = "nowhere"

# By command, arguments with which it does its work, as a shell has them, unless it needs none; {llm} is the URL of a
# scripted LLM.
WORKS: Mapping[str, Sequence[str]] = {
    "train": (
        "--corpus notes --kind retrieval --name other",
        "notes --kind both --minutes .01 --name more",
    ),
    "train-many": ("many.jsonl --kind retrieval",),
    "sync": ("notes --card notes",),
    "exam": ("notes --limit 2",),
    "audit": ("notes --limit 2 --evidence facts.txt",),
    "check": ("'Triton is a moon.' --evidence notes/moons.txt",),
    "publish": ("notes",),
    "show": ("notes",),
    "pull": ("notes copy",),
    "remove": ("notes --yes",),
    "verify": ("notes", ""),
    "alias": ("notes@v1 stable",),
    "login": ("--hub http://127.0.0.1:9",),
    "logout": ("--hub http://127.0.0.1:9",),
    "whoami": ("--hub local",),
    "add": ("llm:self --name self", "hf:nobody/nothing"),
    "ask": (
        "'Who found Triton?'",
        "'Who found Triton?' --mode bottom-up --gate always",
        "'Who found Triton?' --llm openai:m --llm-url {llm}",
        "'Who found Triton?' --llm openai:m --llm-url {llm} --stream --gate never",
        "--input questions.jsonl --output answers.jsonl",
        "--corpus notes Who found Triton",
    ),
    "chat": ("", "notes", "--llm openai:m --llm-url {llm}"),
    "eval": ("jsonl --path questions.jsonl",),
    "runs show": ("1",),
    "runs export": ("1 exported",),
    "runs delete": ("1",),
    "serve": ("--port 0", "--port 0 --llm openai:m --llm-url {llm}"),
    "serve-key": ("ada --keys keys.txt",),
    "calibrate": ("--records records.jsonl --dry-run",),
    "browse": ("", "notes"),
    "cards search": ("moons",),
    "pool create": ("moons notes",),
    "pool add": ("space notes",),
    "pool remove": ("space notes",),
    "pool show": ("space",),
    "pool delete": ("space",),
    "hub threshold": ("0.5",),
    "hub release": ("notes",),
    "hub serve": ("--port 0 --workers 1",),
    "hub user add": ("bob",),
    "hub user show": ("ada",),
    "hub user disable": ("ada",),
    "hub user enable": ("ada",),
    "hub user change": ("ada --fullname Ada",),
    "hub organisation add": ("clinic --owner ada",),
    "hub organisation member": ("clinic ada",),
    "hub token create": ("--user ada",),
    "hub token revoke": ("cli --user ada",),
    "report": ("1",),
    "log show": ("1",),
    "log search": ("Triton",),
    "log clear": ("--yes",),
    "llm pull": ("hf:nobody/nothing/x.gguf",),
    "llm use": ("embedded",),
    "llm show": ("nothing",),
    "llm rm": ("nothing",),
    "gate collect": ("--questions questions.jsonl --output new.jsonl",),
    "gate fit": ("--records records.jsonl --kind random --output gate.json",),
    "gate eval": ("--records records.jsonl --gate random",),
    "gate analyse": ("recall --records records.jsonl",),
    "config get": ("mode",),
    "config set": ("mode direct",),
}
# What stands beside each of a command's options, where the whole work would take too long.
BESIDE: Mapping[str, str] = {
    "train": "--corpus notes --kind retrieval --no-exam --estimate",
    "train-many": "nowhere.jsonl",
    "ask": "'Who found Triton?' --mode direct",
    "chat": "--mode direct",
    "eval": "jsonl --path nowhere.jsonl",
    "serve": "--host no.such.host.invalid",
    "hub serve": "--host no.such.host.invalid",
    "gate collect": "--questions nowhere.jsonl --output new.jsonl",
    "sync": "notes --card notes --dry-run",
    "exam": "notes --limit 1 --checker none",
    "check": "'Triton is a moon.'",
    "calibrate": "--records records.jsonl --dry-run --gates random",
    "audit": "notes --limit 1 --checker none",
    "llm use": "openai:m",
}
# Values of options, by the option alone or with its command. Numbers, choices, paths and plain words need none.
VALUES: Mapping[str, Sequence[str]] = {
    "--base": ("embedded", "folder"),
    "--blobs-url": ("s3://bucket/folder", "file:///nowhere"),
    "--allowed-hosts": ("ask.example.org",),
    "--allowed-origins": ("https://a.example",),
    "--also": ("embedded", "local:nothing"),
    "--card": ("notes",),
    "--cards": ("notes",),
    "--chat": ("http://127.0.0.1:9",),
    "--checker": ("minilm", "none", "hhem", "nli:folder"),
    "--choices": ("'A=one' --choices 'B=two'",),
    "--corpus": ("notes", "wikipedia", "table.parquet"),
    "--csv": ("out.csv",),
    "--database-url": ("postgresql://ada@127.0.0.1:9/hub", "mysql://nowhere"),
    "--device": ("cpu", "cuda"),
    "--encoder": ("minilm", "hf:folder"),
    "--engine": ("vllm=http://127.0.0.1:9",),
    "--evidence": ("own", "none", "notes", "wikipedia"),
    "--examples": ("examples.jsonl",),
    "--field": ("text",),
    "--folds": ("2",),
    "--gate": ("always", "never", "self-ask", "uncertainty", "gate.json"),
    "gate eval --gate": ("random", "bm25", "thrust", "skr-knn", "skr-classifier", "popularity"),
    "--gates": ("random,bm25",),
    "--host": ("127.0.0.300",),
    "--html": ("out.html",),
    "--hub": ("local", "http://127.0.0.1:9"),
    "--kind": ("random",),
    "gate fit --kind": ("random", "bm25", "thrust", "skr-knn", "skr-classifier", "self-ask"),
    "--language": ("en",),
    "--knowledge-date": ("2026-01-01",),
    "--max-body": ("1MB",),
    "--llm": (
        "embedded",
        "gguf:folder",
        "local:nothing",
        "hf:folder",
        "openai:m --llm-url {llm}",
        "openai-completions:m --llm-url {llm}",
    ),
    "--llm-url": ("{llm} --llm openai:m",),
    "--max-file-size": ("1MB",),
    "--memory": ("1GB",),
    "--owner": ("ada",),
    "--path": ("questions.jsonl",),
    "--plot": ("out.svg", "out.png"),
    "report --plot": ("out.svg --analysis cost",),
    "report --analysis": ("cost", "cards", "yes-no", "groups"),
    "--preset": ("knowledge-card", "qa"),
    "--proxies": ("127.0.0.1",),
    "--pruner": ("extractive", "none", "pegasus", "provence", "reader"),
    "--quota": ("1GB",),
    "--ray": ("127.0.0.1:9", "local"),
    "--relevance": ("minilm", "cosine", "none", "mpnet", "sentence-transformers:folder"),
    "--retriever": ("bm25", "minilm"),
    "--scope": ("read",),
    "--set": ("k=5",),
    "--settings": ("direct,top-down",),
    "--task": ("questions",),
    "--template": ("'{question}'",),
    "--text": ("'Ada was born in 1815.'",),
    "--update": ("notes",),
    "--url": ("http://hub.example.org",),
    "--user": ("ada",),
    "--analysis": ("cost",),
}
PATHS: Mapping[str, str] = {
    "--records": "records.jsonl",
    "--questions": "questions.jsonl",
    "--queries": "questions.jsonl",
    "--input": "questions.jsonl --output out.jsonl",
    "--keys": "keys.txt",
    "--exam-evidence": "notes",
}
# What no command may print.
BAD = (
    *("a bug in kcard", "ModuleNotFoundError", "No module named", "Traceback (most recent"),
    *("is not installed: pip install kcard\n", "is not installed: pip install kcard,"),
)


class Case(NamedTuple):
    """A command line, by the command and the option that it is about; `option` empty: the command's own work."""

    command: str
    option: str
    words: list[str]


class Result(NamedTuple):
    """What a case printed on a terminal or off it, its exit status (None: it was interrupted), and its seconds."""

    case: Case
    on_terminal: bool
    status: int | None
    printed: str
    seconds: float

    @property
    def problem(self) -> str:
        """What must not have happened, or nothing."""
        printed = self.printed.replace("\r\n", "\n") + "\n"
        for line in BAD:
            if line in printed:
                return line.strip()
        if self.status is None and not SERVING.search(printed) and self.case.option != "--watch":
            return "did not end"
        return f"ended by signal {-self.status}" if self.status is not None and self.status < 0 else ""


def list_cases(llm: str) -> list[Case]:
    """List every command with each of its options, as --help-all has them."""
    import shlex

    from typer.main import get_command

    from kcard.cli.main import app

    cases = [
        Case("", option, [option])
        for option in ("--version", "--show-completion", "--help", "--help-all", "-h")
    ]
    commands = dict(_commands(get_command(app), ""))
    needy = {name for name, command in commands.items() if any(param.required for param in command.params)}
    if unknown := (WORKS.keys() - commands.keys()) | (needy - WORKS.keys()):
        sys.exit(f"walk.py: not in WORKS, or no command: {', '.join(sorted(unknown))}")
    for name, command in commands.items():
        works = WORKS.get(name, ("",))
        for words in works:
            cases.append(Case(name, "", [*name.split(), *shlex.split(words.format(llm=llm))]))
        beside = [*name.split(), *shlex.split(BESIDE.get(name, works[0]).format(llm=llm))]
        for param in command.params:
            for option in (*param.opts, *param.secondary_opts):
                if not option.startswith("-"):
                    continue
                for value in _values(name, option, param):
                    cases.append(
                        Case(name, option, [*beside, option, *shlex.split(value.replace("{llm}", llm))])
                    )
        cases.append(Case(name, "--help", [*name.split(), "--help"]))
    return cases


def _commands(group: Any, before: str) -> Iterator[tuple[str, Any]]:
    for name in group.commands:
        command = group.get_command(None, name)
        if hasattr(command, "commands"):
            if command.invoke_without_command:
                yield f"{before}{name}", command
            yield from _commands(command, f"{before}{name} ")
        else:
            yield f"{before}{name}", command


def _values(command: str, option: str, param: Any) -> Sequence[str]:
    """Return the values to try: none for a flag, each of several choices."""
    if param.is_flag:
        return [""]
    for key in (f"{command} {option}", option):
        if key in VALUES and not get_args(_kind(param)):
            return VALUES[key]
    kind = _kind(param)
    if get_args(kind):
        return [str(choice) for choice in get_args(kind)]
    if kind in (int, float):
        return ["1"]
    if kind is Path:
        return [PATHS.get(option, f"{NOWHERE}.jsonl")]
    return ["other"]


def _kind(param: Any) -> Any:
    """Return the type of an option's value, or of each of its values; a Literal for choices."""
    kind = param.type_descriptor.annotation
    if getattr(kind, "__origin__", None) is list:
        (kind,) = get_args(kind)
    return kind


def run_case(case: Case, on_terminal: bool, folder: Path) -> Result:
    """Run a case in a fork of this process, in a copy of the folder."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="kcard-walk-") as scratch:
        place = Path(scratch) / "place"
        shutil.copytree(folder, place)
        read, write = pty.openpty() if on_terminal else os.pipe()
        typed = place / "typed.txt"
        typed.write_text(TYPED, encoding="utf-8")
        child = os.fork()
        if child == 0:
            os.close(read)
            _become(case.words, write, None if on_terminal else typed, place)
        os.close(write)
        if on_terminal:
            os.write(read, f"{TYPED}\x04\x04".encode())
        patience = WATCHING if case.option == "--watch" else PATIENCE
        printed, is_interrupted = _follow(read, child, started + patience)
        os.close(read)
        _, status = os.waitpid(child, 0)
    seconds = time.monotonic() - started
    return Result(
        case, on_terminal, None if is_interrupted else os.waitstatus_to_exitcode(status), printed, seconds
    )


def _become(words: Sequence[str], write: int, typed: Path | None, place: Path) -> None:
    """Be the command, in the forked child; never return."""
    import fcntl
    import termios

    code = 70
    try:
        os.setsid()
        stdin = os.open(typed, os.O_RDONLY) if typed else write
        if typed is None:
            fcntl.ioctl(write, termios.TIOCSCTTY, 0)
        for number, handle in enumerate((stdin, write, write)):
            os.dup2(handle, number)
        sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w", buffering=1)  # noqa: SIM115
        os.chdir(place)
        os.environ |= {
            "KCARD_HOME": str(place / "home"),
            "HOME": str(place),
            "TERM": "xterm",
            "COLUMNS": "100",
        }
        os.environ |= {"OMP_NUM_THREADS": "1", "RAY_DISABLE_IMPORT_WARNING": "1"}
        sys.argv = ["kcard", *words]
        from kcard.cli.main import run

        run()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except BaseException:  # noqa: BLE001 (no child returns)
        import traceback

        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except OSError:
                code = code or 1
        os._exit(code)


def _follow(read: int, child: int, deadline: float) -> tuple[str, bool]:
    """Read until all who write have ended; interrupt a server once it has answered, and all else at the deadline."""
    printed, is_interrupted, quiet = b"", False, 0
    while True:
        if not select.select([read], [], [], 0.2)[0]:
            quiet += 1
            if os.isatty(read) and quiet % 10 == 0:  # a prompt, before which all that was typed is dropped
                os.write(read, f"{TYPED}\x04".encode())
        else:
            quiet = 0
            try:
                data = os.read(read, 65536)
            except OSError:  # the terminal's other side is closed
                data = b""
            if not data:
                return printed.decode(errors="replace"), is_interrupted
            printed += data
        served = SERVING.search(printed.decode(errors="replace"))
        if not is_interrupted and (served or time.monotonic() > deadline):
            if served:
                printed += _use(served[1]).encode()
            is_interrupted = True
            os.kill(child, signal.SIGINT)
            deadline = time.monotonic() + 5
        elif is_interrupted and time.monotonic() > deadline:
            os.killpg(child, signal.SIGKILL)
            return printed.decode(errors="replace"), is_interrupted


def _use(url: str) -> str:
    """Open the page of a server and ask it a question; return what went wrong."""
    base = url.removesuffix("/v1")
    question = {"model": "m", "messages": [{"role": "user", "content": "Who found Triton?"}]}
    problems = ""
    for path, body in (
        ("/", None),
        ("/v1/models", None),
        ("/v1/chat/completions", json.dumps(question).encode()),
    ):
        request = urllib.request.Request(
            base + path, body, {"Content-Type": "application/json", "Accept": "*/*"}
        )
        try:
            urllib.request.urlopen(request, timeout=30).read()
        except urllib.error.HTTPError as error:
            if error.code >= 500:
                problems += f"\n{path}: status {error.code}: a bug in kcard\n"
        except OSError as error:
            problems += f"\n{path}: {error}: a bug in kcard\n"
    return problems


def prepare(folder: Path) -> None:
    """Fill the folder with what the commands work on."""
    notes = folder / "notes"
    notes.mkdir()
    (notes / "moons.txt").write_text(
        "William Lassell found Triton, a moon of Neptune, in 1846.\nGerard Kuiper found Miranda, a moon of Uranus.\n"
        "Triton circles Neptune against the direction in which Neptune rotates, which no other large moon of a planet "
        "in the solar system does, so that astronomers take it for a captured object of the Kuiper belt, like Pluto.\n"
        "Asaph Hall found Phobos and Deimos, the moons of Mars, in 1877.\nTitan is the largest moon of Saturn.\n",
        encoding="utf-8",
    )
    questions = [("Who found Triton?", "William Lassell"), ("Who found Miranda?", "Gerard Kuiper")] * 4
    rows = [
        {"id": str(i), "question": q, "answers": [a], "popularity": i} for i, (q, a) in enumerate(questions)
    ]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "questions.jsonl").write_text(lines, encoding="utf-8")
    (folder / "many.jsonl").write_text(
        json.dumps({"corpus": "notes", "name": "many"}) + "\n", encoding="utf-8"
    )
    (folder / "facts.txt").write_text("Triton was found by Lassell, an English brewer.\n", encoding="utf-8")
    (folder / "folder").mkdir()
    (folder / "token").write_text("kc_nothing\n", encoding="utf-8")
    steps = (
        "train --corpus notes --kind retrieval --name notes --no-exam",
        "publish notes",
        "pool create space notes",
        "hub user add ada",
        "gate collect --questions questions.jsonl --output records.jsonl",
        "eval jsonl --path questions.jsonl --settings direct,top-down",
    )
    environment = os.environ | {"KCARD_HOME": str(folder / "home")}
    for words in steps:
        command = [sys.executable, "-m", "kcard", *words.split()]
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
        if done.returncode:
            sys.exit(f"kcard {words} failed: {done.stderr}")


def import_all() -> None:
    """Import what there is of kcard; what is missing is reported by the command that needs it."""
    import kcard

    root = Path(str(kcard.__file__)).parent
    for folder, _, files in os.walk(root, followlinks=True):
        for file in files:
            name = ".".join(("kcard", *(Path(folder) / file).relative_to(root).with_suffix("").parts))
            if file.endswith(".py") and not name.endswith(("__main__", "__init__", "migrations.env")):
                try:
                    import_module(name)
                except ImportError:
                    continue


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--json", type=Path, required=True, help="the results go there")
    parser.add_argument("--prepare", action="store_true", help="fill the folder first")
    parser.add_argument("--extra", default="", help="walk the commands alone, and what asked for this extra")
    parser.add_argument("--base", type=Path, help="the results of the installation without it")
    parser.add_argument("--command", action="append", help="walk this one; repeatable")
    parser.add_argument("--brief", action="store_true", help="what each command does, without its options")
    parser.add_argument("--jobs", type=int, default=2)
    args = parser.parse_args()
    os.environ["HF_HUB_OFFLINE"] = "1"  # before anything is imported that reads it
    with tempfile.TemporaryDirectory(prefix="kcard-llm-") as scratch:
        script, port = Path(scratch) / "script.json", Path(scratch) / "port"
        script.write_text(json.dumps([{"text": "William Lassell"}]), encoding="utf-8")
        server = subprocess.Popen([sys.executable, str(SERVER), str(script), str(port)])
        try:
            while not port.is_file() or not port.read_text():
                time.sleep(0.05)
            llm = f"http://127.0.0.1:{port.read_text().strip()}/v1"
            if args.prepare:
                prepare(args.folder)
            import_all()
            cases = list_cases(llm)
            if args.extra:
                cases = of_extra(cases, args.extra, json.loads(args.base.read_text()))
            if args.brief:
                cases = [case for case in cases if not case.option]
            if args.command:
                cases = [case for case in cases if case.command in args.command]
            results = walk(cases, args.folder, args.jobs)
        finally:
            server.kill()
    args.json.write_text(json.dumps([result._asdict() | {"problem": result.problem} for result in results]))


def of_extra(cases: Sequence[Case], extra: str, base: Sequence[Any]) -> list[Case]:
    """Choose the commands' own work, and the options that asked for the extra where it was not installed."""
    name = f"kcard[{extra}]"
    asking = {tuple(result["case"][:2]) for result in base if name in "".join(result["printed"].split())}
    return [case for case in cases if not case.option or (case.command, case.option) in asking]


def walk(cases: Sequence[Case], folder: Path, jobs: int) -> list[Result]:
    """Run each case on a terminal and off it, in several processes of one thread, which can be forked."""
    both = [(case, on_terminal) for case in cases for on_terminal in (False, True)]
    both = [(case, on_terminal) for case, on_terminal in both if not (on_terminal and case.words[-1] == "1")]
    with ProcessPoolExecutor(jobs, mp_context=get_context("fork")) as pool:
        runs = [pool.submit(run_case, case, on_terminal, folder) for case, on_terminal in both]
        return [run.result() for run in runs]


if __name__ == "__main__":
    main()
