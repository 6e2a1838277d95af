"""Settings: what beats what, where a value comes from, and what a project that was cloned may not choose."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kcard.config import settings, unknown_variables, user_file
from kcard.config_file import Setting, SettingOrigin, line_of, project_file, typed
from kcard.errors import UsageError


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is the current one."""
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def user(home: Path, text: str) -> Path:
    home.mkdir(parents=True, exist_ok=True)
    path = home / "config.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_environment_beats_project_beats_user(
    home: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    user(home, "llm = 'hf:user'\n[ask]\nn1 = 1\nn2 = 1\nn3 = 1\n")
    (project / "kcard.toml").write_text("[ask]\nn1 = 2\nn2 = 2\n", encoding="utf-8")
    monkeypatch.setenv("KCARD_ASK_N1", "3")
    by_key = settings().found
    assert [by_key[f"ask.{key}"].value for key in ("n1", "n2", "n3")] == ["3", 2, 1]
    assert [str(by_key[f"ask.{key}"].origin) for key in ("n1", "n2", "n3")] == [
        "KCARD_ASK_N1",
        f"{project / 'kcard.toml'}:3",
        f"{home / 'config.toml'}:5",
    ]
    assert settings().llm == "hf:user"
    for value, llm in (("hf:mine", "hf:mine"), ("", "hf:user")):
        monkeypatch.setenv("KCARD_LLM", value)
        assert settings().llm == llm


def test_the_nearest_project_file_is_the_only_one(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "kcard.toml").write_text("[ask]\nn1 = 1\nn2 = 1\n", encoding="utf-8")
    below = project / "a"
    below.mkdir()
    (below / "pyproject.toml").write_text("[tool.kcard.ask]\nn1 = 2\n", encoding="utf-8")
    monkeypatch.chdir(below)
    assert {k: s.value for k, s in settings().found.items() if k != "home"} == {"ask.n1": 2}
    assert str(settings().found["ask.n1"].origin) == f"{below / 'pyproject.toml'}:2"


def test_the_search_passes_a_pyproject_without_our_table_and_ends_at_the_root_of_a_repository(
    project: Path,
) -> None:
    (project / "kcard.toml").write_text("", encoding="utf-8")
    below = project / "a" / "src"
    below.mkdir(parents=True)
    for text in (
        "[project]\nname = 'kcard-notes'\n",
        "[tool.black]\n# kcard\n",
        "broken = \n",
        "tool = 'kcard'\n",
    ):
        (below / "pyproject.toml").write_text(text, encoding="utf-8")
        assert project_file(below) == project / "kcard.toml"
    (project / "a" / ".git").mkdir()
    assert project_file(below) is None


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("kcard.toml", "llm = ", r"kcard\.toml is not valid TOML"),
        ("pyproject.toml", "[tool.kcard]\nllm = \n", r"pyproject\.toml is not valid TOML"),
        ("kcard.toml", "\nlmm = 'x'", r"kcard\.toml:2: unknown setting 'lmm' \(did you mean 'llm'\?\)"),
        (
            "kcard.toml",
            "mode = 'direct'",
            r"kcard\.toml:1: unknown setting 'mode': the settings are .*\[ask\]",
        ),
        ("kcard.toml", "[asc]\nn1 = 1", r"kcard\.toml:1: unknown setting 'asc' \(did you mean 'ask'\?\)"),
        ("kcard.toml", "ask = 3", r"kcard\.toml:1: ask is 3, but must be a table"),
        ("kcard.toml", "[llm]\nx = 1", r"kcard\.toml:1: unknown setting 'llm'"),
        ("kcard.toml", "api_key = 'sk-1'", r"keys are never read from files; set OPENAI_API_KEY"),
        ("kcard.toml", "home = '.'", r"kcard\.toml:1: home can't be set in a project file"),
        ("kcard.toml", "trust = ['/']", r"kcard\.toml:1: trust can't be set in a project file"),
        ("kcard.toml", "llm = 3\n", r"kcard\.toml:1: llm is 3, but must be a text"),
        ("kcard.toml", "llm = 'hf:x'\nllm_url = ['x']\n", r"kcard\.toml:2: llm_url is"),
        ("bytes.toml", "llm = '\udcff'", r"bytes\.toml is not valid TOML"),
        (".", None, "can't be read: Is a directory"),
        ("nowhere.toml", None, r"KCARD_CONFIG names .*nowhere\.toml, which does not exist"),
    ],
)
def test_a_wrong_file_is_named_with_line_and_key(
    project: Path, monkeypatch: pytest.MonkeyPatch, file: str, text: str | None, message: str
) -> None:
    if file not in ("kcard.toml", "pyproject.toml"):
        monkeypatch.setenv("KCARD_CONFIG", str(project / file))
    if text is not None:
        (project / file).write_text(text, encoding="utf-8", errors="surrogateescape")
    with pytest.raises(UsageError, match=message):
        _ = settings().llm, settings().llm_url


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission_is_named(home: Path, project: Path) -> None:
    del project
    user(home, "llm = 'hf:x'\n").chmod(0)
    with pytest.raises(UsageError, match="Permission denied"):
        settings()


