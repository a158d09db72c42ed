"""The published soaks, a line each; the table and the picture that docs/reliability.md has of them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, Final

from tests.chaos.growth import Usage
from tests.chaos.soak import Soak, draw_usage
from tests.chaos.store import PAGE, PUBLISHED, write_page

SOAKS: Final = PUBLISHED.with_name("soaks.jsonl")
PICTURE: Final = PAGE.parent / "images" / "soak.png"
BEGIN: Final = "<!-- soaks: made by `python -m tests.chaos publish-soaks` -->"
END: Final = "<!-- end of soaks -->"

_FIELDS: Final = tuple(field.name for field in fields(Soak))


def published(file: Path = SOAKS) -> list[Soak]:
    """The published soaks."""
    return [_soak(json.loads(line)) for line in file.read_text(encoding="utf-8").splitlines()]


def publish(reports: Iterable[Path], file: Path = SOAKS, page: Path = PAGE, picture: Path = PICTURE) -> None:
    """Replace the published soaks, the table of the page and its picture.

    Args:
        reports: files that :func:`~tests.chaos.soak.write_report` has written, one of each protocol.
        file, page, picture: what is replaced.
    """
    documents = [json.loads(report.read_text(encoding="utf-8")) for report in reports]
    soaks = [_soak(document) for document in documents]
    file.write_text("".join(json.dumps(asdict(soak)) + "\n" for soak in soaks), encoding="utf-8")
    write_page(table(soaks), page, BEGIN, END)
    samples = {one["protocol"]: [Usage(**sample) for sample in one["samples"]] for one in documents}
    draw_usage(samples, (), picture, "The member that is never ended, by group.protocol; a fault each minute")


def _soak(document: Mapping[str, Any]) -> Soak:
    values = {name: document[name] for name in _FIELDS}
    return Soak(**{**values, "failures": tuple(values["failures"])})


def table(soaks: Iterable[Soak]) -> str:
    """The table in Markdown, a line for each soak; growth is that of an hour."""
    lines = [
        "| group.protocol | hours | seed | faults | passed | records | lost | stale commits | memory | threads "
        "| descriptors | watches | log volume | code |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    return "\n".join([*lines, *(_line(soak) for soak in soaks)])


def _line(soak: Soak) -> str:
    figures = [round(soak.figures[name] or 0) for name in ("produced", "lost", "stale commits")]
    growth = [f"{soak.growth[name]:+.1%}" for name in ("memory", "threads", "descriptors", "watches", "log")]
    passed = "no" if soak.failures else "yes"
    cells = [soak.protocol, f"{soak.hours:.2f}", soak.seed, soak.faults, passed, *figures, *growth, soak.product[:7]]
    return f"| {' | '.join(map(str, cells))} |"
