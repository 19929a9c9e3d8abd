"""Where things belong and who compiles them: membership, rendezvous, claims, and the coordinator that drives them."""

from gramary.cluster.placement.coordinator import Coordinator
from gramary.cluster.placement.local import LocalPeer
from gramary.cluster.placement.membership import DnsSource, FileSource, Member, Membership, StaticSource
from gramary.cluster.placement.settings import LocalStore, PlacementStats, Settings, Verifier

__all__ = [
    "Coordinator",
    "DnsSource",
    "FileSource",
    "LocalPeer",
    "LocalStore",
    "Member",
    "Membership",
    "PlacementStats",
    "Settings",
    "StaticSource",
    "Verifier",
]
