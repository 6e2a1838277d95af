"""OpenMP's threads sleep while they wait, where the user did not say otherwise."""

import os
import subprocess
import sys

import pytest

SHOW = "import os, kcard; kcard.Hub; print(os.environ['OMP_WAIT_POLICY'])"


@pytest.mark.parametrize(("setting", "used"), [(None, "PASSIVE"), ("ACTIVE", "ACTIVE")])
def test_the_users_own_setting_wins(setting: str | None, used: str) -> None:
    environment = {key: value for key, value in os.environ.items() if key != "OMP_WAIT_POLICY"}
    environment |= {} if setting is None else {"OMP_WAIT_POLICY": setting}
    shown = subprocess.run(
        [sys.executable, "-c", SHOW], check=True, capture_output=True, text=True, env=environment
    )
    assert shown.stdout.strip() == used
