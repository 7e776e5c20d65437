"""Plots with matplotlib: the roofline, and the bandwidth of a pipeline."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, Any

from cupytma.errors import MissingLibraryError, PictureError, SimulationError
from cupytma.sim.checks import check_integer

if TYPE_CHECKING:
    from cupytma.view.figure import Plot


@dataclass(frozen=True)
class Card:
    """What a GPU can do at best, by its data sheet.

    Attributes
    ----------
    name : str
    bandwidth : float
        Bytes per second of global memory.
    peaks : mapping of str to float
        Dense operations per second (a multiplication and an addition are two), by type of number.
    """

    name: str
    bandwidth: float
    peaks: Mapping[str, float]


_HOPPER = {"FP8": 1979e12, "FP16 and BF16": 989e12, "TF32": 494e12, "FP32": 67e12}
CARDS = {card.name: card for card in (Card("H100 SXM", 3.35e12, _HOPPER), Card("H200 SXM", 4.8e12, _HOPPER))}
"""Cards by name. Source: NVIDIA's data sheets of the H100 and H200, without sparsity."""


@dataclass(frozen=True)
class RooflinePoint:
    """One measured kernel.

    Attributes
    ----------
    name : str
    operations : float
        Floating-point operations that it does.
    bytes : float
        Bytes that it reads and writes of global memory.
    seconds : float
    """

    name: str
    operations: float
    bytes: float
    seconds: float

    @property
    def intensity(self) -> float:
        """Operations per byte."""
        return self.operations / self.bytes

    @property
    def rate(self) -> float:
        """Operations per second."""
        return self.operations / self.seconds


def roofline(
    points: Mapping[str, Sequence[float]] | Iterable[RooflinePoint],
    *,
    card: str | Card | None = "H100 SXM",
    bandwidth: float | None = None,
    peaks: Mapping[str, float] | None = None,
    title: str = "",
) -> Plot:
    """Kernels under the roofs of a card: operations per byte against operations per second, both logarithmic.

    Parameters
    ----------
    points : mapping of str to (operations, bytes, seconds), or iterable of RooflinePoint
        Each is named in the plot.
    card : str or Card, optional
        Whose roofs are drawn: one of `CARDS`. None for roofs given below.
    bandwidth : float, optional
        Bytes per second of memory, in place of the card's; for example what a copy was measured to reach.
    peaks : mapping of str to float, optional
        Operations per second by name, in place of the card's.
    title : str

    Returns
    -------
    Plot
        A matplotlib figure.

    Raises
    ------
    PictureError
        If there is no such card, no roof, or a number is not positive and finite.
    MissingLibraryError
        If matplotlib is not installed.
    """
    drawn = _points(points)
    roofs = _card(card)
    slope = _positive("bandwidth", roofs.bandwidth if roofs and bandwidth is None else bandwidth)
    given = roofs.peaks if roofs and peaks is None else peaks
    if not isinstance(given, Mapping) or not given:
        raise PictureError("no roof is given; name a card, or pass peaks={'FP16': operations per second}")
    levels = {str(name): _positive(f"the peak of {name}", peak) for name, peak in given.items()}
    heading = title or (f"Roofline, {roofs.name}" if roofs else "Roofline")
    plot: Plot = _figure().roofline(drawn, slope, levels, heading)
    return plot


def modelled_bandwidth(bytes_in_flight: float, *, latency: float, bandwidth: float) -> float:
    """The bandwidth that so many bytes in flight reach, by Little's law.

    What is requested comes a latency later, so that a card with so many bytes on their way moves them once in each
    latency, until memory gives no more. A model: latency grows with load, and real curves bend earlier.

    Parameters
    ----------
    bytes_in_flight : float
        On the whole card.
    latency : float
        Seconds from the start of a load to its arrival.
    bandwidth : float
        Bytes per second that memory gives at most.

    Returns
    -------
    float
        Bytes per second.
    """
    return min(bandwidth, bytes_in_flight / latency)


