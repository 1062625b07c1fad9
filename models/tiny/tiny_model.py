# SPDX-License-Identifier: Apache-2.0
"""A small language model of the GLM-5 architecture (MLA, lightning indexer, MoE), for training.

Parameter names follow the published glm_moe_dsa checkpoints, so that the result loads in any program that reads that
architecture. Three modes of attention, one per phase of training:

dense   every token attends to all earlier ones; the indexer is not run
warmup  dense attention; the indexer learns the distribution of the attention (nothing else learns)
sparse  every token attends to the index_topk earlier ones that the indexer scores highest; both learn
"""
import math
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class Config:
    """Sizes. The defaults are those of the shipped model, 23 M parameters."""

    vocab: int = 4096
    hidden: int = 256
    dense_ffn: int = 768
    expert_ffn: int = 256
    layers: int = 6
    dense_layers: int = 1
    heads: int = 4
    q_lora: int = 256
    kv_lora: int = 512
    rope: int = 64
    nope: int = 192
    v: int = 256
    experts: int = 8
    experts_per_token: int = 2
    shared_experts: int = 1
    routed_scale: float = 1.5
    index_heads: int = 8
    index_dim: int = 128
    index_topk: int = 128
    theta: float = 1e6
    eps: float = 1e-6
    context: int = 8192


class RMSNorm(nn.Module):
    """x / rms(x) * weight, in float32."""

    def __init__(self, size, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x):
        h = x.float()
        h = h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + self.eps)
        return (self.weight * h).to(x.dtype)


def rotate(x, cos, sin):
    """Rotates the pairs (0, 1), (2, 3), ... of the last dimension.

    The result is stored de-interleaved (first members, then second members). Queries and keys are treated alike, so
    that their products are those of an in-place rotation.
    """
    a, b = x[..., 0::2], x[..., 1::2]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


class Indexer(nn.Module):
    """score[t, s] = sum over heads of weight[t, h] * relu(q[t, h] . k[s] / sqrt(dim)) / sqrt(heads)."""

    def __init__(self, c):
        super().__init__()
        self.c = c
        self.wq_b = nn.Linear(c.q_lora, c.index_heads * c.index_dim, bias=False)
        self.wk = nn.Linear(c.hidden, c.index_dim, bias=False)
        self.k_norm = nn.LayerNorm(c.index_dim, eps=1e-6)
        self.weights_proj = nn.Linear(c.hidden, c.index_heads, bias=False)

    def forward(self, x, q_latent, cos, sin):
        """Scores [batch, T, T], not masked."""
        c = self.c
        batch, tokens, _ = x.shape
        q = self.wq_b(q_latent).view(batch, tokens, c.index_heads, c.index_dim)
        k = self.k_norm(self.wk(x).float()).to(x.dtype)
        q = torch.cat([rotate(q[..., : c.rope], cos[:, None], sin[:, None]), q[..., c.rope :]], -1)
        k = torch.cat([rotate(k[..., : c.rope], cos, sin), k[..., c.rope :]], -1)
        weight = self.weights_proj(x).float() * c.index_heads**-0.5
        scores = 0
        for h in range(c.index_heads):  # one head at a time: [T, T] for all heads does not fit at 8K
            dot = torch.matmul(q[:, :, h], k.transpose(1, 2)).float() * c.index_dim**-0.5
            scores = scores + F.relu(dot) * weight[:, :, h, None]
        return scores


