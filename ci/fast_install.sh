#!/usr/bin/env bash
# Installs packages for a Python, as pip would:  bash ci/fast_install.sh PYTHON -c CONSTRAINTS PACKAGE...
# uv needs a sixth of pip's time. It takes pip's settings from here; without uv, or where it fails, pip installs.
# Neither compiles bytecode: most of torch is never imported.
set -euo pipefail
python=$1
shift

setting() { "$python" -m pip config get "global.$1" 2>/dev/null || true; }

if command -v uv >/dev/null; then
    find_links=${PIP_FIND_LINKS:-$(setting find-links)}
    index=${PIP_INDEX_URL:-$(setting index-url)}
    cert=${PIP_CERT:-$(setting cert)}
    export UV_FIND_LINKS=${find_links// /,} UV_INDEX=${PIP_EXTRA_INDEX_URL:-$(setting extra-index-url)}
    export UV_INDEX_STRATEGY=unsafe-best-match # pip takes the best version of all indexes
    [[ -z $index ]] || export UV_DEFAULT_INDEX=$index
    [[ -z $cert ]] || export SSL_CERT_FILE=$cert
    uv pip install -q --python "$python" "$@" && exit
    echo "uv can't install them: pip does" >&2
fi
"$python" -m pip install -q --no-compile "$@"
