"""The comparison of those who answer: how replies are judged, and a run with a scripted endpoint instead of an LLM."""

import gzip
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from benchmarks import answers
from benchmarks.question_sets import GoldQuestion, SetName, evenly_spread, is_admission, judge, token_f1
from benchmarks.real_documents import UNANSWERABLE

from tests.openai_script import ScriptedServer

MANUAL = """## Depot

The depot of the harbour is green and stands in Oslo. It holds forty boats in winter.

## Ferry

The ferry to the island leaves at noon. It carries sixty people and twelve cars.
"""


@pytest.mark.parametrize(
    "reply",
    [
        "I don't know.",
        "I’m not sure about that.",
        "We cannot answer this.",
        "The documents do not mention a price.",
        "The provided context doesn't specify it.",
        "It is not stated in the given documents.",
        "There is no information about ferries.",
        "Unknown.",
        "",
    ],
)
def test_a_reply_that_gives_no_answer_is_an_admission_in_any_words(reply: str) -> None:
    assert is_admission(reply)


@pytest.mark.parametrize(
    "reply",
    [
        "At noon.",
        "The ferry leaves at noon. The documents do not mention its price.",
        "No, it is not possible.",
        "The option does not change the manual.",
    ],
)
def test_an_answer_is_none(reply: str) -> None:
    assert not is_admission(reply)


@pytest.mark.parametrize(
    ("set_name", "kind", "gold", "reply", "is_known", "verdict"),
    [
        ("manuals", "fact", "two retries", "It makes two retries.", True, "right"),
        ("manuals", "fact", "two retries", "It makes two retries.", False, "unknown"),
        ("questions", "span", "the green boat", "It was a green boat that sank.", True, "right"),
        ("questions", "span", "the green boat", "It was the ferry.", True, "wrong"),
        ("questions", "no", "no", "No, it does not.", True, "right"),
        ("questions", "yes", "yes", "Nobody does.", True, "wrong"),
        ("questions", UNANSWERABLE, "", "At noon.", True, "wrong"),
        ("questions", UNANSWERABLE, "", "I don't know.", False, "right"),
        ("tv", "normal", "Press the button.", "Press it.", True, ""),
        ("tv", "normal", "Press the button.", "I don't know.", False, "unknown"),
    ],
)
def test_verdicts(set_name: SetName, kind: str, gold: str, reply: str, is_known: bool, verdict: str) -> None:
    question = GoldQuestion("1", set_name, "c", kind, "Who?", ((gold,),) if gold else ())
    assert judge(question, reply, is_known) == verdict


def test_token_f1_of_yes_and_no_is_that_of_the_first_word() -> None:
    question = GoldQuestion("1", "tv", "tv", "yes_no", "Can I?", (("Yes",),))
    assert token_f1(question, "Yes, with the remote.", is_known=True) == 1
    assert token_f1(question, "No.", is_known=True) == token_f1(question, "Yes", is_known=False) == 0


def test_a_smaller_sample_is_part_of_a_larger_one_and_spread_over_all() -> None:
    sample = [GoldQuestion(str(number), "tv", "tv", "fact", "Who?", ()) for number in range(200)]
    eight, forty = evenly_spread(sample, 8), evenly_spread(sample, 40)
    assert forty[:8] == eight
    assert {int(question.id) // 25 for question in eight} == set(range(8))
    assert sorted(evenly_spread(sample, None), key=lambda q: int(q.id)) == sample


def test_a_run_goes_on_where_it_ended_and_reports_from_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    data, out, samples = write_data(tmp_path / "data"), tmp_path / "out.jsonl", tmp_path / "samples.md"
    server = ScriptedServer([{"text": "The ferry leaves at noon.", "usage": [20, 6]}]).start()

    @contextmanager
    def served(*_: object) -> Iterator[str]:
        yield server.url

    monkeypatch.setattr(answers, "served_gguf", served)

    def run(*arguments: str) -> list[str]:
        command = ["answers", "--path", str(data), "--models", str(tmp_path), "--out", str(out), *arguments]
        monkeypatch.setattr(sys, "argv", command)
        with pytest.raises(SystemExit) as ended:
            answers.main()
        assert ended.value.code == 0
        return capsys.readouterr().out.splitlines()

    chosen = ["--set", "tv", "questions", "--llm", "tiny", "--home", str(tmp_path / "home")]
    settings = ["reader", "default", "top-down", "ten-lines", "rag"]  # of which top-down equals default
    run(*chosen, "--setting", *settings, "--limit", "1")
    table = run(*chosen, "--setting", *settings, "--samples", str(samples))
    rows = {tuple(row.split(" | ")[:2]): row for row in table[2:]}
    assert [who for _, who in rows] == ["reader", "tiny, default", "tiny, ten-lines", "tiny, rag"] * 2
    assert len({(r["question"]["id"], r["setting"], r["llm"]) for r in read(out)}) == len(read(out)) == 20
    # Right is the span, wrong is what has no answer; both sections are kept, and tokens are the server's.
    for who in ("tiny, ten-lines", "tiny, rag"):
        assert f"| questions | {who} | 3 | 1 | 1 | 0 | 0 of 1 |" in rows["| questions", who]
    for who in ("tiny, default", "tiny, ten-lines", "tiny, rag"):
        # Of the LLM's wrong answer kcard makes the passage's own words.
        right = 2 if who == "tiny, default" else 1
        assert rows["| questions", who].startswith(f"| questions | {who} | 3 | {right} |")
        assert "| 2 | " in rows["| tv", who]
    assert rows["| tv", "tiny, rag"].endswith("| 20 + 6 |")
    ten_lines = next(
        r["body"] for r in server.requests if "Documents:" in r["body"]["messages"][0]["content"]
    )
    assert "1. " in ten_lines["messages"][0]["content"]
    assert "> The ferry leaves at noon." in samples.read_text()
    # What a killed run left unfinished is repeated; nothing else is.
    lines = out.read_text().splitlines(keepends=True)
    out.write_text("".join(lines[:-1]) + lines[-1][:30])
    asked = len(server.requests)
    assert run(*chosen, "--setting", *settings)[2:] != []
    assert len(server.requests) == asked + 1
    # The report needs neither LLM nor data.
    server.kill()
    assert len(run("--report")) == len(table)


def read(path: Path) -> list[dict[str, dict[str, str]]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def write_data(folder: Path) -> Path:
    television = [
        {
            "id": "tv-1", "kind": "normal", "question": "When does the ferry leave?",
            "answer": "The ferry to the island leaves at noon.", "section": "Ferry",
        },
        {
            "id": "tv-2", "kind": "normal", "question": "Where is the depot?",
            "answer": "The depot of the harbour stands in Oslo.", "section": "Depot",
        },
    ]  # fmt: skip
    published = [
        {"type": "span", "question": "When does the ferry leave?", "answers": ["noon"]},
        {"type": "yes", "question": "Is the depot green?", "answers": ["yes"]},
        {"type": "none", "question": "What does the ferry cost?", "answers": []},
        {"type": "free", "question": "Why?", "answers": ["so"]},
    ]
    rows = [
        {"id": f"q-{number}", "title": "Harbour", "context": MANUAL.replace("#", ""), **row}
        for number, row in enumerate(published)
    ]
    (folder / "emanual").mkdir(parents=True)
    (folder / "questions").mkdir()
    (folder / "emanual" / "smart-tv.md").write_text(MANUAL)
    (folder / "emanual" / "smart-tv.jsonl").write_text("\n".join(map(json.dumps, television)) + "\n")
    packed = gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode())
    (folder / "questions" / "harbour-dev.jsonl.gz").write_bytes(packed)
    return folder
