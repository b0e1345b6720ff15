#!/bin/sh
# An S3-compatible server for the tests that need a real one: the Versity S3 gateway, built from its Go module
# into .cache/bin. Prints the path of the program. Without Go nothing is built and the exit code is 3.
set -eu
version=v1.8.0
cd "$(dirname "$0")/.."
cache=$(pwd)/.cache
program=$cache/bin/versitygw-$version
if [ ! -x "$program" ]; then
    if ! command -v go >/dev/null 2>&1; then
        echo "s3gateway: Go is not installed (golang, with toolchains by itself): no S3 gateway can be built" >&2
        exit 3
    fi
    mkdir -p "$cache/bin"
    scratch=$(mktemp -d "$cache/bin/.building-XXXXXX")
    trap 'rm -rf "$scratch"' EXIT
    echo "s3gateway: building the Versity S3 gateway $version, once" >&2
    # Writable, so that the sources and Go's cache can be deleted: 760 MB that nothing needs again.
    CGO_ENABLED=0 GOFLAGS=-modcacherw GOPATH=$cache/go GOCACHE=$cache/go-build GOBIN=$scratch \
        go install -trimpath -ldflags=-s "github.com/versity/versitygw/cmd/versitygw@$version" >&2
    # In one rename, as another process may be building it, too.
    mv "$scratch/versitygw" "$program"
    rm -rf "$cache/go" "$cache/go-build"
fi
echo "$program"
