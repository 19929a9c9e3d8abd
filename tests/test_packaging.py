"""The package as it is installed."""


def test_the_extension_is_importable() -> None:
    from gramary.runtime import _core

    assert _core.FORMAT_VERSION >= 1
