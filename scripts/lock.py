"""Writes requirements.lock anew from pyproject.toml: every package with its hashes, for all
platforms, without any address.

Called by `make lock`; arguments go to `uv pip compile`. uv lives in a venv that is thrown away
afterwards; where packages come from is said by the user's settings.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OPTIONS = (
    *(
        "--universal",
        "--python-version",
        "3.11",
        "--generate-hashes",
        "--extra",
        "spark",
        "--extra",
        "dev",
    ),
    *("--no-emit-index-url", "--no-annotate", "--no-header", "--quiet"),
    *("--output-file", "requirements.lock"),
)


def main() -> int:
    """0 when the lock is written; otherwise what pip or uv said is on the screen."""
    with tempfile.TemporaryDirectory(prefix="tidegate-lock-") as folder:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        subprocess.run(
            [
                f"{folder}/bin/python",
                "-m",
                "pip",
                "install",
                "--quiet",
                "--disable-pip-version-check",
                "uv",
            ],
            check=True,
        )
        compiled = subprocess.run(
            [f"{folder}/bin/uv", "pip", "compile", "pyproject.toml", *OPTIONS, *sys.argv[1:]],
            cwd=ROOT,
            check=False,
        )
    return compiled.returncode


if __name__ == "__main__":
    sys.exit(main())
