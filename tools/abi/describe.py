#!/usr/bin/python3
"""Describes a C header and its library as text, for comparing with what was released.

Usage: describe.py HEADER LIBRARY

One line each: the symbols that the library shows and their versions, the header's function
signatures, the layout of its structs (as gcc sees it), its enumerators and numeric macros. Two
descriptions differ if, and only if, a program compiled against one may not run with the other, or
something was added.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path


def symbols(library):
    """Lines "symbol NAME@@VERSION" of what the library defines for others."""
    shown = subprocess.run(["nm", "--dynamic", "--defined-only", "--with-symbol-versions", library],
                           capture_output=True, text=True, check=True).stdout
    for line in shown.splitlines():
        kind, name = line.split()[-2:]
        if kind != "A":  # the versions themselves
            yield f"symbol {name}"


def without_comments(text):
    return re.sub(r"/\*.*?\*/", " ", text, flags=re.DOTALL)


def squeezed(text):
    return re.sub(r"\s+", " ", text).strip()


def functions(text):
    """Lines "function RESULT NAME(ARGUMENTS)"."""
    for result, name, arguments in re.findall(
            r"^(\w[\w\s]*?\*?)\s*\b(cistern_\w+)\(([^;{}]*)\);", text, re.MULTILINE):
        yield squeezed(f"function {squeezed(result)} {name}({squeezed(arguments)})")
    for callback in re.findall(r"^typedef [^;{}]*\(\*cistern_\w+\)[^;]*;", text, re.MULTILINE):
        yield squeezed(callback)


def structs(text):
    """{name: [member, ...]} of every struct."""
    found = {}
    for name, body in re.findall(r"typedef struct (cistern_\w+) \{(.*?)\} \1;", text, re.DOTALL):
        found[name] = [member for line in body.split(";") for member in re.findall(
            r"(\w+)(?:\[\d+\])?\s*(?=,|$)", line.strip())]
    return found


def numbers(text):
    """Names of enumerators and of macros with a numeric value."""
    names = re.findall(r"^#define (CISTERN_\w+) [0-9]", text, re.MULTILINE)
    for body in re.findall(r"\benum \{(.*?)\}", text, re.DOTALL):
        names += re.findall(r"(CISTERN_\w+) =", body)
    return names


def values(header, text):
    """Lines of what only the compiler knows: layouts and numbers. It is asked with a program."""
    code = [f'#include "{Path(header).resolve()}"', "#include <stdio.h>", "int main(void) {"]
    for name, members in structs(text).items():
        code.append(f'printf("struct {name} bytes=%zu align=%zu\\n", sizeof({name}), _Alignof({name}));')
        for member in members:
            code.append(f'printf("struct {name} .{member} at=%zu bytes=%zu\\n", offsetof({name}, '
                        f'{member}), sizeof((({name}*)0)->{member}));')
    for name in numbers(text):
        code.append(f'printf("number {name} = %lld\\n", (long long){name});')
    code.append("return 0; }")
    with tempfile.TemporaryDirectory() as folder:
        source, program = Path(folder) / "layout.c", Path(folder) / "layout"
        source.write_text("\n".join(code))
        subprocess.run(["gcc", "-std=c11", "-Wall", "-Wextra", "-Werror", str(source), "-o", str(program)], check=True)
        return subprocess.run([str(program)], capture_output=True, text=True, check=True).stdout.splitlines()


def describe(header, library):
    text = without_comments(Path(header).read_text(encoding="utf-8"))
    lines = [*symbols(library), *functions(text), *values(header, text)]
    declared = {line.split("(")[0].split()[-1] for line in lines if line.startswith("function ")}
    shown = {line.split()[1].split("@")[0] for line in lines if line.startswith("symbol ")}
    if declared != shown:
        raise SystemExit(f"the header and the library do not fit: {sorted(declared ^ shown)}")
    return sorted(lines)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    print("\n".join(describe(sys.argv[1], sys.argv[2])))
