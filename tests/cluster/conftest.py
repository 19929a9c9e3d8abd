"""The one Ray cluster of a test session."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from tests.conftest import ROOT

SYSTEM = {
    "health_check_initial_delay_ms": 0,
    "health_check_period_ms": 500,
    "health_check_timeout_ms": 2000,
    "health_check_failure_threshold": 3,
}
"""A node that died is noticed within some seconds instead of sixteen."""


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[Any]:
    """Two nodes on addresses of the loopback network, never on 127.0.0.1 (Ray takes that for the outside address)."""
    ray = pytest.importorskip("ray", reason="Ray is not installed")
    from ray.cluster_utils import Cluster

    from gramary.cluster.executor.actors import connect

    paths = [str(ROOT), *(path for path in sys.path if path)]
    set_here = {
        "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths)),
        "RAY_AUTH_MODE": "disabled",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    }
    before = {name: os.environ.get(name) for name in set_here}
    os.environ.update(set_here)
    common: dict[str, Any] = {"include_dashboard": False, "object_store_memory": 100 << 20}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Ray's own
        head = {"node_ip_address": "127.0.0.10", "num_cpus": 1, "_system_config": SYSTEM, **common}
        cluster = Cluster(initialize_head=True, head_node_args=head)
        try:
            cluster.add_node(node_ip_address="127.0.0.11", num_cpus=1, object_store_memory=100 << 20)
            connect(cluster.address)
            yield cluster
        finally:
            ray.shutdown()
            cluster.shutdown()
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value
