#!/usr/bin/env bash
# Installs a Slurm of one machine, with which tests/e2e/slurm emulate a cluster, if we may.
set -euo pipefail

packages=(slurm-wlm munge iproute2 util-linux)
missing=()
for package in "${packages[@]}"; do
    dpkg -s "$package" >/dev/null 2>&1 || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0

if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
    echo "tests/e2e/slurm need: sudo apt-get install ${missing[*]}" >&2
    exit 0
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends "${missing[@]}"
