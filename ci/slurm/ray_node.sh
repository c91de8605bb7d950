# One step of a job, see ray.sbatch:  ray_node.sh head|worker|driver NODE ADDRESS
set -euo pipefail
role=$1 node=$2 address=$3

source "$JOB_FOLDER/setup.sh" # the site's own lines
cd "$JOB_FOLDER"
[[ ! -d code ]] || export PYTHONPATH=$JOB_FOLDER/code${PYTHONPATH:+:$PYTHONPATH}
export PYTHONUNBUFFERED=1 RAY_USAGE_STATS_ENABLED=0 OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
python=$JOB_PYTHON

if [[ $role == driver ]]; then
    trap '' USR1 # until the run has a handler of its own
    read -ra nodes <<<"$JOB_NODES"
    "$python" -m rlconform.launch.await_nodes "$RAY_HEAD" "$JOB_BRING_UP_S" "$LOGS/missing_nodes" "${nodes[@]}"
    exec "$python" -m rlconform train config.yaml --ray-address "$RAY_HEAD"
fi

port=$JOB_PORT
options=(
    --block --disable-usage-stats --no-monitor --include-log-monitor=false
    --node-name="$node" --node-ip-address="$address"
    --node-manager-port=$((port + 1)) --object-manager-port=$((port + 2)) --runtime-env-agent-port=$((port + 3))
    --dashboard-agent-listen-port=$((port + 4)) --dashboard-agent-grpc-port=$((port + 5))
    --metrics-export-port=$((port + 6)) --min-worker-port=$((port + 10)) --max-worker-port=$((port + 199))
    --num-gpus="$JOB_GPUS" ${JOB_CPUS:+--num-cpus="$JOB_CPUS"}
    ${JOB_OBJECT_STORE:+--object-store-memory="$JOB_OBJECT_STORE"}
)
if [[ $role == head ]]; then
    # Ray's sockets are in this folder, and a socket's path may have 107 bytes.
    options+=(--head --port="$port" --include-dashboard=false --temp-dir="/tmp/ray-$SLURM_JOB_ID-$SLURM_NODEID")
else
    until=$((SECONDS + JOB_BRING_UP_S))
    until (exec 3<>"/dev/tcp/${RAY_HEAD%:*}/${RAY_HEAD##*:}") 2>/dev/null; do
        ((SECONDS < until)) || { echo "node $node: nothing answers at $RAY_HEAD" >&2; exit 1; }
        sleep 0.5
    done
    options+=(--address="$RAY_HEAD")
fi
# On a busy machine Ray gives up after 30 s; then it is started again.
for _ in 1 2 3; do
    code=0
    "$python" -m ray.scripts.scripts start "${options[@]}" || code=$?
    ! grep -qs "Ray runtime started" "$LOGS/$role-$node.log" || break
done
exit "$code"
