"""A kubelet that serves PodResourcesLister/List on a real socket, with answers that are encoded here by hand."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc


def field(number: int, content: bytes | str) -> bytes:
    """A field of protobuf that holds a text or a message."""
    content = content.encode() if isinstance(content, str) else content
    length, size = bytearray(), len(content)
    while size > 0x7F:
        length.append(size & 0x7F | 0x80)
        size >>= 7
    length.append(size)
    return bytes([number << 3 | 2]) + bytes(length) + content


def devices(resource: str, *device_ids: str) -> bytes:
    """A message ContainerDevices, with the NUMA node of the devices."""
    topology = field(1, b"\x08\x01")
    return field(1, resource) + b"".join(field(2, device_id) for device_id in device_ids) + field(3, topology)


def claimed(driver: str, *names: str) -> bytes:
    """The devices of a ResourceClaim, as fields of a message DynamicResource."""
    pool = "node-1"
    return b"".join(
        field(
            4, field(1, field(1, f"k8s.{driver}/claim=x-{name}")) + field(2, driver) + field(3, pool) + field(4, name)
        )
        for name in names
    )


def container(name: str, *its_devices: bytes, claims: bytes = b"") -> bytes:
    """A message ContainerResources, with cores, memory, and a claim that has these devices."""
    memory, claim = field(1, "hugepages-2Mi") + b"\x10\x80\x08", field(1, "class") + field(2, "claim") + claims
    return (
        field(1, name)
        + b"".join(field(2, each) for each in its_devices)
        + field(3, b"\x02\x03")
        + field(4, memory)
        + field(5, claim)
    )


def pod(name: str, *containers: bytes, namespace: str = "train") -> bytes:
    """A field of the answer: one pod."""
    return field(1, field(1, name) + field(2, namespace) + b"".join(field(3, each) for each in containers))


def with_gpus(name: str, *device_ids: str, resource: str = "nvidia.com/gpu", namespace: str = "train") -> bytes:
    """A pod whose one container has these devices."""
    return pod(name, container("main", devices(resource, *device_ids)), namespace=namespace)


class Kubelet:
    """The server.

    Attributes:
        answer: what it answers, as bytes.
        answers: while not set, calls hang.
        calls: the paths that were called.
    """

    def __init__(self, socket: Path, answer: bytes = b"") -> None:
        self.socket = socket
        self.answer = answer
        self.answers = threading.Event()
        self.answers.set()
        self.calls: list[str] = []
        self.start()

    def start(self) -> None:
        """Serve on the socket, made anew."""
        self.socket.unlink(missing_ok=True)
        self._server = grpc.server(ThreadPoolExecutor(4))
        self._server.add_generic_rpc_handlers((_Handlers(self),))
        self._server.add_insecure_port(f"unix:{self.socket}")
        self._server.start()

    def stop(self) -> None:
        """End; calls that hang are cut off, and the socket is gone."""
        self.answers.set()
        self._server.stop(None).wait()
        self.socket.unlink(missing_ok=True)


class _Handlers(grpc.GenericRpcHandler):  # type: ignore[misc]  # published without types
    def __init__(self, kubelet: Kubelet) -> None:
        self._kubelet = kubelet

    def service(self, call: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        self._kubelet.calls.append(call.method)
        if call.method != "/v1.PodResourcesLister/List":
            return None
        return grpc.unary_unary_rpc_method_handler(self._list)

    def _list(self, request: bytes, _: grpc.ServicerContext) -> bytes:
        assert request == b""
        self._kubelet.answers.wait()
        return self._kubelet.answer
