#!/usr/bin/env bash
# Runs all tests that are marked `gpu`, from a plain checkout, with what the machine has, and prints
# by name what ran and what did not. Needs rlconform's packages (pip install -e ".[dev,tq,grpo]").
#   ci/gpu_check.sh [pytest options]
# Ends with 0 if everything that could run passed, 1 if a test failed, 3 without a GPU.
set -euo pipefail
cd "$(dirname "$0")/.."

python=${PYTHON:-python3}
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}" OMP_NUM_THREADS=1
if ! "$python" -c 'import torch; raise SystemExit(not torch.cuda.is_available())'; then
    echo "gpu_check: this machine has no GPU that torch can use, so no test was run" >&2
    exit 3
fi

mapfile -t files < <(grep -rlE 'pytest\.mark\.gpu' tests suites --include='test_*.py' | sort)
results=$(mktemp -d)
trap 'rm -r "$results"' EXIT
failed=0
"$python" -m pytest -m gpu --junitxml="$results/gpu.xml" "$@" "${files[@]}" || failed=$?
"$python" ci/gpu_summary.py "$results/gpu.xml"
exit $((failed ? 1 : 0))
