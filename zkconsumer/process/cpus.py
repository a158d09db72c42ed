"""available_cpus: how many CPUs this process may use, by its affinity and by the CPU quota of its control groups.

``os.cpu_count()`` counts the CPUs of the machine, also in a container that may use only one of them. The rules are
those of the JVM: the smallest quota among the process's own group and its parent groups, rounded up.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import NamedTuple


class QuotaFiles(NamedTuple):
    """Where the kernel shows the quota of one group.

    Attributes:
        quota: version 2: quota and period; version 1: the quota.
        period: version 1: the period; None for version 2, where one file has both.
    """

    quota: Path
    period: Path | None


def available_cpus() -> int:
    """CPUs that this process may use, at least 1; the affinity alone where there are no control groups."""
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    process = Path("/proc/self")
    files = quota_files(_text(process / "cgroup"), _text(process / "mountinfo"))
    return allowed(
        affinity,
        (parse_quota(_text(file.quota), None if file.period is None else _text(file.period)) for file in files),
    )


def allowed(affinity: int, quotas: Iterable[float | None]) -> int:
    """The fewest CPUs among the affinity and the quotas; None is no quota."""
    limits = [math.ceil(quota) for quota in quotas if quota is not None]
    return max(1, min([affinity, *limits]))


def parse_quota(quota: str, period: str | None) -> float | None:
    """CPUs of a group's quota; None if it has none, or the files do not exist or have another form.

    Args:
        quota: ``cpu.max`` (version 2) or ``cpu.cfs_quota_us`` (version 1).
        period: ``cpu.cfs_period_us``; None for version 2.
    """
    words = quota.split() if period is None else [*quota.split(), *period.split()]
    try:
        limit, interval = (int(word) for word in words)
    except ValueError:  # "max", or nothing
        return None
    return limit / interval if limit > 0 and interval > 0 else None  # -1: no quota


def quota_files(cgroup: str, mountinfo: str) -> list[QuotaFiles]:
    """Files with the quotas that apply to a process: of its own groups, and of their parents as far as mounted.

    Args:
        cgroup: content of ``/proc/self/cgroup``: lines ``hierarchy:controllers:path``, version 2 without controllers.
        mountinfo: content of ``/proc/self/mountinfo``.
    """
    paths = {}
    for line in cgroup.splitlines():
        _, _, controllers_and_path = line.partition(":")
        controllers, _, path = controllers_and_path.partition(":")
        paths.update(dict.fromkeys(controllers.split(","), path))
    files = []
    for line in mountinfo.splitlines():
        mount, _, filesystem = (part.split() for part in line.partition(" - "))
        if len(mount) < 5 or len(filesystem) < 3:
            continue
        root, place = mount[3], Path(mount[4])
        if filesystem[0] == "cgroup2" and "" in paths:
            files += [QuotaFiles(group / "cpu.max", None) for group in _groups(paths[""], root, place)]
        elif filesystem[0] == "cgroup" and "cpu" in filesystem[2].split(",") and "cpu" in paths:
            names = "cpu.cfs_quota_us", "cpu.cfs_period_us"
            files += [QuotaFiles(*(group / name for name in names)) for group in _groups(paths["cpu"], root, place)]
    return files


def _groups(path: str, root: str, place: Path) -> list[Path]:
    """Directories of a group and of its parents.

    Args:
        path: path of the group in its hierarchy.
        root: the group that is mounted. In a container it is often the container's own; its parents are not visible
            then, and neither is the path, if it is one of the host.
        place: directory where that group is mounted.
    """
    if PurePosixPath(path).is_relative_to(root) and ".." not in PurePosixPath(path).parts:
        below = PurePosixPath(path).relative_to(root)
        return [place / directory for directory in (below, *below.parents)]
    return [place]


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""
