"""Draw one panel on one figure; all sizes are inches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mpicoll.measurement.judgement import has_enough
from mpicoll.report.curves import Curve, Panel, times_of
from mpicoll.report.model_comparison import ModelComparison
from mpicoll.report.style import ONE_COLUMN, TWO_COLUMNS, Style, dash_of
from mpicoll.text.sizes import size_text

Points = Sequence[tuple[float, float, float, float, bool]]
"""Size, value, the interval's ends, and whether there are enough samples for an interval."""

_FAINT = 0.3
"""The opacity of a marker with too few samples."""

_ROW = 0.17
"""The height of a line of a legend."""


def curves(figure: Any, panel: Panel, style: Style) -> None:
    """Draw time and bandwidth over size; without sizes, draw the times below each other."""
    if not any(panel.sizes()):
        _dots(figure, panel, style, _times, "time, us")
        return
    time_axis, bandwidth_axis = figure.subplots(1, 2)
    figure.suptitle(f"{panel.collective}, {panel.scope}", fontsize=9)
    for axis, points, label in (
        (time_axis, _times, "time, us"),
        (bandwidth_axis, _busbw, "bus bandwidth, GB/s"),
    ):
        _over_sizes(axis, panel, style, points, label)
    _legend(figure, panel, style, _times, TWO_COLUMNS)


def speedups(figure: Any, panel: Panel, style: Style) -> None:
    """Draw the speed-up of each curve over its backend's native call."""
    _ratio(figure, panel, style, _ratios, "speed-up over native, times")


def over_bounds(
    figure: Any, panel: Panel, comparisons: Sequence[ModelComparison], style: Style
) -> None:
    """Draw the time of each curve over the lower bound."""
    ratios = {id(comparison.record): comparison.over_bound for comparison in comparisons}

    def points(curve: Curve) -> Points:
        return [
            (record.bytes_total, over, over, over, has_enough(record))
            for record in curve.points if (over := ratios.get(id(record)))
        ]  # fmt: skip

    _ratio(figure, panel, style, points, "measured over bound, times")


def _ratio(
    figure: Any, panel: Panel, style: Style, points: Callable[[Curve], Points], label: str
) -> None:
    if not any(panel.sizes()):
        _dots(figure, panel, style, points, label)
        return
    axis = figure.subplots()
    axis.set_title(f"{panel.collective}, {panel.scope}")
    axis.axhline(1, color="0.4", linewidth=0.7, linestyle=":")
    _over_sizes(axis, panel, style, points, label)
    _legend(figure, panel, style, points, ONE_COLUMN)


def _times(curve: Curve) -> Points:
    return [
        (record.bytes_total, times.median, times.low, times.high, has_enough(record))
        for record in curve.points for times in [times_of(record)]
    ]  # fmt: skip


def _busbw(curve: Curve) -> Points:
    # The interval is that of the time, reversed.
    return [
        (size, bus, bus * us / high, bus * us / low, enough)
        for (size, us, low, high, enough), record in zip(_times(curve), curve.points, strict=True)
        if (bus := record.busbw_GBps)
    ]


def _ratios(curve: Curve) -> Points:
    return [
        (record.bytes_total, speedup.ratio, speedup.low, speedup.high, has_enough(record))
        for record in curve.points if (speedup := record.speedup_vs_native)
    ]  # fmt: skip


def _default_curves(panel: Panel) -> list[Curve]:
    shown = panel.shown()
    return [curve for curve in panel.curves if curve.name in shown]


def _backends(panel: Panel) -> list[str]:
    return list(dict.fromkeys(curve.backend for curve in panel.curves))


def _over_sizes(
    axis: Any, panel: Panel, style: Style, points: Callable[[Curve], Points], label: str
) -> None:
    for curve in _default_curves(panel):
        rows = [row for row in points(curve) if row[0]]
        if rows:
            x, y, low, high, enough = zip(*rows, strict=True)
            look = style.of(curve, _backends(panel))
            axis.plot(x, y, markevery=list(enough), **look)
            places = [place for place, is_sure in enumerate(enough) if not is_sure]
            faint = look | {"linestyle": "none", "alpha": _FAINT, "label": None}
            axis.plot([x[place] for place in places], [y[place] for place in places], **faint)
            shade = {"color": look["color"], "alpha": 0.18, "linewidth": 0}
            axis.fill_between(x, low, high, where=list(enough), **shade)
    _logarithmic(axis, "y")
    axis.set_xscale("log")
    sizes = [size for size in panel.sizes() if size]
    ticks = sizes[:: -(-len(sizes) // 7)]
    axis.set_xticks(ticks, [size_text(size) for size in ticks], minor=False)
    axis.set_xticks([], minor=True)
    axis.set_xlabel("bytes in total")
    axis.set_ylabel(label)


def _logarithmic(axis: Any, which: str) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis.set(**{f"{which}scale": "log"})
    scale = getattr(axis, f"{which}axis")
    low, high = scale.get_view_interval()
    is_narrow = low > 0 and high / low < 500
    scale.set_major_locator(LogLocator(subs=(1, 2, 5) if is_narrow else (1,)))
    scale.set_major_formatter(FuncFormatter(lambda amount, _: f"{amount:g}"))
    scale.set_minor_formatter(NullFormatter())


def _dots(
    figure: Any, panel: Panel, style: Style, points: Callable[[Curve], Points], label: str
) -> None:
    axis = figure.subplots()
    names: list[str] = []
    for curve in _default_curves(panel):
        for _, value, low, high, enough in points(curve):
            look = style.of(curve, _backends(panel)) | {"linestyle": "none"}
            look["alpha"] = 1 if enough else _FAINT
            ends = [[value - low], [high - value]]
            axis.errorbar([value], [len(names)], xerr=ends, elinewidth=0.8, capsize=2, **look)
            names.append(look["label"])
    _logarithmic(axis, "x")
    axis.set_yticks(range(len(names)), names)
    axis.invert_yaxis()
    axis.set_xlabel(label)
    axis.set_title(f"{panel.collective}, {panel.scope}")
    figure.set_size_inches(ONE_COLUMN, 0.9 + 0.2 * len(names))


def _legend(
    figure: Any, panel: Panel, style: Style, points: Callable[[Curve], Points], width: float
) -> None:
    """Put a legend of algorithms and one of backends below, since their combinations do not fit."""
    from matplotlib.lines import Line2D

    drawn = [curve for curve in _default_curves(panel) if points(curve)]
    looks = {curve.name: style.of(curve, _backends(panel)) for curve in drawn}
    handles = [Line2D([], [], **{**looks[name], "linestyle": "-", "label": name}) for name in looks]
    handles += [
        Line2D([], [], color="0.1", linestyle=dash_of(index), label=name)
        for index, name in enumerate(_backends(panel))
    ]
    columns = max(1, int(width / (0.5 + 0.06 * max(map(len, looks), default=1))))
    figure.legend(handles=handles, loc="outside lower center", ncols=columns)
    figure.set_size_inches(width, 2.5 + _ROW * -(-len(handles) // columns))
