#!/usr/bin/env bash
# The gate of the self-test with all mutants; .ci/run tries one of several processes of each kind.
set -euo pipefail
cd "$(dirname "$0")/.."

source ci/venv.sh dev,tq,megatron
nox --no-venv --no-install -s "mutants(gate)"
