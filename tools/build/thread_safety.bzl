"""An aspect that checks lock annotations with Clang, since gcc has no such check.

    bazel build //base/... --aspects=//tools/build:thread_safety.bzl%thread_safety_aspect \
        --output_groups=thread_safety

Each library is only parsed. As a build action the check is cached like any other, generated headers
are there when it runs, and an unchanged library costs nothing. tools/lint/thread_safety runs it.
"""

_CLANG = "/usr/bin/clang++-14"

_FLAGS = [
    "-fsyntax-only",
    "-std=c++20",
    # gcc's warnings are gcc's to give; here only the one check that gcc lacks.
    "-Wno-everything",
    "-Werror=thread-safety",
]

def _is_source(file):
    return file.extension == "cc" and not file.path.endswith(".pb.cc")

def _is_header(file):
    return file.extension == "h" and not file.path.endswith(".pb.h")

def _thread_safety_impl(target, ctx):
    if ctx.rule.kind != "cc_library" or CcInfo not in target:
        return []
    context = target[CcInfo].compilation_context
    sources = [f for f in ctx.rule.files.srcs if _is_source(f)]

    # A header without a source of its own is parsed by itself.
    names = [f.path[:-len(".cc")] for f in sources]
    sources += [f for f in ctx.rule.files.hdrs if _is_header(f) and f.path[:-len(".h")] not in names]
    if not sources:
        return []

    arguments = ctx.actions.args()
    arguments.add_all(_FLAGS)
    arguments.add_all(context.quote_includes, before_each = "-iquote")
    arguments.add_all(context.includes, before_each = "-I")
    arguments.add_all(context.system_includes, before_each = "-isystem")
    arguments.add_all(context.defines, format_each = "-D%s")
    arguments.add_all(context.local_defines, format_each = "-D%s")

    stamps = []
    for source in sources:
        stamp = ctx.actions.declare_file(
            "_thread_safety/{}/{}.ok".format(ctx.label.name, source.short_path),
        )
        stamps.append(stamp)
        ctx.actions.run_shell(
            inputs = depset([source], transitive = [context.headers]),
            outputs = [stamp],
            # $1: the stamp; $2: the source; the rest: the compiler and its flags.
            command = 'stamp=$1 source=$2; shift 2; "$@" -x c++ "$source" && touch "$stamp"',
            arguments = [stamp.path, source.path, _CLANG, arguments],
            mnemonic = "ThreadSafety",
            progress_message = "Checking locks in %s" % source.short_path,
            use_default_shell_env = True,
        )
    return [OutputGroupInfo(thread_safety = depset(stamps))]

thread_safety_aspect = aspect(implementation = _thread_safety_impl)
