"""The connector's options: kv_connector_extra_config, and the client's TOML file that it may name."""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_CHOICES = {
    "wire": ("auto", "tcp", "shm", "rdma"),
    "offload_mode": ("async", "sync"),
    "verify": ("always", "sampled", "off"),
}
_TIMES = ("load_deadline", "lookup_deadline", "save_deadline", "ttl")
# Of the client's file: proto/config.proto, ClientConfig. What the connector has no use for is None.
_FILE_KEYS = {"master_address": "master_address", "pool_token_file": "pool_token_file", "wire": "wire",
              "connections_per_store": "connections_per_store", "deadline": None, "rdma": None}


@dataclass(frozen=True)
class Options:
    """Seconds, tokens. docs/engines.md is the manual."""

    config_path: str = ""
    master_address: str = "127.0.0.1:7600"
    pool_token_file: str = ""
    wire: str = "auto"
    connections_per_store: int = 0
    namespace: str = "vllm"
    model_name: str = ""
    weights_revision: str = ""
    offload_mode: str = "async"
    store_threshold: int = 0
    prefetch_on_hit: bool = True
    load_deadline: float = 5.0
    lookup_deadline: float = 0.2
    save_deadline: float = 5.0
    verify: str = "always"
    ttl: float = 0.0


class OptionsError(ValueError):
    """An option is unknown or makes no sense; the text names it."""


def parse_seconds(name: str, value: Any) -> float:
    """A number of seconds, or as the daemons' configuration has it: "250ms", "5s", "1m"."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        seconds = float(value)
    else:
        match = re.fullmatch(r"(\d+(?:\.\d+)?)(us|ms|s|m|h)", str(value))
        if not match:
            raise OptionsError(f"{name}: {value!r} is not a time: write seconds, or 250ms, 5s, 1m")
        seconds = float(match[1]) * _UNITS[match[2]]
    if not 0 <= seconds <= 86_400:
        raise OptionsError(f"{name}: {value!r} is not from 0 to a day")
    return seconds


def _checked(name: str, value: Any, default: Any) -> Any:
    if name in _TIMES:
        seconds = parse_seconds(name, value)
        if seconds == 0 and name != "ttl":
            raise OptionsError(f"{name}: has to be more than 0")
        return seconds
    # A bool is an int to Python: neither passes for the other here.
    if type(value) is not type(default):
        raise OptionsError(f"{name}: {value!r} is not of the type of {default!r}")
    if name in _CHOICES and value not in _CHOICES[name]:
        raise OptionsError(f"{name}: {value!r} is none of {', '.join(_CHOICES[name])}")
    if isinstance(value, int) and value < 0:
        raise OptionsError(f"{name}: {value} is less than 0")
    if isinstance(value, str) and "\0" in value:
        raise OptionsError(f"{name}: has a NUL")
    return value


def load_toml(path: str) -> dict[str, Any]:
    try:
        toml = importlib.import_module("tomllib")
    except ImportError:  # Python 3.10
        toml = importlib.import_module("tomli")
    try:
        with open(path, "rb") as file:
            return dict(toml.load(file))
    except (OSError, ValueError) as error:
        raise OptionsError(f"config_path: {path}: {error}") from error


def parse(extra: Mapping[str, Any]) -> Options:
    """Raises OptionsError. What stands in `extra` itself goes over what stands in the file."""
    known = {one.name: one.default for one in fields(Options)}
    unknown = sorted(set(extra) - set(known))
    if unknown:
        raise OptionsError(f"{', '.join(unknown)}: no such option; there are {', '.join(sorted(known))}")
    found: dict[str, Any] = {}
    path = extra.get("config_path", "")
    if path:
        for key, value in load_toml(str(path)).items():
            if key not in _FILE_KEYS:
                raise OptionsError(f"config_path: {path}: {key}: no such key")
            target = _FILE_KEYS[key]
            if target is not None:
                found[target] = _checked(target, value, known[target])
    for name, value in extra.items():
        found[name] = _checked(name, value, known[name])
    return replace(Options(), **found)