def test_kcard_config_names_another_file(
    home: Path, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del project
    user(home, "llm = 'hf:one'\n")
    other = tmp_path / "other.toml"
    other.write_text("llm = 'hf:two'\nhome = 'cards'\n", encoding="utf-8")
    monkeypatch.setenv("KCARD_CONFIG", str(other))
    assert user_file() == other
    assert settings().llm == "hf:two"
    monkeypatch.delenv("KCARD_HOME")
    assert settings().home == tmp_path / "cards"


def test_without_a_home_directory_the_remedy_is_named(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere() -> Path:
        raise RuntimeError("Could not determine home directory.")

    del project
    monkeypatch.delenv("KCARD_HOME")
    monkeypatch.setattr(Path, "home", nowhere)
    with pytest.raises(UsageError, match="set KCARD_HOME"):
        settings()


def test_a_current_directory_that_was_deleted_has_no_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert settings().llm == "embedded"
    monkeypatch.chdir(tmp_path)


def test_variables_that_set_nothing_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("KCARD_LMM", "KCARD_LLM", "KCARD_CONFIG", "KCARD_TRAIN_EPOCHS"):
        monkeypatch.setenv(name, "x")
    assert unknown_variables() == ["KCARD_LMM"]


class TestWhereQuestionsGo:
    """A question leaves the machine only where its user chose that."""

    @pytest.mark.parametrize(
        "text",
        [
            "llm = 'openai:gpt'",
            "llm = 'openai:gpt'\nllm_url = 'https://evil.example/v1'",
            "llm = 'telepathy:any'\nllm_url = 'http://localhost:1/v1'",
            "llm = 'openai:gpt'\nllm_url = 'http://127.0.0.1@evil.example/v1'",
            "llm = 'openai:gpt'\nllm_url = 'http://evil.example\\\\@localhost/v1'",
            "llm = 'openai:gpt'\nllm_url = 'http://localhost.evil.example/v1'",
            "llm = 'openai:gpt'\nllm_url = 'localhost'",
            "llm = 'gguf:came-with-the-project.gguf'",
        ],
    )
    def test_a_project_can_not_choose_a_remote_llm_or_a_model_file(
        self, project: Path, text: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("OPENAI_API_KEY", "sk-anything")
        (project / "kcard.toml").write_text(text.replace("'", '"'), encoding="utf-8")
        with pytest.raises(UsageError, match=r"kcard\.toml:1: llm .* a project file may not choose"):
            _ = settings().llm

    def test_a_project_can_not_send_the_users_llm_elsewhere(self, home: Path, project: Path) -> None:
        user(home, "llm = 'openai:gpt'\n")
        (project / "kcard.toml").write_text("llm_url = 'https://evil.example/v1'\n", encoding="utf-8")
        assert settings().llm == "openai:gpt"
        with pytest.raises(UsageError, match=r"kcard\.toml:1: llm_url"):
            _ = settings().llm_url

    @pytest.mark.parametrize(
        "url", ["http://localhost:8000/v1", "http://127.0.0.1:1/v1", "http://[::1]:8000/v1"]
    )
    def test_a_project_may_choose_an_endpoint_of_this_machine(self, project: Path, url: str) -> None:
        (project / "kcard.toml").write_text(f"llm = 'openai:q'\nllm_url = '{url}'\n", encoding="utf-8")
        assert (settings().llm, settings().llm_url) == ("openai:q", url)

    def test_engines_of_this_machine_may_come_from_a_project_and_others_from_the_user_alone(
        self, home: Path, project: Path
    ) -> None:
        here, away = "vllm=http://127.0.0.1:8000", "vllm=https://gpu.example.org"
        (project / "kcard.toml").write_text(f"engine = ['{here}']\n", encoding="utf-8")
        assert settings().engine == (here,)
        (project / "kcard.toml").write_text(f"engine = ['{here}', '{away}']\n", encoding="utf-8")
        with pytest.raises(UsageError, match=r"kcard\.toml:1: engine 'vllm=https://gpu.* pass --engine"):
            _ = settings().engine
        (project / "kcard.toml").unlink()
        user(home, f"engine = ['{away}']\n")
        assert settings().engine == (away,)

    def test_a_project_that_the_user_trusts_may_choose(
        self, home: Path, project: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (project / "kcard.toml").write_text("llm = 'openai:gpt'\n", encoding="utf-8")
        user(home, f"trust = ['{project.parent / 'proj'}']\n")
        with pytest.raises(UsageError):
            _ = settings().llm
        user(home, f"trust = ['{project.parent}']\n")
        assert settings().llm == "openai:gpt"
        user(home, "")
        monkeypatch.setenv("KCARD_TRUST", f"/elsewhere{os.pathsep}{project}")
        assert settings().llm == "openai:gpt"


FILE = SettingOrigin("user", "f:1", Path("/there"))
VARIABLE = SettingOrigin("environment", "KCARD_X")


@pytest.mark.parametrize(
    ("value", "kind", "origin", "expected"),
    [
        (3, int, FILE, 3),
        (3, float, FILE, 3.0),
        ("3", int, VARIABLE, 3),
        ("0.5", float | None, VARIABLE, 0.5),
        ("Yes", bool, VARIABLE, True),
        ("off", bool, VARIABLE, False),
        ("notes", Path, FILE, Path("/there/notes")),
        ("/notes", Path, FILE, Path("/notes")),
        ("notes", Path | None, VARIABLE, Path("notes")),
        (["a", "b"], list[str], FILE, ["a", "b"]),
        ("a, b", list[str], VARIABLE, ["a", "b"]),
        ("3", int, FILE, None),
        (True, int, FILE, None),
        (3.5, int, FILE, None),
        (1, bool, FILE, None),
        ("x", float, VARIABLE, None),
        ("maybe", bool, VARIABLE, None),
        (3, str, FILE, None),
        ([1], list[str], FILE, None),
        ({}, list[str], FILE, None),
        ("", Path, FILE, None),
        (["a", "b"], str, FILE, None),
    ],
)
def test_values_are_given_their_type_or_refused(
    value: object, kind: object, origin: SettingOrigin, expected: object
) -> None:
    setting = Setting("k", value, origin)
    if expected is not None:
        assert typed(setting, kind) == expected
        return
    with pytest.raises(UsageError, match=r"k is .* but must be"):
        typed(setting, kind)


def test_a_line_is_found_however_the_key_is_written() -> None:
    text = 'a = 1\n# n1 = 0\n[ask]\nn-2 = 3\n"n1" = 2\n\n[ train ]\nn1 = 5\n[tool.kcard.ask]\nn3 = 1\n[x]\nask.n1 = 4\n'
    assert line_of(text, "a") == 1
    assert line_of(text, "ask.n1") == 5
    assert line_of(text, "ask.n_2") == 4
    assert line_of(text, "train.n1") == 8
    assert line_of(text, "ask") == 3
    assert line_of(text, "ask.n3", ("tool", "kcard")) == 10
    assert line_of(text, "ask.n9") is None


# OpenMP's threads sleep while they wait, where the user did not say otherwise.


SHOW = "import os, kcard; kcard.Hub; print(os.environ['OMP_WAIT_POLICY'])"


@pytest.mark.parametrize(("setting", "used"), [(None, "PASSIVE"), ("ACTIVE", "ACTIVE")])
def test_the_users_own_setting_wins(setting: str | None, used: str) -> None:
    environment = {key: value for key, value in os.environ.items() if key != "OMP_WAIT_POLICY"}
    environment |= {} if setting is None else {"OMP_WAIT_POLICY": setting}
    shown = subprocess.run(
        [sys.executable, "-c", SHOW], check=True, capture_output=True, text=True, env=environment
    )
    assert shown.stdout.strip() == used
