#!/usr/bin/python3
"""Tests what tools/rdma-vm makes of a kernel, an archive and its arguments; no VM is started."""

import gzip
import importlib.machinery
import importlib.util
import io
import lzma
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest

import cpio
import kernel

_PROGRAM = pathlib.Path(__file__).resolve().parent.parent / "rdma-vm"


def module(depends):
    """A module as its file says what it needs."""
    return b"\x7fELF...\0license=GPL\0depends=" + depends.encode() + b"\0name=x\0"


def image(payload):
    """A bzImage with one setup sector, whose payload starts 16 bytes into the protected part."""
    header = bytearray(1024)
    header[0x1F1] = 1
    struct.pack_into("<II", header, 0x248, 16, len(payload))
    return bytes(header) + b"\xcc" * 16 + payload + b"after"


class KernelTest(unittest.TestCase):
    def test_modules_come_after_what_they_need(self):
        modules = {"rdma_rxe": module("ib_core,udp-tunnel"), "ib_core": module(""),
                   "udp_tunnel": module("ib_core")}
        self.assertEqual(kernel.in_order(["rdma_rxe", "ib_core"], modules, set()),
                         ["ib_core", "udp_tunnel", "rdma_rxe"])

    def test_what_is_built_in_is_not_loaded(self):
        modules = {"veth": module("ipv6,mii")}
        self.assertEqual(kernel.in_order(["veth"], modules, {"ipv6", "mii"}), ["veth"])

    def test_a_missing_module_is_named(self):
        with self.assertRaisesRegex(kernel.Trouble, "no module mii"):
            kernel.in_order(["veth"], {"veth": module("mii")}, set())

    def test_takes_the_elf_file_out_of_an_image(self):
        elf = b"\x7fELF" + bytes(range(256)) * 40
        size = struct.pack("<I", len(elf))
        self.assertEqual(kernel.vmlinux_of(image(lzma.compress(elf) + size)), elf)
        self.assertEqual(kernel.vmlinux_of(image(gzip.compress(elf) + size)), elf)

    def test_an_image_of_another_kind_is_left_as_it_is(self):
        self.assertIsNone(kernel.vmlinux_of(image(b"(\xb5/\xfdzstd")))
        self.assertIsNone(kernel.vmlinux_of(image(lzma.compress(b"no elf") + b"\0\0\0\0")))
        self.assertIsNone(kernel.vmlinux_of(image(b"\xfd7zXZ\0broken")))

    def test_sorts_a_packages_files(self):
        found = kernel._Found()
        base = "./usr/lib/modules/6.1.0-1-amd64/"
        found.take("./boot/vmlinuz-6.1.0-1-amd64", lambda: b"image")
        found.take(base + "modules.builtin", lambda: b"kernel/net/ipv6/ipv6.ko\n")
        found.take(base + "kernel/drivers/infiniband/core/ib_core.ko.xz",
                   lambda: lzma.compress(b"module"))
        found.take(base + "kernel/drivers/net/dummy.ko", lambda: b"dummy")
        found.take(base + "kernel/drivers/net/ethernet/big.ko", lambda: self.fail("read"))
        found.take(base + "kernel/drivers/net/tun.ko", lambda: self.fail("read"))
        self.assertEqual((found.version, found.image), ("6.1.0-1-amd64", b"image"))
        self.assertEqual(found.modules, {"ib_core": b"module", "dummy": b"dummy"})
        self.assertEqual(found.built_in, {"ipv6"})


class ArchiveTest(unittest.TestCase):
    def test_cpio_reads_it_back(self):
        archive = cpio.Archive()
        archive.folder("dev")
        archive.file("vm/modules/a.ko", b"12345", 0o644)
        archive.file("init", b"#!", 0o755)
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run(["busybox", "cpio", "-idm"], cwd=folder, input=archive.end(), check=True,
                           capture_output=True)
            root = pathlib.Path(folder)
            self.assertTrue((root / "dev").is_dir())
            self.assertEqual((root / "vm/modules/a.ko").read_bytes(), b"12345")
            self.assertEqual((root / "init").stat().st_mode & 0o777, 0o755)


class ArgumentsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        loader = importlib.machinery.SourceFileLoader("rdma_vm", str(_PROGRAM))
        cls.program = importlib.util.module_from_spec(
            importlib.util.spec_from_loader("rdma_vm", loader))
        loader.exec_module(cls.program)

    def refused(self, *arguments):
        stderr, sys.stderr = sys.stderr, io.StringIO()
        try:
            with self.assertRaises(SystemExit) as ended:
                self.program.parse(arguments)
            self.assertEqual(ended.exception.code, 2)
            return sys.stderr.getvalue()
        finally:
            sys.stderr = stderr

    def test_the_commands_own_options_are_its_own(self):
        options = self.program.parse(["--pair", "--", "ls", "--mem", "3", "--"])
        self.assertEqual(options.command, ["ls", "--mem", "3", "--"])
        self.assertTrue(options.pair)
        self.assertEqual(options.mem, 1024)

    def test_refuses_what_makes_no_sense(self):
        self.assertIn("no command", self.refused("--pair"))
        self.assertIn("--pair", self.refused("--netem", "loss 1%", "ls"))
        self.assertIn("NAME", self.refused("--env", "1=2", "ls"))
        self.assertIn("positive", self.refused("--mem", "0", "ls"))

    def test_words_reach_the_vm_as_they_are(self):
        options = self.program.parse(["--env", "A=it's $HOME", "--", "echo", "a b", "$(x)", "'"])
        script = self.program.command_script(options).replace("exec echo", "printf '%s\\n'")
        # What the VM's shell would do, but for the settings that need its rights.
        script = "\n".join(line for line in script.splitlines() if not line.startswith("ulimit"))
        done = subprocess.run(["sh", "-c", script.replace("printf", 'echo "$A"; printf')], text=True,
                              capture_output=True, check=True)
        self.assertEqual(done.stdout, "it's $HOME\na b\n$(x)\n'\n")


if __name__ == "__main__":
    unittest.main()
