#!/usr/bin/env bash
# Level L1, on a machine with GPUs that can submit to Slurm: the doctests, unit and functional tests with what this
# machine has, those that need a GPU, and the recipes of one node.   ci/l1.sh SITE BASELINE
set -euo pipefail
cd "$(dirname "$0")/.."

source ci/venv.sh dev,tq,mooncake,megatron
nox --no-venv --no-install -s unit functional
PYTHON=python bash ci/gpu_check.sh
python ci/run_suite.py l1 --site "$1" --out jobs
bash ci/compare.sh "$2" jobs
