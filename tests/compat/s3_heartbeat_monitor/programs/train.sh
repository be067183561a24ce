#!/bin/bash
# A training script that was written for the S3 heartbeat monitor: it says by itself why it fails.
#
#     BUCKET=… PREFIX=training-runs RUN_ID=… train.sh DATASET
set -euo pipefail

error() {
    local msg="ERROR: $1"
    echo "$msg"
    echo "$1" | aws s3 cp - "s3://$BUCKET/$PREFIX/$RUN_ID/_error"
    exit 1
}

heartbeat() {
    printf '{"run_id": "%s", "status": "%s", "phase": "%s", "last_update": "%s", "instance_id": "%s"}' \
        "$RUN_ID" "$1" "$2" "$(date -u +%Y-%m-%dT%H:%M:%SZ)" "i-01fa5b57d64c6196a" |
        aws s3 cp - "s3://$BUCKET/$PREFIX/$RUN_ID/metadata.json"
}

heartbeat running load
[ -e "$1" ] || error "dataset $1 is not on this disk"
heartbeat running training
: | aws s3 cp - "s3://$BUCKET/$PREFIX/$RUN_ID/_complete"
