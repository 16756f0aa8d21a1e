// A name server that does not answer: getaddrinfo blocks, and nothing ends it.
#include <dlfcn.h>
#include <netdb.h>

#include <atomic>
#include <cstring>

#include "base/clock.h"
#include "base/eventually.h"
#include "base/test_util.h"
#include "client/client.h"

namespace {

std::atomic<int> g_blocked{0};
std::atomic<bool> g_release{false};

}  // namespace

// Takes the place of the C library's in this program.
extern "C" int getaddrinfo(const char* node, const char* service, const addrinfo* hints,
                           addrinfo** out) {
  using Function = int (*)(const char*, const char*, const addrinfo*, addrinfo**);
  static const auto real = reinterpret_cast<Function>(dlsym(RTLD_NEXT, "getaddrinfo"));
  const bool literal = hints != nullptr && (hints->ai_flags & AI_NUMERICHOST) != 0;
  if (literal || node == nullptr || std::strcmp(node, "slow.test") != 0) {
    return real(node, service, hints, out);
  }
  ++g_blocked;
  while (!g_release) cistern::Clock::Real().SleepFor(absl::Milliseconds(1));
  --g_blocked;
  return EAI_AGAIN;
}

namespace cistern {
namespace {

// Neither the call nor the client's end waits for the resolver, which is let go only afterwards.
TEST(ResolverTest, ConnectAndCloseEndWhileTheResolverBlocks) {
  ClientOptions options;
  options.master_address = "slow.test:7600";
  options.deadline = absl::Milliseconds(200);
  for (int i = 0; i < 3; ++i) {
    EXPECT_THAT(Client::Connect(options), StatusIs(absl::StatusCode::kDeadlineExceeded,
                                                   ::testing::HasSubstr("slow.test:7600")));
  }
  EXPECT_GT(g_blocked, 0);
  g_release = true;
  EXPECT_TRUE(Eventually([] { return g_blocked == 0; }));
}

}  // namespace
}  // namespace cistern
