"""The files for operators go with the commands as they are."""

import json
import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit
from urllib.request import urlopen

import pytest
import yaml

from kcard.hub.server.dependencies import ServerOptions
from kcard.hub.server.limits import HEADER_SECONDS, MAX_HEADER_BYTES
from tests.command_line import check_command

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"


def test_the_systemd_unit_starts_the_server_with_options_that_it_has() -> None:
    unit = (DEPLOY / "kcard-hub.service").read_text()
    started = re.search(r"^ExecStart=\S+/kcard hub serve (.*)$", unit, re.MULTILINE)
    assert started is not None
    check_command(["hub", "serve", *started[1].split()])
    timeouts = re.findall(r"(?:--shutdown-timeout |TimeoutStopSec=)(\d+)", unit)
    assert [int(seconds) for seconds in timeouts] == [30, 45]  # requests end before the server is killed
    assert "kcard hub user add NAME --admin" in unit


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here")
def test_systemd_takes_the_unit_and_finds_it_closed(tmp_path: Path) -> None:
    unit = tmp_path / "kcard-hub.service"
    unit.write_text((DEPLOY / "kcard-hub.service").read_text().replace("/opt/kcard/bin/kcard", "/bin/true"))
    found = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False)
    assert (found.returncode, found.stderr) == (0, "")


def test_the_proxy_leads_to_the_hub_and_has_its_limits() -> None:
    caddyfile = (DEPLOY / "Caddyfile").read_text()
    assert caddyfile.count("{") == caddyfile.count("}")
    assert "reverse_proxy 127.0.0.1:8080" in caddyfile
    assert f"max_header_size {MAX_HEADER_BYTES >> 10}KB" in caddyfile
    assert f"read_header {HEADER_SECONDS:g}s" in caddyfile
    assert f"max_size {ServerOptions().part_size // 10**9}GB" in caddyfile


def instructions(name: str) -> list[str]:
    """The arguments of an instruction of the Dockerfile, each time it is given."""
    lines = (DEPLOY / "Dockerfile").read_text().replace("\\\n", "").splitlines()
    return [line.split(None, 1)[1] for line in lines if line.split(None, 1)[:1] == [name]]


def compose() -> dict[str, Any]:
    return cast(dict[str, Any], yaml.safe_load((DEPLOY / "compose.yaml").read_text()))


def check_exposed(words: list[str]) -> None:
    """A kcard command line is one that kcard takes, on a port that the image exposes."""
    check_command(words)
    assert words[words.index("--host") + 1] == "0.0.0.0"
    assert words[words.index("--port") + 1] in " ".join(instructions("EXPOSE")).split()


def test_the_image_runs_the_server_as_nobody_in_particular() -> None:
    assert json.loads(instructions("ENTRYPOINT")[0]) == ["kcard"]
    check_exposed(json.loads(instructions("CMD")[0]))
    text = (DEPLOY / "Dockerfile").read_text()
    assert int(instructions("USER")[0]) > 0
    assert "RUN" not in text.partition("\nUSER ")[2]
    assert instructions("VOLUME") == ["/var/lib/kcard"]
    assert "KCARD_HOME=/var/lib/kcard" in text


def test_the_image_is_built_of_pinned_images_and_files_that_exist() -> None:
    (base,) = (value for value in instructions("ARG") if value.startswith("PYTHON_IMAGE="))
    images = [
        base.partition("=")[2],
        *(s["image"] for s in compose()["services"].values() if "build" not in s),
    ]
    assert all(re.fullmatch(r"[a-z]+:\d+\.\d+(\.\d+)?-[a-z-]+", image) for image in images), images
    assert {line.split()[0] for line in instructions("FROM")} == {"${PYTHON_IMAGE}"}
    for line in instructions("COPY"):
        *sources, _ = line.split()
        if not line.startswith("--from="):
            assert all((ROOT / source).exists() for source in sources), line
    extras = re.search(r"'\.\[([a-z0-9,]+)\]'", (DEPLOY / "Dockerfile").read_text())
    assert extras is not None
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert {*extras[1].split(",")} <= project["optional-dependencies"].keys()


def test_services_run_commands_that_exist_and_are_asked_for_routes_that_exist() -> None:
    from kcard.hub.server.monitoring import router as of_hub
    from kcard.serve.app import router as of_endpoint

    probes = {"hub": re.search(r"HEALTH_URL=(\S+)", " ".join(instructions("ENV")))[1]}  # type: ignore[index]
    probes["serve"] = compose()["services"]["serve"]["environment"]["HEALTH_URL"]
    for (name, url), router in zip(probes.items(), (of_hub, of_endpoint), strict=True):
        service = compose()["services"][name]
        check_exposed(service["command"])
        port = service["command"][service["command"].index("--port") + 1]
        assert url.startswith(f"http://127.0.0.1:{port}/")
        assert f"127.0.0.1:{port}:{port}" in service["ports"]
        assert urlsplit(url).path in {route.path for route in router.routes}  # type: ignore[attr-defined]
    assert "HEALTH_URL" in instructions("HEALTHCHECK")[0]


@pytest.mark.skipif(shutil.which("hadolint") is None, reason="no hadolint here")
def test_hadolint_has_nothing_to_say() -> None:
    done = subprocess.run(["hadolint", DEPLOY / "Dockerfile"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def has_docker() -> bool:
    """Whether a docker daemon with its plugin compose can be used."""
    if shutil.which("docker") is None:
        return False
    return all(
        subprocess.run(["docker", *words], capture_output=True, check=False).returncode == 0
        for words in (["info"], ["compose", "version"])
    )


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.skipif(not has_docker(), reason="no docker with compose here")
def test_the_services_start_and_are_healthy() -> None:
    command = ["docker", "compose", "--project-name", "kcard-test", "--file", str(DEPLOY / "compose.yaml")]
    environment = os.environ | {"POSTGRES_PASSWORD": "0123456789abcdef"}
    try:
        subprocess.run([*command, "up", "--detach", "--build", "--wait"], env=environment, check=True)
        for url in ("http://127.0.0.1:8080/readyz", "http://127.0.0.1:8000/healthz"):
            with urlopen(url, timeout=30) as answer:
                assert answer.status == 200
    finally:
        subprocess.run([*command, "down", "--volumes"], env=environment, check=True)


def test_the_image_is_built_from_everything_that_the_package_is_made_of() -> None:
    sdist = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["sdist"]
    taken = {
        line[1:] for line in (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines() if line[:1] == "!"
    }
    assert {path.partition("/")[0] for path in sdist["only-include"]} <= taken
    assert {"constraints.txt", "pyproject.toml"} <= taken


def test_the_compose_file_keeps_the_password_out_of_itself_and_the_port_at_home() -> None:
    services = compose()["services"]
    hub, serve, database = services["hub"], services["serve"], services["database"]
    assert "${POSTGRES_PASSWORD:?" in hub["environment"]["KCARD_DATABASE_URL"]
    assert "${POSTGRES_PASSWORD:?" in database["environment"]["POSTGRES_PASSWORD"]
    assert all(port.startswith("127.0.0.1:") for service in (hub, serve) for port in service["ports"])
    assert "ports" not in database
    for service in (hub, serve):
        assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"])
    volumes = {volume.partition(":")[0] for service in services.values() for volume in service["volumes"]}
    assert volumes == compose()["volumes"].keys()
