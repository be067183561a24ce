"""A port is taken by nobody between the moment it is found and the moment its server starts."""

import socket
from pathlib import Path

import pytest

from trainwarden.stack.ports import PortBusy, free_port, free_ports, ports

RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


def test_the_kernel_gives_a_free_port_to_no_connection() -> None:
    first, last = map(int, RANGE.read_text(encoding="ascii").split())
    if last - first > 44_000:
        pytest.skip("the kernel keeps nearly all ports of this machine for connections")
    assert not [port for port in free_ports(200) if first <= port <= last]


def test_a_port_with_a_server_is_not_free() -> None:
    with socket.create_server(("127.0.0.1", 0)) as busy:
        taken, other = busy.getsockname()[1], free_port()
        assert free_ports(1, [taken, other]) == [other]
        with pytest.raises(PortBusy, match="no 2 free ports"):
            free_ports(2, [taken, other])


def test_a_port_that_somebody_has_on_another_address_is_not_free() -> None:
    with socket.create_server(("127.0.0.2", 0)) as busy:
        taken, other = busy.getsockname()[1], free_port()
        assert free_ports(1, [taken, other]) == [other]


def test_free_ports_differ_from_one_another_and_from_those_wanted() -> None:
    three = free_ports(3)
    found = ports({"--a": 0, "--b": three[1], "--c": 0}, three)
    assert found["--b"] == three[1]
    assert sorted(found.values()) == sorted(three)


def test_a_busy_port_is_refused_by_its_option() -> None:
    with socket.create_server(("127.0.0.1", 0)) as busy:
        number = busy.getsockname()[1]
        with pytest.raises(PortBusy, match=f"--a {number}: Address already in use; name a free port"):
            ports({"--a": number})


def test_the_same_port_for_two_options_is_refused() -> None:
    number = free_port()
    with pytest.raises(PortBusy, match=f"--b {number}: another option has it already"):
        ports({"--a": number, "--b": number})
