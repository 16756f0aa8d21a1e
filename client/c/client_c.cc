// cistern.h: versions, log, clients.
#include <algorithm>
#include <cstring>

#include "base/log.h"
#include "base/status.h"
#include "client/c/call.h"
#include "client/c/objects.h"
#include "client/c/options.h"
#include "client/c/structs.h"
#include "client/cistern.h"

namespace cistern::c {

absl::StatusOr<ClientObject::Use> ClientObject::Enter() {
  // Before the lock, which a thread of the parent may have held.
  CISTERN_RETURN_IF_ERROR(fork_guard_.Check());
  MutexLock lock(mutex_);
  if (closed_) return absl::FailedPreconditionError("the client is closed");
  ++inside_;
  return Use(this);
}

void ClientObject::Leave() {
  MutexLock lock(mutex_);
  if (--inside_ == 0) left_.NotifyAll();
}

void ClientObject::Close() {
  if (!fork_guard_.Forked()) {
    MutexLock lock(mutex_);
    closed_ = true;
    while (inside_ > 0) left_.Wait(mutex_);
  }
  client_.reset();
}

namespace {

absl::StatusOr<ClientOptions> FromC(const cistern_client_options* in) {
  cistern_client_options c;
  CISTERN_RETURN_IF_ERROR(ReadStruct(in, &c, "options"));
  CISTERN_RETURN_IF_ERROR(CheckFlags(c.flags, CISTERN_CONNECT_LAZY, "options.flags"));
  if (c.wire > CISTERN_WIRE_RDMA) return absl::InvalidArgumentError("options.wire: no such wire");
  if (c.connections_per_store > 1024) {
    return absl::InvalidArgumentError("options.connections_per_store: too many");
  }
  ClientOptions out;
  if (c.master_address != nullptr) out.master_address = c.master_address;
  if (c.pool_token_file != nullptr) out.pool_token_file = c.pool_token_file;
  out.lazy = (c.flags & CISTERN_CONNECT_LAZY) != 0;
  if (c.deadline_us != 0) out.deadline = FromMicros(c.deadline_us);
  out.wire = static_cast<Wire>(c.wire);
  if (c.connections_per_store != 0) {
    out.connections_per_store = static_cast<int>(c.connections_per_store);
  }
  if (c.max_inflight_bytes != 0) out.max_inflight_bytes = c.max_inflight_bytes;
  return out;
}

// Cut where it is too long, ends in 0.
template <size_t n>
void CopyText(std::string_view text, char (&out)[n]) {
  const size_t bytes = std::min(text.size(), n - 1);
  std::memset(out, 0, n);
  std::memcpy(out, text.data(), bytes);
}

}  // namespace
}  // namespace cistern::c

using cistern::c::Call;
using cistern::c::CheckOut;
using cistern::c::ClientObject;
using cistern::c::Find;
using cistern::c::NotNull;

const char* cistern_code_name(cistern_code code) {
  if (code == CISTERN_PERMISSION_DENIED) return "permission denied";
  if (code < 0 || code > CISTERN_UNIMPLEMENTED) return "unknown";
  return cistern::ChunkCodeName(static_cast<cistern::ChunkCode>(code)).data();  // a literal
}

const char* cistern_last_message(void) { return cistern::c::Message(); }

const char* cistern_version(void) { return cistern::ClientVersion().data(); }  // a literal

uint32_t cistern_abi_version(void) { return CISTERN_ABI_MAJOR << 16 | CISTERN_ABI_MINOR; }

cistern_code cistern_set_log_sink(cistern_log_fn sink, void* user, int32_t least_severity) {
  return Call([&]() -> absl::Status {
    if (least_severity < CISTERN_LOG_DEBUG || least_severity > CISTERN_LOG_ERROR) {
      return absl::InvalidArgumentError("least_severity: no such severity");
    }
    if (sink == nullptr) {
      cistern::SetLogSink(nullptr);
      return absl::OkStatus();
    }
    cistern::SetLogLevel(static_cast<cistern::LogLevel>(least_severity));
    cistern::SetLogSink(
        [sink, user](cistern::LogLevel level, std::string_view, int, std::string_view text) {
          sink(user, static_cast<int32_t>(level), std::string(text).c_str());
        });
    return absl::OkStatus();
  });
}

