#!/bin/sh
# Install the wheel into an environment that has only the pinned dependencies, and run the demo's DAGs from it,
# outside the checkout: what the project folder lends to an editable install must be in the wheel.
# With arguments, it runs them as a command in that environment, instead of the demo.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export UV_CACHE_DIR="${UV_CACHE_DIR:-$root/.cache/uv}" UV_NO_PROGRESS=1
index=${PIP_INDEX_URL:-$("$root/.venv/bin/python" -m pip config get global.index-url 2>/dev/null || true)}
[ -z "$index" ] || export UV_DEFAULT_INDEX="${UV_DEFAULT_INDEX:-$index}"
[ -z "${PIP_CERT:-}" ] || export SSL_CERT_FILE="${SSL_CERT_FILE:-$PIP_CERT}"

echo "wheel-check: building the wheel"
"$root/.venv/bin/python" -m build --wheel --no-isolation --outdir "$work/dist" "$root" >"$work/build.log" 2>&1 ||
    { cat "$work/build.log"; exit 1; }
echo "wheel-check: installing it into an empty environment"
"$root/.venv/bin/python" -m venv "$work/venv"
uv="$root/.venv/bin/uv pip"
$uv sync --quiet --python "$work/venv/bin/python" --require-hashes --build-constraints "$root/constraints.txt" \
    "$root/constraints.txt"
$uv install --quiet --python "$work/venv/bin/python" --no-deps "$work"/dist/*.whl
cp -R "$root/demo" "$root/dags" "$work/"
cd "$work"
unset PYTHONPATH
"$work/venv/bin/python" -c "
import airflow_delta_cdc, delta_cdc
for module in (airflow_delta_cdc, delta_cdc):
    assert '$work/venv' in module.__file__, module.__file__
"
export PATH="$work/venv/bin:$PATH"
if [ $# -gt 0 ]; then
    "$@"
else
    echo "wheel-check: running the demo from it"
    python -m demo run
fi
