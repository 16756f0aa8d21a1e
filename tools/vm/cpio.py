"""Writes cpio archives of the kind that the kernel unpacks as its first file system ("newc")."""

import stat


class Archive:
    """Files for a root file system, in order. `data` is the archive so far; end() closes it."""

    def __init__(self):
        self._parts = []
        self._inode = 0
        self._folders = set()

    def file(self, path, content, mode=0o644):
        self._parents(path)
        self._entry(path, stat.S_IFREG | mode, content)

    def folder(self, path):
        """Makes the folder, and those it lies in, unless they are there."""
        if path and path not in self._folders:
            self._parents(path)
            self._folders.add(path)
            self._entry(path, stat.S_IFDIR | 0o755, b"")

    def end(self):
        """The whole archive."""
        self._entry("TRAILER!!!", 0, b"")
        return b"".join(self._parts)

    def _parents(self, path):
        self.folder(path.rpartition("/")[0])

    def _entry(self, path, mode, content):
        self._inode += 1
        name = path.encode() + b"\0"
        # ino, mode, uid, gid, nlink, mtime, filesize, four device numbers, namesize, check.
        fields = (self._inode, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name), 0)
        header = b"070701" + b"".join(b"%08x" % field for field in fields)
        self._parts.append(_padded(header + name))
        self._parts.append(_padded(content))


def _padded(data):
    return data + b"\0" * (-len(data) % 4)
