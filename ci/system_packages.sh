#!/usr/bin/env bash
# Installs, where they are missing and we may, the system libraries that Mooncake's wheel loads, and
# the browser in which tests/functional opens the pages.
set -euo pipefail

packages=(libibverbs1 librdmacm1 libnuma1 libcurl4)
command -v chromium >/dev/null || command -v google-chrome >/dev/null || packages+=(chromium)
missing=()
for package in "${packages[@]}"; do
    dpkg -s "$package" >/dev/null 2>&1 || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0

if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
    echo "transfer_queue/mooncake_cpu and the tests of pages need: sudo apt-get install ${missing[*]}" >&2
    exit 0
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends "${missing[@]}"
