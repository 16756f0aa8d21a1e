#include "store/version_ceiling.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/crc32c.h"
#include "base/fault.h"
#include "base/key_hash.h"
#include "base/log.h"
#include "base/status.h"

namespace cistern::store {
namespace {

constexpr char kFileName[] = "identity";
constexpr char kTempName[] = "identity.new";
constexpr char kLockName[] = "lock";
constexpr uint64_t kIdentityMagic = 0x3144495354534943;  // "CISTSID1" as bytes
constexpr uint32_t kIdentityFormat = 1;

// docs/formats/store_identity.md
struct IdentityFile {
  uint64_t magic;
  uint32_t format_version;
  uint32_t reserved0;
  uint8_t store_id[16];
  uint8_t pool_id[16];
  uint64_t ceiling;
  uint32_t reserved1;
  uint32_t crc32c;  // of the bytes before it
};
static_assert(sizeof(IdentityFile) == 64);
static_assert(offsetof(IdentityFile, store_id) == 16);
static_assert(offsetof(IdentityFile, pool_id) == 32);
static_assert(offsetof(IdentityFile, ceiling) == 48);
static_assert(offsetof(IdentityFile, crc32c) == 60);

uint32_t IdentityCrc(const IdentityFile& file) {
  return Crc32c(&file, offsetof(IdentityFile, crc32c));
}

// A descriptor closed on every way out.
class ScopedFd {
 public:
  explicit ScopedFd(int fd) : fd_(fd) {}
  ~ScopedFd() {
    if (fd_ >= 0) close(fd_);
  }
  ScopedFd(const ScopedFd&) = delete;
  ScopedFd& operator=(const ScopedFd&) = delete;
  int get() const { return fd_; }

