"""The files of a fleet: one TOML file for each cluster, and the plans of each group.

``DIR/CLUSTER.toml`` names the groups; ``DIR/CLUSTER/GROUP/`` has ``plan.json``, ``back.json`` for the way back, and
what their runs keep beside them.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from zkconsumer.errors import UsageError, WriteRefused, ZkConsumerError, name_some
from zkconsumer.operate.migrate.rules.fleetfile import (
    FleetFile,
    FleetGroup,
    groups_twice,
    is_same_zookeeper,
    parse_fleet,
)
from zkconsumer.operate.migrate.rules.migrationplan import MigrationPlan
from zkconsumer.operate.migrate.rules.planfile import decode_plan, encode_plan
from zkconsumer.operate.offsets.rules.writestate import WriteState
from zkconsumer.operate.offsets.snapshot import OF_MIRROR, OF_RUNS, beside, snapshot_of_plan
from zkconsumer.operate.offsets.wholefiles import write_whole

_PLAN: Final = "plan.json"
_BACK: Final = "back.json"
_EARLIER: Final = "earlier"


@dataclass(frozen=True, slots=True)
class GroupFiles:
    """The files of one group of a fleet."""

    directory: Path

    @property
    def plan_file(self) -> Path:
        """Of the plan to Kafka."""
        return self.directory / _PLAN

    @property
    def back_file(self) -> Path:
        """Of the plan of the way back."""
        return self.directory / _BACK

    def plan(self) -> MigrationPlan | None:
        """The plan; None if there is none.

        Raises:
            ZkConsumerError: it is no plan, for example because the file was cut; what to do is in the message.
            OSError: it cannot be read.
        """
        try:
            return _read(self.plan_file)
        except ZkConsumerError as error:
            way_out = "nothing was written by it: `zkconsumer migrate fleet plan` makes it again"
            if self.has_begun:
                way_out = (
                    "it was run: put a copy of that file back, for example from git; without one, move "
                    f"{self.directory} away, and plan again from what both stores have now"
                )
            raise ZkConsumerError(f"{error}; {way_out}") from None

    @property
    def has_begun(self) -> bool:
        """True if something may have been written by the plan: a command begins with a file beside it."""
        return self.back_file.exists() or any(beside(self.plan_file, of).exists() for of in (OF_RUNS, OF_MIRROR))

    def back(self) -> MigrationPlan | None:
        """The plan of the way back; None if there is none. Raises as :meth:`plan`.

        A broken one that was not run counts as none: it is made again.
        """
        try:
            return _read(self.back_file)
        except ZkConsumerError:
            if beside(self.back_file, OF_RUNS).exists():
                raise
            return None

    def write_back(self, plan: MigrationPlan) -> None:
        """Write the plan of the way back; the file of the runs of an earlier one gets another name."""
        runs = beside(self.back_file, OF_RUNS)
        with suppress(FileNotFoundError):
            runs.replace(runs.with_name(f"{runs.name}.{_EARLIER}"))
        write_whole(self.back_file, encode_plan(plan))

    def run_state(self) -> WriteState | None:
        """How far runs of the plan have come; raises as :meth:`plan`."""
        return _state(self.plan(), self.plan_file)

    def back_state(self) -> WriteState | None:
        """How far the run of the way back has come; None, too, if it was rolled back. Raises as :meth:`plan`."""
        state = _state(self.back(), self.back_file)
        return None if state is WriteState.UNDONE else state

    @property
    def has_way_back(self) -> bool:
        """True if a rollback or a way back has begun, or is complete; raises as :meth:`plan`."""
        run = self.run_state()
        return self.back_state() is not None or (run is not None and run.is_rolled_back)

    def required_plan(self) -> MigrationPlan:
        """The plan.

        Raises:
            WriteRefused: there is none.
        """
        plan = self.plan()
        if plan is None:
            raise WriteRefused(["it has no plan; `zkconsumer migrate fleet plan` makes it"])
        return plan

    def put_away(self) -> None:
        """Keep the files of a migration that came back under another name, and begin with none."""
        number = 1
        while (to := self.directory.with_name(f"{self.directory.name}.{_EARLIER}-{number}")).exists():
            number += 1
        self.directory.rename(to)


def _read(file: Path) -> MigrationPlan | None:
    with suppress(FileNotFoundError):
        return decode_plan(str(file), file.read_bytes())
    return None


def _state(plan: MigrationPlan | None, file: Path) -> WriteState | None:
    return None if plan is None else snapshot_of_plan(plan, file).state


def files_of(directory: Path, fleet: FleetFile, group: FleetGroup) -> GroupFiles:
    """Where the files of a group are."""
    return GroupFiles(directory / fleet.name / group.directory)


def read_fleets(directory: Path, names: Collection[str] = ()) -> list[FleetFile]:
    """The clusters of a fleet, in the order of their names.

    Args:
        directory: of the fleet.
        names: of the clusters to read; none stands for all.

    Raises:
        UsageError: there is none, a file has faults, or two have one group of one ZooKeeper.
        OSError: a file cannot be read.
    """
    files = sorted(directory.glob("*.toml"))
    if not files:
        raise UsageError(f"{directory} has no cluster; `zkconsumer migrate fleet init {directory}` writes one")
    if absent := sorted(set(names) - {file.stem for file in files}):
        raise UsageError(f"{directory} has no cluster {absent[0]}")
    fleets = [parse_fleet(file.stem, file.read_bytes()) for file in files if not names or file.stem in names]
    if twice := groups_twice(fleets):
        raise UsageError(f"{directory} has groups twice: {'; '.join(twice)}; remove them from one of the files")
    return fleets


def name_of_cluster(directory: Path, zookeeper: str, name: str | None) -> tuple[str, set[str]]:
    """The name of the file that gets the groups of a ZooKeeper, and those of its groups that other files have.

    Args:
        directory: of the fleet; it need not exist.
        zookeeper: servers and chroot.
        name: that was asked for; None for that of the file that has this ZooKeeper already, else ``cluster``.

    Raises:
        UsageError: the file has another ZooKeeper, several have this one and none is named, or a file has faults.
        OSError: a file cannot be read.
    """
    files = {file.stem: parse_fleet(file.stem, file.read_bytes()) for file in sorted(directory.glob("*.toml"))}
    of_this = {stem: fleet for stem, fleet in files.items() if is_same_zookeeper(fleet.zookeeper, zookeeper)}
    if name is None and len(of_this) > 1:
        raise UsageError(f"{name_some(of_this)} in {directory} have groups of {zookeeper}; give --name")
    name = name or next(iter(of_this), "cluster")
    if name in files.keys() - of_this.keys() and files[name].zookeeper:
        raise UsageError(
            f"{directory / name}.toml has groups of {files[name].zookeeper}: give another --name for those of "
            f"{zookeeper}, or if it is the same ZooKeeper, servers as in the file"
        )
    return name, {group.group for stem, fleet in of_this.items() if stem != name for group in fleet.groups}


class Job(NamedTuple):
    """One group of a wave."""

    fleet: FleetFile
    group: FleetGroup
    files: GroupFiles

    @property
    def name(self) -> tuple[str, str]:
        """Its cluster, and the group."""
        return self.fleet.name, self.group.group
