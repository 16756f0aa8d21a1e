#include "master/frame_service.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/fault.h"
#include "proto/master.pb.h"

namespace cistern::master {

using transport::FrameType;
using transport::ServerCall;

namespace {

constexpr uint32_t kUnbound = 0xFFFFFFFF;

// What a connection has bound: the core's number for ref i + 1. Loop thread only.
struct ConnectionState {
  std::vector<uint32_t> refs;
};

ConnectionState& StateOf(transport::ServerConnection& connection) {
  return *static_cast<ConnectionState*>(connection.user_state.get());
}

template <typename Message>
void Answer(ServerCall& call, FrameType type, const Message& message) {
  call.Reply(type, message.SerializeAsString(), /*final=*/true);
}

}  // namespace

FrameService::FrameService(Options options, CoreDriver& driver, RocksStateStore& state)
    : options_(options), driver_(driver), state_(state) {}

void FrameService::OnConnected(transport::ServerConnection& connection) {
  connection.user_state = std::make_shared<ConnectionState>();
}

void FrameService::OnRequest(Call call) {
  (void)CISTERN_FAULT("master.request");
  switch (call->type()) {
    case FrameType::kLookup:
      return Batch<LookupCall, wire::LookupRequest, wire::LookupReply>(
          std::move(call), FrameType::kLookupReply, /*dispatch=*/false, "master.lookup.decided");
    case FrameType::kExists:
      return Batch<ExistsCall, wire::ExistsRequest, wire::ExistsReply>(
          std::move(call), FrameType::kExistsReply, /*dispatch=*/false, "master.exists.decided");
    case FrameType::kPlace:
      return Batch<PlaceCall, wire::PlaceRequest, wire::PlaceReply>(
          std::move(call), FrameType::kPlaceReply, /*dispatch=*/true, "master.place.decided");
    case FrameType::kRemove:
      return OnRemove(std::move(call));
    case FrameType::kRelease:
      return OnRelease(std::move(call));
    case FrameType::kOpenNamespace:
      return OnOpenNamespace(std::move(call));
    case FrameType::kMasterBindNamespace:
      return OnBindNamespace(std::move(call));
    case FrameType::kGetMaps:
      return OnGetMaps(std::move(call));
    case FrameType::kPing:
      return OnPing(std::move(call));
    default:
      call->Fail(absl::UnimplementedError(
          absl::StrCat("a master does not know frames of type ", static_cast<int>(call->type()))));
  }
}

MonoTime FrameService::Deadline(const ServerCall& call, uint32_t deadline_ms) const {
  return call.received_at() +
         (deadline_ms == 0 ? options_.default_deadline : absl::Milliseconds(deadline_ms));
}

template <typename Request>
bool FrameService::Parse(ServerCall& call, Request* request) const {
  const std::string_view meta = call.meta();
  if (!request->ParseFromArray(meta.data(), static_cast<int>(meta.size()))) {
    call.Fail(absl::InvalidArgumentError(
        absl::StrCat("the frame of type ", static_cast<int>(call.type()), " cannot be parsed")));
    return false;
  }
  if (Deadline(call, request->deadline_ms()) <= driver_.clock().Mono()) {
    call.Fail(absl::DeadlineExceededError("the request's time had passed before it was looked at"));
    return false;
  }
  return true;
}

template <typename Request>
bool FrameService::ParseBound(ServerCall& call, Request* request) const {
  if (!Parse(call, request)) return false;
  const std::vector<uint32_t>& refs = StateOf(call.connection()).refs;
  const uint32_t ref = request->ns_ref();
  if (ref == 0 || ref > refs.size() || refs[ref - 1] == kUnbound) {
    call.Fail(absl::FailedPreconditionError(
        absl::StrCat("no namespace is bound as ", ref, " on this connection: bind it first")));
    return false;
  }
  request->set_ns_ref(refs[ref - 1]);
  return true;
}

// The messages are kept per loop thread, so that their columns' memory serves call after call. The
// answer is serialised before Reply, which may already read the next request on this thread.
template <typename BatchCall, typename Request, typename Reply>
void FrameService::Batch(Call call, FrameType answer, bool dispatch, std::string_view decided) {
  static thread_local Request request;
  static thread_local Reply reply;
  if (!ParseBound(*call, &request)) return;
  reply.Clear();
  BatchCall batch(request, &reply);
  absl::Status status = batch.Prepare();
  if (status.ok()) {
    driver_.Run(batch);
    status = batch.status();
    if (dispatch) driver_.Dispatch();
  }
  (void)CISTERN_FAULT(decided);
  if (!status.ok()) return call->Fail(status);
  Answer(*call, answer, reply);
}

void FrameService::OnOpenNamespace(Call call) {
  wire::OpenNamespaceRequest request;
  if (!Parse(*call, &request)) return;
  wire::OpenNamespaceReply reply;
  const absl::Status status =
      driver_.With([&](MasterCore& core, MonoTime) { return core.OpenNamespace(request, &reply); });
  if (!status.ok()) return call->Fail(status);
  AnswerWhenDurable(std::move(call), std::move(reply));
}

// Not only when this call created it: who created it may still wait, or may have failed to write.
void FrameService::AnswerWhenDurable(Call call, wire::OpenNamespaceReply reply) {
  const NamespaceId id = NamespaceId::FromBytes(reply.info().id().data());
  state_.WhenNamespaceDurable(
      id, [this, id, call = std::move(call), reply = std::move(reply)](absl::Status saved) mutable {
        const uint32_t ref = reply.ns_ref();
        bool changed = false;
        bool named = false;
        driver_.With([&](MasterCore& core, MonoTime) {
          if (!saved.ok()) return core.WithdrawNamespace(ref);
          changed = state_.NamespaceUnwritten(id);
          if (!changed) named = core.ConfirmNamespace(ref);
        });
        if (!saved.ok()) return call->Fail(saved);
        if (changed) return AnswerWhenDurable(std::move(call), std::move(reply));
        if (!named) {
          return call->Fail(absl::UnavailableError(absl::StrCat(
              "namespace \"", reply.info().name(), "\" was removed meanwhile; open it again")));
        }
        reply.set_ns_ref(0);  // opening binds nothing
        Answer(*call, FrameType::kOpenNamespaceReply, reply);
      });
}

void FrameService::OnBindNamespace(Call call) {
  std::vector<uint32_t>& refs = StateOf(call->connection()).refs;
  if (refs.size() >= options_.max_binds) {
    return call->Fail(absl::ResourceExhaustedError(
        absl::StrCat("a connection binds at most ", options_.max_binds, " namespaces")));
  }
  // Whatever becomes of it, this bind takes the next number.
  refs.push_back(kUnbound);
  const uint32_t ref = static_cast<uint32_t>(refs.size());
  wire::BindNamespaceRequest request;
  if (!Parse(*call, &request)) return;
  wire::OpenNamespaceReply reply;
  const absl::Status status =
      driver_.With([&](MasterCore& core, MonoTime) { return core.BindNamespace(request, &reply); });
  if (!status.ok()) return call->Fail(status);
  refs[ref - 1] = reply.ns_ref();
  reply.set_ns_ref(ref);
  Answer(*call, FrameType::kOpenNamespaceReply, reply);
}

void FrameService::OnGetMaps(Call call) {
  wire::GetMapsRequest request;
  if (!Parse(*call, &request)) return;
  wire::GetMapsReply reply;
  driver_.With([&](MasterCore& core, MonoTime) { core.GetMaps(request, &reply); });
  Answer(*call, FrameType::kGetMapsReply, reply);
}

void FrameService::OnRelease(Call call) {
  wire::ReleaseRequest request;
  if (!Parse(*call, &request)) return;
  wire::ReleaseReply reply;
  const absl::Status status = driver_.With(
      [&](MasterCore& core, MonoTime now) { return core.Release(request, &reply, now); });
  if (!status.ok()) return call->Fail(status);
  Answer(*call, FrameType::kReleaseReply, reply);
}

void FrameService::OnRemove(Call call) {
  wire::RemoveRequest request;
  if (!ParseBound(*call, &request)) return;
  request.set_whole_pool(false);
  // A tenth of the time is left for the answer's way back.
  const absl::Duration wait = Deadline(*call, request.deadline_ms()) - call->received_at();
  const MonoTime until = call->received_at() + std::min(wait * 0.9, options_.max_wait);
  ServerCall* const raw = call.get();
  const bool all = request.all();
  auto removal = std::make_unique<Removal>(
      std::move(request), until,
      [call = std::move(call), all](absl::Status status, wire::RemoveReply& reply, bool complete) {
        if (!status.ok()) return call->Fail(status);
        if (all && !complete) {
          return call->Fail(absl::DeadlineExceededError(
              absl::StrCat("not all stores have answered: ", reply.removed_count(),
                           " chunks are gone for certain; repeat the call")));
        }
        Answer(*call, FrameType::kRemoveReply, reply);
      });
  (void)CISTERN_FAULT("master.remove.asked");
  removal->abandoned = [raw] { return raw->aborted(); };
  driver_.Remove(std::move(removal));
}

void FrameService::OnPing(Call call) {
  wire::PingRequest request;
  if (!Parse(*call, &request)) return;
  if (request.echo().size() > options_.max_echo_bytes) {
    return call->Fail(absl::InvalidArgumentError(
        absl::StrCat("an echo has at most ", options_.max_echo_bytes, " bytes")));
  }
  wire::PingReply reply;
  reply.set_echo(std::move(*request.mutable_echo()));
  Answer(*call, FrameType::kPong, reply);
}

}  // namespace cistern::master
