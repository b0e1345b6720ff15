"""Build what a release consists of, from the last commit: ``python -m tools.release``; see ``make release``.

- The source distribution and the wheel. They have the files and the time of the commit. Two builds of one
  commit give the same bytes if Python, the packages of ``constraints.txt`` and the JDK are the same.
- An SBOM in the format of CycloneDX, and a table of licences: of the packages that an installation gets with
  the versions of ``constraints.txt``. The SBOM also has the JARs that such an installation fetches for Spark.

``--wheel`` builds the distributions alone. The files are in ``dist/``.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
from pathlib import Path
from typing import TYPE_CHECKING, Any

from delta_cdc.launch.jars import delta_jars, kafka_jars, s3_jars

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from delta_cdc.launch.jars import JarSet

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
_CONSTRAINTS = ROOT / "constraints.txt"
#: The environments of the tools, and of the installation that they examine.
_TOOLS, _RUNTIME = (ROOT / ".cache" / "release" / name for name in ("tools", "runtime"))


def distributions(folder: Path, commit: str = "HEAD") -> list[Path]:
    """Build a commit of the checkout; return the source distribution and the wheel.

    Nothing of the working tree is used, so that files which are not committed are never in a release.

    :raises subprocess.CalledProcessError: this is no checkout, or the build fails; its output is printed
    """
    with tempfile.TemporaryDirectory(prefix="delta-cdc-release-") as scratch:
        source, built = Path(scratch) / "source", Path(scratch) / "dist"
        with tarfile.open(fileobj=io.BytesIO(_git("archive", "--format=tar", commit))) as archive:
            archive.extractall(source, filter="data")
        variables = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join((str(source), str(source / "spark_jobs"))),
            "SOURCE_DATE_EPOCH": _git("log", "-1", "--format=%ct", commit).decode().strip(),
        }
        # The JAR of the log store is compiled here: one in the checkout may come from another compiler.
        _run([sys.executable, "-m", "tools.jar"], cwd=source, variables=variables)
        build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(built), str(source)]
        _run(build, cwd=source, variables=variables)
        folder.mkdir(parents=True, exist_ok=True)
        (archived,), (wheel,) = built.glob("*.tar.gz"), built.glob("*.whl")
        return [Path(shutil.copy(file, folder)) for file in (archived, wheel)]


def inventory(folder: Path, wheel: Path) -> list[Path]:
    """Write the SBOM and the table of licences of a wheel; return their paths."""
    name = "-".join(wheel.name.split("-")[:2])
    sbom, licences = folder / f"{name}.cdx.json", folder / f"{name}.licenses.md"
    programs = _tools() / "bin"
    python = _installed(wheel)
    _run(
        [
            *(str(programs / "cyclonedx-py"), "environment", "--pyproject", str(ROOT / "pyproject.toml")),
            *("--mc-type", "library", "--output-reproducible", "--of", "JSON", "--validate"),
            *("-o", str(sbom), str(python)),
        ]
    )
    document, jars = json.loads(sbom.read_text(encoding="utf-8")), jar_components()
    root = document["metadata"]["component"]
    # The version is not in pyproject.toml.
    root["version"] = wheel.name.split("-")[1]
    document["components"] += jars
    (needs,) = (one for one in document["dependencies"] if one["ref"] == root["bom-ref"])
    needs["dependsOn"] += [jar["bom-ref"] for jar in jars]
    sbom.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    _run(
        [
            *(str(programs / "pip-licenses"), "--python", str(python), "--from", "mixed", "--with-system"),
            *("--with-urls", "--order", "license", "--format", "markdown", "--output-file", str(licences)),
        ]
    )
    return [sbom, licences]


def jar_components() -> list[dict[str, Any]]:
    """Return the JARs that the default installation fetches, as components of an SBOM.

    The JARs of Delta are needed always; the others if a table is on S3, or a source is a topic.
    """
    return [
        *_components(delta_jars(), "required"),
        *_components(kafka_jars(), "optional"),
        *_components(s3_jars(), "optional"),
    ]


def _components(jars: JarSet, scope: str) -> Iterable[dict[str, Any]]:
    for coordinates, sha256 in sorted(jars.by_coordinates.items()):
        group, name, version = coordinates.split(":")
        purl = f"pkg:maven/{group}/{name}@{version}"
        yield {
            "type": "library",
            "bom-ref": purl,
            "group": group,
            "name": name,
            "version": version,
            "scope": scope,
            "purl": purl,
            "hashes": [{"alg": "SHA-256", "content": sha256}],
        }


def _tools() -> Path:
    """Return the environment of the tools, with the versions of ``tools/release-requirements.txt``."""
    if not (_TOOLS / "bin" / "python").exists():
        venv.create(_TOOLS, with_pip=True, clear=True)
    requirements = str(ROOT / "tools" / "release-requirements.txt")
    pip = [str(_TOOLS / "bin" / "python"), "-m", "pip"]
    _run([*pip, "install", "--quiet", "--disable-pip-version-check", "--require-hashes", "-r", requirements])
    return _TOOLS


def _installed(wheel: Path) -> Path:
    """Install a wheel into an environment that has nothing else; return the environment's Python."""
    uv, python = str(Path(sys.executable).with_name("uv")), _RUNTIME / "bin" / "python"
    shutil.rmtree(_RUNTIME, ignore_errors=True)
    variables = {"UV_CACHE_DIR": str(ROOT / ".cache" / "uv"), **_index(), **os.environ}
    _run([uv, "venv", "--python", sys.executable, str(_RUNTIME)], variables=variables)
    # uv checks the hashes that the constraints have.
    versions = ["--constraints", str(_CONSTRAINTS), "--build-constraints", str(_CONSTRAINTS)]
    _run([uv, "pip", "install", "--python", str(python), *versions, str(wheel)], variables=variables)
    return python


def _index() -> dict[str, str]:
    """Return the package index of pip and its certificates, as variables of uv."""
    command = [str(_TOOLS / "bin" / "python"), "-m", "pip", "config", "get", "global.index-url"]
    # Without such a setting, pip complains and exits with 1.
    found = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
    index = os.environ.get("PIP_INDEX_URL") or found.stdout.strip()
    certificates = os.environ.get("PIP_CERT")
    return {
        **({"UV_DEFAULT_INDEX": index} if index else {}),
        **({"SSL_CERT_FILE": certificates} if certificates else {}),
    }


def _git(*arguments: str) -> bytes:
    return subprocess.run(["git", "-C", str(ROOT), *arguments], stdout=subprocess.PIPE, check=True).stdout


def _run(command: list[str], *, cwd: Path = ROOT, variables: Mapping[str, str] | None = None) -> None:
    """Run a program; print what it prints only if it fails."""
    with tempfile.TemporaryFile("w+") as output:
        done = subprocess.run(command, cwd=cwd, env=variables, stdout=output, stderr=output, check=False)
        if done.returncode:
            output.seek(0)
            print(output.read(), file=sys.stderr, flush=True)
            done.check_returncode()


def main() -> None:
    """Build the files, and print their hashes."""
    parser = argparse.ArgumentParser(prog="release", description=__doc__)
    parser.add_argument("--wheel", action="store_true", help="build the distributions alone")
    given = parser.parse_args()
    if _git("status", "--porcelain"):
        print("release: changes that are not committed are left out", file=sys.stderr)
    files = distributions(DIST)
    if not given.wheel:
        files += inventory(DIST, files[-1])
    for file in files:
        print(f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
