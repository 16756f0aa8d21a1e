#include "master/state_store_rocksdb.h"

#include <rocksdb/db.h>
#include <rocksdb/options.h>
#include <rocksdb/write_batch.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <bit>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/string_view.h"

namespace cistern::master {
namespace {

constexpr char kPoolKey[] = "pool";
constexpr char kEpochKey[] = "epoch";
constexpr char kNamespacePrefix[] = "n/";
constexpr char kValueFormat = 1;
constexpr size_t kPoolBodyBytes = PoolId::kBytes + 8;

static_assert(std::endian::native == std::endian::little, "numbers are stored as they lie");

std::string DatabaseDir(const std::string& dir) { return dir + "/state"; }

std::string Value(std::string_view body) {
  std::string value(1, kValueFormat);
  value.append(body);
  return value;
}

std::string NumberBody(uint64_t v) {
  std::string out(sizeof(v), '\0');
  std::memcpy(out.data(), &v, sizeof(v));
  return out;
}

uint64_t NumberOf(std::string_view body) {
  uint64_t v;
  std::memcpy(&v, body.data(), sizeof(v));
  return v;
}

std::string NamespaceKey(std::string_view id) {
  return absl::StrCat(kNamespacePrefix, AbslView(id));
}

std::string_view View(const rocksdb::Slice& slice) { return {slice.data(), slice.size()}; }

// The body behind the format byte.
absl::StatusOr<std::string_view> Body(std::string_view value, std::string_view key) {
  if (value.empty())
    return absl::DataLossError(absl::StrCat("record '", AbslView(key), "' is empty"));
  if (value[0] != kValueFormat) {
    return absl::FailedPreconditionError(
        absl::StrCat("record '", AbslView(key), "' has format ",
                     static_cast<int>(static_cast<uint8_t>(value[0])), ", this version knows ",
                     static_cast<int>(kValueFormat), ": use a newer cistern-master"));
  }
  return value.substr(1);
}

absl::Status FromRocks(const rocksdb::Status& s, const std::string& dir) {
  if (s.ok()) return absl::OkStatus();
  const std::string text = s.ToString();
  if (s.IsNoSpace() || text.find("No space left") != std::string::npos) {
    return absl::ResourceExhaustedError(absl::StrCat("no space left for ", dir, ": ", text));
  }
  if (text.find("LOCK") != std::string::npos) {
    return absl::FailedPreconditionError(
        absl::StrCat("the folder ", dir, " is in use by another cistern-master (", text, ")"));
  }
  if (s.IsCorruption()) return absl::DataLossError(absl::StrCat(dir, " is damaged: ", text));
  if (s.IsNotFound()) return absl::NotFoundError(absl::StrCat(dir, ": ", text));
  return absl::InternalError(absl::StrCat(dir, ": ", text));
}

// What nobody waits for is written after so long, and what could not be is tried again.
constexpr absl::Duration kWriteUnasked = absl::Seconds(1);

// More than a log file and a flushed buffer take.
constexpr uint64_t kLeastFreeBytes = 2 << 20;

rocksdb::Options DatabaseOptions(bool create) {
  rocksdb::Options options;
  options.create_if_missing = create;
  // A few MB of rarely changed records: small buffers, few files, no periodic work.
  options.write_buffer_size = 1 << 20;
  options.max_open_files = 64;
  options.max_background_jobs = 2;
  options.keep_log_file_num = 2;
  options.max_log_file_size = 1 << 20;
  options.info_log_level = rocksdb::WARN_LEVEL;
  options.stats_dump_period_sec = 0;
  options.stats_persist_period_sec = 0;
  return options;
}

// RocksDB ends the process where it cannot write its first files.
absl::Status CheckRoom(const std::string& dir) {
  struct statvfs fs;
  if (statvfs(dir.c_str(), &fs) != 0) return absl::OkStatus();  // it will say what is wrong
  const uint64_t free = uint64_t{fs.f_bavail} * fs.f_frsize;
  if (free >= kLeastFreeBytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      "no space left for ", dir, ": ", free, " bytes are free, ", kLeastFreeBytes, " are needed"));
}

absl::StatusOr<std::unique_ptr<rocksdb::DB>> OpenDatabase(const std::string& dir, bool create) {
  CISTERN_RETURN_IF_ERROR(CheckRoom(dir));
  rocksdb::DB* db = nullptr;
  const rocksdb::Status s = rocksdb::DB::Open(DatabaseOptions(create), DatabaseDir(dir), &db);
  if (!s.ok()) return FromRocks(s, dir);
  return std::unique_ptr<rocksdb::DB>(db);
}

rocksdb::WriteOptions Synced() {
  rocksdb::WriteOptions options;
  options.sync = true;
  return options;
}

absl::StatusOr<PoolIdentity> ReadPool(rocksdb::DB& db, const std::string& dir) {
  std::string value;
  const rocksdb::Status s = db.Get(rocksdb::ReadOptions(), kPoolKey, &value);
  if (s.IsNotFound()) return absl::NotFoundError(absl::StrCat("no pool in ", dir));
  if (!s.ok()) return FromRocks(s, dir);
  CISTERN_ASSIGN_OR_RETURN(const std::string_view body, Body(value, kPoolKey));
  if (body.size() != kPoolBodyBytes) {
    return absl::DataLossError(absl::StrCat("the record 'pool' in ", dir, " is damaged"));
  }
  PoolIdentity pool;
  pool.pool_id = PoolId::FromBytes(body.data());
  pool.birth_unix_ms = NumberOf(body.substr(PoolId::kBytes));
  return pool;
}

}  // namespace

