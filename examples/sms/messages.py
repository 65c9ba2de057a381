"""Some thousand real texts, and receivers' numbers that belong to nobody."""

import random
import re

FORTUNES = "/usr/share/games/fortunes/"

# language, how many, files of Debian's fortunes-* packages
SOURCES = [
    ("German", 1900, ["de/zitate"]),
    ("Chinese", 1600, ["tang300", "song100", "chinese"]),
    ("Russian", 900, ["ru/life", "ru/knowledge"]),
    ("English", 600, ["literature", "fortunes"]),
]

# Characters.  Gateways send what is longer than one SMS in parts, not in any
# number of them.
LONGEST = 480

# Mobile and other numbers that are kept free for films and books: prefix,
# first and last number below it, digits of these.
RANGES = [
    ("+447700", 900000, 900999, 6),     # United Kingdom
    ("+336", 39980000, 39989999, 8),    # France
    ("+4670", 1740605, 1740699, 7),     # Sweden
    ("+1212555", 100, 199, 4),          # North America
    ("+1312555", 100, 199, 4),
    ("+1415555", 100, 199, 4),
]


def texts(names):
    """The texts of fortune files: no terminal colours, none too long."""
    for name in names:
        with open(FORTUNES + name, encoding="utf-8") as file:
            content = re.sub("\x1b\\[[0-9;]*m", "", file.read())
        for text in re.split(r"(?m)^%$", content):
            text = text.strip().replace("\t", " ")
            if 0 < len(text) <= LONGEST:
                yield text


def number(chance):
    prefix, first, last, digits = chance.choice(RANGES)
    return f"{prefix}{chance.randint(first, last):0{digits}}"


def messages():
    """(text, number, language) in a mixed order, the same each time."""
    chance = random.Random(11)
    mixed = []
    for language, count, names in SOURCES:
        for text in chance.sample(list(texts(names)), count):
            mixed.append((text, number(chance), language))
    chance.shuffle(mixed)
    return mixed
