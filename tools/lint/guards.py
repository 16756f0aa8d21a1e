"""Include guards are the header's full path: CISTERN_BASE_IDS_H_ for base/ids.h."""

import re

from source import Problem


def guard_of(path):
    return "CISTERN_" + re.sub(r"[^A-Za-z0-9]", "_", path).upper() + "_"


def check(tree):
    for path in tree.having(".h"):
        guard = guard_of(path)
        lines = tree.lines(path)
        directives = [(n, line) for n, line in enumerate(lines, 1) if line.startswith("#")]
        wanted = [f"#ifndef {guard}", f"#define {guard}"]
        if [line for _, line in directives[:2]] != wanted:
            number = directives[0][0] if directives else 1
            yield Problem(path, number, "guard", f"the guard must be {guard}")
        elif not lines[-1].startswith("#endif"):
            yield Problem(path, len(lines), "guard", "nothing may follow the guard's #endif")
