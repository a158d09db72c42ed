"""A Kerberos realm of its own: MIT's KDC on a loopback port, principals, keytabs, tickets."""

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from zkconsumer.errors import SandboxError
from zkconsumer.sandbox import KafkaBroker, ZooKeeperServer
from zkconsumer.sandbox.java import find_java, has_module
from zkconsumer.sandbox.ports import HOST, free_port
from zkconsumer.sandbox.process import JvmProcess

REALM = "EXAMPLE.TEST"
NAME = "localhost"  # the host in the servers' principals, and thus the one to connect to
PACKAGES = "krb5-kdc, krb5-admin-server and krb5-user"
REQUIRED_VARIABLE = "ZKCONSUMER_KERBEROS_REQUIRED"
_PROGRAMS = ("krb5kdc", "kdb5_util", "kadmin.local", "kinit", "klist")
_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"  # an ordinary user's has not always these two
_READY_S = 20.0

_CLIENT = """\
[libdefaults]
default_realm = {realm}
dns_lookup_realm = false
dns_lookup_kdc = false
dns_canonicalize_hostname = false
rdns = false
udp_preference_limit = 1
[realms]
{realm} = {{
    kdc = {host}:{port}
}}
"""
_SERVER = """\
[kdcdefaults]
kdc_listen = {host}:{port}
kdc_tcp_listen = {host}:{port}
[realms]
{realm} = {{
    database_name = {directory}/principal
    key_stash_file = {directory}/stash
    max_life = 1h
}}
"""
_LOGIN_MODULE = """\
{section} {{
    com.sun.security.auth.module.Krb5LoginModule required
    useKeyTab=true storeKey=true keyTab="{keytab}" principal="{principal}@{realm}";
}};
"""


class _WithJvmOptions:
    """A server of the sandbox that is started with ``jvm_options``, see `Realm.server_options`."""

    jvm_options: Sequence[str] = ()

    def _command(self) -> list[str]:
        java, *rest = super()._command()
        return [java, *self.jvm_options, *rest]


class KerberizedBroker(_WithJvmOptions, KafkaBroker):
    """A broker."""


class KerberizedZooKeeper(_WithJvmOptions, ZooKeeperServer):
    """A ZooKeeper."""


class Realm:
    """A KDC with its database in ``directory``; ``config`` is the krb5.conf for everybody who takes part."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.config = directory / "krb5.conf"
        self.port = free_port()
        names = {"realm": REALM, "host": HOST, "port": self.port, "directory": directory}
        self.config.write_text(_CLIENT.format(**names))
        (directory / "kdc.conf").write_text(_SERVER.format(**names))
        self._environment = {
            **os.environ,
            "KRB5_CONFIG": str(self.config),
            "KRB5_KDC_PROFILE": str(directory / "kdc.conf"),
            "LC_ALL": "C",
        }
        settings = [f"{name}={self._environment[name]}" for name in ("KRB5_CONFIG", "KRB5_KDC_PROFILE")]
        # In the foreground; what ends the sandbox's servers with this process ends it, too.
        self._kdc = JvmProcess("KDC", [_program("env"), *settings, _program("krb5kdc"), "-n"], directory / "kdc.log")

    def start(self) -> None:
        self._run("kdb5_util", "create", "-s", "-r", REALM, "-P", "of no importance")
        self._kdc.start()
        self._kdc.wait_until(self._is_serving, "it listened", _READY_S)

    def stop(self) -> None:
        self._kdc.stop()

    def keytab(self, principal: str) -> Path:
        """Make a principal unless it is there, and return the file with its key."""
        file = self.directory / f"{principal.replace('/', '-')}.keytab"
        if not file.exists():
            self._run("kadmin.local", "-r", REALM, "addprinc", "-randkey", principal)
            self._run("kadmin.local", "-r", REALM, "ktadd", "-k", str(file), principal)
        return file

    def kinit(self, principal: str, keytab: Path, cache: Path, *, lifetime_s: int = 600) -> None:
        """Put a ticket into ``cache``, as a user's kinit or a cron job does."""
        self._run("kinit", "-l", f"{lifetime_s}s", "-c", f"FILE:{cache}", "-k", "-t", str(keytab), principal)

    def is_valid(self, cache: Path) -> bool:
        """True while ``cache`` has a ticket that has not expired."""
        return subprocess.run([_program("klist"), "-s", f"FILE:{cache}"], check=False, timeout=60).returncode == 0

    def server_options(self, directory: Path, section: str, service: str) -> list[str]:
        """Options of Java for a server that is ``service`` on `NAME`; ``section`` is what its JAAS settings are called.

        The settings are written into ``directory``.
        """
        jaas, principal = directory / f"{service}-jaas.conf", f"{service}/{NAME}"
        keytab = self.keytab(principal)
        jaas.write_text(_LOGIN_MODULE.format(section=section, keytab=keytab, principal=principal, realm=REALM))
        return [f"-Djava.security.krb5.conf={self.config}", f"-Djava.security.auth.login.config={jaas}"]

    def _is_serving(self) -> bool:
        try:
            socket.create_connection((HOST, self.port), timeout=1).close()
        except OSError:
            return False
        return True

    def _run(self, *command: str) -> None:
        done = subprocess.run(
            [_program(command[0]), *command[1:]],
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, f"{' '.join(command)}: {done.stdout} {done.stderr}"


def _program(name: str) -> str:
    return shutil.which(name, path=_PATH) or name


def what_is_missing() -> str | None:
    """What these tests need and this machine lacks, and how to get it."""
    try:
        import gssapi  # noqa: F401
        import kerberos  # noqa: F401
    except (ImportError, OSError) as error:
        needs = "building it takes gcc, Python's headers and Debian's libkrb5-dev"
        return f"{error}: pip install 'zkconsumer[gssapi,gssapi-zookeeper]'; {needs}"
    lacking = [program for program in _PROGRAMS if shutil.which(program, path=_PATH) is None]
    if lacking:
        return f"no {', '.join(lacking)}: Debian has them in {PACKAGES}"
    try:
        java = find_java()
    except SandboxError as error:
        return str(error)
    if not has_module(java.home, "jdk.security.jgss"):
        return f"{java.home} has no jdk.security.jgss, so its servers cannot do GSSAPI: install a whole Java"
    return None


@pytest.fixture(scope="session")
def realm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Realm]:
    """A realm for all tests of a session."""
    if missing := what_is_missing():
        if os.environ.get(REQUIRED_VARIABLE):
            pytest.fail(missing)
        pytest.skip(missing)
    made = Realm(tmp_path_factory.mktemp("realm"))
    try:
        made.start()
        yield made
    finally:
        made.stop()


@pytest.fixture(scope="session")
def alice(realm: Realm) -> Path:
    """The keytab of a user, alice."""
    return realm.keytab("alice")


@pytest.fixture
def nobody(realm: Realm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Kerberos as this process sees it: the realm, and an empty ticket cache, which is returned."""
    monkeypatch.setenv("KRB5_CONFIG", str(realm.config))
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{tmp_path / 'tickets'}")
    monkeypatch.setenv("KRB5_CLIENT_KTNAME", str(tmp_path / "none.keytab"))
    return tmp_path / "tickets"


@pytest.fixture
def ticket(realm: Realm, alice: Path, nobody: Path) -> None:
    """A ticket for alice, as of kinit."""
    realm.kinit("alice", alice, nobody)
