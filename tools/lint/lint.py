#!/usr/bin/python3
"""Runs every check of this folder over the tree; prints what is wrong; exits 1 if anything is.

Usage: tools/lint/lint.py [--root FOLDER] [--help]
"""

import argparse
import pathlib
import sys

import arrows
import banned
import doc_paths
import guards
import own_words
import sizes
from source import Tree

CHECKS = (arrows, banned, doc_paths, guards, own_words, sizes)


def problems(root):
    tree = Tree(root)
    return sorted(p for check in CHECKS for p in check.check(tree))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", default=pathlib.Path(__file__).resolve().parents[2])
    found = problems(parser.parse_args().root)
    for problem in found:
        print(problem)
    print(f"lint: {len(found)} problems" if found else "lint: clean")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
