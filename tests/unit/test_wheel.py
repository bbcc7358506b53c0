"""`pip wheel .` gives a wheel that carries the chat page and works in another environment."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_the_wheel_carries_the_page_and_works_elsewhere(tmp_path: Path) -> None:
    def run(*command: str | Path) -> str:
        # Build tools are found beside the Python that runs the tests.
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        result = subprocess.run(
            command,
            cwd=tmp_path,
            env={**os.environ, "PATH": path},
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )
        assert result.returncode == 0, result.stdout + result.stderr
        return result.stdout

    # The build tools are here already; a build of its own environment would fetch them again.
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    run(*pip, "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", tmp_path, str(ROOT))
    [wheel] = tmp_path.glob("pagurid-*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert "pagurid/server/static/index.html" in names
    assert any(name.startswith("pagurid/server/static/assets/") and name.endswith(".js") for name in names)
    assert "pagurid/_core/__init__.pyi" in names
    assert "pagurid/py.typed" in names
    assert not [name for name in names if name.startswith(("tests/", "web/"))]

    # Another environment, which borrows the dependencies (torch is 5 GB) and nothing else.
    run(sys.executable, "-m", "venv", "--without-pip", tmp_path / "other")
    python = tmp_path / "other" / "bin" / "python"
    site = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    run(*pip, "install", "-q", "--no-deps", "--target", site, wheel)
    (site / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    code = (
        "import sys, pagurid, pagurid.server.app as app, pathlib;"
        "assert pathlib.Path(pagurid.__file__).is_relative_to(pathlib.Path(sys.prefix).resolve());"
        "assert (app.STATIC / 'index.html').is_file();"
        "print(pagurid.__version__)"
    )
    assert run(python, "-c", code).strip() == run(python, "-m", "pagurid.cli", "version").strip()
