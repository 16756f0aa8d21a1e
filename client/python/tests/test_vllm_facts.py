"""What an engine's configuration says about sharing: with the attributes that vLLM's has."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from test_vllm_modules import write_model

from cistern.vllm import facts, fingerprint
from cistern.vllm.options import Options, OptionsError


class FullAttentionSpec(SimpleNamespace):
    pass


class SlidingWindowSpec(SimpleNamespace):
    pass


def engine(folder, **changed):
    """vllm_config and kv_cache_config."""
    values = {"dtype": "bfloat16", "cache_dtype": "auto", "block": 16, "tp": 1, "pp": 1, "dcp": 1,
              "hash": "sha256", "role": "kv_both", "spec": FullAttentionSpec, "groups": 1,
              "speculative": None, "config": {"hidden_size": 8}, **changed}
    spec = values["spec"](block_size=values["block"], num_kv_heads=2, head_size=64)
    return (SimpleNamespace(
        model_config=SimpleNamespace(
            model=str(folder), revision=None, dtype=values["dtype"], quantization=None,
            hf_config=SimpleNamespace(to_dict=lambda: values["config"])),
        cache_config=SimpleNamespace(cache_dtype=values["cache_dtype"],
                                     prefix_caching_hash_algo=values["hash"]),
        parallel_config=SimpleNamespace(tensor_parallel_size=values["tp"],
                                        pipeline_parallel_size=values["pp"],
                                        decode_context_parallel_size=values["dcp"]),
        speculative_config=values["speculative"],
        kv_transfer_config=SimpleNamespace(kv_role=values["role"])),
        SimpleNamespace(num_blocks=8, kv_cache_groups=[
            SimpleNamespace(kv_cache_spec=spec, layer_names=["l"])] * values["groups"]))


def text_of(folder, options=Options(), seed=b"seed", name="vllm-1", **changed):
    return fingerprint.compose(facts.read(options, *engine(folder, **changed), engine=name,
                                          hash_seed=seed).identity)


@pytest.mark.parametrize("changed", [
    {"dtype": "float32"}, {"cache_dtype": "fp8"}, {"block": 32}, {"tp": 2}, {"pp": 2},
    {"hash": "sha256_cbor"}, {"config": {"hidden_size": 9}}, {"seed": b"another"}, {"name": "vllm-2"},
    {"options": Options(model_name="other")}, {"options": Options(weights_revision="r1")}])
def test_whatever_the_bytes_depend_on_is_in_the_fingerprint(tmp_path, changed):
    folder = write_model(tmp_path / "model")
    assert text_of(folder) == text_of(folder)
    assert text_of(folder, **changed) != text_of(folder)


def test_the_same_model_in_another_folder_is_the_same(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    here, there = write_model(tmp_path / "model"), write_model(tmp_path / "elsewhere" / "model")
    assert text_of(here) == text_of(there)
    other = write_model(tmp_path / "elsewhere" / "model", values=3)
    assert text_of(here) != text_of(other)


def test_weights_that_cannot_be_seen_have_to_be_named(tmp_path):
    with pytest.raises(OptionsError, match="weights_revision: has to be given for .*no/such-model"):
        text_of("no/such-model")
    with pytest.raises(OptionsError, match="no weights"):
        text_of(tmp_path)
    assert "given:r1" in text_of("no/such-model", Options(weights_revision="r1"))


@pytest.mark.parametrize("role, loads, saves", [
    ("kv_both", True, True), ("kv_producer", False, True), ("kv_consumer", True, False)])
def test_roles(tmp_path, role, loads, saves):
    found = facts.read(Options(), *engine(write_model(tmp_path / "m"), role=role, tp=2, pp=3),
                       engine="e", hash_seed=b"")
    assert (found.loads, found.saves, found.shard_count) == (loads, saves, 6)
    assert not found.prompt_only


def test_drafted_tokens_are_not_trusted(tmp_path):
    assert facts.read(Options(), *engine(write_model(tmp_path / "m"), speculative="eagle"), engine="e",
                      hash_seed=b"").prompt_only


@pytest.mark.parametrize("changed, words", [
    ({"groups": 2}, "2 groups"), ({"spec": SlidingWindowSpec}, "SlidingWindowSpec"),
    ({"dcp": 2}, "decode_context_parallel_size")])
def test_engines_that_cannot_share_say_why(tmp_path, changed, words):
    assert words in facts.cannot_share(*engine(tmp_path, **changed))
    assert facts.cannot_share(*engine(tmp_path)) is None


def test_adapters_are_told_apart_by_their_weights(tmp_path):
    adapters = facts.Adapters()
    assert adapters.tag(None) == b""

    def named(name, folder):
        return SimpleNamespace(lora_name=name, lora_path=str(folder))

    one, two = write_model(tmp_path / "one"), write_model(tmp_path / "two", values=1)
    assert adapters.tag(named("a", one)) == adapters.tag(named("b", one)) != b""
    assert adapters.tag(named("a", two)) != adapters.tag(named("a", one))
    assert adapters.tag(named("a", tmp_path / "nowhere")) is None
