"""The devices that the kubelet gave to containers, asked for over its socket."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from trainwarden_exporter.sampling.calls import calling

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

METHOD = "/v1.PodResourcesLister/List"
# What gRPC itself takes by default; read, an answer of empty messages takes thirty times its size.
MAX_ANSWER_BYTES = 4 * 2**20
# Of every resource; a node with some plugins has thousands. Texts of two bytes fill an answer with millions.
MAX_DEVICES = 100_000
MAX_DETAILS = 500
_CHANNEL = (
    ("grpc.max_receive_message_length", MAX_ANSWER_BYTES),
    ("grpc.default_authority", "localhost"),  # servers refuse a path as an authority
    ("grpc.enable_http_proxy", 0),
    ("grpc.enable_retries", 0),
    # Else a new channel inherits the pause after a failed connection, of up to two minutes.
    ("grpc.use_local_subchannel_pool", 1),
)
# The fields of the API (v1) that are read: name, number, and the message that the field holds many of; `[]` for texts.
# Described here, not generated: a generated module ties itself to versions of the protobuf runtime.
_FIELDS = {
    "ListPodResourcesResponse": (("pod_resources", 1, "PodResources"),),
    "PodResources": (("name", 1, ""), ("namespace", 2, ""), ("containers", 3, "ContainerResources")),
    "ContainerResources": (
        ("name", 1, ""),
        ("devices", 2, "ContainerDevices"),
        ("dynamic_resources", 5, "DynamicResource"),
    ),
    "ContainerDevices": (("resource_name", 1, ""), ("device_ids", 2, "[]")),
    "DynamicResource": (("claim_resources", 4, "ClaimResource"),),
    "ClaimResource": (("driver_name", 2, ""), ("device_name", 4, "")),
}


class KubeletError(Exception):
    """The kubelet did not answer, or with what is no list of devices."""


class PodDevice(NamedTuple):
    """A device of a container; one that several share appears once for each.

    One of a `ResourceClaim` has the name of its driver as its resource, and its name in that driver as its id.
    """

    namespace: str
    pod: str
    container: str
    resource: str
    device_id: str


class PodResources:
    """Asks the kubelet.

    Args:
        socket: of its API pod-resources.
        timeout: of a call, seconds.
    """

    def __init__(self, socket: Path, timeout: float) -> None:
        self._socket = socket
        self._timeout = timeout

    def devices(self) -> list[PodDevice]:
        """Return the devices of all containers; raises `KubeletError`."""
        # A channel for each call: after a restart of the kubelet the path is another socket.
        with (
            calling("PodResourcesLister/List"),
            grpc.insecure_channel(f"unix:{quote(str(self._socket.absolute()))}", _CHANNEL) as channel,
        ):
            try:
                answer: bytes = channel.unary_unary(METHOD)(b"", timeout=self._timeout)
            except grpc.RpcError as error:
                code, details = error.code().name, str(error.details())[:MAX_DETAILS]
                raise KubeletError(f"{self._socket}: {code}: {details}") from error
        try:
            devices = list(islice(_devices(answer), MAX_DEVICES + 1))
        except DecodeError as error:
            raise KubeletError(f"{self._socket}: the answer is no ListPodResourcesResponse") from error
        if len(devices) > MAX_DEVICES:
            raise KubeletError(f"{self._socket}: the answer has more than {MAX_DEVICES} devices")
        return devices


def _devices(answer: bytes) -> Iterator[PodDevice]:
    for pod in _Response.FromString(answer).pod_resources:
        for container in pod.containers:
            for devices in container.devices:
                for device_id in devices.device_ids:
                    yield PodDevice(pod.namespace, pod.name, container.name, devices.resource_name, device_id)
            for claim in container.dynamic_resources:
                for device in claim.claim_resources:
                    yield PodDevice(pod.namespace, pod.name, container.name, device.driver_name, device.device_name)


def _response_class() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="pod_resources.proto", package="v1", syntax="proto3")
    for name, fields in _FIELDS.items():
        message = file.message_type.add(name=name)
        for field, number, many in fields:
            description = message.field.add(name=field, number=number)
            description.label = description.LABEL_REPEATED if many else description.LABEL_OPTIONAL
            if many in _FIELDS:
                description.type, description.type_name = description.TYPE_MESSAGE, f".v1.{many}"
            else:
                description.type = description.TYPE_STRING
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("v1.ListPodResourcesResponse"))


_Response = _response_class()
