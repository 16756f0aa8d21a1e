"""Precompiled headers.

cc_library, cc_binary and cc_test in BUILD files are those of this file (tools/build_rules/
prelude_bazel loads it for all of them): with --define=precompiled=gcc or =clang, which .bazelrc says
where it fits, they start from tools/build/common_headers.h as that compiler parsed it once. In other
builds they are Bazel's own.
"""

load("@bazel_tools//tools/build_defs/cc:action_names.bzl", "ACTION_NAMES")
load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")

def _precompiled_header_impl(ctx):
    toolchain = find_cpp_toolchain(ctx)
    features = cc_common.configure_features(
        ctx = ctx,
        cc_toolchain = toolchain,
        requested_features = ctx.features,
        unsupported_features = ctx.disabled_features,
    )
    variables = cc_common.create_compile_variables(
        feature_configuration = features,
        cc_toolchain = toolchain,
        user_compile_flags = ctx.fragments.cpp.copts + ctx.fragments.cpp.cxxopts,
        use_pic = True,
    )
    flags = cc_common.get_memory_inefficient_command_line(
        feature_configuration = features,
        action_name = ACTION_NAMES.cpp_compile,
        variables = variables,
    )
    compiler = cc_common.get_tool_for_action(
        feature_configuration = features,
        action_name = ACTION_NAMES.cpp_compile,
    )

    # The result is part of what objects are cached by. It has to be the same in every checkout: so
    # Clang reads the header from standard input, in the root folder, and takes no times of files in.
    # gcc wants a file, and makes something else each time: the disk cache keeps what was made first.
    if ctx.attr.clang:
        compile = 'cd / && exec "$@" -x c++-header -Xclang -fno-pch-timestamp -o - - < "$in" > "$out"'
    else:
        compile = 'exec "$@" -x c++-header -o "$out" "$header"'
    ctx.actions.run_shell(
        inputs = [ctx.file.header],
        outputs = [ctx.outputs.out],
        tools = toolchain.all_files,
        mnemonic = "PrecompileHeader",
        progress_message = "Precompiling %s" % ctx.file.header.short_path,
        arguments = [ctx.file.header.path, ctx.outputs.out.path, compiler] + [
            flag
            for flag in flags
            if flag not in ["-c", "-MD"]
        ],
        command = 'header=$1 in=$PWD/$1 out=$PWD/$2; shift 2; ' + compile,
    )
    return [DefaultInfo(files = depset([ctx.outputs.out]))]

precompiled_header = rule(
    implementation = _precompiled_header_impl,
    attrs = {
        "header": attr.label(allow_single_file = True, mandatory = True),
        "out": attr.output(mandatory = True),
        "clang": attr.bool(mandatory = True),
        "_cc_toolchain": attr.label(default = Label("@bazel_tools//tools/cpp:current_cc_toolchain")),
    },
    fragments = ["cpp"],
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
)

# The file that gcc is told to include is not there; it takes the one with .gch behind its name.
_COMMON_HEADERS = "$(BINDIR)/tools/build/common_headers"

def _with_common_headers(args):
    args["deps"] = args.get("deps", []) + select({
        "//tools/build:precompiled_by_clang": ["//tools/build:common_headers_for_clang"],
        "//tools/build:precompiled_by_gcc": ["//tools/build:common_headers_for_gcc"],
        "//conditions:default": [],
    })
    args["copts"] = args.get("copts", []) + select({
        "//tools/build:precompiled_by_clang": ["-include-pch", _COMMON_HEADERS + ".pch"],
        "//tools/build:precompiled_by_gcc": ["-include", _COMMON_HEADERS + ".h"],
        "//conditions:default": [],
    })
    return args

def cc_library(**args):
    native.cc_library(**(_with_common_headers(args) if args.get("srcs") else args))

def cc_binary(**args):
    # The headers are C++.
    in_c = [src for src in args.get("srcs", []) if src.endswith(".c")]
    native.cc_binary(**(args if in_c else _with_common_headers(args)))

def cc_test(**args):
    native.cc_test(**_with_common_headers(args))
