"""SNS: a topic, through boto3, which finds credentials by itself."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from trainwarden.clients.slack import NotSent

if TYPE_CHECKING:
    from collections.abc import Mapping

_TIMEOUT_SECONDS = 10.0
_ARN = re.compile(r"arn:aws[\w-]*:sns:([\w-]+):\d{12}:[\w-]{1,256}(\.fifo)?")


class SnsTopic:
    """A topic.

    Raises:
        ValueError: the name is none of a topic, or boto3 is not installed; the text says which.
    """

    def __init__(self, topic: str) -> None:
        found = _ARN.fullmatch(topic)
        if found is None:
            raise ValueError(f"{topic!r}: expected arn:aws:sns:REGION:ACCOUNT:NAME")
        try:
            import boto3  # noqa: PLC0415  # an extra
            from botocore.config import Config  # noqa: PLC0415
        except ImportError:
            raise ValueError("boto3 is not installed: pip install 'trainwarden[s3]'") from None
        self._topic, self._is_fifo = topic, bool(found[2])
        # Retries are the caller's.
        config = Config(connect_timeout=5, read_timeout=_TIMEOUT_SECONDS, retries={"max_attempts": 0})
        self._client: Any = boto3.client("sns", region_name=found[1], config=config)

    def publish(self, subject: str, text: str, *, mark: str, group: str, attributes: Mapping[str, str]) -> None:
        """Publish a message; raises NotSent.

        Args:
            subject: of a mail; SNS takes 100 characters of ASCII.
            text: of the message.
            mark: the same for a message that is sent again, which a FIFO topic then drops.
            group: whose order a FIFO topic keeps.
            attributes: by which subscriptions may choose; empty ones are left out.
        """
        from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415  # as above

        order = {"MessageGroupId": group, "MessageDeduplicationId": mark} if self._is_fifo else {}
        try:
            self._client.publish(
                TopicArn=self._topic,
                Subject=subject.encode("ascii", "replace").decode()[:100],
                Message=text,
                MessageAttributes={
                    name: {"DataType": "String", "StringValue": value} for name, value in attributes.items() if value
                },
                **order,
            )
        except ClientError as error:
            code = str(error.response.get("Error", {}).get("Code", "unknown"))
            raise NotSent(f"SNS answered {code}", of_message=code.startswith("InvalidParameter")) from None
        except BotoCoreError as error:
            raise NotSent(f"SNS gives no answer: {type(error).__name__}") from None
