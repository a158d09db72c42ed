"""How many CPUs a process may use, according to the kernel's files about its control groups."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from zkconsumer.process.cpus import QuotaFiles, allowed, available_cpus, parse_quota, quota_files

V2 = "0::/system.slice/job.service\n"
V2_MOUNT = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
V1_MOUNT = "33 32 0:30 {root} /sys/fs/cgroup/cpu,cpuacct rw shared:9 - cgroup cgroup rw,cpu,cpuacct\n"


def v2(*groups):
    return [QuotaFiles(Path("/sys/fs/cgroup", group, "cpu.max"), None) for group in groups]


def v1(*groups):
    place = Path("/sys/fs/cgroup/cpu,cpuacct")
    return [QuotaFiles(place / group / "cpu.cfs_quota_us", place / group / "cpu.cfs_period_us") for group in groups]


@pytest.mark.parametrize(
    ("cgroup", "mountinfo", "files"),
    [
        (V2, V2_MOUNT, v2("system.slice/job.service", "system.slice", "")),
        ("0::/\n", V2_MOUNT, v2("")),
        # A container with a cgroup namespace, entered from outside of it.
        ("0::/../other\n", V2_MOUNT, v2("")),
        ("4:cpu,cpuacct:/a/b\n2:memory:/m\n", V1_MOUNT.format(root="/"), v1("a/b", "a", "")),
        # A container without a namespace: the path is the host's, the mount is the container's own group.
        ("4:cpu,cpuacct:/docker/c0ffee\n", V1_MOUNT.format(root="/docker/c0ffee"), v1("")),
        ("4:cpu,cpuacct:/docker/c0ffee\n", V1_MOUNT.format(root="/docker/other"), v1("")),
        # Both versions at once: controllers of version 1, and the unified hierarchy without any.
        ("4:cpu,cpuacct:/a\n0::/b\n", V1_MOUNT.format(root="/") + V2_MOUNT, v1("a", "") + v2("b", "")),
        ("2:memory:/m\n", V1_MOUNT.format(root="/"), []),
        ("", "", []),
        ("no colon\n", "no mount\n\nneither - this\n", []),
    ],
)
def test_the_quotas_of_a_group_and_of_those_around_it_are_looked_up(cgroup, mountinfo, files):
    assert quota_files(cgroup, mountinfo) == files


@pytest.mark.parametrize(
    ("quota", "period", "cpus"),
    [
        ("150000 100000\n", None, 1.5),
        ("max 100000\n", None, None),
        ("200000\n", "100000\n", 2.0),
        ("-1\n", "100000\n", None),
        ("", None, None),
        ("", "", None),
        ("100000\n", "", None),
        ("100000\n", "0\n", None),
    ],
)
def test_a_quota_is_a_number_of_cpus_or_none(quota, period, cpus):
    assert parse_quota(quota, period) == cpus


@pytest.mark.parametrize(
    ("affinity", "quotas", "cpus"),
    [
        (64, [], 64),
        (64, [None, None], 64),
        (64, [None, 4.0, 1.5], 2),
        (64, [0.1], 1),
        (2, [8.0], 2),
        (64, [1.0, 4.0], 1),
    ],
)
def test_the_tightest_limit_counts_and_is_rounded_up(affinity, quotas, cpus):
    assert allowed(affinity, quotas) == cpus


def test_a_process_that_is_bound_to_one_cpu_may_use_one():
    if not hasattr(os, "sched_setaffinity"):
        pytest.skip("needs Linux")
    one = min(os.sched_getaffinity(0))
    script = (
        "import os\n"
        "from zkconsumer.process.cpus import available_cpus\n"
        f"os.sched_setaffinity(0, {{{one}}})\n"
        "print(available_cpus())\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "1\n"
    assert 1 <= available_cpus() <= len(os.sched_getaffinity(0))
