#include "client/namespace_binding.h"

#include <algorithm>
#include <utility>

namespace cistern {

uint32_t BindList::Bind(
    transport::Channel& channel, transport::FrameType type, const NamespaceId& id,
    const std::string& meta,
    std::function<absl::Status(transport::FrameType, std::string_view, uint32_t ref)>
        check_answer) {
  const auto found = std::find(bound_.begin(), bound_.end(), id);
  if (found != bound_.end()) return static_cast<uint32_t>(found - bound_.begin()) + 1;
  bound_.push_back(id);
  const auto ref = static_cast<uint32_t>(bound_.size());
  channel.AddPreamble({type, meta,
                       [ref, check = std::move(check_answer)](uint64_t, transport::FrameType answer,
                                                              std::string_view bytes) {
                         // A refusal leaves the connection to the other namespaces; requests that
                         // name this one are refused in their turn, with the daemon's own words.
                         if (answer == transport::FrameType::kError) return absl::OkStatus();
                         return check(answer, bytes, ref);
                       }});
  return ref;
}

}  // namespace cistern
