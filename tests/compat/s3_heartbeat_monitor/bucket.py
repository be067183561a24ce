"""The bucket of a test, written and read as users of the S3 heartbeat monitor do."""

from __future__ import annotations

import datetime as dt
import json
import time
from dataclasses import dataclass
from typing import Any

from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.s3.models import s3_backends

PREFIX = "training-runs"
RUN = "mistral-20250804-171621"
INSTANCE = "i-01fa5b57d64c6196a"
LOG = "logs/training_log_latest.txt"
LAST_LINE = "[2025-08-04 19:23:45] Step 1500/5000, loss: 2.134, lr: 0.0001"
# The two heartbeats, with the keys that every user's training writes, and no other.
METADATA = {
    "run_id": RUN,
    "status": "running",
    "phase": "training",
    "last_update": "2025-08-04T19:23:45Z",
    "instance_id": INSTANCE,
}
PROGRESS = {
    "step": 1500,
    "total_steps": 5000,
    "loss": 2.134,
    "learning_rate": 0.0001,
    "last_updated": "2025-08-04T19:23:45Z",
}


def ago(seconds: float = 0.0) -> str:
    """A time as trainings write it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - seconds))


@dataclass(frozen=True)
class Bucket:
    """A bucket with runs below `training-runs/`; `client` is boto3's."""

    name: str
    client: Any

    def put(self, run_id: str, name: str, content: str | dict[str, Any], *, written: float | None = None) -> None:
        """Write a file; a heartbeat as long ago as it states, or `written` seconds ago."""
        body = content if isinstance(content, str) else json.dumps(content)
        self.client.put_object(Bucket=self.name, Key=f"{PREFIX}/{run_id}/{name}", Body=body.encode())
        stated = None if isinstance(content, str) else content.get("last_update", content.get("last_updated"))
        if written is None and stated is not None:
            written = time.time() - dt.datetime.fromisoformat(f"{stated[:19]}+00:00").timestamp()
        if written is not None:
            self.age(run_id, written, name)

    def read(self, run_id: str, name: str) -> str:
        answer = self.client.get_object(Bucket=self.name, Key=f"{PREFIX}/{run_id}/{name}")
        text: str = answer["Body"].read().decode()
        return text

    def remove(self, run_id: str, name: str) -> None:
        self.client.delete_object(Bucket=self.name, Key=f"{PREFIX}/{run_id}/{name}")

    def names(self, run_id: str) -> set[str]:
        beginning = f"{PREFIX}/{run_id}/"
        listed = self.client.list_objects_v2(Bucket=self.name, Prefix=beginning).get("Contents", [])
        return {each["Key"].removeprefix(beginning) for each in listed}

    def beat(
        self, run_id: str = RUN, *, metadata: float | None = 0.0, progress: float | None = 0.0, **values: Any
    ) -> None:
        """Write the heartbeats that have an age in seconds; `values` go into metadata.json."""
        if metadata is not None:
            document = {**METADATA, "run_id": run_id, "last_update": ago(metadata), **values}
            self.put(run_id, "metadata.json", document)
        if progress is not None:
            self.put(run_id, "progress.json", {**PROGRESS, "last_updated": ago(progress)})

    def age(self, run_id: str, seconds: float, name: str = "") -> None:
        """Let a file of a run, or all of them, have been written so long ago."""
        objects = s3_backends[DEFAULT_ACCOUNT_ID]["aws"].buckets[self.name].keys
        for key in list(objects):
            if key.startswith(f"{PREFIX}/{run_id}/{name}"):
                moved = dt.datetime.now(dt.timezone.utc).replace(tzinfo=None) - dt.timedelta(seconds=seconds)
                objects[key].last_modified = moved
