"""Finds a kernel of the distribution that has Soft-RoCE, and takes out of it what the VM boots with.

Installed kernels are looked at first; else the package is fetched once with `apt-get download` and
taken apart, not installed. What is kept is a folder of some 70 MB in the cache:

  vmlinux          the kernel, unpacked: emulated, it would take 3 s to unpack itself
  modules/NAME.ko  the modules needed
  boot, pair       names of modules in the order in which to load them, one a line
"""

import gzip
import lzma
import os
import pathlib
import re
import shutil
import struct
import subprocess
import tarfile
import tempfile

# What is loaded in every VM, and what --pair adds. What these depend on comes by itself; crc32_generic
# is named since rxe asks for its checksum by name when it is used. (Its faster rival is slower when
# emulated.)
WANTED = {
    "boot": ("virtio_pci", "virtio_console", "9pnet_virtio", "9p", "overlay", "ib_uverbs",
             "rdma_ucm", "crc32_generic", "rdma_rxe", "dummy"),
    "pair": ("veth", "sch_netem"),
}
# Where those and all they depend on lie below modules/VERSION/kernel.
_FOLDERS = ("arch/x86/crypto/", "crypto/", "drivers/char/", "drivers/infiniband/core/",
            "drivers/infiniband/sw/", "drivers/net/dummy", "drivers/net/veth", "drivers/virtio/",
            "fs/9p/", "fs/configfs/", "fs/fscache/", "fs/netfs/", "fs/overlayfs/", "lib/", "net/9p/",
            "net/core/", "net/ipv4/", "net/ipv6/", "net/sched/")
_MODULE = re.compile(r"(?:^|/)lib/modules/([^/]+)/kernel/(.+/)?([^/]+)\.ko(\.xz|\.gz)?$")
_BUILT_IN = re.compile(r"(?:^|/)lib/modules/[^/]+/modules\.builtin$")
_IMAGE = re.compile(r"(?:^|/)boot/vmlinuz-(.+)$")


class Trouble(Exception):
    """Something that the user has to know of; its text is the message."""


def name_of(module):
    """As modules name each other: with underscores."""
    return module.replace("-", "_")


def depends_of(module):
    """The modules that a module (the bytes of its file, unpacked) needs, by what it says itself."""
    found = re.search(rb"\0depends=([^\0]*)\0", module)
    return [name_of(name) for name in found.group(1).decode().split(",") if name] if found else []


def in_order(wanted, modules, built_in):
    """`wanted` and all they depend on, each after what it depends on; not what is built in.

    modules: {name: bytes}.
    """
    order = []

    def add(name):
        if name in order or name in built_in:
            return
        if name not in modules:
            raise Trouble(f"this kernel has no module {name}")
        for other in depends_of(modules[name]):
            add(other)
        order.append(name)

    for name in wanted:
        add(name_of(name))
    return order


def unpacked(name, data):
    if name.endswith(".xz"):
        return lzma.decompress(data)
    if name.endswith(".gz"):
        return gzip.decompress(data)
    return data


def vmlinux_of(image):
    """The ELF file inside a bzImage, by the offsets of the x86 boot protocol; None if unknown."""
    setup_sectors = image[0x1F1] or 4
    offset, length = struct.unpack_from("<II", image, 0x248)
    start = (setup_sectors + 1) * 512 + offset
    payload = image[start:start + length]
    try:
        if payload[:6] == b"\xfd7zXZ\0":
            # (The length of the result follows the stream.)
            elf = lzma.LZMADecompressor().decompress(payload)
        elif payload[:2] == b"\x1f\x8b":
            elf = gzip.decompress(payload[:-4])
        else:
            return None
    except (lzma.LZMAError, OSError, EOFError):
        return None
    return elf if elf[:4] == b"\x7fELF" else None


