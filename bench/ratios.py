"""Medians and ratios of what a script of bench/ has noted.

Reads lines of GROUP KIND ROUND VALUE, with tabs between.  The ratio of a kind
is the median of its value divided by the base's of the same round: what slows
the machine down for a while slows both.
"""

import argparse
import re
import statistics
import sys

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--base", required=True, help="kind that others are compared with")
parser.add_argument("--unit", default="", help="of the values")
parser.add_argument("--target", action="append", default=[],
                    help="[GROUP PATTERN:]KIND<=RATIO or >=RATIO")
arguments = parser.parse_args()

values = {}
for line in sys.stdin:
    group, kind, number, value = line.rstrip("\n").split("\t")
    values.setdefault(group, {}).setdefault(kind, {})[number] = float(value)

targets = []
for target in arguments.target:
    pattern, kind, sign, ratio = re.fullmatch(
        r"(?:(.*):)?([^:<>]+)([<>])=([\d.]+)", target).groups()
    targets.append((pattern or "", kind, sign, float(ratio)))


def verdict(group, kind, ratio):
    for pattern, of_kind, sign, limit in targets:
        if of_kind == kind and re.search(pattern, group):
            met = ratio <= limit if sign == "<" else ratio >= limit
            return f"{sign}= {limit:.2f} {'met' if met else 'MISSED'}"
    return ""


width = max([12] + [len(kind) for kinds in values.values() for kind in kinds])
for group, kinds in values.items():
    base = kinds[arguments.base]
    print(f"\n{group}, {len(base)} rounds")
    print(f"  {'':{width}} {'median ' + arguments.unit:>16} {'least':>10} "
          f"{'most':>10} {'ratio':>7}")
    for kind, rounds in kinds.items():
        numbers = list(rounds.values())
        ratio = statistics.median(
            rounds[n] / base[n] for n in rounds if n in base)
        print(f"  {kind:{width}} {statistics.median(numbers):16.1f} "
              f"{min(numbers):10.1f} {max(numbers):10.1f} {ratio:7.2f}  "
              f"{verdict(group, kind, ratio)}".rstrip())
