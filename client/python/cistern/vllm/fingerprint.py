"""Which engines may share KV bytes: a text of everything that the bytes depend on."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

# Cistern's own part of it: the order of a chunk's pieces, how keys are made.
FORMAT = 1
_NAME_MAX = 200


def config_digest(config: Mapping[str, Any]) -> str:
    """Of a model's configuration as the engine uses it, overrides included. What says where it came
    from, and with which software, is left out."""
    kept = {key: value for key, value in config.items()
            if not key.startswith("_") and key not in ("transformers_version", "name_or_path")}
    # An object's default text may hold its address: its type has to do.
    text = json.dumps(kept, sort_keys=True, default=lambda one: type(one).__name__)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def compose(parts: Mapping[str, Any]) -> str:
    """"a=1;b=2", by name. Values may hold anything: what would end a value is escaped."""
    fields = {"format": FORMAT, **parts}
    return ";".join(f"{name}={re.sub(r'[%;=]', lambda m: f'%{ord(m[0]):02x}', str(fields[name]))}"
                    for name in sorted(fields))


def namespace_name(prefix: str, model: str, fingerprint: str) -> str:
    """Ends in the first 8 hex digits of the fingerprint's hash: new weights under an old name are
    simply another namespace."""
    short = re.sub(r"[^A-Za-z0-9._-]+", "-", model.rstrip("/").split("/")[-1]) or "model"
    digits = hashlib.sha256(fingerprint.encode()).hexdigest()[:8]
    return f"{prefix}/{short}"[:_NAME_MAX] + f"-{digits}"
