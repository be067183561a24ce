#!/usr/bin/env bash
# A training job that is a shell script: it counts instead of learning, and saves what it has counted.
#
#     examples/shell/train.sh [STEPS]
#
# With FAIL_AT=STEP it fails at that step. Started again, it goes on from where it was.
set -euo pipefail
. "$(trainwarden shell-init)"

steps=${1:-20}
run=${TRAINWARDEN_RUN_ID:-shell-example}
tw_start "$run" "$steps"

checkpoints=$TRAINWARDEN_RUNS_DIR/$run/checkpoints
saved=$checkpoints/step

tw_phase load
mkdir -p "$checkpoints"
step=0
if [ -f "$saved" ]; then
    step=$(cat "$saved")
    echo "going on from step $step"
fi

while [ "$step" -lt "$steps" ]; do
    step=$((step + 1))
    sleep "${STEP_SECONDS:-0.1}"
    if [ "$step" = "${FAIL_AT:-}" ]; then
        tw_fail "RuntimeError: DataLoader worker (pid 4242) is killed by signal: Killed." --exit-code 1
        exit 1
    fi
    tw_step "$step" "$(awk "BEGIN { print 1 / $step }")"
    if [ $((step % 5)) = 0 ]; then
        tw_phase checkpoint
        echo "$step" >"$saved.new"
        mv "$saved.new" "$saved"
        tw_phase train
    fi
done
echo "counted to $step"
