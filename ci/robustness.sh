#!/usr/bin/env bash
# The tests of hostile planes and interrupts, and those of several minutes, in an environment of their own.
set -euo pipefail
cd "$(dirname "$0")/.."

source ci/venv.sh dev,tq
nox --no-venv --no-install -s robustness
