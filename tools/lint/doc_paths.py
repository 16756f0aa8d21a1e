"""A path that a document names must exist."""

import re

from source import FOLDERS, Problem

_SPAN = re.compile(r"`([^`\n]+)`")
_LINK = re.compile(r"\]\(([^)\s#]+)(?:#[^)\s]*)?\)")
_PATH = re.compile(r"^(?:\./)?((?:%s)/[\w./+-]*)(?::\d+)?$" % "|".join(FOLDERS))
# Upper-case documents of the top, like README.md.
_TOP = re.compile(r"^[A-Z]+\.md$")
# Made by the build, not in the tree.
_GENERATED = re.compile(r"\.pb\.(h|cc)$")


def _missing(tree, base, target):
    return not (base / target).exists()


def check(tree):
    for path in tree.having(".md"):
        # A changelog may name what has gone since.
        if path == "CHANGELOG.md":
            continue
        fenced = False
        for number, line in enumerate(tree.lines(path), 1):
            if line.lstrip().startswith("```"):
                fenced = not fenced
            if fenced:
                continue
            for span in _SPAN.findall(line):
                # Of a command, the program; of a name, the name.
                word = span.split()[0]
                match = _PATH.match(word)
                target = match.group(1) if match else word if _TOP.match(word) else None
                if not target or _GENERATED.search(target):
                    continue
                beside = (tree.root / path).parent
                if _missing(tree, tree.root, target) and _missing(tree, beside, target):
                    yield Problem(path, number, "doc-path", f"`{target}` does not exist")
            for link in _LINK.findall(line):
                if "://" in link or link.startswith("mailto:"):
                    continue
                base = tree.root if link.startswith("/") else (tree.root / path).parent
                if _missing(tree, base, link.lstrip("/")):
                    yield Problem(path, number, "doc-path", f"the link to {link} leads nowhere")
