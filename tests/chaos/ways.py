"""Ways: proxies between one member and several servers, which are hurt together."""

from __future__ import annotations

from collections.abc import Callable

from zkconsumer.testing.proxy import TcpProxy


class Ways:
    """One proxy for each server.

    Args:
        targets: ``host:port`` of each server, separated by commas.

    Attributes:
        addresses: of each server the one at which the member reaches it.
    """

    def __init__(self, targets: str) -> None:
        self._proxies = [TcpProxy(target) for target in targets.split(",")]
        self.addresses = dict(zip(targets.split(","), (proxy.address for proxy in self._proxies), strict=True))

    @property
    def address(self) -> str:
        """All addresses for the member, separated by commas."""
        return ",".join(self.addresses.values())

    def hurt(self, fault: Callable[[TcpProxy], None]) -> None:
        """Do something to the ways to all servers."""
        for proxy in self._proxies:
            fault(proxy)

    def heal(self) -> None:
        """End every fault."""
        self.hurt(TcpProxy.heal)

    def close(self) -> None:
        """End all connections."""
        self.hurt(TcpProxy.close)
