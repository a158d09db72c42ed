"""The demo's picture: lag over time at the top, owners of the partitions over time at the bottom.

Each group has a separate column with its own scales, since the groups work one after the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from demo.timeline import Event, Sample, Timeline, ownership_bands, without_idle_start

# Okabe and Ito's colours, which readers with any kind of colour vision can distinguish.
_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00")
_FAINT = "#999999"
_TEXT = "#444444"
_KILL = "#C00000"
_HATCH = "////"
_TEXT_ROWS = 3
_FIRST_WIDTH = 1.6
"""Width of the first group's column, which has most events, relative to another's."""


def draw(timeline: Timeline, names: Mapping[str, str], title: str, path: Path) -> None:
    """Draw the timeline into a PNG file.

    Args:
        timeline: samples and events; at least one group with at least one sample.
        names: consumer id to the name for the legend; also gives the order of colours.
        title: first line of the picture.
        path: file to write; replaced if it exists.
    """
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    groups = {group: without_idle_start(samples) for group, samples in timeline.samples.items() if samples}
    figure, axes = plt.subplots(
        2,
        len(groups),
        sharex="col",
        squeeze=False,
        figsize=(12, 7),
        height_ratios=(3, 4),
        width_ratios=[_FIRST_WIDTH, *[1.0] * (len(groups) - 1)],
        layout="constrained",
    )
    figure.suptitle(title, x=0.01, ha="left", fontsize=13, fontweight="bold")
    colours = dict(zip(names, _COLOURS, strict=False))
    for column, (group, samples) in enumerate(groups.items()):
        events = [event for event in timeline.events if samples[0].at <= event.at <= samples[-1].at]
        _draw_lag(axes[0, column], group, samples)
        _draw_owners(axes[1, column], samples, events, colours)
        _draw_events(axes[0, column], axes[1, column], events)
    axes[0, 0].set_ylabel("lag (records)")
    axes[1, 0].set_ylabel("owner of partition")
    _draw_legend(figure, names, colours, any(event.kill for event in timeline.events))
    figure.savefig(path, dpi=130)
    plt.close(figure)


def _draw_lag(axes: Any, group: str, samples: Sequence[Sample]) -> None:
    times = [sample.at for sample in samples]
    lags = [sample.lag for sample in samples]
    axes.plot(times, lags, color=_TEXT, linewidth=1.6)
    axes.fill_between(times, lags, color=_TEXT, alpha=0.12, linewidth=0)
    axes.set_title(f"group {group}", loc="left", fontsize=11, pad=8 + 12 * _TEXT_ROWS)
    axes.set_xlim(times[0], max(times[-1], times[0] + 0.1))
    axes.set_ylim(0, max(*lags, 1) * 1.05)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.grid(axis="y", color=_FAINT, alpha=0.3, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)


def _draw_owners(axes: Any, samples: Sequence[Sample], events: Sequence[Event], colours: Mapping[str, str]) -> None:
    killed = {event.kill: event.at for event in events if event.kill is not None}
    for band in ownership_bands(samples):
        colour = colours.get(band.owner, _FAINT)
        died = min(killed.get(band.owner, band.end), band.end)
        row = (band.partition - 0.4, 0.8)
        if band.start < died:
            axes.broken_barh([(band.start, died - band.start)], row, facecolor=colour, linewidth=0)
        if died < band.end:
            since = max(band.start, died)
            axes.broken_barh(
                [(since, band.end - since)], row, facecolor="white", edgecolor=colour, hatch=_HATCH, linewidth=0
            )
    count = len(samples[0].owners)
    axes.set_ylim(count - 0.4, -0.6)
    axes.set_yticks(range(count))
    axes.set_xlabel("seconds since the demo began")
    axes.spines[["top", "right"]].set_visible(False)


def _draw_events(lag: Any, owners: Any, events: Sequence[Event]) -> None:
    for number, event in enumerate(events):
        colour = _KILL if event.kill else _TEXT
        for axes in (lag, owners):
            axes.axvline(event.at, color=colour, linewidth=1.0, linestyle=(0, (4, 3)), zorder=5)
        start, end = lag.get_xlim()
        # Above the curve, in three alternating rows, since neighbours may be close in time.
        lag.annotate(
            event.text,
            (event.at, 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(0, 3 + 12 * (_TEXT_ROWS - 1 - number % _TEXT_ROWS)),
            textcoords="offset points",
            ha="left" if event.at < start + 0.8 * (end - start) else "right",
            fontsize=9,
            color=colour,
            annotation_clip=False,
        )


def _draw_legend(figure: Any, names: Mapping[str, str], colours: Mapping[str, str], killed: bool) -> None:
    from matplotlib.patches import Patch

    handles = [Patch(facecolor=colours[member], label=name) for member, name in names.items() if member in colours]
    if killed:
        handles.append(
            Patch(facecolor="white", edgecolor=_FAINT, hatch=_HATCH, label="owner dead, session not expired yet")
        )
    handles.append(Patch(facecolor="white", edgecolor=_FAINT, linewidth=0.6, label="no owner"))
    figure.legend(handles=handles, frameon=False, loc="outside lower left", ncols=len(handles), handlelength=1.4)
