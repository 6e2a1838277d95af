"""What is configured reaches the commands, flags beat it, and `kcard config` says all of it."""

import json
from pathlib import Path

import pytest

from kcard.cli.options import default_map, options
from kcard.config import settings
from kcard.config_file import TABLES, TOP
from kcard.errors import UsageError
from tests.command import Kcard


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def written(project: Path, text: str) -> None:
    (project / "kcard.toml").write_text(text, encoding="utf-8")


def configured(command: str) -> dict[str, object]:
    return default_map(settings()).get(command, {})


def test_every_option_of_ask_and_train_can_be_set_but_for_what_is_said_once() -> None:
    configurable = set(options())
    assert {
        "ask.mode",
        "ask.n1",
        "ask.card_tokens",
        "ask.evidence",
        "ask.device",
        "train.epochs",
    } <= configurable
    assert configurable.isdisjoint(
        {"ask.llm", "ask.json", "ask.question", "ask.input", "train.config", "train.json"}
    )
    assert set(TOP) <= configurable
    assert {key.partition(".")[0] for key in configurable} - set(TOP) == set(TABLES)


def test_a_table_gives_a_command_its_defaults(project: Path, kcard: Kcard) -> None:
    written(project, "[ask]\nn1 = 7\nmode = 'bottom-up'\n[train]\nepochs = 2\n")
    assert configured("ask") == {"n1": 7, "mode": "bottom-up"}
    assert configured("train") == {"epochs": 2.0}
    for command in ("ask", "serve"):
        code, out, _ = kcard(command, "--help")
        assert code == 0
        assert "[default:bottom-up]" in "".join(out.split())  # wherever its lines are broken


def test_a_list_of_evidence_has_paths_and_only_the_users_file_names_what_is_registered(
    home: Path, project: Path
) -> None:
    home.mkdir()
    text = "[ask]\nevidence = ['own', 'notes', 'wikipedia:de']\n"
    (home / "config.toml").write_text(text, encoding="utf-8")
    assert configured("ask") == {"evidence": ["own", str(home / "notes"), "wikipedia:de"]}
    written(project, text)
    assert configured("ask") == {"evidence": ["own", str(project / "notes"), str(project / "wikipedia:de")]}


def test_a_flag_beats_the_environment_and_that_the_file(
    project: Path, kcard: Kcard, monkeypatch: pytest.MonkeyPatch
) -> None:
    # n1 = 0 is refused by name, so that one sees which value reached the command.
    written(project, "[ask]\nn1 = 0\nmode = 'direct'\n")
    assert "n1 is 0" in kcard("ask", "q")[2]
    monkeypatch.setenv("KCARD_ASK_N1", "-1")
    assert "n1 is -1" in kcard("ask", "q")[2]
    assert "n1 is -2" in kcard("ask", "q", "--n1", "-2")[2]


def test_train_takes_its_table_and_flags_beat_it(project: Path, kcard: Kcard) -> None:
    written(project, "[train]\nrank = 0\ncorpus = 'notes.txt'\nbase = 'embedded'\n")
    (project / "notes.txt").write_text("Titan circles Saturn.\nTriton circles Neptune.\n", encoding="utf-8")
    assert "rank 0" in kcard("train")[2]
    assert "rank -4" in kcard("train", "--rank", "-4")[2]


def test_paths_in_a_file_start_from_its_folder(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(project, "[ask]\nevidence = ['own', 'facts']\nexamples = 'e.jsonl'\ncards = ['moons', 'a/']\n")
    below = project / "below"
    below.mkdir()
    monkeypatch.chdir(below)
    defaults = configured("ask")
    assert defaults["evidence"] == ["own", str(project / "facts")]
    assert defaults["examples"] == project / "e.jsonl"
    assert defaults["cards"] == "moons,a/"


def test_lists_can_come_from_the_environment(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    del project
    monkeypatch.setenv("KCARD_ASK_EVIDENCE", "own,facts")
    assert configured("ask") == {"evidence": ["own", "facts"]}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "[ask]\nmoed = 'direct'",
            r"kcard\.toml:2: unknown setting 'moed' in \[ask\]: did you mean 'mode'\?",
        ),
        ("[ask]\nn1 = 'three'", r"kcard\.toml:2: ask\.n1 is 'three', but must be a whole number"),
        ("[ask]\nmode = 'sideways'", r"ask\.mode is 'sideways', but must be one of top-down, bottom-up"),
        ("[ask]\nllm = 'hf:x'", r"kcard\.toml:2: set llm itself, not ask\.llm"),
        ("[ask]\nzzz = 1", r"unknown setting 'zzz' in \[ask\]: choose one of corpus, choices"),
        ("[ask]\nray = 'elsewhere:6379'", "give --ray each time"),
        ("[train]\nbatch-size = true", r"train\.batch_size is True"),
    ],
)
def test_a_wrong_setting_stops_the_command_with_its_place(
    project: Path, kcard: Kcard, text: str, message: str
) -> None:
    written(project, text)
    code, out, err = kcard("ask", "q", "--mode", "direct")
    assert (code, out) == (2, "")
    with pytest.raises(UsageError, match=message):
        default_map(settings())
    assert err.startswith("kcard: ")
    assert err.count("\n") == 1


