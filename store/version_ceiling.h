// What a store must remember in its data folder: who it is, and how far its versions may have got.
#ifndef CISTERN_STORE_VERSION_CEILING_H_
#define CISTERN_STORE_VERSION_CEILING_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "base/mutex.h"

namespace cistern::store {

// Gives out versions that never run backwards, not even over a reboot that lost the DRAM: the file
// `identity` in the folder holds a ceiling that is raised by kStep ahead of use and made durable
// before any version above the old one is given out. A restart begins at
// max(ceiling, greatest version seen) + 1.
//
// Owns the folder: a second process that opens it is refused. Thread-safe. Promise does file I/O
// (about once in kStep / 2 versions); Next never does and may be called under another lock.
class VersionCeiling {
 public:
  static constexpr uint64_t kStep = uint64_t{1} << 20;

  struct Options {
    std::string data_dir;  // must exist
    PoolId pool_id;
  };
  // FailedPrecondition: the folder is in use by another process, belongs to another pool, or its
  // file is damaged or of a newer format; the message says what to do.
  static absl::StatusOr<std::unique_ptr<VersionCeiling>> Open(const Options& options);
  ~VersionCeiling();
  VersionCeiling(const VersionCeiling&) = delete;
  VersionCeiling& operator=(const VersionCeiling&) = delete;

  const StoreId& store_id() const { return store_id_; }
  // True when this Open made the identity.
  bool created() const { return created_; }

  // Tells of a version found in a segment; before the first Promise.
  void Saw(Version version);
  // Makes sure that `n` more calls of Next stay under the durable ceiling. An error (full disk)
  // means that they must not be made: answer Unavailable.
  absl::Status Promise(uint64_t n);
  // Gives back what was promised and not used.
  void Unpromise(uint64_t n);
  // Precondition: covered by a Promise.
  Version Next();
  // The version that Next would give.
  Version Peek() const;
  uint64_t ceiling() const;

 private:
  VersionCeiling() = default;
  absl::Status Load(const Options& options);
  absl::Status WriteFile(uint64_t ceiling) const;

  std::string dir_;
  int dir_fd_ = -1;
  int lock_fd_ = -1;
  PoolId pool_id_;
  StoreId store_id_;
  bool created_ = false;

  mutable Mutex mutex_;
  CondVar raised_;
  bool raising_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t next_ ABSL_GUARDED_BY(mutex_) = 1;
  uint64_t promised_ ABSL_GUARDED_BY(mutex_) = 0;  // calls of Next still to come
  uint64_t ceiling_ ABSL_GUARDED_BY(mutex_) = 0;   // versions up to it are covered
};

}  // namespace cistern::store

#endif  // CISTERN_STORE_VERSION_CEILING_H_
