#!/usr/bin/env bash
# Compares certificates with a baseline:  ci/compare.sh BASELINE NEW
# Both are a report's folder or a job's, or both hold such folders, which are paired by name. An empty BASELINE
# compares nothing. Fails if one got worse, could not be read, or is in the baseline alone.
set -euo pipefail
old=${1-} new=$2
if [[ -z $old ]]; then
    echo "::notice::no baseline to compare $new with"
    exit 0
fi
is_certificate() { [[ -e $1/report.json || -e $1/verdict.json ]]; }

failed=0 compared=0
compare() {
    echo "$(basename "$2"): $1 -> $2"
    if rlconform diff "$1" "$2"; then :; else
        failed=1
        echo "::error::$(basename "$2"): worse than the baseline, or not comparable"
    fi
    compared=$((compared + 1))
}

if is_certificate "$old" || is_certificate "$new"; then
    compare "$old" "$new"
else
    for folder in "$old"/*/; do
        is_certificate "$folder" || continue
        name=$(basename "$folder")
        if is_certificate "$new/$name"; then
            compare "${folder%/}" "$new/$name"
        else
            failed=1
            echo "::error::$name: the baseline has a certificate, and this run has none"
        fi
    done
fi
if ((compared == 0 && failed == 0)); then
    echo "::error::expected certificates in $old; there are none"
    exit 1
fi
exit "$failed"
