#!/usr/bin/env bash
# The step of the action `certify`: certifies TARGET, writes the verdict to GITHUB_OUTPUT.
# Variables: TARGET LEVEL CONFIG WAIVERS REQUIRE OUT OPTIONS; empty ones are left out.
#   REQUIRE=certified        fails unless the plane is certified
#   REQUIRE=no-regression    leaves a plane that is not certified to the comparison with the baseline
set -euo pipefail

case ${REQUIRE:=certified} in
    certified) ;;
    no-regression)
        # The first run has none; if it failed for that, there would never be one.
        [[ -n ${BASELINE:-} ]] || echo "::warning::no baseline yet: a plane that is not certified passes" ;;
    *) echo "::error::require: expected certified or no-regression; got $REQUIRE" >&2; exit 2 ;;
esac
read -ra options <<<"${OPTIONS:-}"
code=0
rlconform certify "$TARGET" --out "$OUT" ${LEVEL:+--level "$LEVEL"} ${CONFIG:+--config "$CONFIG"} \
    ${WAIVERS:+--waivers "$WAIVERS" --allow-deviations} "${options[@]}" || code=$?

verdict=none
if [[ -e $OUT/report.json ]]; then
    verdict=$(python -c 'import json, sys; print(json.load(open(sys.argv[1]))["verdict"]["verdict"])' "$OUT/report.json")
fi
printf 'verdict=%s\ncode=%s\n' "$verdict" "$code" >>"$GITHUB_OUTPUT"
printf '**%s**: %s\n\n' "$TARGET" "$verdict" >>"$GITHUB_STEP_SUMMARY"
# 1 is a plane that is not certified. 2 and 3 mean that it was not judged, which never passes.
[[ $code -eq 1 && $REQUIRE == no-regression ]] || exit "$code"