def test_config_shows_every_setting_and_where_it_comes_from(
    project: Path, home: Path, kcard: Kcard, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(project, "[ask]\nn1 = 7\n")
    home.mkdir()
    (home / "config.toml").write_text("llm = 'hf:mine'\n", encoding="utf-8")
    monkeypatch.setenv("KCARD_ASK_SEED", "5")
    code, out, _ = kcard("config", "--origin")
    assert code == 0
    rows = {line.split()[0]: line.split()[1:] for line in out.splitlines()}
    assert set(rows) == set(options())
    assert rows["ask.n1"] == ["7", f"{project / 'kcard.toml'}:2"]
    assert rows["ask.seed"] == ["5", "KCARD_ASK_SEED"]
    assert rows["llm"] == ["hf:mine", f"{home / 'config.toml'}:1"]
    assert rows["ask.mode"] == ["top-down", "default"]
    assert "default" not in kcard("config")[1]
    by_key = {row["key"]: row for row in json.loads(kcard("config", "--json")[1])}
    assert by_key["ask.n1"] == {"key": "ask.n1", "value": 7, "origin": f"{project / 'kcard.toml'}:2"}


def test_get_prints_one_value_and_names_near_keys(project: Path, kcard: Kcard) -> None:
    written(project, "[ask]\ncard_tokens = 7\n")
    assert kcard("config", "get", "ask.card-tokens") == (0, "7\n", "")
    assert json.loads(kcard("config", "get", "ask.mode", "--json")[1])["origin"] == "default"
    code, _, err = kcard("config", "get", "n1")
    assert code == 2
    assert "did you mean ask.n1" in err
    assert "`kcard config` shows them all" in kcard("config", "get", "ask.quite_else").error


PYPROJECT = '[project]\nname = "x"\n\n[tool.kcard]\nllm = "embedded"\n'


@pytest.mark.parametrize(
    ("name", "before", "arguments", "after"),
    [
        (
            "config.toml",
            "# mine\nllm = 'x'  # for now\n",
            ("llm", "embedded"),
            '# mine\nllm = "embedded"  # for now\n',
        ),
        ("config.toml", "[ask]\nn1 = 1\n", ("ask.n1", "5"), "[ask]\nn1 = 5\n"),
        ("config.toml", "[ask]\nn1 = 1\n", ("train.rank", "4"), "[ask]\nn1 = 1\n\n[train]\nrank = 4\n"),
        ("config.toml", None, ("ask.mode", "bottom-up"), '[ask]\nmode = "bottom-up"\n'),
        ("config.toml", "llm = ", ("llm", "embedded"), "llm = "),
        ("kcard.toml", None, ("ask.mode", "bottom-up", "--project"), '[ask]\nmode = "bottom-up"\n'),
        (
            "pyproject.toml",
            PYPROJECT,
            ("ask.n1", "4", "--project"),
            PYPROJECT + "\n[tool.kcard.ask]\nn1 = 4\n",
        ),
    ],
)
def test_set_changes_one_line_of_its_file_and_keeps_the_rest(
    home: Path,
    project: Path,
    kcard: Kcard,
    name: str,
    before: str | None,
    arguments: tuple[str, ...],
    after: str,
) -> None:
    home.mkdir()
    folder = home if name == "config.toml" else project
    if before is not None:
        (project / "dotfile").write_text(before, encoding="utf-8")
        (folder / name).symlink_to(project / "dotfile")  # a link stays one
    done = kcard("config", "set", *arguments)
    assert (folder / name).read_text(encoding="utf-8") == after
    assert (folder / name).is_symlink() == (before is not None)
    assert done.code == (2 if before == after else 0)
    assert (before == after) == ("is not valid TOML" in done.err)


def test_changed_lists_only_what_differs_from_the_defaults_and_its_origin(
    kcard: Kcard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KCARD_CACHE_MB", "64")
    done = kcard("config", "set", "cache_mb", "32")
    assert "KCARD_CACHE_MB sets 64, which takes precedence" in done.err
    kcard("config", "set", "ask.n1", "5")
    kcard("config", "set", "ask.n2", "5")  # its default
    lines = kcard("config", "--changed").out.splitlines()
    assert [line.split()[0] for line in lines] == ["home", "cache_mb", "ask.n1"]
    assert lines[1].endswith("KCARD_CACHE_MB")
    assert "config.toml:" in lines[2]
