"""Drawing the plots; this module loads matplotlib."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from contextlib import AbstractContextManager
from itertools import cycle
from typing import TYPE_CHECKING, Any

import matplotlib
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from cupytma.view.drawing import COLOURS, GROUND
from cupytma.view.plots import modelled_bandwidth

if TYPE_CHECKING:
    from cupytma.view.plots import RooflinePoint

_ROOF = "#1f2328"  # the ink: what is drawn in it has the page's text colour in an SVG
# The same bytes for the same plot: ids are drawn from a salt, and there is no date. Text stays text.
_SETTINGS = {
    "svg.hashsalt": "cupytma", "svg.fonttype": "none", "font.size": 10.0, "font.family": "sans-serif",
    **dict.fromkeys(
        ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color", "grid.color"), _ROOF
    ),
    "legend.facecolor": "none", "legend.edgecolor": "none",
}  # fmt: skip
_INCHES = 8.0, 4.2

_MARKERS = "osD^vP*X"
_LINES = ("-", "--", "-.", ":")
# Those that are seen best as lines on light and dark ground come first; yellow cannot be seen on white.
_INK = tuple(COLOURS[i] for i in (0, 5, 2, 3, 1, 4))


class Plot(Figure):  # type: ignore[misc, unused-ignore]
    """A matplotlib figure that notebooks show as SVG, whichever backend is chosen."""

    def _repr_svg_(self) -> str:
        with _settings():
            held = io.StringIO()
            self.savefig(held, format="svg", metadata={"Date": None}, facecolor="none")
            text = held.getvalue()
        opening, rest = text[text.index("<svg") :].split(">", 1)
        return f"{opening}><style>{GROUND}</style>{rest.replace(_ROOF, 'currentColor')}"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the plot to a file, in the format that its name ends with: ``.svg``, ``.png``, ``.pdf``."""
        if os.fspath(path).endswith(".svg"):
            with open(path, "w", encoding="utf-8") as file:
                file.write(self._repr_svg_())
            return
        with _settings():
            self.savefig(path)


def _settings() -> AbstractContextManager[Any]:
    context: AbstractContextManager[Any] = matplotlib.rc_context(_SETTINGS)
    return context


def _rounded(value: float, unit: str) -> str:
    """A value in three digits, with its unit."""
    text: str = EngFormatter(unit=unit, sep=" ")(float(f"{value:.3g}"))
    return text


def _axes(title: str, horizontal: str, vertical: str) -> tuple[Plot, Any]:
    plot = Plot(figsize=_INCHES, layout="constrained", facecolor="white")
    axes = plot.add_subplot(facecolor="none")
    axes.set_title(title, loc="left", fontsize=11)
    axes.set_xlabel(horizontal)
    axes.set_ylabel(vertical)
    axes.grid(which="major", alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    return plot, axes


def roofline(points: Sequence[RooflinePoint], bandwidth: float, peaks: dict[str, float], title: str) -> Plot:
    """See `cupytma.view.roofline`."""
    with _settings():
        plot, axes = _axes(title, "FLOP per byte of global memory", "FLOP per second")
        highest = max(peaks.values())
        at = [point.intensity for point in points] + [peak / bandwidth for peak in peaks.values()]
        left, right = min(at) / 4, max(at) * 8
        corner = highest / bandwidth
        axes.plot(
            [left, corner], [left * bandwidth, highest], color=_ROOF, linewidth=2.4,
            label=f"memory: {_rounded(bandwidth, 'B/s')}",
        )  # fmt: skip
        for (name, peak), style in zip(peaks.items(), cycle(_LINES), strict=False):
            flat = [peak / bandwidth, right], [peak, peak]
            axes.plot(*flat, color=_ROOF, linewidth=1.4, linestyle=style, label=f"{name}: {_rounded(peak, 'FLOP/s')}")
        for point, colour, marker in zip(points, cycle(_INK), cycle(_MARKERS), strict=False):
            axes.plot(
                [point.intensity], [point.rate], marker, color=colour, markersize=8, markeredgecolor=_ROOF,
                label=f"{point.name}: {_rounded(point.rate, 'FLOP/s')}", zorder=3,
            )  # fmt: skip
        axes.set(xscale="log", yscale="log", xlim=(left, right))
        axes.yaxis.set_major_formatter(EngFormatter(sep=" "))
        axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), fontsize=9, frameon=False)
    return plot


def pipeline_curve(
    curves: dict[str, list[tuple[float, float]]],
    latency: float,
    bandwidth: float,
    marks: list[tuple[int, float]],
    title: str,
) -> Plot:
    """See `cupytma.view.pipeline_curve`."""
    with _settings():
        plot, axes = _axes(title, "bytes in flight on the card", "bytes per second")
        enough = latency * bandwidth
        xs = [x for curve in curves.values() for x, _ in curve] + [x for _, x in marks]
        right = max([2 * enough, *(1.1 * x for x in xs)])
        model = f"model: {_rounded(latency, 's')}, {_rounded(bandwidth, 'B/s')}"
        axes.plot([0, enough, right], [0, bandwidth, bandwidth], color=_ROOF, linewidth=1.4, label=model)
        for stages, x in marks:
            y = modelled_bandwidth(x, latency=latency, bandwidth=bandwidth)
            axes.plot([x], [y], "o", color=_ROOF, markersize=5)
            axes.annotate(str(stages), (x, y), textcoords="offset points", xytext=(0, 7), ha="center", fontsize=9)
        for (name, curve), colour, marker, style in zip(
            curves.items(), cycle(_INK), cycle(_MARKERS[1:]), cycle(_LINES[1:]), strict=False
        ):
            axes.plot(*zip(*curve, strict=True), marker + style, color=colour, markersize=6, label=name)
        highest = max([bandwidth, *(y for curve in curves.values() for _, y in curve)])
        axes.set(xlim=(0, right), ylim=(0, 1.15 * highest))
        axes.xaxis.set_major_formatter(EngFormatter(unit="B", sep=" "))
        axes.yaxis.set_major_formatter(EngFormatter(unit="B/s", sep=" "))
        heading = "numbers are stages" if marks else None
        axes.legend(loc="best", fontsize=9, title=heading, title_fontsize=9)
    return plot
