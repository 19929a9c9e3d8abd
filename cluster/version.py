"""Which Gramary this is."""

from importlib.metadata import PackageNotFoundError, version


def package_version() -> str:
    """The installed package's version; "unknown" where it runs from a checkout that was never installed."""
    try:
        return version("gramary")
    except PackageNotFoundError:
        return "unknown"
