#!/usr/bin/env bash
# The gate of the self-test with all mutants of several processes; .ci/run tries one of each kind.
set -euo pipefail
cd "$(dirname "$0")/.."

source ci/venv.sh dev,tq,megatron
nox --no-venv --no-install -s "mutants(whole_gate)"
