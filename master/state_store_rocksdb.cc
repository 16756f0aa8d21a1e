#include "master/state_store_rocksdb.h"

#include <rocksdb/db.h>
#include <rocksdb/options.h>
#include <rocksdb/write_batch.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <bit>
#include <cstring>
#include <iterator>
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

// Twice what RocksDB asks for before it writes again after an error.
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
  return absl::ResourceExhaustedError(absl::StrCat("no space left for ", dir, ": ", free,
                                                   " bytes are free, ", kLeastFreeBytes,
                                                   " are needed to start"));
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
  Queue({NamespaceKey(info.id()), Value(info.SerializeAsString()), false});
  return absl::OkStatus();
}

absl::Status RocksStateStore::RemoveNamespace(const NamespaceId& id) {
  Queue({NamespaceKey(id.view()), "", true});
  return absl::OkStatus();
}

absl::Status RocksStateStore::SaveEpoch(Epoch epoch) {
  Queue({kEpochKey, Value(NumberBody(epoch.value)), false});
  return absl::OkStatus();
}

void RocksStateStore::Queue(Change change) {
  MutexLock lock(mutex_);
  queued_.push_back(std::move(change));
}

bool RocksStateStore::HasUnwritten() const {
  MutexLock lock(mutex_);
  return writing_ || !queued_.empty();
}

void RocksStateStore::WhenDurable(Done done) {
  {
    MutexLock lock(mutex_);
    if (writing_ || !queued_.empty()) {
      waiting_.push_back(std::move(done));
      wake_.NotifyAll();
      return;
    }
  }
  done(absl::OkStatus());
}

absl::Status RocksStateStore::Flush() {
  struct Waiter {
    Mutex mutex;
    CondVar ended;
    bool done ABSL_GUARDED_BY(mutex) = false;
    absl::Status status ABSL_GUARDED_BY(mutex);
  } waiter;
  WhenDurable([&waiter](absl::Status status) {
    MutexLock lock(waiter.mutex);
    waiter.status = std::move(status);
    waiter.done = true;
    waiter.ended.NotifyAll();
  });
  MutexLock lock(waiter.mutex);
  while (!waiter.done) waiter.ended.Wait(waiter.mutex);
  return waiter.status;
}

void RocksStateStore::RunWriter() {
  while (true) {
    std::vector<Change> changes;
    std::vector<Done> waiting;
    bool last = false;
    {
      MutexLock lock(mutex_);
      while (waiting_.empty() && !stopping_) wake_.Wait(mutex_);
      changes.swap(queued_);
      waiting.swap(waiting_);
      last = stopping_;
      writing_ = true;
    }
    const absl::Status status = Write(changes);
    {
      MutexLock lock(mutex_);
      writing_ = false;
      if (!status.ok()) {
        // In front of what was queued meanwhile: the order of changes to one key counts.
        queued_.insert(queued_.begin(), std::make_move_iterator(changes.begin()),
                       std::make_move_iterator(changes.end()));
      }
    }
    for (Done& done : waiting) done(status);
    if (last) return;
  }
}

absl::Status RocksStateStore::Write(const std::vector<Change>& changes) {
  if (changes.empty()) return absl::OkStatus();
  rocksdb::WriteBatch batch;
  for (const Change& change : changes) {
    if (change.deleted) {
      batch.Delete(change.key);
    } else {
      batch.Put(change.key, change.value);
    }
  }
  rocksdb::Status s = db_->Write(Synced(), &batch);
  // RocksDB stops writing after an I/O error; room may have been made since.
  if (!s.ok() && db_->Resume().ok()) s = db_->Write(Synced(), &batch);
  return FromRocks(s, dir_);
}

}  // namespace cistern::master
