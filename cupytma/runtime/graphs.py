"""Launches captured in CUDA graphs, whose arguments can change between replays."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

from cupytma.errors import LaunchError
from cupytma.runtime.given import shown
from cupytma.runtime.submission import Refused, check, driver_api

if TYPE_CHECKING:
    from cupytma.runtime.plan import Plan


class CapturedLaunch:
    """A plan's launch in a CUDA graph; made by `Plan.capture`.

    Attributes
    ----------
    plan : Plan
    """

    def __init__(self, plan: Plan, node: Any) -> None:
        self.plan = plan
        self._node = node
        self._kept: list[tuple[Any, ...]] = [plan.arguments]

    def update(self, graph: Any) -> None:
        """Let the replays to come have the plan's arguments as they are now. Replays under way are not touched.

        Parameters
        ----------
        graph : cupy.cuda.Graph, torch.cuda.CUDAGraph or int
            Made of what was captured. Torch keeps what this needs with ``CUDAGraph(keep_graph=True)`` alone. An int is
            a ``CUgraphExec``, whose ``CUgraph`` must still exist.

        Raises
        ------
        LaunchError
            If it is no graph, or the driver refuses.
        """
        driver = driver_api()
        executable = driver.CUgraphExec(_executable(graph))
        parameters = driver.CUDA_KERNEL_NODE_PARAMS()
        shape, plan = self.plan.shape, self.plan
        parameters.func = driver.CUfunction(plan.function.handle)
        parameters.gridDimX, parameters.gridDimY, parameters.gridDimZ = shape.grid
        parameters.blockDimX, parameters.blockDimY, parameters.blockDimZ = shape.block
        parameters.sharedMemBytes = shape.shared_bytes
        parameters.kernelParams = plan.pointers
        try:
            check(driver.cuGraphExecKernelNodeSetParams(executable, self._node, parameters)[0], "update of a graph")
        except Refused as refused:
            raise plan.kernel.failed(refused, shape) from None
        self._kept = [plan.arguments]  # what the next replays work on stays alive with this


def captured_node(stream: int) -> Any:
    """The node of the launch that a stream captured last.

    Raises
    ------
    LaunchError
        If the stream is not being captured.
    """
    driver = driver_api()
    status, state, _, _, dependencies, *_ = driver.cuStreamGetCaptureInfo(driver.CUstream(stream))
    if status or state != driver.CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_ACTIVE or len(dependencies) != 1:
        raise LaunchError(
            "this stream is not being captured: use `capture` between the beginning and the end of a capture, and call "
            "the plan to launch"
        )
    return driver.CUgraphNode(int(dependencies[0]))


def _executable(graph: Any) -> int:
    """The handle of a graph that can be launched."""
    found = getattr(graph, "graphExec", graph)  # CuPy's
    if hasattr(graph, "raw_cuda_graph_exec"):  # torch's
        found = graph.raw_cuda_graph_exec()
    try:
        if not isinstance(found, bool):
            return operator.index(found)
    except TypeError:
        pass
    raise LaunchError(f"{shown(graph)} is no graph of CuPy or torch, nor the handle of a CUgraphExec")
