# SPDX-License-Identifier: Apache-2.0
"""Trains the demonstration model in stages, each bounded by wall-clock seconds.

  A  dense, half at 1K and half at 2K tokens     B  dense, 8K tokens
  C  indexer warm-up, 2K tokens                  D  sparse, 4K tokens        E  sparse, 8K tokens

After each stage the checkpoint is saved and perplexity and recall are printed. A stage with 0 seconds is left out. A
checkpoint that exists is resumed.
"""
import argparse
import math
import os
import queue
import random
import threading
import time

import torch
import torch.nn.functional as F

from facts import recall_sample
from tiny_model import Config, Model, MoE
from vocabulary import load_or_train


class Loader:
    """Batches made by threads: a share of recall samples, the rest plain text."""

    def __init__(self, data, length, batch, recall_share, seed, threads=8):
        self.data, self.length, self.batch, self.recall_share = data, length, batch, recall_share
        self.queue = queue.Queue(24)
        self.stopped = False
        for i in range(threads):
            rng = random.Random(hash((seed, length, i)))
            threading.Thread(target=self.work, args=(rng,), daemon=True).start()

    def sample(self, rng):
        if rng.random() < self.recall_share:
            ids, weights, _ = recall_sample(self.data.vocabulary, self.length, rng, self.data.train)
            return ids.long(), weights
        offset = rng.randrange(0, len(self.data.train) - self.length - 1)
        return self.data.train[offset : offset + self.length + 1].long(), torch.ones(self.length)

    def work(self, rng):
        while not self.stopped:
            ids, weights = zip(*(self.sample(rng) for _ in range(self.batch)))
            batch = torch.stack(ids), torch.stack(weights)
            while not self.stopped:
                try:
                    self.queue.put(batch, timeout=0.5)
                    break
                except queue.Full:
                    pass

    def next(self, device):
        ids, weights = self.queue.get()
        return ids.to(device, non_blocking=True), weights.to(device, non_blocking=True)


class Data:
    """Vocabulary and token streams."""

    def __init__(self, folder):
        with open(os.path.join(folder, "train.txt")) as train, open(os.path.join(folder, "valid.txt")) as valid:
            train_text, valid_text = train.read(), valid.read()
        self.vocabulary = load_or_train(os.path.join(folder, "tokenizer.json"), train_text)
        self.train = torch.tensor(self.vocabulary.encode_pages(train_text), dtype=torch.int32)
        self.valid = torch.tensor(self.vocabulary.encode_pages(valid_text), dtype=torch.int32)


