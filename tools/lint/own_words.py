"""The tree speaks of itself only: no folders of somebody's machine, no numbers of somebody's tracker."""

import re

from source import Problem

# Put together from pieces, so that this file does not hold what it looks for.
_MACHINE = re.compile(r"(?<![\w.)}*$-])/(?:%s)(?![\w.-])" % "|".join(
    ("wo" "rk", "ro" "ot", "tmp/" "wt", "home/" r"\w+")))
_TRACKER = re.compile("issue" r"s? *#", re.IGNORECASE)


def check(tree):
    for path in tree.paths:
        for number, line in enumerate(tree.lines(path), 1):
            for pattern, what in ((_MACHINE, "a folder of one machine"),
                                  (_TRACKER, "a number of one tracker")):
                match = pattern.search(line)
                if match:
                    yield Problem(path, number, "own-words", f"{match.group()}: {what}")
