#include "store/segment_manager.h"

#include <sys/stat.h>

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/config.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/status.h"

namespace cistern::store {
namespace {

using State = SegmentManifest::State;

// Between two looks at chunks that are being read or written.
constexpr absl::Duration kDrainTick = absl::Milliseconds(10);
constexpr absl::Duration kLongestWait = absl::Hours(1);

SegmentSpec SpecFrom(const wire::SegmentInfo& info) {
  SegmentSpec spec;
  spec.name = info.name();
  spec.kind = info.persistent() ? SegmentKind::kFile : SegmentKind::kMemfd;
  spec.bytes = info.bytes();
  spec.huge_pages = ParseHugePages(info.huge_pages()).value_or(HugePages::kNever);
  return spec;
}

bool Exists(const std::string& path) {
  struct stat st;
  return lstat(path.c_str(), &st) == 0;
}

}  // namespace

SegmentManager::SegmentManager(Options options, SegmentManifest manifest, ChunkStore& chunks,
                               Clock& clock)
    : options_(std::move(options)), chunks_(chunks), clock_(clock), manifest_(std::move(manifest)) {
  for (const SegmentSpec& spec : options_.configured) configured_names_.insert(spec.name);
}

SegmentManager::~SegmentManager() { Stop(); }

void SegmentManager::Start() {
  thread_ = std::thread([this] { Run(); });
}

void SegmentManager::Stop() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    changed_.NotifyAll();
  }
  if (thread_.joinable()) thread_.join();
}

bool SegmentManager::stopping() const {
  MutexLock lock(mutex_);
  return stopping_;
}

void SegmentManager::Execute(const wire::SegmentCommand& command) {
  {
    MutexLock lock(mutex_);
    if (commands_.size() < kMaxQueued && !stopping_) {
      commands_.push_back(command);
      changed_.NotifyAll();
      return;
    }
  }
  Answer(command.command(), absl::ResourceExhaustedError("too many commands wait; try again"),
         nullptr, nullptr);
}

std::optional<wire::SegmentDone> SegmentManager::TakeDone() {
  MutexLock lock(mutex_);
  if (answers_.empty()) return std::nullopt;
  wire::SegmentDone done = std::move(answers_.front());
  answers_.pop_front();
  return done;
}

void SegmentManager::Answer(uint64_t command, const absl::Status& status,
                            const wire::SegmentInfo* info, const Drain* drain) {
  wire::SegmentDone done;
  done.set_command(command);
  done.set_code(static_cast<uint32_t>(status.code()));
  done.set_message(std::string(status.message()));
  if (info != nullptr) *done.mutable_segment() = *info;
  if (drain != nullptr) {
    done.set_evicted_chunks(drain->chunks);
    done.set_evicted_bytes(drain->bytes);
  }
  {
    MutexLock lock(mutex_);
    if (answers_.size() >= kMaxQueued) answers_.pop_front();  // nobody fetches them: no session
    answers_.push_back(std::move(done));
  }
  options_.poke();
}

void SegmentManager::Run() {
  while (true) {
    std::optional<wire::SegmentCommand> command;
    {
      MutexLock lock(mutex_);
      while (!stopping_ && commands_.empty() && drains_.empty()) changed_.Wait(mutex_);
      if (!stopping_ && commands_.empty()) changed_.WaitFor(mutex_, kDrainTick);
      if (stopping_) return;
      if (!commands_.empty()) {
        command = std::move(commands_.front());
        commands_.pop_front();
      }
    }
    if (command.has_value() && command->has_mount()) {
      Mount(command->command(), command->mount());
    } else if (command.has_value() && command->has_unmount()) {
      Unmount(*command);
    } else if (command.has_value()) {
      Answer(command->command(), absl::UnimplementedError("this store does not know the command"),
             nullptr, nullptr);
    }
    drains_.erase(std::remove_if(drains_.begin(), drains_.end(),
                                 [this](const auto& drain) { return Step(drain.get()); }),
                  drains_.end());
  }
}

