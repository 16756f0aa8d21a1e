#include "client/c/call.h"

#include <exception>
#include <new>
#include <string>

#include "absl/strings/str_cat.h"

namespace cistern::c {
namespace {

struct ThreadMessage {
  std::string text;
  const char* literal = "";
};
ThreadMessage& Mine() {
  static thread_local ThreadMessage message;
  return message;
}

constexpr uint64_t kYearMicros = 365ull * 24 * 3600 * 1000 * 1000;

}  // namespace

void ClearMessage() noexcept { Mine().literal = ""; }

void SetMessage(std::string_view text) {
  ThreadMessage& message = Mine();
  message.text.assign(text);
  message.literal = nullptr;
}

void SetLiteralMessage(const char* text) noexcept { Mine().literal = text; }

const char* Message() noexcept {
  const ThreadMessage& message = Mine();
  return message.literal != nullptr ? message.literal : message.text.c_str();
}

cistern_code CodeOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return CISTERN_OK;
    case absl::StatusCode::kCancelled:
      return CISTERN_CANCELLED;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange:
      return CISTERN_INVALID_ARGUMENT;
    case absl::StatusCode::kDeadlineExceeded:
      return CISTERN_DEADLINE_EXCEEDED;
    case absl::StatusCode::kNotFound:
      return CISTERN_NOT_FOUND;
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnauthenticated:
      return CISTERN_PERMISSION_DENIED;
    case absl::StatusCode::kResourceExhausted:
      return CISTERN_RESOURCE_EXHAUSTED;
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kFailedPrecondition:
      return CISTERN_FAILED_PRECONDITION;
    case absl::StatusCode::kAborted:
      return CISTERN_ABORTED;
    case absl::StatusCode::kUnimplemented:
      return CISTERN_UNIMPLEMENTED;
    case absl::StatusCode::kUnavailable:
      return CISTERN_UNAVAILABLE;
    case absl::StatusCode::kDataLoss:
      return CISTERN_DATA_LOSS;
    default:
      return CISTERN_INTERNAL;
  }
}

cistern_code Report(const absl::Status& status) {
  if (!status.ok()) SetMessage(std::string_view(status.message().data(), status.message().size()));
  return CodeOf(status);
}

cistern_code ReportException() noexcept {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    SetLiteralMessage("out of memory");
    return CISTERN_RESOURCE_EXHAUSTED;
  } catch (const std::exception& error) {
    try {
      SetMessage(error.what());
    } catch (...) {
      SetLiteralMessage("out of memory");
    }
    return CISTERN_INTERNAL;
  } catch (...) {
    SetLiteralMessage("an exception");
    return CISTERN_INTERNAL;
  }
}

absl::Duration FromMicros(uint64_t us) {
  return us > kYearMicros ? absl::InfiniteDuration() : absl::Microseconds(static_cast<int64_t>(us));
}

uint64_t ToMicros(absl::Duration d) {
  return d <= absl::ZeroDuration() ? 0 : static_cast<uint64_t>(absl::ToInt64Microseconds(d));
}

absl::Duration FromTimeout(int64_t us) {
  return us < 0 ? absl::InfiniteDuration() : FromMicros(static_cast<uint64_t>(us));
}

absl::Status NotNull(const void* p, const char* what) {
  if (p != nullptr) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(what, " is NULL"));
}

absl::Status CheckBatch(const void* p, size_t count, const char* what) {
  if (count > CISTERN_MAX_BATCH) {
    return absl::InvalidArgumentError(
        absl::StrCat(count, " ", what, ": more than ", CISTERN_MAX_BATCH, " a call"));
  }
  return count == 0 ? absl::OkStatus() : NotNull(p, what);
}

absl::Status CheckFlags(uint32_t flags, uint32_t known, const char* what) {
  if ((flags & ~known) == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(what, ": unknown bits 0x", absl::Hex(flags & ~known)));
}

}  // namespace cistern::c
