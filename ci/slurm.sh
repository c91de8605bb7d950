#!/usr/bin/env bash
# The tests on an emulated Slurm that CI runs, as root on Debian 12: under six minutes once all is installed.
set -euo pipefail
cd "$(dirname "$0")/.."

bash ci/slurm_packages.sh
source ci/venv.sh dev,tq,mooncake,megatron
nox --no-venv --no-install -s slurm -- -m slurm_ci
