"""Tells models apart by their files: a digest of the configuration, the weight index, and samples of
every tensor's bytes.

Reading all of the weights would take minutes; names and sizes alone are the same for every fine-tune
of a model. Training moves practically every number of what it trains, so that a few bytes of each
tensor tell two revisions apart. Whoever edits single numbers of a tensor gives weights_revision.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_SAMPLE = 512
_SPOTS = 3  # of each tensor
_BLIND_SPOTS = 256  # of a file whose tensors we cannot find
_HEADER_MAX = 256 << 20
_WEIGHT_SUFFIXES = (".safetensors", ".bin", ".pt", ".pth", ".gguf")
_TEXTS = ("config.json", "adapter_config.json", "quantize_config.json", "hf_quant_config.json")


def _ranges(file: Any, size: int, suffix: str) -> Iterator[tuple[int, int]]:
    """(begin, end) of each tensor of a safetensors file; of the whole file otherwise."""
    if suffix == ".safetensors" and size >= 8:
        length = int.from_bytes(file.read(8), "little")
        if length <= min(size - 8, _HEADER_MAX):
            for name, tensor in sorted(json.loads(file.read(length)).items()):
                if name != "__metadata__":
                    begin, end = tensor["data_offsets"]
                    yield 8 + length + begin, 8 + length + end
            return
    yield 0, size


def _sample(path: Path, digest: Any) -> None:
    size = path.stat().st_size
    with open(path, "rb") as file:
        if path.suffix == ".safetensors" and size >= 8:
            length = int.from_bytes(file.read(8), "little")
            if length <= min(size - 8, _HEADER_MAX):
                digest.update(file.read(length))  # names, types, shapes
            file.seek(0)
        ranges = list(_ranges(file, size, path.suffix))
        spots = _SPOTS if len(ranges) > 1 else _BLIND_SPOTS
        for begin, end in ranges:
            last = max(end - begin - _SAMPLE, 0)
            for i in range(spots):
                file.seek(begin + last * i // (spots - 1))
                digest.update(file.read(min(_SAMPLE, end - begin)))


def digest_folder(folder: str | os.PathLike[str]) -> str:
    """Hex digits that name the model, or the adapter, in `folder`. FileNotFoundError: it has no
    weights. Other OSError, ValueError: they cannot be read."""
    base = Path(folder)
    files = sorted(path for path in base.iterdir() if path.is_file())
    weights = [path for path in files if path.suffix in _WEIGHT_SUFFIXES]
    if any(path.suffix == ".safetensors" for path in weights):
        weights = [path for path in weights if path.suffix == ".safetensors"]
    if not weights:
        raise FileNotFoundError(f"no weights in {base}")
    digest = hashlib.sha256(b"cistern-weights-1")
    for path in files:
        if path.name in _TEXTS or path.name.endswith(".index.json"):
            digest.update(f"\0{path.name}\0{path.stat().st_size}\0".encode())
            digest.update(path.read_bytes())
    for path in weights:
        digest.update(f"\0{path.name}\0{path.stat().st_size}\0".encode())
        _sample(path, digest)
    return digest.hexdigest()


def find_folder(model: str, revision: str | None) -> str | None:
    """Where the files of `model` are: itself, if it is a folder; else where the hub's client keeps it
    (nothing is fetched)."""
    if os.path.isdir(model):
        return model
    if os.path.isfile(model):
        return None
    try:
        from huggingface_hub import try_to_load_from_cache

        found = try_to_load_from_cache(model, "config.json", revision=revision)
    except Exception:  # not installed, or no name of a repository
        return None
    return os.path.dirname(found) if isinstance(found, str) else None
