"""What can be configured, where it comes from, and what is wrong with it.

`load` reads, the strongest first: options given to it (the command line's), environment variables
`GRAMARY_SECTION_FIELD`, files of a secrets directory named `section_field`, and a TOML file with one table a section.
Lists are written `a,b` or as JSON in the environment and in secrets, as arrays in TOML. Whatever is wrong is one
`ConfigError` that names each field, the place that set it, and what it should be.

Importing this costs some 0.4 s (pydantic): import it where it is needed, not at the top of what workers import.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, cast

from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_settings import EnvSettingsSource

from gramary.cluster.address import parse_address
from gramary.cluster.settings import PREFIX, Section, Settings
from gramary.compiler.errors import GramaryError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # type: ignore[import-not-found, unused-ignore]

Role = Literal["serve", "agent", "client", "worker"]

SECRETS_DIR = Path("/run/secrets/gramary")
MOST_FILE_BYTES = 1 << 20
MOST_SECRET_BYTES = 1 << 16
# What Kubernetes puts into every pod for a Service whose name begins like a section ("gramary-node"): not meant for us.
_SERVICE_LINK = re.compile(r"_SERVICE_(HOST|PORT(_\w+)?)$|_PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?$")


class ConfigError(GramaryError):
    """The configuration is not usable. `problems`: one dict each with `field`, `place`, `reason` and `remedy`."""

    _attributes: ClassVar[tuple[str, ...]] = ("problems",)
    problems: Sequence[Mapping[str, str]] = ()

    @classmethod
    def of(cls, problems: Sequence[Mapping[str, str]]) -> ConfigError:
        """One error for all that is wrong."""
        lines = [
            f"{one['field']} (from {one['place']}): {one['reason']}; {one['remedy']}"
            if one["place"]
            else f"{one['field']}: {one['reason']}; {one['remedy']}"
            for one in problems
        ]
        text = lines[0] if len(lines) == 1 else "".join(f"\n  {line}" for line in lines)
        return cls(f"the configuration is not usable: {text}", problems=list(problems))


def fields() -> dict[str, tuple[str, FieldInfo, type[Section]]]:
    """Every field as `section.field`: its environment variable, its declaration, its section's class."""
    out: dict[str, tuple[str, FieldInfo, type[Section]]] = {}
    for section, declared in Settings.model_fields.items():
        kind = cast("type[Section]", declared.annotation)
        for name, field in kind.model_fields.items():
            out[f"{section}.{name}"] = (f"{PREFIX}{section}_{name}".upper(), field, kind)
    return out


class _Environment(EnvSettingsSource):
    """`GRAMARY_SECTION_FIELD`, lists also as `a,b`; what Kubernetes sets for services is left out."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        super().__init__(Settings, env_prefix=PREFIX, env_nested_delimiter="_", env_nested_max_split=1)

    def _load_env_vars(self) -> Mapping[str, str | None]:
        return {name.lower(): value for name, value in self._environ.items() if not _SERVICE_LINK.search(name)}

    def decode_complex_value(self, field_name: str, field: FieldInfo, value: Any) -> Any:
        return _decoded(value)


def _decoded(value: str) -> Any:
    if value.lstrip().startswith(("[", "{")):
        try:
            return json.loads(value)
        except ValueError:
            return value  # not a list: the field's own error says so
    return [item.strip() for item in value.split(",") if item.strip()]


def _is_list(field: FieldInfo) -> bool:
    return str(field.annotation).startswith("list[")


def _read_secrets(folder: Path) -> dict[str, dict[str, Any]]:
    """Files named `section_field`. Mounted secrets are links into a hidden folder; reading by name follows them."""
    out: dict[str, dict[str, Any]] = {}
    for dotted, (_, field, _kind) in fields().items():
        section, name = dotted.split(".")
        path = folder / f"{section}_{name}"
        try:
            with path.open("rb") as file:
                data = file.read(MOST_SECRET_BYTES + 1)
            if len(data) > MOST_SECRET_BYTES:
                raise ValueError(f"longer than {MOST_SECRET_BYTES} bytes")
            text = data.decode().strip()
            out.setdefault(section, {})[name] = _decoded(text) if _is_list(field) else text
        except FileNotFoundError:
            continue
        except (OSError, ValueError) as error:
            raise _one(dotted, str(path), f"cannot be read: {error}", "mount a small text file there") from None
    return out


def _read_toml(path: Path) -> dict[str, Any]:
    remedy = "docs/configuration.md has an example"
    try:
        with path.open("rb") as file:
            data = file.read(MOST_FILE_BYTES + 1)
        if len(data) > MOST_FILE_BYTES:
            raise ValueError(f"it is longer than {MOST_FILE_BYTES} bytes")
        return cast("dict[str, Any]", tomllib.loads(data.decode()))
    except OSError as error:
        raise _one(
            "--config", str(path), f"cannot be read: {error.strerror}", "check the path and its permissions"
        ) from None
    except ValueError as error:
        raise _one("--config", str(path), f"is not TOML: {error}", remedy) from None


def _one(field: str, place: str, reason: str, remedy: str) -> ConfigError:
    return ConfigError.of([{"field": field, "place": place, "reason": reason, "remedy": remedy}])


def _merge(base: dict[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Sections of `over` on top of those of `base`, field by field."""
    out = dict(base)
    for name, value in over.items():
        below = out.get(name)
        out[name] = {**below, **value} if isinstance(below, dict) and isinstance(value, Mapping) else value
    return out


