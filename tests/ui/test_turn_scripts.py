"""The scripts of the turn page that need no browser, run by Node."""

import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent / "js"


@pytest.mark.skipif(shutil.which("node") is None, reason="needs Node to run the scripts' own tests")
@pytest.mark.parametrize("name", sorted(path.name for path in HERE.glob("*.test.mjs")))
def test_scripts_pass_their_own_tests(name: str) -> None:
    done = subprocess.run(
        ["node", "--no-warnings", "--import", str(HERE / "as_modules.mjs"), "--test", str(HERE / name)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