class Attention(nn.Module):
    """Multi-head latent attention with an indexer of its own in every layer."""

    def __init__(self, c):
        super().__init__()
        self.c = c
        self.q_a_proj = nn.Linear(c.hidden, c.q_lora, bias=False)
        self.q_a_layernorm = RMSNorm(c.q_lora, 1e-6)
        self.q_b_proj = nn.Linear(c.q_lora, c.heads * (c.nope + c.rope), bias=False)
        self.kv_a_proj_with_mqa = nn.Linear(c.hidden, c.kv_lora + c.rope, bias=False)
        self.kv_a_layernorm = RMSNorm(c.kv_lora, 1e-6)
        self.kv_b_proj = nn.Linear(c.kv_lora, c.heads * (c.nope + c.v), bias=False)
        self.o_proj = nn.Linear(c.heads * c.v, c.hidden, bias=False)
        self.indexer = Indexer(c)

    def project(self, x, cos, sin):
        """q_latent, and q, k, v as [batch, heads, T, width]."""
        c = self.c
        batch, tokens, _ = x.shape
        q_latent = self.q_a_layernorm(self.q_a_proj(x))
        q = self.q_b_proj(q_latent).view(batch, tokens, c.heads, c.nope + c.rope)
        kv = self.kv_a_proj_with_mqa(x)
        latent = self.kv_a_layernorm(kv[..., : c.kv_lora])
        k_rope = rotate(kv[..., c.kv_lora :], cos, sin)
        q = torch.cat([q[..., : c.nope], rotate(q[..., c.nope :], cos[:, None], sin[:, None])], -1).transpose(1, 2)
        kv = self.kv_b_proj(latent).view(batch, tokens, c.heads, c.nope + c.v)
        k_rope = k_rope[:, :, None].expand(batch, tokens, c.heads, c.rope)
        k = torch.cat([kv[..., : c.nope], k_rope], -1).transpose(1, 2)
        return q_latent, q, k, kv[..., c.nope :].transpose(1, 2)

    def mean_attention(self, q, k, keep, scale):
        """The attention distribution averaged over heads: what the indexer should predict."""
        mean = 0
        for h in range(self.c.heads):
            scores = torch.matmul(q[:, h], k[:, h].transpose(1, 2)).float() * scale
            mean = mean + torch.softmax(scores.masked_fill(~keep, float("-inf")), -1)
        return mean / self.c.heads

    def forward(self, x, cos, sin, mode, causal):
        """Output, and the indexer's loss (None in dense mode and outside of training)."""
        c = self.c
        batch, tokens, _ = x.shape
        q_latent, q, k, v = self.project(x, cos, sin)
        scale = (c.nope + c.rope) ** -0.5
        loss = None
        if mode == "dense":
            out = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale)
        else:
            # The indexer learns from its own loss alone: no gradient flows into the model through it.
            scores = self.indexer(x.detach(), q_latent.detach(), cos, sin).masked_fill(~causal, float("-inf"))
            keep = causal
            if mode == "sparse":
                chosen = scores.detach().topk(min(c.index_topk, tokens), -1).indices
                keep = torch.zeros_like(causal.expand(batch, tokens, tokens)).scatter_(-1, chosen, True) & causal
            if self.training:
                with torch.no_grad():
                    target = self.mean_attention(q, k, keep, scale)
                log_predicted = torch.log_softmax(scores.masked_fill(~keep, float("-inf")), -1)
                loss = -(target * log_predicted.masked_fill(~keep, 0)).sum(-1).mean()
            if mode == "warmup":
                out = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale)
            else:
                out = F.scaled_dot_product_attention(q, k, v, attn_mask=keep[:, None], scale=scale)
        return self.o_proj(out.transpose(1, 2).reshape(batch, tokens, -1)), loss


