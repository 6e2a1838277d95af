"""The files for operators go with the commands as they are."""

import json
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml
from typer.main import get_command

from kcard.cli.main import app

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"


def known_options(*words: str) -> set[str]:
    command = get_command(app)
    for word in words:
        command = command.get_command(None, word)  # type: ignore[attr-defined]
    return {option for parameter in command.params for option in parameter.opts}


def used_options(words: list[str]) -> set[str]:
    return {word for word in words if word.startswith("--")}


def test_the_systemd_unit_starts_the_server_with_options_that_it_has() -> None:
    unit = (DEPLOY / "kcard-hub.service").read_text()
    started = re.search(r"^ExecStart=\S+/kcard hub serve (.*)$", unit, re.MULTILINE)
    assert started is not None
    assert used_options(started[1].split()) <= known_options("hub", "serve")
    assert int(re.search(r"--grace (\d+)", unit)[1]) < int(re.search(r"TimeoutStopSec=(\d+)", unit)[1])  # type: ignore[index]
    assert "kcard hub user add NAME --admin" in unit
    assert "--admin" in known_options("hub", "user", "add")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here")
def test_systemd_takes_the_unit_and_finds_it_closed(tmp_path: Path) -> None:
    unit = tmp_path / "kcard-hub.service"
    unit.write_text((DEPLOY / "kcard-hub.service").read_text().replace("/opt/kcard/bin/kcard", "/bin/true"))
    found = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False)
    assert (found.returncode, found.stderr) == (0, "")


def test_the_image_runs_the_server_as_nobody_in_particular() -> None:
    lines = (DEPLOY / "Dockerfile").read_text().replace("\\\n", "").splitlines()
    command = json.loads(next(line for line in lines if line.startswith("CMD ")).removeprefix("CMD "))
    assert command[0] == "serve"
    assert used_options(command) <= known_options("hub", "serve")
    user = next(number for number, line in enumerate(lines) if line.startswith("USER "))
    assert lines[user] != "USER root"
    assert all(not line.startswith("RUN") for line in lines[user:])


def test_the_image_is_built_from_everything_that_the_package_is_made_of() -> None:
    sdist = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["sdist"]
    taken = {
        line[1:] for line in (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines() if line[:1] == "!"
    }
    assert {path.partition("/")[0] for path in sdist["only-include"]} <= taken
    assert {"constraints.txt", "pyproject.toml"} <= taken


def test_the_compose_file_keeps_the_password_out_of_itself_and_the_port_at_home() -> None:
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    hub, database = compose["services"]["hub"], compose["services"]["database"]
    assert "${POSTGRES_PASSWORD:?" in hub["environment"]["KCARD_DATABASE_URL"]
    assert "${POSTGRES_PASSWORD:?" in database["environment"]["POSTGRES_PASSWORD"]
    assert all(port.startswith("127.0.0.1:") for port in hub["ports"])
    assert "ports" not in database
    assert (hub["read_only"], hub["cap_drop"]) == (True, ["ALL"])
    assert {volume.partition(":")[0] for s in (hub, database) for volume in s["volumes"]} == set(
        compose["volumes"]
    )
