#!/bin/sh
# Chromium and its driver, for the tests that look at Airflow's pages. Does nothing where they are; installs
# Debian's packages where CI is set and we are root.
set -eu
command -v chromium >/dev/null 2>&1 && command -v chromedriver >/dev/null 2>&1 && exit 0
if [ -z "${CI:-}" ]; then
    echo "chromium: not installed; the tests of the browser will be skipped (apt-get install chromium chromium-driver)" >&2
    exit 0
fi
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null 2>&1; then
    echo "chromium: install Chromium and chromedriver before this: CI has to test in a browser" >&2
    exit 1
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update --quiet --quiet
apt-get install --quiet --quiet --yes --no-install-recommends chromium chromium-driver
