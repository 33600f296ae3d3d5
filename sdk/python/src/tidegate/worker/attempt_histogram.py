"""How many jobs ended how, and how long they took."""

from __future__ import annotations

from bisect import bisect_left
from typing import Any

# Upper bounds of buckets in seconds, 10 for each decade from 1 us to 10,000 s. They contain all bounds of `SHOWN`.
BOUNDS = [step * 10.0**decade for decade in range(-6, 4) for step in (1, 1.25, 1.5, 2, 2.5, 3, 4, 5, 6, 8)]
# The bounds of the histogram for Prometheus.
SHOWN = [step * 10.0**decade for decade in range(-3, 3) for step in (1, 2.5, 5)]


class AttemptHistogram:
    """Counts of jobs by handler and outcome. One thread uses them at a time."""

    def __init__(self) -> None:
        self.counts: dict[tuple[str, str], dict[int, int]] = {}
        self.seconds: dict[str, float] = {}

    def add(self, handler: str, outcome: str, seconds: float) -> None:
        buckets = self.counts.get((handler, outcome))
        if buckets is None:
            buckets = self.counts[(handler, outcome)] = {}
        bucket = bisect_left(BOUNDS, seconds)
        buckets[bucket] = buckets.get(bucket, 0) + 1
        self.seconds[handler] = self.seconds.get(handler, 0.0) + seconds

    def encode(self) -> dict[str, Any]:
        """Returns the figures as JSON-able objects."""
        counts = [[handler, outcome, list(buckets.items())] for (handler, outcome), buckets in self.counts.items()]
        return {"counts": counts, "seconds": self.seconds}

    def merge(self, encoded: dict[str, Any]) -> tuple[int, int]:
        """Adds figures that another process has encoded; returns how many jobs those are, and how many failed."""
        added = bad = 0
        for handler, outcome, buckets in encoded["counts"]:
            merged = self.counts.setdefault((handler, outcome), {})
            for bucket, count in buckets:
                merged[bucket] = merged.get(bucket, 0) + count
                added += count
                bad += count if outcome != "succeeded" else 0
        for handler, seconds in encoded["seconds"].items():
            self.seconds[handler] = self.seconds.get(handler, 0.0) + seconds
        return added, bad

    def handlers(self) -> list[str]:
        return sorted({handler for handler, _ in self.counts})

    def count(self, handler: str, *outcomes: str) -> int:
        """Returns how many jobs ended so, with any outcome when none is named."""
        return sum(
            sum(buckets.values())
            for (name, outcome), buckets in self.counts.items()
            if name == handler and (not outcomes or outcome in outcomes)
        )

    def below(self, handler: str, bound: float) -> int:
        """Returns how many jobs took at most `bound` seconds, one of `SHOWN`."""
        last = bisect_left(BOUNDS, bound * 0.999)
        return sum(count for bucket, count in self._buckets(handler).items() if bucket <= last)

    def percentile(self, handler: str, share: float) -> float:
        """Returns the time in seconds within which this share of the jobs ended, to about a tenth of itself."""
        buckets = self._buckets(handler)
        wanted = share * sum(buckets.values())
        seen = 0
        for bucket in sorted(buckets):
            count = buckets[bucket]
            if seen + count >= wanted:
                high = BOUNDS[min(bucket, len(BOUNDS) - 1)]
                low = BOUNDS[bucket - 1] if bucket else 0.0
                return low + (high - low) * (wanted - seen) / count if bucket < len(BOUNDS) else high
            seen += count
        return 0.0

    def _buckets(self, handler: str) -> dict[int, int]:
        total: dict[int, int] = {}
        for (name, _), buckets in self.counts.items():
            if name == handler:
                for bucket, count in buckets.items():
                    total[bucket] = total.get(bucket, 0) + count
        return total
