#include "tools/replay/workload.h"

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <nlohmann/json.hpp>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace cistern::replay {
namespace {

using Json = nlohmann::json;

// The unsigned number under `key`; what is wrong otherwise.
absl::Status ReadNumber(const Json& object, const char* key, uint64_t max, uint64_t* out) {
  const auto it = object.find(key);
  if (it == object.end())
    return absl::InvalidArgumentError(absl::StrCat("\"", key, "\" is missing"));
  if (!it->is_number_unsigned() || it->get<uint64_t>() > max) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", key, "\" is not a number from 0 to ", max));
  }
  *out = it->get<uint64_t>();
  return absl::OkStatus();
}

absl::StatusOr<Request> ParseLine(const char* text, size_t size) {
  const Json object = Json::parse(text, text + size, nullptr, /*allow_exceptions=*/false);
  if (object.is_discarded() || !object.is_object()) {
    return absl::InvalidArgumentError("not a JSON object");
  }
  Request request;
  uint64_t input = 0;
  uint64_t output = 0;
  CISTERN_RETURN_IF_ERROR(ReadNumber(object, "timestamp", UINT64_MAX >> 1, &request.timestamp_ms));
  CISTERN_RETURN_IF_ERROR(ReadNumber(object, "input_length", INT32_MAX, &input));
  CISTERN_RETURN_IF_ERROR(ReadNumber(object, "output_length", INT32_MAX, &output));
  request.input_tokens = static_cast<uint32_t>(input);
  request.output_tokens = static_cast<uint32_t>(output);
  const auto ids = object.find("hash_ids");
  if (ids == object.end() || !ids->is_array() || ids->empty()) {
    return absl::InvalidArgumentError("\"hash_ids\" is not a list of at least one block id");
  }
  request.blocks.reserve(ids->size());
  for (const Json& id : *ids) {
    if (!id.is_number_unsigned()) {
      return absl::InvalidArgumentError("\"hash_ids\" has an entry that is not a number from 0 up");
    }
    request.blocks.push_back(id.get<uint64_t>());
  }
  return request;
}

// Reads up to the next newline or the end (`last`) into `line`, in pieces, so that memory is taken
// only for bytes that are there. False: beyond the limit, or in.bad().
bool ReadLine(std::istream& in, std::string& line, bool* last) {
  constexpr size_t kPieceBytes = 16 << 10;
  char piece[kPieceBytes];
  line.clear();
  while (line.size() <= kMaxLineBytes) {
    in.getline(piece, kPieceBytes);
    const auto taken = static_cast<size_t>(in.gcount());
    if (in.bad()) return false;
    *last = in.eof();
    if (*last || !in.fail()) {
      // The newline was taken and is not part of the line.
      line.append(piece, *last ? taken : taken - 1);
      return line.size() <= kMaxLineBytes;
    }
    in.clear();  // the piece was full
    line.append(piece, taken);
  }
  return false;
}

}  // namespace

uint64_t Request::TokensOfFirst(size_t count) const {
  if (count >= blocks.size()) return input_tokens;
  return std::min<uint64_t>(uint64_t{kBlockTokens} * count, input_tokens);
}

absl::StatusOr<Workload> ReadTrace(std::istream& in, std::string_view name, uint64_t max_requests) {
  const std::string shown(name);
  Workload workload;
  std::string line;
  bool last = false;
  for (uint64_t number = 1; !last && (max_requests == 0 || workload.size() < max_requests);
       ++number) {
    if (!ReadLine(in, line, &last)) {
      return in.bad() ? absl::UnavailableError(absl::StrCat(shown, ": reading failed"))
                      : absl::InvalidArgumentError(absl::StrCat(
                            shown, ":", number, ": a line of more than ", kMaxLineBytes, " bytes"));
    }
    const std::string_view text = line;
    if (text.find_first_not_of(" \t\r") != std::string_view::npos) {
      absl::StatusOr<Request> request = ParseLine(text.data(), text.size());
      if (!request.ok()) {
        return Annotate(request.status(), std::string(absl::StrCat(shown, ":", number)));
      }
      workload.push_back(*std::move(request));
    }
  }
  if (workload.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(shown, ": holds no request"));
  }
  return workload;
}

absl::StatusOr<Workload> ReadTraceFile(const std::string& path, uint64_t max_requests) {
  errno = 0;
  std::ifstream in(path);
  if (!in) return ErrnoStatus(errno, std::string(absl::StrCat("cannot read ", path)));
  return ReadTrace(in, path, max_requests);
}

void WriteTrace(const Workload& workload, std::ostream& out) {
  for (const Request& request : workload) {
    out << "{\"timestamp\": " << request.timestamp_ms
        << ", \"input_length\": " << request.input_tokens
        << ", \"output_length\": " << request.output_tokens << ", \"hash_ids\": [";
    for (size_t i = 0; i < request.blocks.size(); ++i) {
      if (i > 0) out << ", ";
      out << request.blocks[i];
    }
    out << "]}\n";
  }
}

WorkloadSummary Summarize(const Workload& workload) {
  WorkloadSummary summary;
  absl::flat_hash_set<uint64_t> distinct;
  for (const Request& request : workload) {
    ++summary.requests;
    summary.chunks += request.blocks.size();
    summary.input_tokens += request.input_tokens;
    summary.longest_request_chunks =
        std::max<uint64_t>(summary.longest_request_chunks, request.blocks.size());
    distinct.insert(request.blocks.begin(), request.blocks.end());
  }
  summary.distinct_chunks = distinct.size();
  return summary;
}

}  // namespace cistern::replay
