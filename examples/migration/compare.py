#!/usr/bin/env python3
"""Compares what two rate limit services have counted for each limit, since this program was started.

    compare.py OLD NEW [SECONDS]

OLD and NEW are addresses of their metrics, such as http://localhost:9090/metrics. Both must get the same calls (docs/migrating-from-ratelimit.md).
Waits SECONDS (default 60), prints a line for each limit, and ends with 1 when a share of the hits over a limit differs by more than 1 %.

The reference shows what it counted up to 10 s later (STATS_FLUSH_INTERVAL), so give it more than a few seconds.
"""

import re
import sys
import time
import urllib.request

SAMPLE = re.compile(r'^ratelimit_service_rate_limit_(total_hits|over_limit)\{(.*)\} (\S+)')
LABEL = re.compile(r'(domain|key1|key2)="((?:[^"\\]|\\.)*)"')


def page(address):
    """(total hits, hits over the limit) by limit."""
    with urllib.request.urlopen(address, timeout=10) as answer:
        text = answer.read().decode()
    counts = {}
    for line in text.splitlines():
        if found := SAMPLE.match(line):
            which, labels, value = found.groups()
            limit = ".".join(value for _, value in LABEL.findall(labels))
            counts.setdefault(limit, {})[which] = float(value)
    return counts


def grown(before, after):
    def number(counts, limit, which):
        return counts.get(limit, {}).get(which, 0)

    return {
        limit: tuple(int(number(after, limit, which) - number(before, limit, which)) for which in ("total_hits", "over_limit"))
        for limit in after
    }


def main(old, new, seconds=60):
    before = page(old), page(new)
    time.sleep(float(seconds))
    counts = grown(before[0], page(old)), grown(before[1], page(new))
    differs = False
    print(f"{'limit':40} {'hits old':>10} {'new':>10} {'over old':>10} {'new':>10}")
    for limit in sorted(set(counts[0]) | set(counts[1])):
        (hits_old, over_old), (hits_new, over_new) = (each.get(limit, (0, 0)) for each in counts)
        if hits_old == hits_new == 0:
            continue
        share = [over / hits if hits else 0 for hits, over in ((hits_old, over_old), (hits_new, over_new))]
        unlike = abs(share[0] - share[1]) > 0.01
        differs |= unlike
        print(f"{limit:40} {hits_old:>10} {hits_new:>10} {over_old:>10} {over_new:>10}{'  <-- differs' if unlike else ''}")
    return 1 if differs else 0


if __name__ == "__main__":
    if not 3 <= len(sys.argv) <= 4:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
