"""Tokens, MAC keys and certificates, read again when their files change.

Rotation is a matter of files: a new token or key is put first in the list and the old one kept behind it until every
node has both, then dropped. Kubernetes swaps a mounted secret by moving a link, which shows as another inode. A file
that cannot be read after the start keeps its last good content: a half-written secret must not lock a cluster out.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gramary.cluster.config import MOST_SECRET_BYTES, ConfigError
from gramary.cluster.log import get_logger

if TYPE_CHECKING:
    from gramary.cluster.settings import Settings

LEAST_TOKEN_CHARACTERS = 16
MAC_KEY_BYTES = 32

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class TlsMaterial:
    """PEM texts; empty where not configured."""

    cert: bytes = b""
    key: bytes = b""
    ca: bytes = b""


def _error(field: str, place: str, reason: str, remedy: str) -> ConfigError:
    return ConfigError.of([{"field": field, "place": place, "reason": reason, "remedy": remedy}])


def parse_token(text: str, *, place: str) -> bytes:
    """A bearer token: printable ASCII without spaces, long enough not to be guessed. Raises `ConfigError`."""
    token = text.strip()
    if len(token) < LEAST_TOKEN_CHARACTERS or not all("!" <= c <= "~" for c in token):
        reason = f"a token has at least {LEAST_TOKEN_CHARACTERS} printable characters and no spaces"
        raise _error("auth.tokens", place, reason, "make one with `openssl rand -hex 32`")
    return token.encode()


def parse_mac_key(text: str, *, place: str) -> bytes:
    """A MAC key of 32 bytes, written as hexadecimal digits. Raises `ConfigError`."""
    try:
        key = bytes.fromhex(text.strip())
    except ValueError:
        key = b""
    if len(key) != MAC_KEY_BYTES:
        reason = f"a MAC key is written as {2 * MAC_KEY_BYTES} hexadecimal digits"
        raise _error("trust.mac_keys", place, reason, "make one with `openssl rand -hex 32`")
    return key


class _Watched:
    """One file's parsed content."""

    def __init__(self, path: Path, field: str, parse: Callable[[bytes], bytes]) -> None:
        self.path, self._field, self._parse = path, field, parse
        self._seen: tuple[int, ...] | None = None
        self.content = b""
        self.failed = False

    def read(self) -> bool:
        """Whether the content is new. Raises `ConfigError` if it cannot be had."""
        try:
            with self.path.open("rb") as file:
                status = os.fstat(file.fileno())
                seen = (status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size)
                if seen == self._seen:
                    return False
                data = file.read(MOST_SECRET_BYTES + 1)
        except OSError as error:
            reason = f"cannot be read: {error.strerror}"
            raise _error(self._field, str(self.path), reason, "check the path and its permissions") from None
        if len(data) > MOST_SECRET_BYTES:
            raise _error(
                self._field, str(self.path), f"is longer than {MOST_SECRET_BYTES} bytes", "name the right file"
            )
        content = self._parse(data)
        changed = content != self.content
        self.content, self._seen = content, seen
        return changed


class Credentials:
    """What this process proves itself with and accepts from others. Thread-safe; raises `ConfigError` when made."""

    def __init__(
        self, settings: Settings, *, refresh_s: float = 5.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        auth, trust, tls = settings.auth, settings.trust, settings.tls
        self._tokens = [parse_token(one.get_secret_value(), place="auth.tokens") for one in auth.tokens]
        self._keys = [parse_mac_key(one.get_secret_value(), place="trust.mac_keys") for one in trust.mac_keys]
        self._token_files = [self._watch(path, "auth.token_files", parse_token) for path in auth.token_files]
        client_files = auth.client_token_files
        self._client_files = [self._watch(path, "auth.client_token_files", parse_token) for path in client_files]
        self._key_files = [self._watch(path, "trust.mac_key_files", parse_mac_key) for path in trust.mac_key_files]
        named = {"cert": tls.cert_file, "key": tls.key_file, "ca": tls.ca_file}
        self._tls = {
            name: _Watched(path, f"tls.{name}_file", bytes) for name, path in named.items() if path is not None
        }
        self._files = [*self._token_files, *self._client_files, *self._key_files, *self._tls.values()]
        self._refresh_s, self._clock = refresh_s, clock
        self._lock = threading.Lock()
        for file in self._files:
            file.read()
        self._next = clock() + refresh_s
        self.generation = 0
        """Counts changes, so that whoever built something from this (a TLS context) knows when to build it again."""

    @staticmethod
    def _watch(path: Path, field: str, parse: Callable[..., bytes]) -> _Watched:
        return _Watched(path, field, lambda data: parse(data.decode("utf-8", "replace"), place=str(path)))

    def refresh(self, *, now: bool = False) -> bool:
        """Look at the files again if it is time (or `now`); whether anything changed."""
        with self._lock:
            if not now and self._clock() < self._next:
                return False
            self._next = self._clock() + self._refresh_s
            changed = False
            for file in self._files:
                try:
                    changed |= file.read()
                    file.failed = False
                except ConfigError as error:
                    if not file.failed:
                        _log.warning("credential_not_refreshed", error=str(error))
                    file.failed = True
            self.generation += changed
            return changed

    @property
    def stale(self) -> Sequence[Path]:
        """Files that could not be read at the last look; what they held before still counts."""
        return [file.path for file in self._files if file.failed]

    def tokens(self) -> tuple[bytes, ...]:
        """Every token that is accepted; the first is the one to send. Files come before what is set directly."""
        self.refresh()
        return (*(file.content for file in self._token_files), *self._tokens)

    def client_tokens(self) -> tuple[bytes, ...]:
        """Tokens of programs that may read and compile, not publish."""
        self.refresh()
        return tuple(file.content for file in self._client_files)

    def mac_keys(self) -> tuple[bytes, ...]:
        """Every key that verifies; the first is the one to sign with."""
        self.refresh()
        return (*(file.content for file in self._key_files), *self._keys)

    def tls(self) -> TlsMaterial | None:
        """The PEM texts; `None` if none are configured."""
        self.refresh()
        return TlsMaterial(**{name: file.content for name, file in self._tls.items()}) if self._tls else None
