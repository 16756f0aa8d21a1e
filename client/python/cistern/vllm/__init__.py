"""vLLM's connector: the pool as a second, shared prefix cache. docs/engines.md says how to use it.

    --kv-transfer-config '{"kv_connector": "CisternConnector",
                           "kv_connector_module_path": "cistern.vllm", "kv_role": "kv_both",
                           "kv_load_failure_policy": "recompute",
                           "kv_connector_extra_config": {"config_path": "/etc/cistern/client.toml"}}'

`connector` is the shell that vLLM loads, and the only module here that imports it. `scheduler` and
`worker` are its two sides; they speak by the messages of `messages`. `planner` decides what is
loaded and saved, `fingerprint` what may be shared, `weights` tells models apart, `layout` reads the
cache's shape, `link` holds the connection.
"""

from __future__ import annotations

from typing import Any

__all__ = ["CisternConnector"]


def __getattr__(name: str) -> Any:
    # Only on demand: everything but the shell works, and is tested, without vLLM.
    if name == "CisternConnector":
        from cistern.vllm.connector import CisternConnector

        return CisternConnector
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
