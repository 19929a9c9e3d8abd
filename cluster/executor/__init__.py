"""Where compiling happens: threads, supervised processes, or Ray actors, behind one seam (`Executor`)."""

from gramary.cluster.executor.actors import RayExecutor
from gramary.cluster.executor.base import (
    Built,
    Executor,
    ExecutorStats,
    Failed,
    Lowered,
    WorkLimits,
)
from gramary.cluster.executor.processes import ProcessPool
from gramary.cluster.executor.threads import InProcess

__all__ = [
    "Built",
    "Executor",
    "ExecutorStats",
    "Failed",
    "InProcess",
    "Lowered",
    "ProcessPool",
    "RayExecutor",
    "WorkLimits",
]
