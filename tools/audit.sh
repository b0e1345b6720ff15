#!/bin/sh
# Ask the database of open-source vulnerabilities about every version that the project pins: Python packages of an
# installation, the image, the documentation and the release, and the JARs that the SBOM in dist/ lists. Needs a
# network and, the first time, Go. Exit code 1: a vulnerability is known. One that does not concern the project is
# listed in tools/osv-scanner.toml, with a reason and a date on which it counts again.
set -eu
version=v2.5.1
cd "$(dirname "$0")/.."
cache=$(pwd)/.cache
program=$cache/bin/osv-scanner-$version
if [ ! -x "$program" ]; then
    if ! command -v go >/dev/null 2>&1; then
        echo "audit: Go is not installed (golang, with toolchains by itself): no scanner can be built" >&2
        exit 3
    fi
    mkdir -p "$cache/bin"
    scratch=$(mktemp -d "$cache/bin/.building-XXXXXX")
    trap 'rm -rf "$scratch"' EXIT
    echo "audit: building OSV-Scanner $version, once" >&2
    CGO_ENABLED=0 GOFLAGS=-modcacherw GOPATH=$cache/go GOCACHE=$cache/go-build GOBIN=$scratch \
        go install -trimpath -ldflags=-s "github.com/google/osv-scanner/v2/cmd/osv-scanner@$version" >&2
    mv "$scratch/osv-scanner" "$program"
    rm -rf "$cache/go" "$cache/go-build"
fi
set -- scan source --config tools/osv-scanner.toml --no-resolve
for file in constraints.txt docker/requirements.txt docs/requirements.txt tools/release-requirements.txt; do
    set -- "$@" --lockfile "requirements.txt:$file"
done
for file in dist/*.cdx.json; do
    if [ ! -e "$file" ]; then
        echo "audit: dist/ has no SBOM, so the JARs are left out; make release writes one" >&2
        continue
    fi
    set -- "$@" --lockfile "$file"
done
exec "$program" "$@"