absl::StatusOr<wire::SegmentInfo> SegmentManager::FindInfo(const std::string& name_or_id) const {
  std::vector<wire::SegmentInfo> infos;
  chunks_.SegmentInfos(&infos);
  const absl::StatusOr<SegmentId> id = SegmentId::ParseHex(absl::AsciiStrToLower(name_or_id));
  std::vector<std::string> names;
  for (wire::SegmentInfo& info : infos) {
    names.push_back(info.name());
    if (info.name() == name_or_id || (id.ok() && info.segment_id() == id->view())) {
      return std::move(info);
    }
  }
  return absl::NotFoundError(absl::StrCat("the store has no segment '", name_or_id,
                                          "'; it has: ", absl::StrJoin(names, ", ")));
}

absl::Status SegmentManager::SetInManifest(State state, const SegmentSpec& spec) {
  const SegmentManifest before = manifest_;
  manifest_.Set(state, spec);
  absl::Status saved = manifest_.Save(options_.place.data_dir);
  if (!saved.ok()) manifest_ = before;
  return saved;
}

absl::Status SegmentManager::ForgetInManifest(const SegmentSpec& spec) {
  const SegmentManifest before = manifest_;
  manifest_.Erase(spec.name);
  absl::Status saved = manifest_.Save(options_.place.data_dir);
  if (!saved.ok()) manifest_ = before;
  return saved;
}

// --- Mount ---

absl::StatusOr<SegmentSpec> SegmentManager::SpecOf(const wire::SegmentCommand::Mount& mount) const {
  SegmentSpec spec;
  spec.name = mount.name();
  spec.bytes = mount.bytes();
  if (!mount.kind().empty() && mount.kind() != "file" && mount.kind() != "memfd") {
    return absl::InvalidArgumentError(
        absl::StrCat("a segment's kind is file or memfd, not '", mount.kind(), "'"));
  }
  spec.kind = mount.kind() == "memfd" ? SegmentKind::kMemfd : SegmentKind::kFile;
  spec.huge_pages = options_.huge_pages;
  if (!mount.huge_pages().empty()) {
    CISTERN_ASSIGN_OR_RETURN(spec.huge_pages, ParseHugePages(mount.huge_pages()));
  }
  // One of the configuration that was unmounted comes back by its name alone.
  for (const SegmentSpec& configured : options_.configured) {
    if (spec.bytes == 0 && configured.name == spec.name) return configured;
  }
  CISTERN_RETURN_IF_ERROR(
      SegmentLayout::Make(spec.bytes, options_.place.expected_chunk_bytes).status());
  if (spec.name.empty()) {
    const auto taken = [&](const std::string& name) {
      return configured_names_.contains(name) || manifest_.Find(name) != nullptr ||
             FindInfo(name).ok() || Exists(absl::StrCat(options_.place.segment_dir, "/", name));
    };
    int n = 0;
    do {
      spec.name = absl::StrCat("dram-", n++);
    } while (taken(spec.name));
  }
  CISTERN_RETURN_IF_ERROR(CheckSegmentName(spec.name));
  return spec;
}

