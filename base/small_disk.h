// A file system of its own that a test can fill, and make room on. For tests only.
#ifndef CISTERN_BASE_SMALL_DISK_H_
#define CISTERN_BASE_SMALL_DISK_H_

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cstdint>
#include <string>
#include <utility>

namespace cistern {

// A tmpfs of `mib` MiB mounted at `path`, which it makes. Only root may mount: ask mounted(), and
// skip. Only this thread, and those that it starts from then on, see the mount, so that nothing is
// left of it when the test dies. Owns it; what is open in it goes on after the unmount. Not
// thread-safe.
class SmallDisk {
 public:
  SmallDisk(std::string path, int mib) : path_(std::move(path)) {
    mounted_ = unshare(CLONE_NEWNS) == 0 &&
               mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
               mkdir(path_.c_str(), 0700) == 0 &&
               mount("tmpfs", path_.c_str(), "tmpfs", 0,
                     ("size=" + std::to_string(mib) + "m").c_str()) == 0;
  }
  ~SmallDisk() {
    if (mounted_) umount2(path_.c_str(), MNT_DETACH);
  }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;

  bool mounted() const { return mounted_; }
  const std::string& path() const { return path_; }
  // Takes every byte that is free, but so many MiB. False: it did not come to that.
  bool Fill(uint64_t but_mib = 0) {
    const int fd = open(Filler().c_str(), O_CREAT | O_WRONLY | O_APPEND | O_CLOEXEC, 0600);
    if (fd < 0) return false;
    const std::string block(4096, 'f');
    while (Free() > but_mib << 20 && write(fd, block.data(), block.size()) > 0) {
    }
    close(fd);
    return Free() <= but_mib << 20;
  }
  bool MakeRoom() { return unlink(Filler().c_str()) == 0; }

 private:
  uint64_t Free() const {
    struct statvfs fs;
    return statvfs(path_.c_str(), &fs) == 0 ? uint64_t{fs.f_bavail} * fs.f_frsize : 0;
  }
  std::string Filler() const { return path_ + "/filler"; }

  const std::string path_;
  bool mounted_ = false;
};

}  // namespace cistern

#endif  // CISTERN_BASE_SMALL_DISK_H_
