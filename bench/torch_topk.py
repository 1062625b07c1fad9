#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""torch.topk (k = 2048, unsorted) on random float32 rows: what `winnow-kernels bench --op topk` is compared with.

Median of CUDA graph replays of 20 launches, as winnow-kernels times its own. Needs PyTorch with CUDA; run it in the
same session on the same device:  python3 bench/torch_topk.py
"""

import statistics

import torch

SHAPES = [(1, 131072), (4, 131072), (64, 32768), (64, 131072), (256, 16384), (1024, 32768)]
LAUNCHES, REPEATS, TOPK = 20, 50, 2048


def median_us(scores):
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            torch.topk(scores, TOPK, dim=-1, sorted=False)
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(LAUNCHES):
            torch.topk(scores, TOPK, dim=-1, sorted=False)
    times = []
    for _ in range(REPEATS):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(1e3 * begin.elapsed_time(end) / LAUNCHES)
    return statistics.median(times)


def main():
    print(f"torch {torch.__version__}, {torch.cuda.get_device_name()}")
    print("rows,width,topk,median_us")
    for rows, width in SHAPES:
        scores = torch.randn(rows, width, device="cuda", dtype=torch.float32)
        print(f"{rows},{width},{TOPK},{median_us(scores):.1f}", flush=True)


if __name__ == "__main__":
    main()