 private:
  const int fd_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<VersionCeiling>> VersionCeiling::Open(const Options& options) {
  std::unique_ptr<VersionCeiling> ceiling(new VersionCeiling());
  CISTERN_RETURN_IF_ERROR(ceiling->Load(options));
  return ceiling;
}

VersionCeiling::~VersionCeiling() {
  if (lock_fd_ >= 0) close(lock_fd_);
  if (dir_fd_ >= 0) close(dir_fd_);
}

absl::Status VersionCeiling::Load(const Options& options) {
  dir_ = options.data_dir;
  pool_id_ = options.pool_id;
  dir_fd_ = open(dir_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (dir_fd_ < 0) return ErrnoStatus(errno, absl::StrCat("open data folder ", dir_));
  lock_fd_ = openat(dir_fd_, kLockName, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (lock_fd_ < 0) return ErrnoStatus(errno, absl::StrCat("open ", dir_, "/", kLockName));
  if (flock(lock_fd_, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return ErrnoStatus(errno, absl::StrCat("lock ", dir_));
    return absl::FailedPreconditionError(
        absl::StrCat("data folder ", dir_,
                     " is in use by another store process; give each store its own data_dir"));
  }

  const std::string path = absl::StrCat(dir_, "/", kFileName);
  const ScopedFd fd(openat(dir_fd_, kFileName, O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (fd.get() < 0) {
    if (errno != ENOENT) return ErrnoStatus(errno, absl::StrCat("open ", path));
    store_id_ = RandomId<StoreId>();
    created_ = true;
    return WriteFile(0);
  }
  IdentityFile file;
  const ssize_t n = read(fd.get(), &file, sizeof(file));
  if (n < 0) return ErrnoStatus(errno, absl::StrCat("read ", path));
  if (n == static_cast<ssize_t>(sizeof(file)) && file.magic == kIdentityMagic &&
      file.format_version > kIdentityFormat) {
    return absl::FailedPreconditionError(absl::StrCat(path, " has format ", file.format_version,
                                                      ", this program knows formats up to ",
                                                      kIdentityFormat, "; run a newer program"));
  }
  if (n != static_cast<ssize_t>(sizeof(file)) || file.magic != kIdentityMagic ||
      file.crc32c != IdentityCrc(file) || file.ceiling > Version::kMax) {
    return absl::FailedPreconditionError(
        absl::StrCat(path,
                     " is damaged; remove the data folder and this store's segments to start "
                     "as a new, empty store"));
  }
  if (PoolId::FromBytes(file.pool_id) != pool_id_) {
    return absl::FailedPreconditionError(absl::StrCat(
        "data folder ", dir_, " belongs to pool ", PoolId::FromBytes(file.pool_id).ToHex(),
        ", this is pool ", pool_id_.ToHex(), "; choose another data_dir"));
  }
  store_id_ = StoreId::FromBytes(file.store_id);
  MutexLock lock(mutex_);
  ceiling_ = file.ceiling;
  next_ = ceiling_ + 1;
  return absl::OkStatus();
}

absl::Status VersionCeiling::WriteFile(uint64_t ceiling) const {
  if (CISTERN_FAULT("store.ceiling.write")) {
    return absl::ResourceExhaustedError("fault: store.ceiling.write");
  }
  IdentityFile file{};
  file.magic = kIdentityMagic;
  file.format_version = kIdentityFormat;
  std::memcpy(file.store_id, store_id_.bytes.data(), sizeof(file.store_id));
  std::memcpy(file.pool_id, pool_id_.bytes.data(), sizeof(file.pool_id));
  file.ceiling = ceiling;
  file.crc32c = IdentityCrc(file);

  const std::string path = absl::StrCat(dir_, "/", kTempName);
  const ScopedFd fd(
      openat(dir_fd_, kTempName, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (fd.get() < 0) return ErrnoStatus(errno, absl::StrCat("open ", path));
  const ssize_t n = write(fd.get(), &file, sizeof(file));
  if (n < 0) return ErrnoStatus(errno, absl::StrCat("write ", path));
  if (n != static_cast<ssize_t>(sizeof(file))) {
    return absl::ResourceExhaustedError(absl::StrCat("write ", path, ": the disk is full"));
  }
  if (fdatasync(fd.get()) != 0) return ErrnoStatus(errno, absl::StrCat("sync ", path));
  if (renameat(dir_fd_, kTempName, dir_fd_, kFileName) != 0) {
    return ErrnoStatus(errno, absl::StrCat("rename ", path));
  }
  if (fsync(dir_fd_) != 0) return ErrnoStatus(errno, absl::StrCat("sync ", dir_));
  return absl::OkStatus();
}

void VersionCeiling::Saw(Version version) {
  MutexLock lock(mutex_);
  next_ = std::max(next_, version.value + 1);
}

absl::Status VersionCeiling::Promise(uint64_t n) {
  mutex_.Lock();
  promised_ += n;
  absl::Status status;
  while (true) {
    const uint64_t last = next_ - 1 + promised_;  // the greatest version promised
    if (last + kStep / 2 <= ceiling_ || (last <= ceiling_ && ceiling_ == Version::kMax)) break;
    if (last > Version::kMax) {
      promised_ -= n;
      status = absl::ResourceExhaustedError("the store has used up its 2^40 versions");
      break;
    }
    if (raising_) {
      if (last <= ceiling_) break;
      raised_.Wait(mutex_);
      continue;
    }
    raising_ = true;
    const uint64_t ceiling = std::min(last + kStep, Version::kMax);
    mutex_.Unlock();
    const absl::Status written = WriteFile(ceiling);
    mutex_.Lock();
    raising_ = false;
    if (written.ok()) ceiling_ = ceiling;
    raised_.NotifyAll();
    if (written.ok()) continue;
    if (last <= ceiling_) {  // there is still a reserve; the next call tries again
      CISTERN_LOG_EVERY(Warning, absl::Seconds(10),
                        "version ceiling could not be raised: ", written.message());
      break;
    }
    promised_ -= n;
    status = absl::UnavailableError(
        absl::StrCat("no version can be given out: ", std::string(written.message())));
    break;
  }
  mutex_.Unlock();
  return status;
}

void VersionCeiling::Unpromise(uint64_t n) {
  MutexLock lock(mutex_);
  CISTERN_CHECK(promised_ >= n);
  promised_ -= n;
}

Version VersionCeiling::Next() {
  MutexLock lock(mutex_);
  CISTERN_CHECK(promised_ > 0 && next_ <= ceiling_);
  --promised_;
  return Version(next_++);
}

Version VersionCeiling::Peek() const {
  MutexLock lock(mutex_);
  return Version(next_);
}

uint64_t VersionCeiling::ceiling() const {
  MutexLock lock(mutex_);
  return ceiling_;
}

}  // namespace cistern::store
