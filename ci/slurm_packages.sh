#!/usr/bin/env bash
# A Slurm of one machine, with which tests/e2e/slurm emulate a cluster.
set -euo pipefail
source "$(dirname "$0")/install_packages.sh"

install_packages "tests/e2e/slurm need" slurm-wlm munge iproute2 util-linux
