"""What vLLM's connector is made of, each module by itself. No vLLM is needed."""

from __future__ import annotations

import json
import subprocess
import sys
from types import SimpleNamespace

import pytest

from cistern.vllm import fingerprint, layout, options, weights
from cistern.vllm.breaker import Breaker
from cistern.vllm.messages import StepReport
from cistern.vllm.stats import Counts, total


def test_nothing_but_the_shell_needs_an_engine():
    done = subprocess.run(
        [sys.executable, "-c",
         "import sys, cistern.vllm.scheduler, cistern.vllm.worker, cistern.vllm.weights\n"
         "sys.exit(any(one in sys.modules for one in ('torch', 'vllm')))"],
        capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


# --- Options ------------------------------------------------------------------------------------------


def test_options_have_defaults_and_read_times():
    assert options.parse({}) == options.Options()
    some = options.parse({"load_deadline": "250ms", "lookup_deadline": 2, "offload_mode": "sync",
                          "store_threshold": 512, "prefetch_on_hit": False})
    assert (some.load_deadline, some.lookup_deadline) == (0.25, 2.0)
    assert (some.offload_mode, some.store_threshold, some.prefetch_on_hit) == ("sync", 512, False)


@pytest.mark.parametrize("extra, words", [
    ({"load_dedline": 1}, "load_dedline: no such option; .*load_deadline"),
    ({"offload_mode": "later"}, "offload_mode: 'later' is none of async, sync"),
    ({"load_deadline": "soon"}, "load_deadline: 'soon' is not a time"),
    ({"load_deadline": 0}, "load_deadline: has to be more than 0"),
    ({"save_deadline": "200h"}, "save_deadline"),
    ({"store_threshold": -1}, "store_threshold: -1 is less than 0"),
    ({"store_threshold": True}, "store_threshold: True is not of the type"),
    ({"prefetch_on_hit": 1}, "prefetch_on_hit: 1 is not of the type"),
    ({"weights_revision": 7}, "weights_revision: 7 is not of the type"),
    ({"namespace": "a\0b"}, "namespace: has a NUL"),
    ({"config_path": "/nowhere/client.toml"}, "config_path: /nowhere/client.toml"),
])
def test_options_that_make_no_sense_are_named(extra, words):
    with pytest.raises(options.OptionsError, match=words):
        options.parse(extra)


def test_options_of_the_clients_file(tmp_path):
    pytest.importorskip("tomllib")
    path = tmp_path / "client.toml"
    path.write_text('master_address = "10.0.0.1:7600"\npool_token_file = "/etc/cistern/token"\n'
                    'deadline = "3s"\nwire = "tcp"\n')
    some = options.parse({"config_path": str(path), "wire": "shm"})
    assert (some.master_address, some.pool_token_file) == ("10.0.0.1:7600", "/etc/cistern/token")
    assert some.wire == "shm"  # what is said beside the file goes over it
    path.write_text("master_adress = 1\n")
    with pytest.raises(options.OptionsError, match="master_adress: no such key"):
        options.parse({"config_path": str(path)})
    path.write_text("= 1\n")
    with pytest.raises(options.OptionsError, match="client.toml"):
        options.parse({"config_path": str(path)})


# --- Weights ------------------------------------------------------------------------------------------


def write_model(folder, *, values=0, config=None, tensors=3, size=4096):
    """A safetensors file by its specification: u64 length, JSON, bytes."""
    folder.mkdir(exist_ok=True)
    header = {f"layer.{i}": {"dtype": "F32", "shape": [size // 4],
                             "data_offsets": [i * size, (i + 1) * size]} for i in range(tensors)}
    text = json.dumps(header).encode()
    body = bytearray(tensors * size)
    body[:] = bytes([values]) * len(body)
    (folder / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + body)
    (folder / "config.json").write_text(json.dumps(config or {"hidden_size": 8}))
    return folder


def test_models_are_told_apart_by_their_weights(tmp_path):
    one = weights.digest_folder(write_model(tmp_path / "one"))
    assert one == weights.digest_folder(write_model(tmp_path / "copy"))
    assert one != weights.digest_folder(write_model(tmp_path / "two", values=1))
    assert one != weights.digest_folder(write_model(tmp_path / "three", config={"hidden_size": 9}))
    assert one != weights.digest_folder(write_model(tmp_path / "four", tensors=4))


def test_a_fine_tune_of_one_tensor_is_another_model(tmp_path):
    folder = write_model(tmp_path / "model", tensors=40)
    before = weights.digest_folder(folder)
    path = folder / "model.safetensors"
    data = bytearray(path.read_bytes())
    at = len(data) - 20 * 4096
    data[at:at + 4096] = b"\7" * 4096  # one tensor of forty, same names and sizes
    path.write_bytes(data)
    assert weights.digest_folder(folder) != before


def test_folders_without_readable_weights_say_so(tmp_path):
    with pytest.raises(FileNotFoundError):
        weights.digest_folder(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"\4\0\0\0\0\0\0\0oops" + b"\0" * 16)
    with pytest.raises(ValueError):
        weights.digest_folder(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"\xff" * 64)  # a length beyond the file
    weights.digest_folder(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    (tmp_path / "pytorch_model.bin").write_bytes(bytes(range(256)) * 4096)
    blind = weights.digest_folder(tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(bytes(range(255, -1, -1)) * 4096)
    assert weights.digest_folder(tmp_path) != blind


def test_a_model_that_is_no_folder_is_looked_for_at_the_hubs_client(tmp_path):
    assert weights.find_folder(str(tmp_path), None) == str(tmp_path)
    (tmp_path / "file.gguf").write_bytes(b"x")
    assert weights.find_folder(str(tmp_path / "file.gguf"), None) is None
    assert weights.find_folder("no/such-model-anywhere", None) is None


# --- Fingerprint --------------------------------------------------------------------------------------


def test_a_fingerprint_says_everything_and_cannot_be_confused():
    assert fingerprint.compose({"b": 2, "a": "x"}) == "a=x;b=2;format=1"
    # A value cannot pretend to be another field.
    assert fingerprint.compose({"a": "x;b=2"}) != fingerprint.compose({"a": "x", "b": "2"})
    assert fingerprint.compose({"a": "x%3b"}) != fingerprint.compose({"a": "x;"})


def test_a_configurations_digest_leaves_out_where_it_came_from():
    one = fingerprint.config_digest({"hidden": 1, "_name_or_path": "/a", "transformers_version": "5"})
    assert one == fingerprint.config_digest({"hidden": 1, "_name_or_path": "/b"})
    assert one != fingerprint.config_digest({"hidden": 2})
    # Objects whose text holds an address are the same in every process.
    assert (fingerprint.config_digest({"x": object()}) == fingerprint.config_digest({"x": object()}))


def test_a_namespace_is_named_after_model_and_fingerprint():
    name = fingerprint.namespace_name("vllm", "/models/Llama 3!/", "a=1")
    assert name == "vllm/Llama-3--c22fea5d"  # as sha256sum says of "a=1"
    assert name != fingerprint.namespace_name("vllm", "/models/Llama 3!/", "a=2")
    assert len(fingerprint.namespace_name("vllm", "m" * 400, "a=1")) < 255


# --- Layout -------------------------------------------------------------------------------------------


class Tensor:
    """The part of a tensor that is used: 2-byte numbers."""

    dtype = "torch.bfloat16"

    def __init__(self, shape, strides, address):
        self.shape, self._strides, self._address = shape, strides, address

    def stride(self):
        return self._strides

    def element_size(self):
        return 2

    def data_ptr(self):
        return self._address


def test_blocks_that_are_one_run_of_bytes():
    # 8 blocks of 2 heads, 4 tokens, 6 numbers; the second layer behind the first.
    shape, strides = (8, 2, 4, 6), (48, 24, 6, 1)
    found = layout.read_caches({"layers.10.attn": Tensor(shape, strides, 1768),
                                "layers.2.attn": Tensor(shape, strides, 1000)}, 8)
    assert found.layers == ("layers.2.attn", "layers.10.attn")
    assert found.spans(0) == [(1000, 96), (1768, 96)]
    assert found.spans(3) == [(1000 + 3 * 96, 96), (1768 + 3 * 96, 96)]
    assert found.regions() == [(1000, 2 * 768)]  # merged: they touch
    assert found.uniform and found.chunk_bytes == 192
    assert layout.as_layout(found) == ([1000, 1768], 96, 96)
    assert found.layer_ends() == {"layers.2.attn": 96, "layers.10.attn": 192}


def test_keys_and_values_in_two_halves():
    # [K|V, 8 blocks, 4 tokens, 6 numbers]: each block lies in two pieces.
    found = layout.read_caches({"l": Tensor((2, 8, 4, 6), (192, 24, 6, 1), 5000)}, 8)
    assert found.spans(1) == [(5048, 48), (5048 + 384, 48)]
    assert found.chunk_bytes == 96
    assert found.regions() == [(5000, 768)]


def test_other_orders_of_a_block_are_one_run_but_not_the_same():
    # Tokens before heads in memory, heads before tokens in the shape.
    plain = layout.read_caches({"l": Tensor((8, 2, 4, 6), (48, 24, 6, 1), 0)}, 8)
    turned = layout.read_caches({"l": Tensor((8, 2, 4, 6), (48, 6, 12, 1), 0)}, 8)
    assert plain.spans(2) == turned.spans(2)
    assert plain.describe() != turned.describe()


def test_heads_before_blocks_and_layers_inside_a_block():
    # Heads are the slowest: a block is one piece a head.
    heads_first = layout.read_caches({"l": Tensor((2, 8, 4, 6), (192, 24, 6, 1), 0)}, 8)
    assert heads_first.spans(0) == [(0, 48), (384, 48)]
    # Both layers of a block lie side by side: the stride is longer than the piece.
    shape, strides = (8, 4, 6), (48, 6, 1)
    beside = layout.read_caches({"l.0": Tensor(shape, strides, 0), "l.1": Tensor(shape, strides, 48)}, 8)
    assert beside.spans(1) == [(96, 48), (144, 48)]
    assert beside.regions() == [(0, 8 * 96)]


def test_kernels_that_cut_blocks_finer():
    # The engine counts 4 blocks, the tensor 8 halves of them.
    found = layout.read_caches({"l": Tensor((8, 2, 6), (12, 6, 1), 0)}, 4)
    assert found.spans(1) == [(48, 48)]


def test_layers_of_two_shapes_are_named_by_spans():
    found = layout.read_caches({"l.0": Tensor((8, 4, 6), (24, 6, 1), 0),
                                "l.1": Tensor((8, 4, 12), (48, 12, 1), 4096)}, 8)
    assert not found.uniform
    assert found.spans(1) == [(48, 48), (4096 + 96, 96)]
    assert found.describe() != layout.read_caches(
        {"l.0": Tensor((8, 4, 6), (24, 6, 1), 0), "l.1": Tensor((8, 4, 6), (24, 6, 1), 4096)},
        8).describe()


def test_a_description_does_not_depend_on_the_number_of_blocks_or_the_place():
    one = layout.read_caches({"l": Tensor((8, 4, 6), (24, 6, 1), 0)}, 8)
    assert one.describe() == layout.read_caches({"l": Tensor((9, 4, 6), (24, 6, 1), 777)}, 9).describe()
    assert one.describe() != layout.read_caches({"k": Tensor((8, 4, 6), (24, 6, 1), 0)}, 8).describe()


def test_layers_that_share_a_tensor_are_stored_once():
    shared = Tensor((8, 4, 6), (24, 6, 1), 0)
    assert layout.read_caches({"l.0": shared, "l.1": shared}, 8).layers == ("l.0",)


@pytest.mark.parametrize("shape, strides, words", [
    ((7, 4, 6), (24, 6, 1), "no dimension"),
    ((8, 4, 6), (6, 48, 1), "mix the blocks"),
    ((8, 4, 6), (24, 0, 1), "overlap"),
])
def test_caches_that_cannot_be_cut(shape, strides, words):
    if words == "mix the blocks":
        strides = (3, 48, 1)  # blocks inside a row
    with pytest.raises(layout.LayoutError, match=words):
        layout.read_caches({"l": Tensor(shape, strides, 0)}, 8)
    with pytest.raises(layout.LayoutError, match="no KV cache"):
        layout.read_caches({}, 8)


def test_a_devices_memory_is_never_taken_for_the_hosts():
    cache = Tensor((8, 4, 6), (24, 6, 1), 0)
    cache.device = SimpleNamespace(type="cuda")
    with pytest.raises(layout.LayoutError, match="memory of a device .cuda."):
        layout.read_caches({"l": cache}, 8)


@pytest.mark.parametrize("tokens, part", [(1, 4096), (4096, 32768), (1 << 22, 1 << 20)])
def test_a_part_is_about_a_layer(tokens, part):
    found = layout.read_caches({"l": Tensor((8, tokens, 4), (4 * tokens, 4, 1), 0)}, 8)
    assert found.part_bytes == part


def test_the_part_that_a_layer_ends_in():
    assert [layout.last_part(end, 4096) for end in (1, 4096, 4097, 8192)] == [0, 0, 1, 1]


# --- Small things -------------------------------------------------------------------------------------


def test_a_breaker_opens_after_failures_and_tries_again():
    now = [100.0]
    breaker = Breaker(limit=2, shortest=1, longest=3, clock=lambda: now[0])
    assert breaker.closed
    assert not breaker.failed()
    assert breaker.closed
    assert breaker.failed()
    assert not breaker.closed
    now[0] += 1
    assert breaker.closed
    assert breaker.failed()  # one more is enough now, and it stays open twice as long
    now[0] += 1.9
    assert not breaker.closed
    now[0] += 0.1
    assert breaker.closed
    breaker.succeeded()
    assert not breaker.failed()


def test_counts_add_up_over_workers():
    counts = Counts()
    counts.add(loads=1, loaded_bytes=0)
    counts.add(loads=2)
    assert counts.take() == {"loads": 3}
    assert counts.take() == {}
    assert total([{"loads": 1}, {"loads": 2, "lookups": 3}]) == {"loads": 3, "lookups": 3}


def test_a_step_is_over_when_the_last_worker_says_so():
    merged = StepReport(4, True).merge(StepReport(3, False))
    assert merged == StepReport(3, False)