class Trainer:
    """The model, the clock and what is printed."""

    def __init__(self, data, model, arguments):
        self.data, self.model, self.arguments = data, model, arguments
        self.device = arguments.device
        self.start = time.time()
        self.compiled = torch.compile(model, dynamic=False) if arguments.compile else model

    def log(self, *what):
        print(f"[{time.time() - self.start:6.1f}s]", *what, flush=True)

    def autocast(self):
        return torch.autocast(self.device, dtype=torch.bfloat16)

    def optimizer(self, chosen, rate):
        """AdamW; weight decay on matrices only."""
        groups = [[], []]
        for name, parameter in self.model.named_parameters():
            parameter.requires_grad_(chosen(name))
            if chosen(name):
                groups[parameter.dim() < 2].append(parameter)
        return torch.optim.AdamW(
            [{"params": groups[0], "weight_decay": 0.05}, {"params": groups[1], "weight_decay": 0.0}], lr=rate,
            betas=(0.9, 0.95), fused=self.device == "cuda")

    def language_loss(self, logits, ids, weights):
        loss = F.cross_entropy(logits.float().flatten(0, 1), ids[:, 1:].flatten(), reduction="none")
        return (loss.view(weights.shape) * weights).sum() / weights.sum()

    def run_stage(self, name, seconds, length, batch, recall_share, mode, rate, chosen):
        """Trains for `seconds`; the learning rate warms up over 100 steps and falls to 5 % along a cosine."""
        if seconds <= 0:
            return
        model = self.model.train()
        optimizer = self.optimizer(chosen, rate)
        loader = Loader(self.data, length, batch, recall_share, self.arguments.seed, self.arguments.loader_threads)
        forward = self.compiled if mode == "dense" else model
        begin, step = time.time(), 0
        while (share := (time.time() - begin) / seconds) < 1:
            factor = min(1, (step + 1) / 100) * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * share)))
            for group in optimizer.param_groups:
                group["lr"] = rate * factor
            ids, weights = loader.next(self.device)
            with self.autocast():
                logits, index_loss = forward(ids[:, :-1], mode)
                language = 0.0 if mode == "warmup" else self.language_loss(logits, ids, weights)
                loss = language + (index_loss if mode != "dense" else 0.0)
            loss.backward()
            torch.nn.utils.clip_grad_norm_([p for p in model.parameters() if p.requires_grad], 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            if mode != "warmup":
                for module in model.modules():
                    if isinstance(module, MoE):
                        module.rebalance()
            if step % 200 == 0:
                self.log(name, step, "language", round(float(language), 3), "index", round(float(index_loss), 3))
            step += 1
        loader.stopped = True
        self.log(name, "done:", step, "steps,", step * length * batch / 1e6, "M tokens")
        torch.save(model.state_dict(), self.arguments.checkpoint)
        self.evaluate(name)

    @torch.no_grad()
    def evaluate(self, tag):
        """Perplexity on the validation pages, and the share of codes recalled at several lengths."""
        model, data = self.model.eval(), self.data
        for mode in ("dense", "sparse"):
            with self.autocast():
                length = min(2048, self.arguments.longest)
                stretches = min((len(data.valid) - 1) // length, self.arguments.evaluate)
                total = 0.0
                for i in range(stretches):
                    ids = data.valid[i * length : (i + 1) * length + 1].long()[None].to(self.device)
                    logits = model(ids[:, :-1], mode)[0][0].float()
                    total += F.cross_entropy(logits, ids[0, 1:]).item()
                recall = {n: self.recall(n, mode) for n in (512, 1024, 2048, 4096, 8192) if n <= self.arguments.longest}
            self.log(tag, mode, "perplexity", round(math.exp(total / max(stretches, 1)), 2), "recall", recall)

    def recall(self, length, mode):
        rng = random.Random(123)
        samples = min(40 if length <= 4096 else 24, self.arguments.evaluate)
        right = 0
        for _ in range(samples):
            ids, _, spans = recall_sample(self.data.vocabulary, length, rng, self.data.valid, facts=8, questions=1)
            best = self.model(ids[None, :-1].long().to(self.device), mode)[0][0].argmax(-1).cpu()
            right += all(bool((best[a - 1 : b - 1] == ids[a:b]).all()) for a, b in spans)
        return round(right / samples, 3)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="folder with train.txt and valid.txt; tokenizer.json is made there when missing")
    parser.add_argument("--checkpoint", default="tiny.pt", help="file to save to and to resume from")
    parser.add_argument("--seconds", type=float, nargs=5, default=[270, 100, 60, 90, 0], metavar="S",
                        help="of the stages A B C D E (default: 270 100 60 90 0)")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--compile", action="store_true", help="torch.compile the dense stages")
    parser.add_argument("--longest", type=int, default=8192, help="longest sequence of any stage")
    parser.add_argument("--batch-tokens", type=int, default=65536, help="tokens of a step of the dense stages")
    parser.add_argument("--evaluate", type=int, default=64, help="most samples of one evaluation")
    parser.add_argument("--loader-threads", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def main():
    arguments = parse_arguments()
    random.seed(arguments.seed)
    torch.manual_seed(arguments.seed)
    torch.set_float32_matmul_precision("high")
    data = Data(arguments.data)
    model = Model(Config(vocab=data.vocabulary.size)).to(arguments.device)
    if os.path.exists(arguments.checkpoint):
        model.load_state_dict(torch.load(arguments.checkpoint, map_location=arguments.device), strict=False)
    trainer = Trainer(data, model, arguments)
    trainer.log(sum(p.numel() for p in model.parameters()) / 1e6, "M parameters,", len(data.train), "tokens")

    def length(n):
        return min(n, arguments.longest)

    def batch(n, share=1.0):
        return max(1, int(arguments.batch_tokens * share) // length(n))

    a, b, c, d, e = arguments.seconds

    def main_weights(name):
        return "indexer" not in name

    trainer.run_stage("A1", a / 2, length(1024), batch(1024), 0.5, "dense", 2e-3, main_weights)
    trainer.run_stage("A2", a / 2, length(2048), batch(2048), 0.5, "dense", 1.5e-3, main_weights)
    trainer.run_stage("B", b, length(8192), batch(8192), 0.6, "dense", 6e-4, main_weights)
    trainer.run_stage("C", c, length(2048), batch(2048, 0.25), 0.6, "warmup", 1e-3, lambda name: "indexer" in name)
    trainer.run_stage("D", d, length(4096), batch(4096, 0.5), 0.6, "sparse", 2e-4, lambda name: True)
    trainer.run_stage("E", e, length(8192), batch(8192, 0.25), 0.7, "sparse", 1.5e-4, lambda name: True)


if __name__ == "__main__":
    main()
