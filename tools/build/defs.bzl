"""Macros for protobuf and gRPC code, made with the system's protoc and grpc_cpp_plugin.

A proto file proto/foo.proto is imported as "proto/foo.proto" and included as "proto/foo.pb.h"
(and "proto/foo.grpc.pb.h"): always the full path from the root of the tree.
"""

load("//tools/build:precompiled.bzl", "cc_library")

# Generated headers are marked as system headers: our warnings are not for code we did not write.
_MARK_HEADERS = " && sed -i '1i #pragma GCC system_header' {headers}"

def _sources_of(label):
    """The filegroup with the proto files of a cistern_proto_library and of all it imports."""
    if ":" not in label:
        label = label + ":" + label.split("/")[-1]
    return label + "_protos"

def _outputs(srcs, suffix):
    return [src[:-len(".proto")] + suffix for src in srcs]

def _protoc(name, srcs, imports, flags, header_suffix, source_suffix, check = ""):
    headers = _outputs(srcs, header_suffix)
    sources = _outputs(srcs, source_suffix)
    native.genrule(
        name = name,
        srcs = srcs + imports,
        outs = headers + sources,
        cmd = check + "protoc -I. {flags} {srcs}".format(
            flags = flags,
            srcs = " ".join(["$(location %s)" % src for src in srcs]),
        ) + _MARK_HEADERS.format(
            headers = " ".join(["$(location %s)" % header for header in headers]),
        ),
    )
    return struct(headers = headers, sources = sources)

def _lite_check(lite, srcs):
    """Fails the build if a file's runtime is not the one its rule links."""
    test = "grep -q 'optimize_for *= *LITE_RUNTIME'"
    word = "lacks"
    if not lite:
        test = "! " + test
        word = "has"
    return "".join([
        "{{ {test} $(location {src}) || {{ echo >&2 \"{src}: lite = {lite}, but the file {word} ".format(
            test = test,
            src = src,
            lite = lite,
            word = word,
        ) + "option optimize_for = LITE_RUNTIME\"; exit 1; }; } && "
        for src in srcs
    ])

def cistern_proto_library(name, srcs, deps = [], lite = False, visibility = None):
    """A cc_library of the messages in `srcs`.

    Args:
      name: the cc_library's name.
      srcs: .proto files of this package.
      deps: the cistern_proto_library targets whose files are imported.
      lite: True links protobuf-lite; every file must then say
        `option optimize_for = LITE_RUNTIME;` (and must not if False).
      visibility: as ever.
    """
    native.filegroup(
        name = name + "_protos",
        srcs = srcs + [_sources_of(dep) for dep in deps],
        visibility = visibility,
    )
    generated = _protoc(
        name = name + "_pb",
        srcs = srcs,
        imports = [_sources_of(dep) for dep in deps],
        flags = "--cpp_out=$(GENDIR)",
        header_suffix = ".pb.h",
        source_suffix = ".pb.cc",
        check = _lite_check(lite, srcs),
    )
    cc_library(
        name = name,
        srcs = generated.sources,
        hdrs = generated.headers,
        visibility = visibility,
        deps = deps + [
            "//third_party:protobuf_lite" if lite else "//third_party:protobuf",
        ],
    )

def cistern_grpc_library(name, srcs, deps, visibility = None):
    """A cc_library of the gRPC services in `srcs`.

    Args:
      name: the cc_library's name.
      srcs: .proto files of this package that define services.
      deps: the cistern_proto_library targets of `srcs` (first) and of the files that they import.
      visibility: as ever.
    """
    generated = _protoc(
        name = name + "_pb",
        srcs = srcs,
        imports = [_sources_of(dep) for dep in deps],
        flags = "--grpc_out=$(GENDIR) --plugin=protoc-gen-grpc=/usr/bin/grpc_cpp_plugin",
        header_suffix = ".grpc.pb.h",
        source_suffix = ".grpc.pb.cc",
    )
    cc_library(
        name = name,
        srcs = generated.sources,
        hdrs = generated.headers,
        visibility = visibility,
        deps = deps + ["//third_party:grpc"],
    )
