"""A network that is not loopback: every packet between processes waits, and some are lost.

The processes run in a network namespace of their own. There packets to loopback addresses go to a TUN device in place
of the loopback device, so this module has each of them, and gives it back to the kernel later, or not at all. The rest
is the kernel's TCP: acknowledgements, retransmissions, congestion. It needs Linux, root, and the command ``ip``; unlike
``tc netem`` it needs no module of the kernel.
"""

from __future__ import annotations

import ctypes
import fcntl
import heapq
import os
import random
import select
import struct
import subprocess
import time
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Final, NamedTuple

from zkconsumer.errors import UsageError

_CLONE_NEWNET: Final = 0x40000000
_TUNSETIFF: Final = 0x400454CA
_IFF_TUN_NO_PI: Final = 0x1001
_DEVICE: Final = "slow0"
_PACKET: Final = 65_536
_INSIDE: Final = "ZKCONSUMER_BENCH_NETWORK"

# Loopback addresses are local, so the kernel looks them up first of all, and never sends to them elsewhere. In this
# order only what comes from the device is for a local address; what a process sends there goes to the device.
_RULES: Final = (
    "ip link set lo up",
    f"ip link set {_DEVICE} up mtu 1500",
    # Without an address that is not loopback librdkafka resolves no name (AI_ADDRCONFIG). This one is of RFC 5737.
    f"ip address add 192.0.2.1/32 dev {_DEVICE}",
    f"ip rule add pref 1 iif {_DEVICE} lookup local",
    "ip rule add pref 2 lookup 100",
    "ip rule add pref 3 lookup local",
    "ip rule del pref 0",
    f"ip route add 127.0.0.0/8 dev {_DEVICE} src 127.0.0.1 table 100",
)
_SETTINGS: Final = {"route_localnet": "1", "accept_local": "1", "rp_filter": "0"}


class SlowNetwork(NamedTuple):
    """What the network does.

    Attributes:
        round_trip_s: how long a packet and its answer take.
        loss: share of the packets that are lost, from 0 to 1.
    """

    round_trip_s: float
    loss: float

    def __str__(self) -> str:
        return f"round trips of {1000 * self.round_trip_s:g} ms, {100 * self.loss:g} % of the packets lost"


def network() -> str:
    """Description of the network that this process is in; empty if it is loopback."""
    return os.environ.get(_INSIDE, "")


def disk_properties() -> tuple[Mapping[str, str], Mapping[str, str]]:
    """Properties of brokers and of ZooKeeper servers: in such a network they wait for their disks, too."""
    return ({"log.flush.interval.messages": "1"}, {"forceSync": "yes"}) if network() else ({}, {})


def run_in(slow: SlowNetwork, command: Sequence[str]) -> int:
    """Run a command in such a network, and return its exit code.

    Raises:
        UsageError: this machine does not allow it.
    """
    try:
        device = _enter()
    except (OSError, subprocess.CalledProcessError, AttributeError) as error:
        raise UsageError(f"a slow network needs Linux, root, /dev/net/tun and the command `ip`: {error}") from error
    try:
        child = subprocess.Popen(command, env={**os.environ, _INSIDE: str(slow)})
        _forward(device, slow, child)
        return child.wait()
    finally:
        os.close(device)


def _enter() -> int:
    """Enter a new network namespace; returns the device through which its packets pass."""
    if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "unshare")
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(device, _TUNSETIFF, struct.pack("16sH", _DEVICE.encode(), _IFF_TUN_NO_PI))
    for name, value in _SETTINGS.items():
        for interface in ("all", "default", "lo", _DEVICE):
            Path(f"/proc/sys/net/ipv4/conf/{interface}/{name}").write_text(value, encoding="ascii")
    for rule in _RULES:
        subprocess.run(rule.split(), check=True)
    return device


def _forward(device: int, slow: SlowNetwork, child: subprocess.Popen[bytes]) -> None:
    """Give each packet back after half a round trip, in order, until the child ends."""
    chance, numbers = random.Random(1), count()
    waiting: list[tuple[float, int, bytes]] = []
    poll = select.poll()
    poll.register(device, select.POLLIN)
    while child.poll() is None:
        wait_s = 0.1 if not waiting else max(0.0, min(0.1, waiting[0][0] - time.monotonic()))
        if poll.poll(1000 * wait_s):
            try:
                while True:
                    packet = os.read(device, _PACKET)
                    if chance.random() >= slow.loss:
                        heapq.heappush(waiting, (time.monotonic() + slow.round_trip_s / 2, next(numbers), packet))
            except BlockingIOError:
                pass
        while waiting and waiting[0][0] <= time.monotonic():
            os.write(device, heapq.heappop(waiting)[2])
