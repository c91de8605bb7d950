#!/usr/bin/env bash
# Level L2, on a login node of Slurm: the recipes of several nodes.   ci/l2.sh SITE BASELINE
set -euo pipefail
cd "$(dirname "$0")/.."

source ci/venv.sh tq,mooncake,megatron
python ci/run_suite.py nightly --site "$1" --out jobs
bash ci/compare.sh "$2" jobs