bool RocksStateStore::Exists(const std::string& dir) {
  return access((DatabaseDir(dir) + "/CURRENT").c_str(), F_OK) == 0;
}

absl::Status RocksStateStore::Create(const std::string& dir, const PoolIdentity& pool) {
  CISTERN_ASSIGN_OR_RETURN(const std::unique_ptr<rocksdb::DB> db, OpenDatabase(dir, true));
  const absl::StatusOr<PoolIdentity> there = ReadPool(*db, dir);
  if (there.ok()) {
    return absl::AlreadyExistsError(
        absl::StrCat(dir, " holds the pool ", there->pool_id.ToHex(), " already"));
  }
  if (!absl::IsNotFound(there.status())) return there.status();
  rocksdb::WriteBatch batch;
  batch.Put(kPoolKey,
            Value(absl::StrCat(AbslView(pool.pool_id.view()), NumberBody(pool.birth_unix_ms))));
  batch.Put(kEpochKey, Value(NumberBody(0)));
  return FromRocks(db->Write(Synced(), &batch), dir);
}

absl::StatusOr<std::unique_ptr<RocksStateStore>> RocksStateStore::Open(const std::string& dir) {
  if (!Exists(dir)) return absl::NotFoundError(absl::StrCat("no pool in ", dir));
  CISTERN_ASSIGN_OR_RETURN(std::unique_ptr<rocksdb::DB> db, OpenDatabase(dir, false));
  CISTERN_ASSIGN_OR_RETURN(const PoolIdentity pool, ReadPool(*db, dir));
  return std::unique_ptr<RocksStateStore>(new RocksStateStore(dir, std::move(db), pool));
}

RocksStateStore::RocksStateStore(std::string dir, std::unique_ptr<rocksdb::DB> db,
                                 PoolIdentity pool)
    : dir_(std::move(dir)), db_(std::move(db)), pool_(pool), writer_([this] { RunWriter(); }) {}

RocksStateStore::~RocksStateStore() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  wake_.NotifyAll();
  writer_.join();
}

absl::StatusOr<DurableState> RocksStateStore::Load() {
  DurableState state;
  std::string value;
  CISTERN_RETURN_IF_ERROR(FromRocks(db_->Get(rocksdb::ReadOptions(), kEpochKey, &value), dir_));
  CISTERN_ASSIGN_OR_RETURN(const std::string_view epoch, Body(value, kEpochKey));
  if (epoch.size() != sizeof(uint64_t)) {
    return absl::DataLossError(absl::StrCat("the record 'epoch' in ", dir_, " is damaged"));
  }
  state.epoch = Epoch(NumberOf(epoch));

  const std::unique_ptr<rocksdb::Iterator> it(db_->NewIterator(rocksdb::ReadOptions()));
  for (it->Seek(kNamespacePrefix); it->Valid() && it->key().starts_with(kNamespacePrefix);
       it->Next()) {
    const std::string_view id = View(it->key()).substr(sizeof(kNamespacePrefix) - 1);
    CISTERN_ASSIGN_OR_RETURN(const std::string_view body, Body(View(it->value()), "n/..."));
    wire::NamespaceInfo info;
    if (!info.ParseFromArray(body.data(), static_cast<int>(body.size())) || info.id() != id) {
      return absl::DataLossError(absl::StrCat("a namespace record in ", dir_, " is damaged"));
    }
    state.namespaces.push_back(std::move(info));
  }
  CISTERN_RETURN_IF_ERROR(FromRocks(it->status(), dir_));
  return state;
}

absl::Status RocksStateStore::SaveNamespace(const wire::NamespaceInfo& info) {
  Queue(NamespaceKey(info.id()), Value(info.SerializeAsString()));
  return absl::OkStatus();
}

