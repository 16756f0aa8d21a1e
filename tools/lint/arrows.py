"""Which folder may include which, and which library stays behind which files."""

import re

from source import FOLDERS, Problem, includes, is_test

# tests/ may include everything, so it is not listed.
MAY_INCLUDE = {
    "proto": (),
    "base": ("proto",),
    "transport": ("base", "proto"),
    "master": ("base", "proto", "transport"),
    "store": ("base", "proto", "transport"),
    "client": ("base", "proto", "transport"),
    "tools": ("client", "base", "proto"),
}

# Single files that may include more: (the files, what else).
ALSO = (
    # cisternctl doctor looks at the host as the wire does (docs/decisions/0016-doctor-sees-as-the-wire.md).
    (re.compile(r"^tools/ctl/(host_facts|diagnosis|doctor_text)\w*\.(h|cc)$"),
     re.compile(r"^transport/rdma/(device|devices|gid|port_choice|locked_memory)\.h$")),
)

# (the library, its headers, the files that may include them)
CONFINED = (
    ("gRPC", re.compile(r"^(grpc|grpcpp|grpc\+\+)/|\.grpc\.pb\.h$"),
     re.compile(r"^(master|store|tools/poolbench)/(.*/)?\w+_(service|stream|grpc)(_test)?\.(h|cc)$"
                r"|^store/(.*/)?session_client\w*\.(h|cc)$"
                r"|^tools/ctl/"
                r"|^tests/")),
    ("RocksDB", re.compile(r"^rocksdb/"),
     re.compile(r"^(store|master)/(.*/)?\w+_rocksdb(_test)?\.(h|cc)$"
                r"|^store/(.*/)?ssd_index\w*\.(h|cc)$"
                r"|^master/(.*/)?durable_\w+\.(h|cc)$")),
    ("verbs", re.compile(r"^(infiniband|rdma)/"),
     re.compile(r"^transport/rdma/|^tests/rdma/")),
    # The client library is loaded into an engine's process, and links base and transport: none of
    # them may bring in the logging, flags or metrics of the daemons.
    # base/ops is the daemons' own part of base: its targets are visible to them and to tests only.
    ("glog, gflags or prometheus-cpp", re.compile(r"^(glog|gflags|prometheus)/"),
     re.compile(r"^(base/ops|master|store|tools|tests)/")),
)


def check(tree):
    for path in tree.cpp():
        folder = path.split("/")[0]
        for number, name in includes(tree.lines(path)):
            target = name.split("/")[0]
            allowed = MAY_INCLUDE.get(folder)
            if (allowed is not None and target in FOLDERS and "/" in name
                    and target != folder and target not in allowed
                    and not any(files.search(path) and names.search(name) for files, names in ALSO)):
                yield Problem(path, number, "arrow",
                              f"{folder}/ may not include {target}/ ({name})")
            if name.startswith(("./", "../")) or (
                    "/" not in name and name.endswith(".h")
                    and (tree.root / path).parent.joinpath(name).is_file()):
                yield Problem(path, number, "arrow",
                              f"include by the full path from the root, not {name}")
            for library, headers, files in CONFINED:
                if headers.search(name) and not files.search(path):
                    yield Problem(path, number, "confined", f"{library} may not be included here")
            if is_test(name) and not is_test(path) and "/" in name:
                yield Problem(path, number, "arrow", f"only tests may include {name}")
