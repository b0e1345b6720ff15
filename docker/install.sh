#!/bin/sh
# The steps of docker/Dockerfile, one per argument: folders, environment, package, jars, archive, check.
#
# DELTA_CDC_ROOT is where everything goes, DELTA_CDC_BUILD the project they install from, AIRFLOW_HOME Airflow's
# folder. Needs Python 3.12 and Java >= 17, nothing else.
set -eu

root=${DELTA_CDC_ROOT:-/opt/delta-cdc}
build=${DELTA_CDC_BUILD:-$root/build}
airflow_home=${AIRFLOW_HOME:-/opt/airflow}
venv=$root/venv
export DELTA_CDC_HOME="${DELTA_CDC_HOME:-$root/cache}"

# Layers know whole seconds only, so what an image's files are dated may change when it is pushed; a class-data
# archive counts for JARs of one date. So they all get the same one, in the layer that brings them.
date_of_jars=2026-01-01T00:00:00Z

fail() {
    echo "install: $1" >&2
    exit 1
}

# Let the user of the image own what it will write to. Volumes take their owner from here.
folders() {
    mkdir -p "$root/build/docker" "$root/bin" "$root/exchange" "$root/store" \
        "$airflow_home/dags" "$airflow_home/logs" "$airflow_home/secrets"
    if [ "$(id -u)" = 0 ] && id airflow >/dev/null 2>&1; then
        chown -R airflow:0 "$root" "$airflow_home"
    fi
}

find_python() {
    for candidate in ${PYTHON:-} python3.12 python3 python; do
        if "$candidate" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info[:2] != (3, 12))' \
            >/dev/null 2>&1; then
            echo "$candidate"
            return
        fi
    done
    fail "no Python 3.12 with its venv module found; name it in PYTHON."
}

# Everything pinned, by hash, into an environment of its own. Nothing of the base image's Python shines through.
environment() {
    python=$(find_python) || exit 1
    # The base image installs into the user's folder; here that would be refused.
    unset PIP_USER PYTHONPATH PIP_TARGET VIRTUAL_ENV || true
    scratch=$(mktemp -d)
    trap 'rm -rf "$scratch"' EXIT
    use_installer "$python"
    "$python" -m venv --clear --without-pip "$venv"
    "$uv" pip sync --quiet --python "$venv/bin/python" --require-hashes \
        --build-constraints "$build/constraints.txt" "$build/docker/requirements.txt"
    date_jars "$venv"
}

# The installer is pinned by the project's own file, and is gone when the step is done.
use_installer() {
    index=${PIP_INDEX_URL:-$("$1" -m pip config get global.index-url 2>/dev/null || true)}
    [ -z "$index" ] || export UV_DEFAULT_INDEX="${UV_DEFAULT_INDEX:-$index}"
    [ -z "${PIP_CERT:-}" ] || export SSL_CERT_FILE="${SSL_CERT_FILE:-$PIP_CERT}"
    export UV_CACHE_DIR="$scratch/cache" UV_NO_PROGRESS=1 UV_LINK_MODE=copy
    awk '/^uv==/ { on = 1 } on { print } on && !/\\$/ { exit }' "$build/constraints.txt" >"$scratch/uv.txt"
    "$1" -m venv "$scratch/venv"
    "$scratch/venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-cache-dir --no-deps \
        --require-hashes --only-binary :all: -r "$scratch/uv.txt"
    uv=$scratch/venv/bin/uv
}

date_jars() {
    find "$1" -name '*.jar' -exec touch -d "$date_of_jars" {} +
}

# This project, as a wheel: an image holds no editable install.
package() {
    python=$(find_python) || exit 1
    unset PIP_USER PYTHONPATH PIP_TARGET VIRTUAL_ENV || true
    scratch=$(mktemp -d)
    trap 'rm -rf "$scratch"' EXIT
    use_installer "$python"
    "$uv" pip install --quiet --python "$venv/bin/python" --no-deps \
        --build-constraints "$build/constraints.txt" "$build"
    "$uv" pip check --quiet --python "$venv/bin/python"
}

jars() {
    "$venv/bin/delta-cdc" jars --kafka --s3 >/dev/null
    date_jars "$DELTA_CDC_HOME"
}

archive() {
    # The sample tables are on the store: workers start with its JARs too.
    "$venv/bin/delta-cdc" archive --s3
}

check() {
    for name in run health; do
        [ -x "$root/bin/$name" ] || fail "$root/bin/$name is not there, or can't be run."
    done
    "$venv/bin/python" - <<'PY'
from importlib.metadata import version

from airflow_delta_cdc import operators, sensors  # noqa: F401 - that they can be imported is the check
from delta_cdc.launch.jars import delta_jars

assert version("pyspark") == version("pyspark-client"), "pyspark and pyspark-client differ"
assert delta_jars().is_resolved(), "the Delta JARs are not there"
PY
}

[ $# -gt 0 ] || fail "name a step: folders, environment, package, jars, archive, check."
for step in "$@"; do
    case $step in
        folders | environment | package | jars | archive | check)
            echo "install: $step"
            # Each in a shell of its own, so that one leaves nothing to the next.
            ("$step")
            ;;
        *) fail "there is no step $step." ;;
    esac
done