void SegmentManager::Mount(uint64_t command, const wire::SegmentCommand::Mount& mount) {
  const absl::StatusOr<SegmentSpec> spec = SpecOf(mount);
  if (!spec.ok()) return Answer(command, spec.status(), nullptr, nullptr);
  if (const auto there = FindInfo(spec->name); there.ok()) {
    const bool the_same = there->bytes() == spec->bytes && !there->unmounting() &&
                          there->persistent() == (spec->kind == SegmentKind::kFile);
    absl::Status status;  // asked twice: it is there
    if (there->unmounting()) {
      status = absl::FailedPreconditionError(
          absl::StrCat("segment '", spec->name, "' is being unmounted; wait, or cancel that"));
    } else if (!the_same) {
      status = absl::AlreadyExistsError(absl::StrCat("segment '", spec->name,
                                                     "' is mounted already, with ", there->bytes(),
                                                     " bytes; choose another name"));
    }
    return Answer(command, status, &*there, nullptr);
  }
  const MonoTime began = clock_.Mono();
  if (absl::Status status = MountNew(*spec); !status.ok()) {
    CISTERN_LOG(Warning, "segment '", spec->name, "' could not be mounted: ", status.ToString());
    return Answer(command, status, nullptr, nullptr);
  }
  CISTERN_LOG(Info, "segment '", spec->name, "' mounted, ", FormatSize(spec->bytes), ", in ",
              absl::FormatDuration(clock_.Mono() - began));
  const absl::StatusOr<wire::SegmentInfo> info = FindInfo(spec->name);
  Answer(command, info.status(), info.ok() ? &*info : nullptr, nullptr);
}

absl::Status SegmentManager::MountNew(const SegmentSpec& spec) {
  SegmentOptions options = OptionsFor(options_.place, spec);
  if (spec.kind == SegmentKind::kFile && Exists(options.path)) {
    return absl::AlreadyExistsError(
        absl::StrCat(options.path, " exists; remove the file or choose another name"));
  }
  const SegmentManifest before = manifest_;
  CISTERN_RETURN_IF_ERROR(SetInManifest(State::kMounting, spec));
  (void)CISTERN_FAULT("store.mount.recorded");
  options.stop = [this] { return stopping(); };
  absl::StatusOr<std::unique_ptr<Segment>> segment = Segment::Open(options, clock_.Wall());
  absl::Status status = segment.status();
  if (status.ok()) {
    (void)CISTERN_FAULT("store.mount.formatted");
    status = SetInManifest(State::kMounted, spec);
    (void)CISTERN_FAULT("store.mount.mounted");
    if (status.ok()) status = chunks_.AddSegment(*std::move(segment));
  }
  if (status.ok()) return status;
  if (segment.ok()) segment->reset();  // and its lock on the file
  // As it was before. A file that cannot be removed here, a restart removes.
  if (absl::Status removed = DiscardSegmentFile(options_.place, spec); !removed.ok()) {
    CISTERN_LOG(Warning, "after a failed mount: ", removed.ToString());
    return status;
  }
  manifest_ = before;
  if (absl::Status saved = manifest_.Save(options_.place.data_dir); !saved.ok()) {
    CISTERN_LOG(Warning, "after a failed mount: ", saved.ToString());
  }
  return status;
}

// --- Unmount ---

void SegmentManager::Unmount(const wire::SegmentCommand& command) {
  const absl::StatusOr<wire::SegmentInfo> info = FindInfo(command.unmount().segment());
  if (!info.ok()) return Answer(command.command(), info.status(), nullptr, nullptr);
  if (command.unmount().cancel()) return Cancel(command.command(), *info);
  const absl::Duration patience = std::min(absl::Milliseconds(command.deadline_ms()), kLongestWait);
  const Drain::Waiter waiter{command.command(), clock_.Mono() + patience};
  const SegmentId id = SegmentId::FromBytes(info->segment_id().data());
  for (const auto& drain : drains_) {
    if (drain->id == id) return drain->waiters.push_back(waiter);
  }
  absl::Status status = chunks_.BeginUnmount(id);
  const SegmentSpec spec = SpecFrom(*info);
  if (status.ok()) {
    status = SetInManifest(State::kUnmounting, spec);
    if (!status.ok()) chunks_.CancelUnmount(id).IgnoreError();
  }
  if (!status.ok()) return Answer(command.command(), status, &*info, nullptr);
  (void)CISTERN_FAULT("store.unmount.recorded");
  CISTERN_LOG(Info, "unmounting segment '", spec.name, "', ", info->headers_used(),
              " chunks are evicted");
  auto drain = std::make_unique<Drain>();
  drain->id = id;
  drain->spec = spec;
  drain->info = *info;
  drain->waiters.push_back(waiter);
  drains_.push_back(std::move(drain));
}

