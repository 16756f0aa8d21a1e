"""Calls and types that have one home, or none."""

import re

from source import Problem, code_only, includes

_CLOCK = re.compile(r"^base/clock\w*\.(h|cc)$")
_MUTEX = re.compile(r"^base/mutex\.h$")
# Tests are told their folders by the environment.
_ENVIRONMENT = re.compile(r"(^|/)(\w+_)?main\.cc$|_test\.cc$|^tests/")
_NOWHERE = re.compile(r"$^")

# (rule, what, the files that may, what to do instead)
BANNED = (
    ("mutex", re.compile(r"\babsl::(Mutex|MutexLock|ReaderMutexLock|WriterMutexLock|CondVar)\b"),
     _NOWHERE, "use base/mutex.h: absl::Mutex as packaged carries no TSan annotations"),
    ("mutex", re.compile(r"\bstd::(recursive_|shared_|timed_|recursive_timed_|shared_timed_)?mutex\b"
                         r"|\bstd::condition_variable(_any)?\b"),
     _MUTEX, "use base/mutex.h: its locks are checked by the compiler"),
    ("sleep", re.compile(r"\bstd::this_thread::sleep_(for|until)\b|\babsl::SleepFor\b"
                         r"|(?<![\w.>])(::)?\b(usleep|nanosleep|clock_nanosleep|sleep)\s*\("),
     _CLOCK, "wait by base/clock.h, so that tests can pass a clock of their own"),
    ("now", re.compile(r"\b\w+_clock::now\s*\(|\babsl::Now\s*\(|\babsl::GetCurrentTimeNanos\s*\("
                       r"|\b(clock_gettime|gettimeofday|timespec_get)\s*\("
                       r"|(?<![\w.>])(::|std::)?\btime\s*\(\s*(0|NULL|nullptr)\s*\)"),
     _CLOCK, "ask a clock of base/clock.h, so that tests can pass their own"),
    ("getenv", re.compile(r"\b(secure_)?getenv\s*\("),
     _ENVIRONMENT, "the environment is read in main.cc only; pass an option"),
)

# "// lint: allow(sleep): why" on the line itself is for the rare case that has a good reason.
_ALLOWED = re.compile(r"//\s*lint: allow\((\w+)\): \S")


def check(tree):
    for path in tree.cpp():
        lines = tree.lines(path)
        for number, code in enumerate(code_only(tree.text(path)).splitlines(), 1):
            for rule, pattern, files, instead in BANNED:
                match = pattern.search(code)
                if not match or files.search(path):
                    continue
                allowed = _ALLOWED.search(lines[number - 1])
                if allowed and allowed.group(1) == rule:
                    continue
                yield Problem(path, number, rule, f"{match.group().strip()}: {instead}")
        for number, name in includes(lines):
            if name == "absl/synchronization/mutex.h":
                yield Problem(path, number, "mutex", f"{name}: use base/mutex.h")
