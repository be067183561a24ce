"""A training that was written for the S3 heartbeat monitor. The argument is what goes wrong, if anything does."""

import atexit
import json
import sys
import time
import traceback

import boto3

current_run_id, s3_bucket, problem = sys.argv[1:]


def put(name: str, body: str) -> None:
    s3_client = boto3.client("s3")
    s3_client.put_object(Bucket=s3_bucket, Key=f"training-runs/{current_run_id}/{name}", Body=body)


def handle_error(error_msg: str) -> None:
    s3_client = boto3.client("s3")
    s3_client.put_object(Bucket=s3_bucket, Key=f"training-runs/{current_run_id}/_error", Body=error_msg)
    sys.exit(1)


def write_completion_marker() -> None:
    put("_complete", "")


def stamp() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


atexit.register(write_completion_marker)
put(
    "metadata.json",
    json.dumps({"run_id": current_run_id, "status": "running", "phase": "training", "last_update": stamp()}),
)
try:
    for step in range(1, 4):
        values = {"step": step, "total_steps": 3, "loss": 1 / step, "learning_rate": 0.0001, "last_updated": stamp()}
        put("progress.json", json.dumps(values))
        if problem and step == 2:
            raise RuntimeError(problem)
except RuntimeError as error:
    handle_error(f"{error}\n{traceback.format_exc()}")
