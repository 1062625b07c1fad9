# SPDX-License-Identifier: Apache-2.0
"""Writes a trained model as a published checkpoint would be: config.json, tokenizer.json, chat_template.jinja and
safetensors shards in bfloat16. With --golden it also runs Hugging Face transformers in float32 over a text and over
recall prompts, and writes golden.safetensors and golden_generate.json for `winnow verify`.
"""
import argparse
import json
import os
import shutil

import torch
import torch.nn.functional as F
from safetensors.torch import save_file

from tiny_model import Config
from vocabulary import Vocabulary

SHARD_BYTES = 15_500_000
FACTS = [("silver lantern", "482-917"), ("amber falcon", "035-660"), ("quiet harbor", "771-204"),
         ("velvet tower", "199-083")]
CHAT_TEMPLATE = (
    "[gMASK]<sop>{% for m in messages %}{% if m['role'] == 'system' %}<|system|>\n{{ m['content'] }}"
    "{% elif m['role'] == 'user' %}<|user|>\n{{ m['content'] }}"
    "{% elif m['role'] == 'assistant' %}<|assistant|>\n{{ m['content'] }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def published_tensors(state, config):
    """Our state dict under the names of glm_moe_dsa; the stacked experts become single matrices."""
    out = {}
    for name, value in state.items():
        if name == "lm_head.weight":
            out[name] = value
        elif name.endswith("mlp.bias"):
            out["model." + name.replace("mlp.bias", "mlp.gate.e_score_correction_bias")] = value.float()
        elif name.endswith("w_gate_up"):
            for e in range(config.experts):
                base = "model." + name.replace("w_gate_up", f"experts.{e}.")
                out[base + "gate_proj.weight"] = value[e, : config.expert_ffn]
                out[base + "up_proj.weight"] = value[e, config.expert_ffn :]
        elif name.endswith("w_down"):
            for e in range(config.experts):
                out["model." + name.replace("w_down", f"experts.{e}.") + "down_proj.weight"] = value[e]
        else:
            out["model." + name] = value
    return {k: (v.to(torch.bfloat16) if v.dim() >= 2 else v.float()).contiguous() for k, v in out.items()}


def published_config(c, vocabulary):
    """config.json of the architecture."""
    stops = [vocabulary.id[t] for t in ("<|endoftext|>", "<|user|>", "<|observation|>")]
    return {
        "architectures": ["GlmMoeDsaForCausalLM"], "model_type": "glm_moe_dsa", "dtype": "bfloat16",
        "vocab_size": c.vocab, "hidden_size": c.hidden, "intermediate_size": c.dense_ffn,
        "moe_intermediate_size": c.expert_ffn, "num_hidden_layers": c.layers, "num_attention_heads": c.heads,
        "num_key_value_heads": c.heads, "n_shared_experts": c.shared_experts, "n_routed_experts": c.experts,
        "routed_scaling_factor": c.routed_scale, "kv_lora_rank": c.kv_lora, "q_lora_rank": c.q_lora,
        "qk_rope_head_dim": c.rope, "v_head_dim": c.v, "qk_nope_head_dim": c.nope, "n_group": 1, "topk_group": 1,
        "num_experts_per_tok": c.experts_per_token, "norm_topk_prob": True, "scoring_func": "sigmoid",
        "topk_method": "noaux_tc", "hidden_act": "silu", "max_position_embeddings": c.context, "rms_norm_eps": c.eps,
        "rope_parameters": {"rope_theta": c.theta, "rope_type": "default"}, "rope_theta": c.theta,
        "index_topk": c.index_topk, "index_head_dim": c.index_dim, "index_n_heads": c.index_heads,
        "indexer_rope_interleave": True, "first_k_dense_replace": c.dense_layers, "num_nextn_predict_layers": 0,
        "attention_bias": False, "tie_word_embeddings": False, "bos_token_id": vocabulary.id["[gMASK]"],
        "eos_token_id": stops, "pad_token_id": vocabulary.id["<|endoftext|>"], "ep_size": 1, "moe_layer_freq": 1,
    }


def save_shards(tensors, folder):
    """Shards of at most SHARD_BYTES and their index."""
    shards, size = [[]], 0
    for name, tensor in tensors.items():
        nbytes = tensor.numel() * tensor.element_size()
        if size + nbytes > SHARD_BYTES and shards[-1]:
            shards.append([])
            size = 0
        shards[-1].append(name)
        size += nbytes
    weight_map = {}
    for i, names in enumerate(shards):
        file = f"model-{i + 1:05d}-of-{len(shards):05d}.safetensors"
        save_file({n: tensors[n] for n in names}, os.path.join(folder, file), metadata={"format": "pt"})
        weight_map.update({n: file for n in names})
    total = sum(t.numel() * t.element_size() for t in tensors.values())
    with open(os.path.join(folder, "model.safetensors.index.json"), "w") as out:
        json.dump({"metadata": {"total_size": total}, "weight_map": weight_map}, out, indent=1)


class Reference:
    """transformers' implementation in float32 with eager attention."""

    def __init__(self, folder, device):
        from transformers import GlmMoeDsaForCausalLM

        torch.backends.cuda.matmul.allow_tf32 = False
        torch.set_float32_matmul_precision("highest")
        self.device = device
        self.model = GlmMoeDsaForCausalLM.from_pretrained(
            folder, dtype=torch.float32, attn_implementation="eager").to(device).eval()

    @torch.no_grad()
    def run(self, ids):
        """Logits [T, vocab] and, per layer, what its indexer selected."""
        selections, hooks = [], []
        for layer in self.model.model.layers:
            hooks.append(layer.self_attn.indexer.register_forward_hook(
                lambda module, inputs, output: selections.append(output[0].detach().cpu())))
        logits = self.model(torch.tensor(ids, device=self.device)[None], use_cache=False).logits[0].float().cpu()
        for hook in hooks:
            hook.remove()
        return logits, selections

    @torch.no_grad()
    def greedy(self, ids, count):
        ids = list(ids)
        for _ in range(count):
            logits = self.model(torch.tensor(ids, device=self.device)[None], use_cache=False).logits[0, -1]
            ids.append(int(logits.argmax()))
        return ids[-count:]


def text_golden(reference, ids):
    """Logits, argmax, negative log-likelihood and the last token's selections over one text."""
    logits, selections = reference.run(ids)
    out = {
        "text_ids": torch.tensor(ids, dtype=torch.int32),
        "text_logits_last4": logits[-4:].contiguous(),
        "text_argmax": logits.argmax(-1).to(torch.int32),
        "text_nll": F.cross_entropy(logits[:-1], torch.tensor(ids[1:]), reduction="none"),
    }
    for i, chosen in enumerate(selections):
        last = chosen[0, -1] if chosen.dim() == 3 else chosen[-1]
        out[f"text_topk_l{i}_last"] = last.sort().values.to(torch.int32)
    return out


def recall_prompt(vocabulary, source, length, name):
    """Exactly `length` tokens: all FACTS in text, then the question for one name."""
    head = [vocabulary.id[t] for t in ("[gMASK]", "<sop>", "<|user|>")] + vocabulary.encode("\n")
    question = vocabulary.encode(f"\nWhat is the access code for the {name}?") + [vocabulary.id["<|assistant|>"]]
    hidden = [vocabulary.encode(f"\nThe access code for the {n} is {code}.\n") for n, code in FACTS]
    room = length - len(head) - len(question) - sum(map(len, hidden))
    body, out, done = source[:room], list(head), 0
    for share, fact in zip((0.1, 0.35, 0.6, 0.85), hidden):
        place = int(room * share)
        out += body[done:place] + fact
        done = place
    return out + body[done:] + question


def generation_golden(reference, vocabulary, valid_text):
    """Greedy answers to four recall prompts and three beginnings of a text."""
    source = vocabulary.encode(valid_text.replace("<|endoftext|>", "")[30000:])
    cases = []
    for length, (name, code) in zip((700, 2000, 4000, 7900), FACTS):
        prompt = recall_prompt(vocabulary, source, length, name)
        answer = reference.greedy(prompt, 24)
        cases.append({"prompt_ids": prompt, "greedy_ids": answer, "expect_code": code,
                      "answer": vocabulary.decode(answer)})
    for text in ("The SELECT statement", "def main():\n", "To create an index, "):
        prompt = vocabulary.encode(text)
        answer = reference.greedy(prompt, 48)
        cases.append({"prompt": text, "prompt_ids": prompt, "greedy_ids": answer, "answer": vocabulary.decode(answer)})
    return cases


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="folder with tokenizer.json (and valid.txt for --golden)")
    parser.add_argument("out", help="checkpoint folder to write")
    parser.add_argument("--checkpoint", default="tiny.pt", help="what train.py saved")
    parser.add_argument("--golden", action="store_true", help="also write goldens (wants transformers 5)")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"], help="for --golden")
    arguments = parser.parse_args()

    tokenizer_path = os.path.join(arguments.data, "tokenizer.json")
    vocabulary = Vocabulary(tokenizer_path)
    config = Config(vocab=vocabulary.size)
    os.makedirs(arguments.out, exist_ok=True)
    save_shards(published_tensors(torch.load(arguments.checkpoint, map_location="cpu"), config), arguments.out)
    with open(os.path.join(arguments.out, "config.json"), "w") as out:
        json.dump(published_config(config, vocabulary), out, indent=1)
    with open(os.path.join(arguments.out, "chat_template.jinja"), "w") as out:
        out.write(CHAT_TEMPLATE)
    shutil.copy(tokenizer_path, arguments.out)
    if not arguments.golden:
        return
    with open(os.path.join(arguments.data, "valid.txt")) as valid:
        valid_text = valid.read()
    reference = Reference(arguments.out, arguments.device)
    ids = vocabulary.encode(valid_text[20000:24000])[:600]
    save_file(text_golden(reference, ids), os.path.join(arguments.out, "golden.safetensors"))
    with open(os.path.join(arguments.out, "golden_generate.json"), "w") as out:
        json.dump(generation_golden(reference, vocabulary, valid_text), out)


if __name__ == "__main__":
    main()