cistern_code cistern_connect(const cistern_client_options* options, cistern_client* client) {
  return Call([&]() -> absl::Status {
    CISTERN_RETURN_IF_ERROR(NotNull(client, "client"));
    CISTERN_ASSIGN_OR_RETURN(const cistern::ClientOptions converted, cistern::c::FromC(options));
    CISTERN_ASSIGN_OR_RETURN(auto connected, cistern::Client::Connect(converted));
    client->value = cistern::c::Add(std::make_shared<ClientObject>(std::move(connected)));
    return absl::OkStatus();
  });
}

cistern_code cistern_close(cistern_client client) {
  return Call([&]() -> absl::Status {
    CISTERN_ASSIGN_OR_RETURN(const auto object, cistern::c::Take<ClientObject>(client.value));
    if (object != nullptr) object->Close();
    return absl::OkStatus();
  });
}

cistern_code cistern_ping(cistern_client client, const cistern_call_options* options) {
  return Call([&]() -> absl::Status {
    CISTERN_ASSIGN_OR_RETURN(const auto object, Find<ClientObject>(client.value));
    cistern_call_options call;
    CISTERN_RETURN_IF_ERROR(cistern::c::ReadStruct(options, &call, "options"));
    CISTERN_ASSIGN_OR_RETURN(const auto use, object->Enter());
    return use->Ping(cistern::c::ToCallOptions(call));
  });
}

cistern_code cistern_pool_id(cistern_client client, cistern_id* id) {
  return Call([&]() -> absl::Status {
    CISTERN_RETURN_IF_ERROR(NotNull(id, "id"));
    CISTERN_ASSIGN_OR_RETURN(const auto object, Find<ClientObject>(client.value));
    CISTERN_ASSIGN_OR_RETURN(const auto use, object->Enter());
    *id = cistern::c::ToC(use->pool_id());
    return absl::OkStatus();
  });
}

cistern_code cistern_client_stats(cistern_client client, cistern_stats* stats) {
  return Call([&]() -> absl::Status {
    CISTERN_RETURN_IF_ERROR(CheckOut(stats, "stats"));
    CISTERN_ASSIGN_OR_RETURN(const auto object, Find<ClientObject>(client.value));
    CISTERN_ASSIGN_OR_RETURN(const auto use, object->Enter());
    const cistern::ClientStats s = use->stats();
    cistern_stats out = {};
    out.lookups = s.lookups;
    out.lookup_keys = s.lookup_keys;
    out.lookup_hits = s.lookup_hits;
    out.put_chunks = s.put_chunks;
    out.put_bytes = s.put_bytes;
    out.put_present = s.put_present;
    out.get_chunks = s.get_chunks;
    out.get_bytes = s.get_bytes;
    out.get_misses = s.get_misses;
    out.verify_failures = s.verify_failures;
    out.retries = s.retries;
    cistern::c::WriteStruct(stats, out);
    return absl::OkStatus();
  });
}

cistern_code cistern_client_wire(cistern_client client, size_t index, cistern_wire_info* info) {
  return Call([&]() -> absl::Status {
    CISTERN_RETURN_IF_ERROR(CheckOut(info, "info"));
    CISTERN_ASSIGN_OR_RETURN(const auto object, Find<ClientObject>(client.value));
    CISTERN_ASSIGN_OR_RETURN(const auto use, object->Enter());
    const std::vector<cistern::StoreWire> wires = use->wires();
    if (index >= wires.size()) return absl::NotFoundError("no more stores were called");
    cistern_wire_info out = {};
    out.store = cistern::c::ToC(wires[index].store);
    cistern::c::CopyText(wires[index].wire, out.wire);
    cistern::c::CopyText(wires[index].address, out.address);
    cistern::c::CopyText(wires[index].why, out.why);
    cistern::c::WriteStruct(info, out);
    return absl::OkStatus();
  });
}
