"""Reads an engine's configuration: which KV bytes are interchangeable, and whether they can be shared
at all. Works on what has vLLM's attributes; nothing of it is imported."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from cistern.vllm import fingerprint, weights
from cistern.vllm.options import Options, OptionsError
from cistern.vllm.scheduler import EngineFacts

# Kinds of cache in which a block, once full, stays as it is as long as its request lives.
_WHOLE = ("FullAttentionSpec", "MLAAttentionSpec", "TQFullAttentionSpec")


def _number(config: Any, name: str) -> int:
    return int(getattr(config, name, 1) or 1)


def cannot_share(vllm_config: Any, kv_cache_config: Any) -> str | None:
    """Why the connector can do nothing for this engine, or None."""
    groups: Sequence[Any] = kv_cache_config.kv_cache_groups
    if len(groups) != 1:
        return (f"the model has {len(groups)} groups of KV caches (hybrid models); only those with one "
                "are shared so far")
    spec = type(groups[0].kv_cache_spec).__name__
    if spec not in _WHOLE:
        return f"the model's KV cache is of a kind that is not shared so far ({spec})"
    for name in ("decode_context_parallel_size", "prefill_context_parallel_size"):
        if _number(vllm_config.parallel_config, name) > 1:
            return f"{name} is more than 1, which is not shared so far"
    return None


def _weights_of(options: Options, model_config: Any) -> str:
    if options.weights_revision:
        return f"given:{options.weights_revision}"
    folder = weights.find_folder(model_config.model, getattr(model_config, "revision", None))
    try:
        if folder is not None:
            return f"sampled:{weights.digest_folder(folder)[:32]}"
        why = "its files were not found"
    except (OSError, ValueError, KeyError) as error:
        why = str(error)
    raise OptionsError(f"weights_revision: has to be given for {model_config.model}: {why}")


def _model_name(options: Options, model_config: Any) -> str:
    if options.model_name:
        return options.model_name
    return os.path.basename(os.path.normpath(str(model_config.model)))


def read(options: Options, vllm_config: Any, kv_cache_config: Any, *, engine: str,
         hash_seed: bytes) -> EngineFacts:
    """Raises OptionsError where the weights cannot be told apart and nothing was given. `engine`: name
    and version; `hash_seed`: what the engine's block hashes start from."""
    model, cache, parallel = (vllm_config.model_config, vllm_config.cache_config,
                              vllm_config.parallel_config)
    group = kv_cache_config.kv_cache_groups[0]
    spec = group.kv_cache_spec
    ranks = [_number(parallel, name) for name in ("tensor_parallel_size", "pipeline_parallel_size")]
    name = _model_name(options, model)
    role = vllm_config.kv_transfer_config.kv_role
    block_tokens = int(spec.block_size)
    speculative = getattr(vllm_config, "speculative_config", None)
    identity = {
        "engine": engine,
        "model": name,
        "config": fingerprint.config_digest(model.hf_config.to_dict()),
        "weights": _weights_of(options, model),
        "dtype": model.dtype,
        "kv_dtype": cache.cache_dtype,
        "quantization": getattr(model, "quantization", None),
        "cache": type(spec).__name__,
        "block": block_tokens,
        "heads": getattr(spec, "num_kv_heads", None),
        "head_size": getattr(spec, "head_size", None),
        "tp": ranks[0],
        "pp": ranks[1],
        "hash": f"{cache.prefix_caching_hash_algo}:{hash_seed.hex()}",
    }
    return EngineFacts(
        block_tokens=block_tokens, shard_count=ranks[0] * ranks[1],
        loads=role in ("kv_consumer", "kv_both"), saves=role in ("kv_producer", "kv_both"),
        prompt_only=speculative is not None, model=name, identity=identity)


class Adapters:
    """What is put before the keys of requests with an adapter (LoRA): the engine's hashes hold no more
    than its name."""

    def __init__(self) -> None:
        self._tags: dict[tuple[str, str], bytes | None] = {}

    def tag(self, adapter: Any) -> bytes | None:
        """b"" without one. None: its files cannot be read; the request is not shared."""
        if adapter is None:
            return b""
        at = (str(adapter.lora_name), str(getattr(adapter, "lora_path", "")))
        if at not in self._tags:
            try:
                self._tags[at] = f"lora:{weights.digest_folder(at[1])[:32]}:".encode()
            except (OSError, ValueError, KeyError):
                self._tags[at] = None
        return self._tags[at]
