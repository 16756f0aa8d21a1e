#include "store/data_service.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/columns.h"
#include "base/status.h"
#include "proto/data.pb.h"
#include "proto/master.pb.h"
#include "store/connection_state.h"
#include "store/get_call.h"
#include "store/list_call.h"
#include "store/put_call.h"

namespace cistern::store {

// A report under examination.
struct BadReport {
  NamespaceIndex ns;
  std::vector<ChunkName> names;
  std::vector<Version> versions;
  std::shared_ptr<ReportLimiter> peer;  // the connection's
  std::string statuses;                 // of the first chunks: those checked so far
};

namespace {

using transport::FrameType;
using transport::ServerCall;

constexpr size_t kMaxEchoBytes = 64 << 10;

absl::StatusOr<NamespaceRecord> ReadBind(const ServerCall& call) {
  wire::BindNamespace bind;
  if (!bind.ParseFromArray(call.meta().data(), static_cast<int>(call.meta().size()))) {
    return absl::InvalidArgumentError("bind: malformed request");
  }
  NamespaceRecord record;
  CISTERN_ASSIGN_OR_RETURN(record.id, NamespaceId::Parse(bind.id()));
  record.tenant = bind.tenant();
  record.name = bind.name();
  record.fingerprint = bind.fingerprint();
  record.options = bind.options();
  CISTERN_RETURN_IF_ERROR(CheckNamespaceRecord(record));
  return record;
}

absl::StatusOr<BadReport> ReadReport(const ServiceContext& context, ServerCall& call) {
  // Reports are rare and each chunk is hashed: many in one request can only be an attack.
  constexpr size_t kMaxReported = 1'024;
  wire::ReportBad meta;
  if (!meta.ParseFromArray(call.meta().data(), static_cast<int>(call.meta().size()))) {
    return absl::InvalidArgumentError("report: malformed request");
  }
  BadReport report;
  ConnectionState& state = ConnectionState::Of(call.connection(), *context.chunks);
  CISTERN_ASSIGN_OR_RETURN(report.ns, state.Find(meta.ns_ref()));
  report.peer = state.reports();
  CISTERN_ASSIGN_OR_RETURN(const KeyColumn ids, KeyColumn::Parse(meta.ids()));
  if (ids.size() > kMaxReported) {
    return absl::InvalidArgumentError(absl::StrCat("report: more than ", kMaxReported, " chunks"));
  }
  CISTERN_ASSIGN_OR_RETURN(
      const auto shards, Column<uint16_t>::Parse(meta.shards(), ids.size(), "shards", true, false));
  CISTERN_ASSIGN_OR_RETURN(const auto versions, Column<uint64_t>::Parse(meta.versions(), ids.size(),
                                                                        "versions", false, false));
  for (size_t i = 0; i < ids.size(); ++i) {
    report.names.push_back(ChunkName{ids[i], Shard(shards[i])});
    report.versions.push_back(Version(versions[i]));
  }
  return report;
}

}  // namespace

void DataService::OnRequest(std::unique_ptr<ServerCall> call) {
  switch (call->type()) {
    case FrameType::kGet:
      return ServeGet(context_, std::move(call));
    case FrameType::kPut:
      return ServePut(context_, std::move(call));
    case FrameType::kBindNamespace:
      return ServeBindNamespace(std::move(call));
    case FrameType::kReportBad:
      return ServeReportBad(std::move(call));
    case FrameType::kListKeys:
      return ServeListKeys(context_, std::move(call));
    case FrameType::kPing: {
      wire::PingRequest ping;
      if (!ping.ParseFromArray(call->meta().data(), static_cast<int>(call->meta().size()))) {
        return call->Fail(absl::InvalidArgumentError("ping: malformed request"));
      }
      if (ping.echo().size() > kMaxEchoBytes) {
        return call->Fail(absl::InvalidArgumentError("ping: more than 64 KiB to echo"));
      }
      wire::PingReply pong;
      pong.set_echo(ping.echo());
      return call->Reply(FrameType::kPong, pong.SerializeAsString(), /*final=*/true);
    }
    default:
      // A newer peer may know requests that we do not: it is told, and the connection goes on.
      return call->Fail(absl::UnimplementedError(
          absl::StrCat("this store does not know request type ", static_cast<int>(call->type()))));
  }
}

void DataService::ServeBindNamespace(std::unique_ptr<ServerCall> call) {
  ConnectionState& state = ConnectionState::Of(call->connection(), *context_.chunks);
  const absl::StatusOr<uint32_t> ref = state.Bind(ReadBind(*call));
  if (!ref.ok()) return call->Fail(ref.status());
  wire::NamespaceBound bound;
  bound.set_ns_ref(*ref);
  call->Reply(FrameType::kNamespaceBound, bound.SerializeAsString(), /*final=*/true);
}

void DataService::ServeReportBad(std::unique_ptr<ServerCall> call) {
  absl::StatusOr<BadReport> report = ReadReport(context_, *call);
  if (!report.ok()) return call->Fail(report.status());
  CheckReported(std::move(call), std::make_shared<BadReport>(*std::move(report)));
}

void DataService::CheckReported(std::shared_ptr<ServerCall> call,
                                std::shared_ptr<BadReport> report) {
  const bool queued = context_.run_in_background([this, call, report] {
    if (call->aborted()) return;
    const size_t i = report->statuses.size();
    if (i < report->names.size()) {
      report->statuses.push_back(static_cast<char>(CheckOne(*report, i)));
      context_.poke_session();
    }
    if (report->statuses.size() < report->names.size()) return CheckReported(call, report);
    wire::ReportBadReply reply;
    reply.set_statuses(std::move(report->statuses));
    call->Reply(FrameType::kReportBadReply, reply.SerializeAsString(), /*final=*/true);
  });
  if (!queued) {
    call->Fail(absl::ResourceExhaustedError("report: too many checks are waiting; try later"));
  }
}

wire::ChunkStatus DataService::CheckOne(const BadReport& report, size_t i) {
  const uint64_t bytes = context_.chunks->LengthOf(report.ns, report.names[i], report.versions[i]);
  if (bytes == 0) return wire::CHUNK_NOT_FOUND;
  const MonoTime now = context_.clock->Mono();
  if (!report.peer->Admit(bytes, now)) return wire::CHUNK_RESOURCE_EXHAUSTED;
  if (!reports_.Admit(bytes, now)) {
    report.peer->Refund(bytes);
    return wire::CHUNK_RESOURCE_EXHAUSTED;
  }
  const wire::ChunkStatus status =
      context_.chunks->ReportBad(report.ns, report.names[i], report.versions[i]);
  if (status != wire::CHUNK_OK) {  // it was right, or cost nothing
    report.peer->Refund(bytes);
    reports_.Refund(bytes);
  }
  return status;
}

}  // namespace cistern::store
