#!/bin/sh
# Make this checkout ready to work in: .venv with the pinned dependencies; the JARs of Delta, of Spark's connector
# to Kafka and of Hadoop's file system for S3; the class-data archive. Needs Python, Java and nothing else. A second
# run only checks that nothing has changed.
set -eu
cd "$(dirname "$0")/.."
root=$(pwd)

fail() {
    echo "setup: $1" >&2
    exit 1
}

check_java() {
    remedy="install a Java runtime >= 17 and put it on PATH, or point JAVA_HOME to it."
    if [ -n "${JAVA_HOME:-}" ]; then java=$JAVA_HOME/bin/java; else java=java; fi
    command -v "$java" >/dev/null 2>&1 || fail "Java is missing ($java not found): $remedy"
    answer=$("$java" -version 2>&1) || fail "$java does not run: $remedy"
    major=$(echo "$answer" | sed -n 's/.*version "\(1\.\)\{0,1\}\([0-9]*\).*/\2/p' | head -n 1)
    [ -n "$major" ] || fail "$java -version names no version: $remedy"
    [ "$major" -ge 17 ] || fail "$java is Java $major, too old for Spark: $remedy"
}

# A python3.x on PATH may be a shim that only complains, so each candidate is tried.
usable() {
    "$1" -c 'import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' >/dev/null 2>&1
}

find_python() {
    if [ -n "${PYTHON:-}" ]; then
        usable "$PYTHON" || fail "PYTHON is $PYTHON, which is not a Python from 3.11 to 3.13 with venv: name another."
        echo "$PYTHON"
        return
    fi
    for candidate in python3.12 python3.13 python3.11 python3 python \
        "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.1[123]*/bin/python3; do
        if usable "$candidate"; then
            echo "$candidate"
            return
        fi
    done
    fail "no Python from 3.11 to 3.13 with its venv module found: install one (on Debian also python3-venv), or name it in PYTHON."
}

make_environment() {
    python=$(find_python) || exit 1
    rm -f "$stamp"
    if ! .venv/bin/python -c "import sys; sys.exit(sys.prefix != '$root/.venv')" >/dev/null 2>&1 \
        || ! usable .venv/bin/python; then
        echo "setup: making .venv with $("$python" --version)"
        "$python" -m venv --clear .venv
    fi
    # The installer obeys its own variables; a mirror or trust store set up for pip is meant for it too.
    index=${PIP_INDEX_URL:-$(.venv/bin/python -m pip config get global.index-url 2>/dev/null || true)}
    [ -z "$index" ] || export UV_DEFAULT_INDEX="${UV_DEFAULT_INDEX:-$index}"
    [ -z "${PIP_CERT:-}" ] || export SSL_CERT_FILE="${SSL_CERT_FILE:-$PIP_CERT}"
    export UV_CACHE_DIR="${UV_CACHE_DIR:-$root/.cache/uv}" UV_NO_PROGRESS=1
    echo "setup: installing the pinned dependencies"
    mkdir -p .cache
    awk '/^uv==/ { on = 1 } on { print } on && !/\\$/ { exit }' constraints.txt >.cache/installer.txt
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes \
        --only-binary :all: -r .cache/installer.txt
    # What builds a source distribution is pinned by the same file.
    .venv/bin/uv pip sync --quiet --python .venv/bin/python --require-hashes \
        --build-constraints constraints.txt constraints.txt
    .venv/bin/uv pip install --quiet --python .venv/bin/python --no-deps --no-build-isolation --editable .
    # PySpark comes as a source distribution: 0.9 GB unpacked that nothing needs once its wheel is built.
    [ "$UV_CACHE_DIR" != "$root/.cache/uv" ] || .venv/bin/uv cache prune --quiet --ci
}

export DELTA_CDC_HOME="${DELTA_CDC_HOME:-$root/.cache/delta-cdc}"
stamp=.venv/.setup
key=$(cat pyproject.toml constraints.txt tools/setup.sh spark_jobs/delta_cdc/_version.py | cksum)" $root"

check_java
if [ "$(cat "$stamp" 2>/dev/null)" != "$key" ] || ! .venv/bin/python -c '' 2>/dev/null; then
    make_environment
fi
.venv/bin/python - <<'PY'
import sys

from delta_cdc.core.errors import EnvironmentNotReady
from delta_cdc.launch.jars import delta_jars, kafka_jars, s3_jars

try:
    for wanted in (delta_jars(), kafka_jars(), s3_jars()):
        if not wanted.is_resolved():
            print(f"setup: resolving the {wanted.title}", flush=True)
        wanted.jars()
except EnvironmentNotReady as error:
    sys.exit(f"setup: {error}")
PY
echo "$key" >"$stamp"

# A Java runtime without a compiler runs everything else.
.venv/bin/python -m tools.jar >/dev/null || echo "setup: no JAR of the log stores; see docs/explanation/safe-commits.md" >&2

# Nothing needs it; every Spark of the tests starts in less time with it.
.venv/bin/python - <<'PY' || echo "setup: no class-data archive; Spark starts as ever" >&2
from delta_cdc.launch.class_data_archive import ClassDataArchive
from delta_cdc.launch.jars import class_path
from delta_cdc.warmup import make_archive

if ClassDataArchive(class_path()).status().state in ("missing", "damaged"):
    print("setup: making the class-data archive", flush=True)
    print(f"setup: {make_archive().reason}", flush=True)
PY
