#!/usr/bin/env bash
# The system libraries that Mooncake's wheel loads, and the browser in which tests/functional opens the pages.
set -euo pipefail
source "$(dirname "$0")/install_packages.sh"

packages=(libibverbs1 librdmacm1 libnuma1 libcurl4)
command -v chromium >/dev/null || command -v google-chrome >/dev/null || packages+=(chromium)
install_packages "transfer_queue/mooncake_cpu and the tests of pages need" "${packages[@]}"
