#!/usr/bin/python3
"""Makes trees with one bad file each and sees the right rule fire, and only there."""

import pathlib
import subprocess
import tempfile
import unittest

import lint
import sizes


def header(path, body=""):
    guard = "CISTERN_" + path.upper().replace("/", "_").replace(".", "_") + "_"
    return f"#ifndef {guard}\n#define {guard}\n{body}\n#endif\n"


class LintTest(unittest.TestCase):
    def rules(self, **files):
        """The rules that fire over a tree of these files ({"base/a.cc": text}), in order."""
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for path, text in files.items():
                (root / path).parent.mkdir(parents=True, exist_ok=True)
                (root / path).write_text(text)
            subprocess.run(["git", "init", "-q", folder], check=True)
            return [p.rule for p in lint.problems(root)]

    def fires(self, rule, path, text):
        self.assertEqual(self.rules(**{path: text}), [rule], f"{path}: {text}")

    def clean(self, path, text):
        self.assertEqual(self.rules(**{path: text}), [], f"{path}: {text}")

    def test_arrows_point_one_way(self):
        self.fires("arrow", "master/a.cc", '#include "store/b.h"\n')
        self.fires("arrow", "store/a.cc", '#include "client/b.h"\n')
        self.fires("arrow", "client/a.cc", '#include "master/b.h"\n')
        self.fires("arrow", "base/a.cc", '#include "transport/b.h"\n')
        self.fires("arrow", "tools/a.cc", '#include "store/b.h"\n')
        self.clean("store/a.cc", '#include "transport/b.h"\n#include "store/c.h"\n')
        self.clean("tests/a.cc", '#include "store/b.h"\n#include "master/b.h"\n')
        self.clean("base/a.cc", '#include "absl/time/time.h"\n')

    def test_includes_are_full_paths(self):
        self.fires("arrow", "base/a.cc", '#include "../base/b.h"\n')
        self.assertEqual(
            self.rules(**{"base/a.cc": '#include "b.h"\n', "base/b.h": header("base/b.h")}),
            ["arrow"])

    def test_only_tests_include_test_helpers(self):
        self.fires("arrow", "base/a.cc", '#include "base/a_test_util.h"\n')
        self.clean("base/a_test.cc", '#include "base/a_test_util.h"\n')

    def test_libraries_are_confined(self):
        self.fires("confined", "master/index.cc", "#include <grpcpp/grpcpp.h>\n")
        self.fires("confined", "client/a.cc", '#include "proto/master.grpc.pb.h"\n')
        self.fires("confined", "master/index.cc", "#include <rocksdb/db.h>\n")
        self.fires("confined", "transport/tcp/a.cc", "#include <infiniband/verbs.h>\n")
        self.fires("confined", "base/a.cc", "#include <glog/logging.h>\n")
        self.clean("master/admin_service.cc", "#include <grpcpp/grpcpp.h>\n")
        self.clean("store/session_client.cc", '#include "proto/store.grpc.pb.h"\n')
        self.clean("tools/ctl/main.cc", "#include <grpcpp/grpcpp.h>\n")
        self.clean("master/session_stream.h",
                   header("master/session_stream.h", "#include <grpcpp/grpcpp.h>"))
        self.clean("master/state_store_rocksdb.cc", "#include <rocksdb/db.h>\n")
        self.clean("store/ssd_index.cc", "#include <rocksdb/db.h>\n")
        self.clean("master/durable_state.cc", "#include <rocksdb/db.h>\n")
        self.clean("transport/rdma/a.cc", "#include <infiniband/verbs.h>\n")

    def test_locks_come_from_one_header(self):
        self.fires("mutex", "master/a.cc", "absl::Mutex m;\n")
        self.fires("mutex", "base/mutex.cc", '#include "absl/synchronization/mutex.h"\n')
        self.fires("mutex", "store/a_test.cc", "std::mutex m;\n")
        self.clean("base/mutex.h", header("base/mutex.h", "std::mutex m;"))

    def test_time_comes_from_one_header(self):
        self.fires("sleep", "store/a_test.cc", "std::this_thread::sleep_for(1s);\n")
        self.fires("sleep", "store/a.cc", "usleep(5);\n")
        self.fires("sleep", "store/a.cc", "absl::SleepFor(x);\n")
        self.fires("now", "store/a.cc", "auto t = std::chrono::steady_clock::now();\n")
        self.fires("now", "store/a.cc", "auto t = absl::Now();\n")
        self.fires("now", "store/a.cc", "auto t = time(nullptr);\n")
        self.clean("store/a.cc", "clock.Sleep(x); auto t = clock.Now(); f.sleep(3);\n")
        self.clean("base/clock.cc", "auto t = absl::Now(); absl::SleepFor(t);\n")

    def test_environment_is_read_in_main(self):
        self.fires("getenv", "store/a.cc", 'std::getenv("HOME");\n')
        self.clean("store/main.cc", 'std::getenv("HOME");\n')

    def test_comments_and_literals_are_not_code(self):
        self.clean("store/a.cc", "// absl::Mutex\n/* std::mutex\n */ auto a = \"absl::Now()\";\n")
        self.clean("store/a.cc", 'auto a = R"x(absl::Now() " )x"; int b = 1\'000;\n')
        self.fires("mutex", "store/a.cc", 'auto a = "// no comment"; absl::Mutex m;\n')

    def test_an_exception_needs_its_own_rule_and_a_reason(self):
        self.clean("store/a.cc", "usleep(5);  // lint: allow(sleep): the device asks for it\n")
        self.fires("sleep", "store/a.cc", "usleep(5);  // lint: allow(sleep):\n")
        self.fires("sleep", "store/a.cc", "usleep(5);  // lint: allow(now): wrong rule\n")

    def test_guards_are_the_path(self):
        self.clean("base/a.h", header("base/a.h"))
        self.fires("guard", "base/a.h", header("base/b.h"))
        self.fires("guard", "base/a.h", "#pragma once\n")

    def test_long_files_need_an_entry(self):
        self.clean("base/a.cc", "\n" * 800)
        self.fires("size", "base/a.cc", "\n" * 801)
        self.clean("base/a_test.cc", "\n" * 1200)
        self.fires("size", "base/a_test.cc", "\n" * 1201)

    def test_long_functions_need_an_entry(self):
        def function(lines):
            return "int A(int b) {\n" + "  ++b;\n" * (lines - 2) + "}\n"

        self.clean("base/a.cc", function(100))
        self.fires("size", "base/a.cc", function(101))
        self.fires("size", "base/a.cc", "namespace x {\nclass C {\n" + function(101) + "};\n}\n")
        listing = sizes.EXCEPTIONS
        self.assertEqual(self.rules(**{"base/a.cc": function(101), listing: "base/a.cc:A 101\n"}), [])
        self.assertEqual(
            self.rules(**{"base/a.cc": function(102), listing: "base/a.cc:A 101\n"}), ["size"])
        self.assertEqual(
            self.rules(**{"base/a.cc": function(9), listing: "base/a.cc:A 101\n"}), ["size"])

    def test_functions_are_told_from_scopes(self):
        text = ('#define M(x) \\\n  do { x } while (0)\nnamespace a {\nclass alignas(8) B : C {\n'
                ' public:\n  B() : x_{1}, y_(2) {\n  }\n  int F() const { return 1; }\n};\n'
                'TEST(B, Works) {\n  auto l = [] { return 1; };\n}\n}  // namespace a\n')
        found = [(name, lines) for name, _, lines in sizes.functions(text)]
        self.assertIn(("F", 1), found)
        self.assertIn(("TEST(B, Works)", 3), found)
        self.assertNotIn("M", [name for name, _ in found])

    def test_documents_name_what_exists(self):
        self.fires("doc-path", "README.md", "See `base/nothing.h`.\n")
        self.fires("doc-path", "docs/a.md", "See [this](nothing.md).\n")
        self.fires("doc-path", "README.md", "Run `tools/nothing --help`.\n")
        self.clean("README.md", "See `README.md`, `foo_test.cc`, `https://a/b` and `a*b/c`.\n")
        self.clean("docs/a.md", "```\ntools/nothing\n```\nsee `docs/a.md`, [b](https://x.y/z)\n")

    def test_the_tree_speaks_of_itself(self):
        self.fires("own-words", "base/a.cc", "// /" "work/main\n")
        self.fires("own-words", "a.sh", "cd /" "root/x\n")
        self.fires("own-words", "docs/a.md", "Fixes issue" " #3.\n")
        self.clean("docs/a.md", "The /workers path, $a/work, the issue at hand.\n")


if __name__ == "__main__":
    unittest.main()
