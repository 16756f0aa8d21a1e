"""Cistern, a pool for the KV cache of LLM inference: put chunks, look them up, get them back.

    import cistern

    client = cistern.connect("127.0.0.1:7600", token_file="/etc/cistern/token")
    ns = client.namespace("llama-70b", "rev=1;dtype=fp8;block=512")
    buffer = client.allocate(64 << 20)
    pieces = buffer.spans(1 << 20)
    ns.put(keys, pieces[:len(keys)])
    run = ns.lookup(keys).leading_run
    results = ns.get(keys[:run], pieces[:run])
    results = await ns.get_async(keys[:run], pieces[:run])
"""

from cistern.batch import BatchResult, ChunkResult, Keys, Unit
from cistern.client import Buffer, Client, StoreWire, connect, log_to, version
from cistern.errors import CisternError, Code
from cistern.namespace import ListedKey, Lookup, MatchRemoval, Namespace
from cistern.op import ALL_PARTS, GetOp, MissedChunk, Op

__all__ = [
    "ALL_PARTS",
    "BatchResult",
    "Buffer",
    "ChunkResult",
    "CisternError",
    "Client",
    "Code",
    "GetOp",
    "Keys",
    "ListedKey",
    "Lookup",
    "MatchRemoval",
    "MissedChunk",
    "Namespace",
    "Op",
    "StoreWire",
    "Unit",
    "connect",
    "log_to",
    "version",
]
