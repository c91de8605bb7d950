#!/usr/bin/env bash
# Fetches the newest artifact of a name that a successful run on a branch has left:
#   ci/fetch_baseline.sh NAME BRANCH FOLDER
# Writes folder=FOLDER to GITHUB_OUTPUT, or folder= if there is none yet. Needs gh, GH_TOKEN, GITHUB_REPOSITORY.
# A pull request of a fork may come from a branch of this name too: only runs of the repository's own branch count.
set -euo pipefail
name=$1 branch=$2 folder=$3

own='(.expired | not) and .workflow_run.head_branch == env.BRANCH and
    .workflow_run.head_repository_id == .workflow_run.repository_id'
runs=$(BRANCH=$branch gh api "repos/$GITHUB_REPOSITORY/actions/artifacts?name=$name&per_page=100" \
    --jq ".artifacts[] | select($own) | .workflow_run.id")
for run in $runs; do # newest first
    ended=$(gh api "repos/$GITHUB_REPOSITORY/actions/runs/$run" --jq .conclusion)
    [[ $ended == success ]] || continue
    gh run download "$run" --repo "$GITHUB_REPOSITORY" --name "$name" --dir "$folder"
    echo "folder=$folder" >>"$GITHUB_OUTPUT"
    echo "baseline: $name of run $run"
    exit 0
done
echo "folder=" >>"$GITHUB_OUTPUT"
echo "::notice::no successful run on $branch has left $name yet: there is nothing to compare with"