void SegmentManager::Cancel(uint64_t command, const wire::SegmentInfo& info) {
  const SegmentId id = SegmentId::FromBytes(info.segment_id().data());
  const auto it = std::find_if(drains_.begin(), drains_.end(),
                               [&](const auto& drain) { return drain->id == id; });
  if (it == drains_.end()) {
    return Answer(command,
                  absl::FailedPreconditionError(
                      absl::StrCat("segment '", info.name(), "' is not being unmounted")),
                  &info, nullptr);
  }
  Drain& drain = **it;
  // Under a configured name too: one mounted by hand may have another size than that of the file.
  absl::Status status = SetInManifest(State::kMounted, drain.spec);
  if (status.ok()) status = chunks_.CancelUnmount(id);
  if (status.ok()) {
    CISTERN_LOG(Info, "segment '", drain.spec.name, "' stays mounted, as was asked; ", drain.chunks,
                " chunks were evicted");
    for (const Drain::Waiter& waiter : drain.waiters) {
      Answer(waiter.command, absl::CancelledError("the unmount was taken back"), &info, &drain);
    }
  }
  const absl::StatusOr<wire::SegmentInfo> now = FindInfo(drain.spec.name);
  Answer(command, status, now.ok() ? &*now : &info, &drain);
  if (status.ok()) drains_.erase(it);
}

bool SegmentManager::Step(Drain* drain) {
  ChunkStore::Drained drained;
  do {
    const absl::StatusOr<ChunkStore::Drained> slice = chunks_.DrainSlice(drain->id);
    CISTERN_CHECK(slice.ok());  // only this thread takes segments out
    drained = *slice;
    drain->chunks += drained.chunks;
    drain->bytes += drained.bytes;
    if (drained.chunks != 0) options_.poke();
  } while (!drained.pass_done && !stopping());
  if (drained.held == 0) {
    (void)CISTERN_FAULT("store.unmount.drained");
    const absl::Status status = Finish(drain);
    for (const Drain::Waiter& waiter : drain->waiters) {
      Answer(waiter.command, status, &drain->info, drain);
    }
    return true;
  }
  drain->info = FindInfo(drain->spec.name).value_or(drain->info);
  const MonoTime now = clock_.Mono();
  const auto over = [&](const Drain::Waiter& waiter) {
    if (now < waiter.until) return false;
    Answer(waiter.command,
           absl::DeadlineExceededError(
               absl::StrCat(drained.held, " chunks of segment '", drain->spec.name,
                            "' are still being read or written; the unmount goes on")),
           &drain->info, drain);
    return true;
  };
  drain->waiters.erase(std::remove_if(drain->waiters.begin(), drain->waiters.end(), over),
                       drain->waiters.end());
  return false;
}

absl::Status SegmentManager::Finish(Drain* drain) {
  drain->info = FindInfo(drain->spec.name).value_or(drain->info);
  absl::StatusOr<std::unique_ptr<Segment>> segment = chunks_.TakeSegment(drain->id);
  CISTERN_CHECK(segment.ok());
  const absl::Status removed = (*segment)->RemoveFile();
  segment->reset();  // the mapping: the memory goes
  (void)CISTERN_FAULT("store.unmount.removed");
  CISTERN_LOG(Info, "segment '", drain->spec.name, "' unmounted, ", FormatSize(drain->spec.bytes),
              " given back; ", drain->chunks, " chunks were evicted");
  if (!removed.ok()) return removed;  // the manifest's "unmounting" lets a restart try again
  return configured_names_.contains(drain->spec.name)
             ? SetInManifest(State::kUnmounted, drain->spec)
             : ForgetInManifest(drain->spec);
}

}  // namespace cistern::store
