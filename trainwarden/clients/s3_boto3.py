"""boto3's client of S3: imported with the first request alone, small, and safe where a program closes all files."""

from __future__ import annotations

import contextlib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_SERVICES = frozenset(("s3", "sts", "sso", "portal.sso", "oidc", "signin"))

_abandoned: list[Any] = []


class MissingBoto3(Exception):
    """boto3 is needed and not installed."""


def load_boto3() -> None:
    """Import boto3 now, and not when memory may be short. Raises MissingBoto3."""
    try:
        import boto3  # noqa: F401, PLC0415  # an extra
        import botocore.config  # noqa: PLC0415
        import botocore.exceptions  # noqa: F401, PLC0415
    except ImportError as error:
        raise MissingBoto3(
            "S3 needs boto3, which is not installed: pip install 'trainwarden[s3]', or unset TRAINWARDEN_S3_URL and "
            "MONITORING_BUCKET"
        ) from error


def new_client(region: str | None, connect_seconds: float, read_seconds: float, connections: int) -> Any:
    """Return boto3's client of S3, which repeats no request.

    Args:
        region: of the bucket; as boto3 finds it if None.
        connect_seconds: how long to wait for a connection.
        read_seconds: how long to wait for each part of an answer.
        connections: how many it keeps.
    """
    import boto3  # noqa: PLC0415  # see load_boto3
    from botocore.config import Config  # noqa: PLC0415

    config = Config(
        connect_timeout=connect_seconds,
        read_timeout=read_seconds,
        retries={"total_max_attempts": 1},
        max_pool_connections=connections,
    )
    # A session of its own: the default one is the training's, and shared between threads.
    session = boto3.session.Session()
    _forget_other_services(session)
    return session.client("s3", region_name=region, config=config)


def _forget_other_services(session: Any) -> None:
    """Drop what botocore has read of the endpoints of 400 services: 5 MiB in each process that has a client.

    Those of S3 stay, and those that hand out credentials.
    """
    with contextlib.suppress(Exception):  # another version of botocore: it only takes more memory
        endpoints, _ = session._session.get_component("data_loader").load_data_with_path("endpoints")  # noqa: SLF001  # boto3 hides it
        for partition in endpoints["partitions"]:
            services = partition["services"]
            partition["services"] = {name: services[name] for name in _SERVICES & services.keys()}


def forget_connections(client: Any) -> None:
    """Keep a client from using its open connections, and from closing them: their numbers may mean other files now."""
    try:
        pools = client._endpoint.http_session._manager.pools  # noqa: SLF001  # botocore has no other way to them
        connections = [each for key in pools.keys() for each in pools[key].pool.queue if each is not None]  # noqa: SIM118  # no dict
        for connection in connections:
            if connection.sock is not None:
                connection.sock.detach()
                connection.sock = None
    except Exception:  # noqa: BLE001  # another version of botocore or urllib3
        # Never freed, and so never closed.
        _abandoned.append(client)
