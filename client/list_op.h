// Namespace::ListKeys.
//
//   1. Ask the master for the stores of the pool.
//   2. Store by store, in order of their ids, page by page, until there are keys enough.
//   3. The cursor names the store and the place in it where the next call goes on.
#ifndef CISTERN_CLIENT_LIST_OP_H_
#define CISTERN_CLIENT_LIST_OP_H_

#include <memory>
#include <string>
#include <vector>

#include "base/key_hash.h"
#include "client/client.h"
#include "client/client_core.h"
#include "client/open_namespace.h"
#include "client/operation.h"
#include "proto/data.pb.h"
#include "transport/channel.h"

namespace cistern {

class ListOp final : public Operation {
 public:
  ListOp(std::shared_ptr<ClientCore> core, std::shared_ptr<const OpenNamespaceInfo> ns,
         std::string_view pattern, const ListOptions& options);

  // Once, when done.
  absl::StatusOr<KeyPage> Take();

 private:
  class PageCall;

  // Where a walk stands: at the start of a store, or in the midst of it.
  struct Cursor {
    StoreId store;
    uint64_t incarnation = 0;
    uint64_t position = 0;
  };
  static absl::StatusOr<Cursor> ParseCursor(std::string_view text);
  std::string CursorText() const;

  void Begin() override;
  void OnDirectory();
  // The next page; or the end, when there is enough or nothing more.
  void Next();
  void OnPage(const absl::Status& status, const wire::ListKeysReply& reply);
  absl::Status TakeIn(const wire::ListKeysReply& reply);
  void End(const absl::Status& status);

  const std::shared_ptr<ClientCore> core_;
  const std::shared_ptr<const OpenNamespaceInfo> ns_;
  const std::string pattern_;
  const ListOptions options_;
  const KeyHasher hasher_;

  std::vector<StoreTable::Listed> stores_;
  size_t at_ = 0;  // of stores_
  uint64_t incarnation_ = 0;
  uint64_t position_ = 0;
  bool any_page_ = false;
  absl::Status status_;
  KeyPage page_;
};

}  // namespace cistern

#endif  // CISTERN_CLIENT_LIST_OP_H_