def _remedy(dotted: str, kind: str) -> str:
    known = fields()
    if dotted in known:
        variable, field, _ = known[dotted]
        return f"set {variable} or {dotted} to: {field.description}"
    names = [*known, *Settings.model_fields]
    close = difflib.get_close_matches(dotted, names, n=1, cutoff=0.5)
    if kind == "extra_forbidden":
        return f"did you mean {close[0]}?" if close else "docs/configuration.md lists every field"
    return "docs/configuration.md lists every field"


def _is_secret(dotted: str) -> bool:
    known = fields().get(dotted)
    return known is None or "SecretStr" in str(known[1].annotation)


def _problem(error: Mapping[str, Any], place: Callable[[Sequence[str | int]], str]) -> dict[str, str]:
    loc = error["loc"]
    dotted = ".".join(str(part) for part in loc[:2]) or "configuration"
    kind = error["type"]
    if kind == "extra_forbidden":
        reason = "there is no such field" if len(loc) > 1 else "there is no such section"
    else:
        reason = str(error["msg"]).removeprefix("Value error, ")
        value = error.get("input")
        if kind != "value_error" and not _is_secret(dotted) and isinstance(value, (str, int, float)):
            reason += f", not {str(value)[:80]!r}"
    return {"field": dotted, "place": place(loc), "reason": reason, "remedy": _remedy(dotted, kind)}


def load(
    config: Path | None = None,
    *,
    role: Role = "client",
    options: Mapping[str, Mapping[str, Any]] | None = None,
    environ: Mapping[str, str] | None = None,
    secrets_dir: Path | None = None,
) -> Settings:
    """The settings of this process; raises `ConfigError`.

    `config` defaults to `$GRAMARY_CONFIG`, `secrets_dir` to `$GRAMARY_SECRETS_DIR`, then to /run/secrets/gramary where
    it exists. `options`: what the command line set, by section and field. `role`: what else has to hold there.
    """
    environ = os.environ if environ is None else environ
    if config is None and environ.get("GRAMARY_CONFIG"):
        config = Path(environ["GRAMARY_CONFIG"])
    if secrets_dir is None:
        secrets_dir = Path(environ.get("GRAMARY_SECRETS_DIR") or SECRETS_DIR)
    try:
        from_environment = _Environment(environ)()
    except ValueError as error:
        raise _one("environment", "GRAMARY_*", str(error), "write lists as a,b or as JSON") from None
    layers: list[tuple[str, Mapping[str, Any]]] = [
        ("an option", options or {}),
        ("the environment", from_environment),
        (f"the secrets in {secrets_dir}", _read_secrets(secrets_dir)),
        (str(config or ""), _read_toml(config) if config else {}),
    ]

    def place(loc: Sequence[str | int]) -> str:
        for name, layer in layers:
            inner = layer.get(str(loc[0])) if loc else None
            if inner is not None and (len(loc) < 2 or not isinstance(inner, Mapping) or loc[1] in inner):
                if name == "the environment" and len(loc) > 1:
                    return f"{PREFIX}{loc[0]}_{loc[1]}".upper()
                return name
        return ""

    merged: dict[str, Any] = {}
    for _, layer in reversed(layers):
        merged = _merge(merged, layer)
    try:
        settings = Settings(**merged)
    except ValidationError as error:
        raise ConfigError.of([_problem(cast("Mapping[str, Any]", one), place) for one in error.errors()]) from None
    problems = [{**one, "place": place(one["field"].split("."))} for one in _check(settings, role)]
    if problems:
        raise ConfigError.of(problems)
    return settings


def _check(settings: Settings, role: Role) -> list[dict[str, str]]:
    """What only shows across sections or on this machine, for this kind of process."""
    out: list[dict[str, str]] = []

    def wrong(field: str, reason: str, remedy: str) -> None:
        out.append({"field": field, "place": "", "reason": reason, "remedy": remedy})

    tls, serving = settings.tls, role in ("serve", "agent")
    for name in ("cert_file", "key_file", "ca_file"):
        path: Path | None = getattr(tls, name)
        if path is not None and not os.access(path, os.R_OK):
            wrong(f"tls.{name}", f"{path} is not there or not readable", "name a PEM file that this user may read")
    if serving and settings.listens_beyond_loopback():
        auth = settings.auth
        tokens = bool(auth.tokens or auth.token_files or auth.client_token_files)
        mutual = tls.cert_file is not None and tls.ca_file is not None and tls.require_client_cert
        if not mutual and not (tokens and (tls.cert_file is not None or auth.plaintext)):
            wrong(
                "node.listen",
                f"{', '.join(settings.node.listen)} can be reached from outside, and callers are not told apart",
                "set tls.cert_file and tls.key_file, and either tls.ca_file or auth.token_files; "
                "or listen on 127.0.0.1 or unix:/path",
            )
    if serving and tls.cert_file and tls.require_client_cert and not tls.ca_file:
        wrong(
            "tls.ca_file",
            "client certificates are required and no authority is named",
            "set it, or require_client_cert = false",
        )
    if (
        serving
        and settings.listens_beyond_loopback()
        and (settings.peers.nodes or settings.peers.dns or settings.peers.file)
    ):
        if parse_address(settings.advertised()).is_wildcard:
            wrong("node.advertise", "peers cannot reach a wildcard address", "set it to this node's own host:port")
        if not (settings.trust.mac_keys or settings.trust.mac_key_files):
            wrong(
                "trust.mac_key_files",
                "peers' mask entries could not be vouched for",
                "name a file made by `openssl rand -hex 32`",
            )
    return out
