#include <pthread.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define CISTERN_UNDER_ASAN 1
#endif
#endif

#ifdef CISTERN_UNDER_ASAN

// The sanitizer's own functions, made for its leak check. Later releases call them around fork()
// themselves (compiler-rt, asan_posix.cpp, InstallAtForkHandler); release 14 does not.
namespace __lsan {
void LockThreadRegistry();
void UnlockThreadRegistry();
void LockAllocator();
void UnlockAllocator();
}  // namespace __lsan
namespace __sanitizer {
void StackDepotLockAll();
void StackDepotUnlockAll();
}  // namespace __sanitizer

// Freed memory waits in queues whose locks nobody but the sanitizer can take: no queues.
extern "C" const char* __asan_default_options() {
  return "quarantine_size_mb=0:thread_local_quarantine_size_kb=0";
}

namespace cistern {
namespace {

void LockAll() {
  __lsan::LockThreadRegistry();
  __lsan::LockAllocator();
  __sanitizer::StackDepotLockAll();
}

void UnlockAll() {
  __sanitizer::StackDepotUnlockAll();
  __lsan::UnlockAllocator();
  __lsan::UnlockThreadRegistry();
}

// Registered before main: what the library registers later runs inside these, with an allocator.
[[maybe_unused]] const int kRegistered = pthread_atfork(&LockAll, &UnlockAll, &UnlockAll);

}  // namespace
}  // namespace cistern

#endif
