"""Medians and ratios of what a script of bench/ has noted.

Reads lines of GROUP KIND ROUND VALUE, with tabs between.  The ratio of a kind
is the median of its value divided by the base's of the same round: what slows
the machine down for a while slows both.  With a target for KIND/BASE, that ratio
is printed below.
"""

import argparse
import re
import statistics
import sys

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--base", help="kind that others are compared with")
parser.add_argument("--unit", default="", help="of the values")
parser.add_argument("--target", action="append", default=[],
                    help="[GROUP PATTERN:]KIND[/BASE]<=RATIO or >=RATIO; the first that fits")
parser.add_argument("--percentile", action="store_true",
                    help="print that of 99 in place of the least, as of times")
parser.add_argument("--limit", action="append", default=[],
                    help="KIND<=VALUE: of the median")
arguments = parser.parse_args()

values = {}
for line in sys.stdin:
    group, kind, number, value = line.rstrip("\n").split("\t")
    values.setdefault(group, {}).setdefault(kind, {})[number] = float(value)

targets = []
for target in arguments.target:
    pattern, kind, base, sign, ratio = re.fullmatch(
        r"(?:(.*):)?([^:/<>]+)(?:/([^<>]+))?([<>])=([\d.]+)", target).groups()
    targets.append((pattern or "", kind, base or arguments.base, sign,
                    float(ratio)))


def ratio_of(rounds, base):
    """Median of the ratios of those rounds that both have."""
    return statistics.median(rounds[n] / base[n] for n in rounds if n in base)


def verdict(group, kind, base, ratio):
    """What the first target that fits says of a ratio."""
    for pattern, of_kind, to_base, sign, limit in targets:
        if (of_kind, to_base) == (kind, base) and re.search(pattern, group):
            met = ratio <= limit if sign == "<" else ratio >= limit
            return f"{sign}= {limit:.2f} {'met' if met else 'MISSED'}"
    return ""


limits = dict(limit.split("<=") for limit in arguments.limit)


def within(kind, median):
    """The same of a limit of the median."""
    if kind not in limits:
        return ""
    met = median <= float(limits[kind])
    return f"<= {limits[kind]} {arguments.unit} {'met' if met else 'MISSED'}"


width = max([12] + [len(kind) for kinds in values.values() for kind in kinds])
for group, kinds in values.items():
    base = kinds.get(arguments.base)
    print(f"\n{group}, {max(len(rounds) for rounds in kinds.values())} rounds")
    print(f"  {'':{width}} {'median ' + arguments.unit:>16} "
          f"{'99 % within' if arguments.percentile else 'least':>12} "
          f"{'most':>10} {'ratio' if base else '':>7}")
    for kind, rounds in kinds.items():
        numbers = sorted(rounds.values())
        median = statistics.median(numbers)
        low = numbers[int((len(numbers) - 1) * 0.99)
                      if arguments.percentile else 0]
        digits = 1 if median >= 100 else 2
        line = (f"  {kind:{width}} {median:16.{digits}f} {low:12.{digits}f} "
                f"{numbers[-1]:10.{digits}f} ")
        if base:
            ratio = ratio_of(rounds, base)
            line += (f"{ratio:7.2f}  "
                     f"{verdict(group, kind, arguments.base, ratio)}")
        else:
            line += " " * 9
        print((line + within(kind, median)).rstrip())
    for kind, to in sorted({(t[1], t[2]) for t in targets
                            if t[2] != arguments.base}):
        if kind in kinds and to in kinds:
            ratio = ratio_of(kinds[kind], kinds[to])
            text = verdict(group, kind, to, ratio)
            if text:
                print(f"  {kind} / {to}: {ratio:.2f}  {text}")