absl::Status RocksStateStore::RemoveNamespace(const NamespaceId& id) {
  Queue(NamespaceKey(id.view()), std::nullopt);
  return absl::OkStatus();
}

absl::Status RocksStateStore::SaveEpoch(Epoch epoch) {
  Queue(kEpochKey, Value(NumberBody(epoch.value)));
  return absl::OkStatus();
}

void RocksStateStore::Queue(const std::string& key, std::optional<std::string> value) {
  MutexLock lock(mutex_);
  const bool first = queued_.empty();
  queued_[key] = std::move(value);
  if (first) wake_.NotifyAll();  // to look at the time
}

bool RocksStateStore::UnwrittenLocked(const std::string& key) const {
  if (key.empty()) return !queued_.empty() || !writing_.empty();
  return queued_.contains(key) || writing_.contains(key);
}

bool RocksStateStore::NamespaceUnwritten(const NamespaceId& id) const {
  MutexLock lock(mutex_);
  return UnwrittenLocked(NamespaceKey(id.view()));
}

absl::Status RocksStateStore::last_write() const {
  MutexLock lock(mutex_);
  return last_write_;
}

void RocksStateStore::WhenNamespaceDurable(const NamespaceId& id, Done done) {
  WhenDurable(NamespaceKey(id.view()), std::move(done));
}

void RocksStateStore::WhenEpochDurable(Done done) { WhenDurable(kEpochKey, std::move(done)); }

void RocksStateStore::WhenDurable(std::string key, Done done) {
  {
    MutexLock lock(mutex_);
    if (UnwrittenLocked(key)) {
      waiting_.push_back({std::move(key), std::move(done)});
      wake_.NotifyAll();
      return;
    }
  }
  done(absl::OkStatus());
}

absl::Status RocksStateStore::Flush() {
  struct Outcome {
    Mutex mutex;
    CondVar ended;
    bool done ABSL_GUARDED_BY(mutex) = false;
    absl::Status status ABSL_GUARDED_BY(mutex);
  } outcome;
  WhenDurable("", [&outcome](absl::Status status) {
    MutexLock lock(outcome.mutex);
    outcome.status = std::move(status);
    outcome.done = true;
    outcome.ended.NotifyAll();
  });
  MutexLock lock(outcome.mutex);
  while (!outcome.done) outcome.ended.Wait(outcome.mutex);
  return outcome.status;
}

bool RocksStateStore::WaitForWorkLocked() {
  while (waiting_.empty() && !stopping_) {
    if (queued_.empty()) {
      wake_.Wait(mutex_);
    } else if (!wake_.WaitFor(mutex_, kWriteUnasked)) {
      break;
    }
  }
  return stopping_;
}

void RocksStateStore::RunWriter() {
  bool last = false;
  while (!last) {
    Changes changes;
    std::vector<Waiter> waiting;
    {
      MutexLock lock(mutex_);
      last = WaitForWorkLocked();
      changes = writing_ = std::exchange(queued_, Changes());
      waiting.swap(waiting_);
    }
    const absl::Status status = Write(changes);
    {
      MutexLock lock(mutex_);
      // What was queued meanwhile is newer.
      if (!status.ok()) queued_.insert(writing_.begin(), writing_.end());
      writing_.clear();
      if (!changes.empty()) last_write_ = status;
    }
    for (Waiter& waiter : waiting) {
      const bool concerned = waiter.key.empty() || changes.contains(waiter.key);
      waiter.done(concerned ? status : absl::OkStatus());
    }
  }
}

absl::Status RocksStateStore::Write(const Changes& changes) {
  if (changes.empty()) return absl::OkStatus();
  // RocksDB never meets a full disk, if that can be helped.
  CISTERN_RETURN_IF_ERROR(CheckRoom(dir_));
  if (db_ == nullptr) {
    CISTERN_ASSIGN_OR_RETURN(db_, OpenDatabase(dir_, false));
  }
  absl::Status status = WriteTo(*db_, changes, dir_);
  // After an error in its log RocksDB ends the process (by an assertion) where it is asked to go
  // on: it is opened anew, which reads the log to where it is whole.
  if (!status.ok()) db_ = nullptr;
  return status;
}

absl::Status RocksStateStore::WriteTo(rocksdb::DB& db, const Changes& changes,
                                      const std::string& dir) {
  rocksdb::WriteBatch batch;
  for (const auto& [key, value] : changes) {
    if (value.has_value()) {
      batch.Put(key, *value);
    } else {
      batch.Delete(key);
    }
  }
  return FromRocks(db.Write(Synced(), &batch), dir);
}

}  // namespace cistern::master
