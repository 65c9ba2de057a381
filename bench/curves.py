"""Files for gnuplot, one for each curve, from the results of bench/run.

curves.py FOLDER <RESULTS makes folders in FOLDER, one for each plot, with
files of lines "x y".  Their names begin with a number, which orders them.
"""

import os
import re
import statistics
import sys

ORDER = ["done", "claim", "ctid_done", "ctid", "skip_locked", "lower_bound",
         "session", "lease", "advisory", "claim_jobs(wait => ..)", "LISTEN"]
NAMES = {"done": "claim_jobs(done =>)", "claim": "claim_jobs, finish_jobs",
         "ctid_done": "by ctid, one statement", "ctid": "by ctid",
         "skip_locked": "SKIP LOCKED",
         "lower_bound": "SKIP LOCKED with a lower bound (misses rows)",
         "session": "session token", "lease": "lease",
         "advisory": "pg_advisory_lock"}

curves = {}                         # (folder, kind): list of (x, y)
rates = {}                          # (batch, kind, workers): rates
times = {}                          # (folder, kind): milliseconds
for line in sys.stdin:
    script, group, kind, number, value, unit = line.rstrip("\n").split("\t")
    if script == "machine":
        continue
    value = float(value)
    if script == "jobs-old-snapshot":
        curves.setdefault(("old snapshot", kind), []).append(
            (float(number), value))
    elif script == "jobs" and unit == "jobs/s":
        batch, workers, commit = re.fullmatch(
            r"batch (\d+), workers (\d+), synchronous_commit (\w+)",
            group).groups()
        if commit == "on":
            rates.setdefault((batch, kind, int(workers)), []).append(value)
    elif script == "handover" and unit == "ms":
        if "end" in group:
            kind = "lease that ends"
        times.setdefault(("hand-over", kind), []).append(value)
    elif script == "jobs-wake" and unit == "ms" and group.endswith(" on"):
        times.setdefault(("wake-up", kind), []).append(value)

for (batch, kind, workers), values in sorted(rates.items()):
    curves.setdefault((f"batch {batch}", kind), []).append(
        (workers, statistics.median(values)))
for key, values in times.items():
    values.sort()
    curves[key] = [(value, 100 * (i + 1) / len(values))
                   for i, value in enumerate(values)]

for (folder, kind), points in curves.items():
    if len(points) < 2:             # no curve
        continue
    path = os.path.join(sys.argv[1], folder)
    os.makedirs(path, exist_ok=True)
    order = ORDER.index(kind) if kind in ORDER else 99
    name = NAMES.get(kind, kind)
    with open(os.path.join(path, f"{order:02} {name}"), "w") as file:
        file.writelines(f"{x} {y}\n" for x, y in points)