def pipeline_curve(
    measured: Mapping[str, Iterable[tuple[float, float]]] | None = None,
    *,
    latency: float = 1e-6,
    bandwidth: float = CARDS["H100 SXM"].bandwidth,
    tile_bytes: int | None = None,
    blocks: int = 132,
    stages: Iterable[int] = range(1, 9),
    title: str = "",
) -> Plot:
    """Bandwidth against bytes in flight: as modelled by Little's law, and as measured.

    Parameters
    ----------
    measured : mapping of str to pairs of numbers, optional
        By name, curves of (bytes in flight on the card, bytes per second).
    latency : float
        Seconds from the start of a load to its arrival, of the model. The default of a microsecond is a round number
        for a busy Hopper, not a measurement.
    bandwidth : float
        Bytes per second that memory gives at most, of the model. Default: an H100's, by its data sheet.
    tile_bytes : int, optional
        Bytes of one stage. With it the numbers of stages are marked on the model's curve.
    blocks : int
        Blocks on the card at once, for the bytes in flight of the stages.
    stages : iterable of int
        The numbers of stages that are marked.
    title : str

    Returns
    -------
    Plot
        A matplotlib figure.

    Raises
    ------
    PictureError
        If a number is not positive and finite, or a curve is none.
    MissingLibraryError
        If matplotlib is not installed.
    """
    latency, bandwidth = _positive("latency", latency), _positive("bandwidth", bandwidth)
    if measured is not None and not isinstance(measured, Mapping):
        raise PictureError(f"measured is {measured!r}; it must be a mapping from names to pairs of numbers")
    curves = {str(name): _curve(name, pairs) for name, pairs in (measured or {}).items()}
    marks = [] if tile_bytes is None else _marks(_positive("tile_bytes", tile_bytes), blocks, stages)
    heading = title or "Bytes in flight and bandwidth"
    plot: Plot = _figure().pipeline_curve(curves, latency, bandwidth, marks, heading)
    return plot


def _points(points: Any) -> list[RooflinePoint]:
    try:
        given = (
            [RooflinePoint(str(name), *values) for name, values in points.items()]
            if isinstance(points, Mapping)
            else list(points)
        )
    except TypeError:
        raise PictureError(
            "points must be a mapping from names to (operations, bytes, seconds), or RooflinePoints"
        ) from None
    for point in given:
        if not isinstance(point, RooflinePoint):
            raise PictureError(f"{point!r} is no RooflinePoint")
        for name in ("operations", "bytes", "seconds"):
            _positive(f"{name} of {point.name!r}", getattr(point, name))
    return given


def _card(card: Any) -> Card | None:
    if card is None or isinstance(card, Card):
        return card
    if not isinstance(card, str) or card not in CARDS:
        raise PictureError(f"there is no card {card!r}; known are {', '.join(CARDS)}, or pass bandwidth and peaks")
    return CARDS[card]


def _marks(tile_bytes: float, blocks: Any, stages: Any) -> list[tuple[int, float]]:
    """Numbers of stages, each with its bytes in flight on the card."""
    try:
        numbers = [check_integer("a number of stages", number) for number in stages]
    except (TypeError, SimulationError):
        raise PictureError(f"stages is {stages!r}; it must be whole numbers of 1 or above") from None
    unit = tile_bytes * _positive("blocks", blocks)
    return [(number, _positive("a number of stages", number) * unit) for number in numbers]


def _curve(name: Any, pairs: Any) -> list[tuple[float, float]]:
    try:
        found = sorted((x, y) for x, y in pairs)
    except (TypeError, ValueError):
        raise PictureError(f"curve {name!r} must be pairs of bytes in flight and bytes per second") from None
    if not found:
        raise PictureError(f"curve {name!r} has no points")
    return [(_positive(f"bytes in flight of {name!r}", x), _positive(f"bandwidth of {name!r}", y)) for x, y in found]


def _positive(name: str, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = float("nan")
    if isinstance(value, (bool, str)) or not isfinite(number) or number <= 0:
        raise PictureError(f"{name} is {value!r}; it must be a positive number")
    return number


def _figure() -> Any:
    """The module that draws, which needs matplotlib."""
    try:
        from cupytma.view import figure
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "matplotlib":
            raise
        raise MissingLibraryError(
            "plots need matplotlib, which is not installed; run `pip install matplotlib`, or use the SVG pictures of "
            "`cupytma.view`, which need nothing"
        ) from None
    return figure
