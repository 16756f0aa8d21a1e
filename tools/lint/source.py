"""What every check shares: the list of files, a problem, and C++ text without its comments."""

import dataclasses
import pathlib
import re
import subprocess

# The folders of the tree that hold code, and the files at its top that documents may name.
FOLDERS = ("proto", "base", "transport", "master", "store", "client", "tools", "tests", "deploy",
           "docs", "third_party")


@dataclasses.dataclass(frozen=True, order=True)
class Problem:
    path: str
    line: int
    rule: str
    message: str

    def __str__(self):
        return f"{self.path}:{self.line}: [{self.rule}] {self.message}"


class Tree:
    """The files of one checkout: tracked by git, or new and not ignored."""

    def __init__(self, root):
        self.root = pathlib.Path(root)
        listing = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=self.root, check=True, capture_output=True, text=True).stdout
        self.paths = sorted(p for p in set(listing.split("\0"))
                            if p and (self.root / p).is_file())
        self._texts = {}

    def having(self, *suffixes):
        return [p for p in self.paths if p.endswith(suffixes)]

    def cpp(self):
        return self.having(".h", ".cc")

    def text(self, path):
        """The file's text; "" if it is not text."""
        if path not in self._texts:
            try:
                self._texts[path] = (self.root / path).read_text(encoding="utf-8")
            except UnicodeDecodeError:
                self._texts[path] = ""
        return self._texts[path]

    def lines(self, path):
        return self.text(path).splitlines()


# One alternative per thing that hides text from the compiler: raw strings first, since the others
# would misread them.
_HIDDEN = re.compile(
    r'R"(?P<delimiter>[^()\\\s]{0,16})\(.*?\)(?P=delimiter)"'
    r"|//[^\n]*"
    r"|/\*.*?\*/"
    r'|"(?:\\.|[^"\\\n])*"'
    r"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'",
    re.DOTALL)


def code_only(text):
    """C++ text with comments and literals blanked; every line stays where it is.

    The quoted names in #include lines are blanked too: use `includes` for those.
    """
    return _HIDDEN.sub(lambda m: re.sub(r"[^\n]", " ", m.group()), text)


_INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]')


def includes(lines):
    """Yields (line number, included name)."""
    for number, line in enumerate(lines, 1):
        match = _INCLUDE.match(line)
        if match:
            yield number, match.group(1)


def is_test(path):
    """Tests, their helpers and benchmarks: not linked into anything that is shipped."""
    return path.startswith("tests/") or bool(
        re.search(r"_(test|fuzz_test|benchmark|testing|test_util)\.(cc|h)$", path))
