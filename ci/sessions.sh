#!/usr/bin/env bash
# Runs nox sessions of the installed environment in parallel lanes: `ci/sessions.sh "functional" "lint unit"`.
# The sessions of one lane run one after another. The output of a lane is printed in one piece when it
# ends; a line for each start and end says meanwhile what runs. Fails if any session fails.
set -uo pipefail

logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
trap 'kill $(jobs -p) 2>/dev/null; wait; exit 130' INT TERM

lane() { # lane LOG SESSION...: run the sessions one after another, the failed ones included
    local log=$1 session began status=0
    shift
    for session in "$@"; do
        began=$SECONDS
        echo "[$(date +%T)] $session started"
        if nox --no-venv --no-install -s "$session" >>"$log" 2>&1; then
            echo "[$(date +%T)] $session passed after $((SECONDS - began)) s"
        else
            echo "[$(date +%T)] $session FAILED after $((SECONDS - began)) s"
            status=1
        fi
    done
    { flock 9 && cat "$log"; } 9>"$logs/printing"
    return $status
}

pids=() status=0
for sessions in "$@"; do
    read -ra names <<<"$sessions"
    lane "$logs/${#pids[@]}" "${names[@]}" &
    pids+=($!)
done
for pid in "${pids[@]}"; do
    wait "$pid" || status=1
done
exit $status