class _Found:
    """What one kernel has of what we look for."""

    def __init__(self):
        self.version, self.image, self.modules, self.built_in = None, None, {}, set()

    def take(self, path, read):
        """Looks at one file; `read` gives its bytes."""
        module, image = _MODULE.search(path), _IMAGE.search(path)
        if image:
            self.version, self.image = image.group(1), read()
        elif _BUILT_IN.search(path):
            self.built_in = {name_of(pathlib.PurePath(line).name.partition(".")[0])
                             for line in read().decode().split()}
        elif module and (module.group(2) or "").startswith(_folders_of(module.group(3))):
            self.modules[name_of(module.group(3))] = unpacked(path, read())

    def write(self, to):
        if self.image is None:
            raise Trouble("there is no boot/vmlinuz in this kernel package")
        lists = {kind: in_order(wanted, self.modules, self.built_in)
                 for kind, wanted in WANTED.items()}
        lists["pair"] = [name for name in lists["pair"] if name not in lists["boot"]]
        (to / "modules").mkdir(parents=True)
        for kind, names in lists.items():
            (to / kind).write_text("".join(name + "\n" for name in names))
            for name in names:
                (to / "modules" / (name + ".ko")).write_bytes(self.modules[name])
        (to / "vmlinux").write_bytes(vmlinux_of(self.image) or self.image)


def _folders_of(module):
    """The places where a module of this name is of interest."""
    return tuple(folder if folder.endswith("/") else folder[:folder.rindex("/") + 1]
                 for folder in _FOLDERS
                 if folder.endswith("/") or folder.endswith("/" + module))


def _installed():
    """Versions of installed kernels that have Soft-RoCE, newest first."""
    versions = [path.parts[-6] for path in
                pathlib.Path("/lib/modules").glob("*/kernel/drivers/infiniband/sw/rxe/rdma_rxe.ko*")
                ] if os.path.isdir("/lib/modules") else []
    versions = [v for v in set(versions) if os.access(f"/boot/vmlinuz-{v}", os.R_OK)]
    return sorted(versions, key=lambda v: [int(n) for n in re.findall(r"\d+", v)], reverse=True)


def _read_installed(version):
    found, root = _Found(), pathlib.Path(f"/lib/modules/{version}")
    for path in [pathlib.Path(f"/boot/vmlinuz-{version}"), *root.rglob("*.ko*"),
                 root / "modules.builtin"]:
        found.take(str(path), path.read_bytes)
    return found


def _read_package(deb):
    found = _Found()
    with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", deb], stdout=subprocess.PIPE) as unpack:
        with tarfile.open(fileobj=unpack.stdout, mode="r|") as tar:
            for member in tar:
                if member.isfile():
                    found.take(member.name, lambda m=member: tar.extractfile(m).read())
    return found


def _download(folder, say):
    """Fetches the package of the distribution's current kernel; the path of the file."""
    listing = subprocess.run(["apt-cache", "depends", "linux-image-amd64"], text=True,
                             capture_output=True, check=False).stdout
    package = re.search(r"Depends: (linux-image-\d\S*)", listing)
    if not package:
        raise Trouble("no kernel with rdma_rxe is installed, and apt knows of none: run "
                      "`apt-get update`, or install linux-image-amd64")
    say(f"fetching {package.group(1)}, once: 70 MB; it is taken apart, not installed")
    done = subprocess.run(["apt-get", "download", package.group(1)], cwd=folder, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    packages = list(pathlib.Path(folder).glob("*.deb"))
    if done.returncode != 0 or not packages:
        raise Trouble(f"apt-get download {package.group(1)} failed:\n{done.stdout.strip()}")
    return str(packages[0])


def prepare(cache, package, say):
    """The folder of a kernel, made if it is not there.

    cache: a folder, locked by the caller. package: a .deb to use, or None. say: tells the user.
    """
    kept = pathlib.Path(cache) / "kernel"
    identity = f"{_layout()} {os.stat(package).st_mtime_ns} {package}" if package else _layout()
    try:
        if (kept / "identity").read_text() == identity:
            return kept
    except FileNotFoundError:
        pass
    installed = _installed()
    with tempfile.TemporaryDirectory(dir=cache) as work:
        if package:
            found = _read_package(package)
        elif installed:
            found = _read_installed(installed[0])
        else:
            found = _read_package(_download(work, say))
        fresh = pathlib.Path(work) / "kernel"
        found.write(fresh)
        (fresh / "version").write_text(found.version + "\n")
        (fresh / "identity").write_text(identity)
        shutil.rmtree(kept, ignore_errors=True)
        fresh.rename(kept)
    return kept


def _layout():
    """Changes when what is kept would."""
    return f"2 {sorted(WANTED.items())}"
