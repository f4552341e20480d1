# SPDX-License-Identifier: Apache-2.0
"""Median time of a call on a GPU, by CUDA events, with a cold L2 cache."""
import statistics

import torch

FLUSH_BYTES = 256 << 20  # five times an H200's L2
FLUSHES = 4              # about 0.25 ms, in which the host queues the call, so that launches are not what is timed
LONG_MS, LONG_RUNS = 100, 5
RUNS, MOST_RUNS, SHORT_TOTAL_MS = 20, 50, 100
LIMIT_SECONDS = 20


class TooSlow(RuntimeError):
    """A measurement would take longer than LIMIT_SECONDS."""


def runs_for(milliseconds):
    """20 to 50 runs, 5 where one takes more than 100 ms."""
    if milliseconds > LONG_MS:
        return LONG_RUNS
    return int(min(MOST_RUNS, max(RUNS, SHORT_TOTAL_MS / max(milliseconds, 1e-3))))


class GpuTimer:
    def __init__(self):
        self.flush = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device="cuda")

    def milliseconds(self, call):
        """Median of a call that has run once: is compiled and tuned. Throws TooSlow, and whatever the call throws."""
        estimate = self.sample(call, 1)[0]
        runs = runs_for(estimate)
        if estimate * runs > LIMIT_SECONDS * 1e3:
            raise TooSlow(f"too slow: {estimate / 1e3:.1f} s a run")
        return statistics.median(self.sample(call, runs))

    def sample(self, call, runs):
        events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(runs)]
        for start, end in events:
            for _ in range(FLUSHES):
                self.flush.fill_(1)
            start.record()
            call()
            end.record()
        torch.cuda.synchronize()
        return [start.elapsed_time(end) for start, end in events]