class MLP(nn.Module):
    """SwiGLU."""

    def __init__(self, hidden, width):
        super().__init__()
        self.gate_proj = nn.Linear(hidden, width, bias=False)
        self.up_proj = nn.Linear(hidden, width, bias=False)
        self.down_proj = nn.Linear(width, hidden, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class MoE(nn.Module):
    """Sigmoid gate, selection bias for balance, one shared expert. All experts are computed: they are small."""

    def __init__(self, c):
        super().__init__()
        self.c = c
        self.gate = nn.Linear(c.hidden, c.experts, bias=False)
        self.register_buffer("bias", torch.zeros(c.experts))
        self.register_buffer("load", torch.zeros(c.experts), persistent=False)
        self.w_gate_up = nn.Parameter(torch.empty(c.experts, 2 * c.expert_ffn, c.hidden))
        self.w_down = nn.Parameter(torch.empty(c.experts, c.hidden, c.expert_ffn))
        self.shared_experts = MLP(c.hidden, c.expert_ffn * c.shared_experts)

    def forward(self, x):
        c = self.c
        flat = x.reshape(-1, x.shape[-1])
        with torch.autocast(x.device.type, enabled=False):
            score = torch.sigmoid(flat.float() @ self.gate.weight.float().t())
        # The bias decides who is chosen, never how much an expert counts.
        chosen = (score.detach() + self.bias).topk(c.experts_per_token, -1).indices
        weight = score.gather(1, chosen)
        weight = weight / (weight.sum(-1, keepdim=True) + 1e-20) * c.routed_scale
        weights = torch.zeros_like(score).scatter(1, chosen, weight)
        if self.training:
            with torch.no_grad():
                self.load += torch.zeros_like(score).scatter_(1, chosen, 1.0).mean(0)
        gate, up = torch.einsum("nh,eih->eni", flat, self.w_gate_up.to(flat.dtype)).chunk(2, -1)
        y = F.silu(gate) * up * weights.t()[..., None].to(flat.dtype)
        y = torch.einsum("eni,ehi->nh", y, self.w_down.to(flat.dtype))
        return y.view_as(x) + self.shared_experts(x)

    @torch.no_grad()
    def rebalance(self, step=1e-3):
        """Moves the selection bias of experts with more than their share down, the others up."""
        if self.load.sum() > 0:
            self.bias += step * torch.sign(self.load.mean() - self.load)
            self.load.zero_()


class Layer(nn.Module):
    """Pre-norm attention and feed-forward."""

    def __init__(self, c, index):
        super().__init__()
        self.input_layernorm = RMSNorm(c.hidden, c.eps)
        self.self_attn = Attention(c)
        self.post_attention_layernorm = RMSNorm(c.hidden, c.eps)
        self.mlp = MLP(c.hidden, c.dense_ffn) if index < c.dense_layers else MoE(c)

    def forward(self, x, cos, sin, mode, causal):
        out, loss = self.self_attn(self.input_layernorm(x), cos, sin, mode, causal)
        x = x + out
        return x + self.mlp(self.post_attention_layernorm(x)), loss


class Model(nn.Module):
    """Token ids [batch, T] to logits [batch, T, vocab] and the sum of the indexers' losses."""

    def __init__(self, c):
        super().__init__()
        self.c = c
        self.embed_tokens = nn.Embedding(c.vocab, c.hidden)
        self.layers = nn.ModuleList(Layer(c, i) for i in range(c.layers))
        self.norm = RMSNorm(c.hidden, c.eps)
        self.lm_head = nn.Linear(c.hidden, c.vocab, bias=False)
        frequency = 1.0 / c.theta ** (torch.arange(0, c.rope, 2).float() / c.rope)
        angle = torch.outer(torch.arange(c.context).float(), frequency)
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)
        self.initialise()

    def initialise(self):
        """Normal, 0.02; what writes into the residual stream is scaled down with the depth."""
        writers = ("o_proj.weight", "down_proj.weight", "w_down")
        for name, parameter in self.named_parameters():
            if parameter.dim() >= 2:
                scale = math.sqrt(2 * self.c.layers) if name.endswith(writers) else 1
                nn.init.normal_(parameter, std=0.02 / scale)

    def forward(self, ids, mode="dense", dtype=torch.bfloat16):
        tokens = ids.shape[1]
        cos, sin = self.cos[:tokens].to(dtype), self.sin[:tokens].to(dtype)
        causal = None
        if mode != "dense":
            causal = torch.ones(1, tokens, tokens, dtype=torch.bool, device=ids.device).tril()
        x = self.embed_tokens(ids).to(dtype)
        total = 0
        for layer in self.layers:
            x, loss = layer(x, cos, sin, mode, causal)
            if loss is not None:
                total = total + loss
        return self.lm_head(self.norm(x)), total
