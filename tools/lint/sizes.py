"""Files and functions that are too long, less those listed in size_exceptions.txt.

The list may only shrink. A line of it is "path lines" or "path:function lines": what it was when it
was listed. An entry that has grown fails, and so does one that is no longer needed.
"""

import bisect
import re

from source import Problem, code_only, is_test

EXCEPTIONS = "tools/lint/size_exceptions.txt"
FILE_LINES = 800
TEST_FILE_LINES = 1200
FUNCTION_LINES = 100

# A directive, with the lines it continues on.
_DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n\\]|\\.|\\\n)*", re.MULTILINE)
_SCOPE = re.compile(r"\s*(template\s*<[^;]*>\s*)?(inline\s+)?(namespace|class|union|enum|struct\b[^()]*$)")
_MACRO = re.compile(r"\b(ABSL_\w+|alignas|__attribute__)\s*\([^()]*\)")
_NAME = re.compile(r"(TEST(?:_F|_P)?\s*\([^()]*\))|([A-Za-z_~][\w:~]*|operator\s*\S+?)\s*\(")


def functions(text):
    """Yields (name, first line, lines) of each function with a body. Rough, but it knows scopes."""
    code = _DIRECTIVE.sub(lambda m: re.sub(r"[^\n]", " ", m.group()), code_only(text))
    newlines = [m.start() for m in re.finditer("\n", code)]

    def line_of(offset):
        return bisect.bisect_left(newlines, offset) + 1

    depth = 0  # Open scopes that are not inside a function.
    start = 0  # Where the present declaration begins.
    body = None  # (name, first line, braces open) while inside a function.
    for match in re.finditer(r"[{};]", code):
        at, brace = match.start(), match.group()
        if body:
            name, first, nested = body
            nested += {"{": 1, "}": -1, ";": 0}[brace]
            if nested == 0:
                yield name, first, line_of(at) - first + 1
                body, start = None, at + 1
            else:
                body = (name, first, nested)
        elif brace == "{":
            head = code[start:at]
            named = _NAME.search(_MACRO.sub("", head))
            if named and not _SCOPE.match(head):
                lead = len(head) - len(head.lstrip())
                body = (named.group(1) or named.group(2), line_of(start + lead), 1)
            else:
                depth += 1
                start = at + 1
        elif brace == "}":
            depth -= 1
            start = at + 1
        else:
            start = at + 1


def too_long(tree):
    """{key: (path, line, lines, limit)} of everything over its limit."""
    found = {}
    for path in tree.having(".h", ".cc", ".py", ".bzl", ".proto"):
        count = len(tree.lines(path))
        limit = TEST_FILE_LINES if is_test(path) else FILE_LINES
        if count > limit:
            found[path] = (path, 1, count, limit)
    for path in tree.cpp():
        for name, first, count in functions(tree.text(path)):
            if count > FUNCTION_LINES:
                found[f"{path}:{name}"] = (path, first, count, FUNCTION_LINES)
    return found


def exceptions(tree):
    """{key: (line number, lines)}."""
    listed = {}
    for number, line in enumerate(tree.lines(EXCEPTIONS) if EXCEPTIONS in tree.paths else [], 1):
        if line.strip() and not line.startswith("#"):
            key, lines = line.rsplit(maxsplit=1)
            listed[key] = (number, int(lines))
    return listed


def check(tree):
    found, listed = too_long(tree), exceptions(tree)
    for key, (path, line, count, limit) in found.items():
        if key not in listed:
            yield Problem(path, line, "size", f"{key.split(':', 1)[-1]} has {count} lines, over {limit}")
        elif count > listed[key][1]:
            yield Problem(path, line, "size", f"{key} grew from {listed[key][1]} to {count} lines")
    for key, (number, _) in listed.items():
        if key not in found:
            yield Problem(EXCEPTIONS, number, "size", f"{key} is no longer too long: remove it here")
