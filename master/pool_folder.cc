#include "master/pool_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/daemon.h"
#include "base/key_hash.h"
#include "base/log.h"
#include "base/secret_file.h"
#include "base/status.h"

namespace cistern::master {
namespace {

constexpr size_t kTokenBytes = 32;

PoolIdentity NewPool(const Clock& clock) {
  PoolIdentity pool;
  pool.pool_id = RandomId<PoolId>();
  pool.birth_unix_ms = static_cast<uint64_t>(absl::ToUnixMillis(clock.Wall()));
  return pool;
}

// True also when the folder does not exist.
absl::StatusOr<bool> IsEmptyFolder(const std::string& dir) {
  std::error_code error;
  if (!std::filesystem::exists(dir, error)) return true;
  const bool empty = std::filesystem::is_empty(dir, error);
  if (error) return ErrnoStatus(error.value(), absl::StrCat("cannot look into ", dir));
  return empty;
}

// Creates it with mode 0600; false when it is there.
absl::StatusOr<bool> WriteNewToken(const std::string& path) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0 && errno == EEXIST) return false;
  if (fd < 0) return ErrnoStatus(errno, absl::StrCat("cannot create the token file ", path));
  std::string token(kTokenBytes, '\0');
  RandomBytes(token.data(), token.size());
  const std::string text = absl::StrCat(absl::BytesToHexString(token), "\n");
  const ssize_t written = write(fd, text.data(), text.size());
  const int error = written < 0 ? errno : ENOSPC;
  const bool good = written == static_cast<ssize_t>(text.size()) && fsync(fd) == 0;
  close(fd);
  if (good) return true;
  unlink(path.c_str());
  return ErrnoStatus(error, absl::StrCat("cannot write the token file ", path));
}

}  // namespace

absl::StatusOr<PoolMade> InitPool(const config::MasterConfig& config, const Clock& clock) {
  CISTERN_RETURN_IF_ERROR(MakeDirs(config.data_dir()));
  PoolMade made;
  const PoolIdentity pool = NewPool(clock);
  const absl::Status created = RocksStateStore::Create(config.data_dir(), pool);
  if (created.ok()) {
    made.pool_id = pool.pool_id;
    made.pool_created = true;
  } else if (absl::IsAlreadyExists(created)) {
    CISTERN_ASSIGN_OR_RETURN(const auto store, RocksStateStore::Open(config.data_dir()));
    made.pool_id = store->pool().pool_id;
  } else {
    return created;
  }
  if (!config.pool_token_file().empty()) {
    CISTERN_ASSIGN_OR_RETURN(made.token_created, WriteNewToken(config.pool_token_file()));
  }
  return made;
}

absl::StatusOr<std::unique_ptr<RocksStateStore>> OpenPool(const config::MasterConfig& config,
                                                          const Clock& clock) {
  const std::string& dir = config.data_dir();
  if (!RocksStateStore::Exists(dir)) {
    CISTERN_ASSIGN_OR_RETURN(const bool empty, IsEmptyFolder(dir));
    if (!empty) {
      return absl::FailedPreconditionError(
          absl::StrCat("data_dir ", dir,
                       " holds files but no pool: check data_dir, or make a pool there: the same "
                       "command with --init, once, before it"));
    }
    CISTERN_RETURN_IF_ERROR(MakeDirs(dir));
    const PoolIdentity pool = NewPool(clock);
    CISTERN_RETURN_IF_ERROR(RocksStateStore::Create(dir, pool));
    CISTERN_LOG(Info, "first start: made the pool ", pool.pool_id.ToHex(), " in ", dir);
  }
  return RocksStateStore::Open(dir);
}

absl::StatusOr<std::string> ReadToken(const config::MasterConfig& config) {
  if (config.pool_token_file().empty()) return std::string();
  absl::StatusOr<std::string> token = ReadSecretFile(config.pool_token_file(), kTokenBytes);
  if (absl::IsNotFound(token.status())) {
    return absl::NotFoundError(absl::StrCat("pool_token_file: ", token.status().message(),
                                            ": copy the pool's token there, or make one: the same "
                                            "command with --init, once, before it"));
  }
  return token.ok() ? token : Annotate(token.status(), "pool_token_file");
}

}  // namespace cistern::master
