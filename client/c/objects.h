// What the handles of the C interface stand for.
#ifndef CISTERN_CLIENT_C_OBJECTS_H_
#define CISTERN_CLIENT_C_OBJECTS_H_

#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "client/c/handles.h"
#include "client/cistern.h"
#include "client/client.h"
#include "client/fork_guard.h"

namespace cistern::c {

// A client, and the calls that use it itself (not one of its namespaces, which end by themselves
// when it is closed). Thread-safe.
class ClientObject {
 public:
  static constexpr Kind kKind = Kind::kClient;
  explicit ClientObject(std::unique_ptr<Client> client) : client_(std::move(client)) {}

  // A call's stay. Movable.
  class Use {
   public:
    explicit Use(ClientObject* object) : object_(object) {}
    Use(Use&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
    Use& operator=(Use&&) = delete;
    ~Use() {
      if (object_ != nullptr) object_->Leave();
    }
    Client* operator->() const { return object_->client_.get(); }

   private:
    ClientObject* object_;
  };
  // FailedPrecondition: closed, or in a fork's child.
  absl::StatusOr<Use> Enter();
  // Waits for the calls inside, then closes the client. Once.
  void Close();

 private:
  void Leave();

  const ForkGuard fork_guard_;
  Mutex mutex_;
  CondVar left_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  int inside_ ABSL_GUARDED_BY(mutex_) = 0;
  std::unique_ptr<Client> client_;  // while anybody is inside, and until Close
};

struct NamespaceObject {
  static constexpr Kind kKind = Kind::kNamespace;
  std::shared_ptr<Namespace> ns;
};

struct BufferObject {
  static constexpr Kind kKind = Kind::kBuffer;
  Buffer buffer;
};

struct LookupObject {
  static constexpr Kind kKind = Kind::kLookup;
  std::shared_ptr<Namespace> ns;
  LookupResult result;
};

struct KeyPageObject {
  static constexpr Kind kKind = Kind::kKeyPage;
  KeyPage page;
};

// A batch's items as the C++ interface takes them. The spans are copied.
template <typename Item>
struct Batch {
  std::vector<Item> items;
  std::vector<Span> spans;
  std::string keys;  // of puts that outlive their call
};

// An asynchronous call. What it was given outlives it: the call is the last member.
struct OpObject {
  static constexpr Kind kKind = Kind::kOp;
  std::shared_ptr<Namespace> ns;
  size_t count = 0;  // items or keys
  std::atomic<bool> taken{false};
  Batch<PutItem> put_batch;
  Batch<GetItem> get_batch;
  std::vector<KeyId> ids;
  std::variant<Pending<BatchResult>, PendingGet, Pending<absl::StatusOr<LookupResult>>> pending;
};

inline const KeyId* AsIds(const cistern_id* ids) {
  static_assert(sizeof(KeyId) == sizeof(cistern_id) && alignof(KeyId) == 1);
  return reinterpret_cast<const KeyId*>(ids);
}
template <typename Tag>
cistern_id ToC(const Id128<Tag>& id) {
  cistern_id out;
  static_assert(sizeof(out) == sizeof(id));
  std::memcpy(out.bytes, id.bytes.data(), sizeof(out));
  return out;
}

}  // namespace cistern::c

#endif  // CISTERN_CLIENT_C_OBJECTS_H_
