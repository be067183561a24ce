"""The content of a bucket, as a monitor reads it."""

import json
from dataclasses import dataclass
from typing import Any

from trainwarden.clients.s3_location import S3Location

PREFIX = "training-runs"


@dataclass(frozen=True)
class Store:
    """The records in one bucket; names are relative to the record of the run `r`."""

    client: Any
    bucket: str
    prefix: str = PREFIX

    @property
    def url(self) -> str:
        return f"s3://{self.bucket}/{self.prefix}"

    @property
    def record(self) -> S3Location:
        return S3Location(self.bucket, self.prefix).below("r")

    def read(self, name: str) -> bytes:
        data: bytes = self.client.get_object(Bucket=self.bucket, Key=self.record.key(name))["Body"].read()
        return data

    def document(self, name: str) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.read(name))
        return document

    def write(self, name: str, content: bytes | dict[str, Any]) -> None:
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.client.put_object(Bucket=self.bucket, Key=self.record.key(name), Body=data)

    def names(self) -> set[str]:
        page = self.client.list_objects_v2(Bucket=self.bucket, Prefix=self.record.key(""))
        skipped = len(self.record.key(""))
        return {item["Key"][skipped:] for item in page.get("Contents", ())}
