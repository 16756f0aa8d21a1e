// How a segment comes by its memory: backed page by page before it is used, mapped so that huge
// pages fit, kept out of core dumps.
#ifndef CISTERN_STORE_SEGMENT_MEMORY_H_
#define CISTERN_STORE_SEGMENT_MEMORY_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace cistern::store {

inline constexpr uint64_t kHugePageBytes = uint64_t{2} << 20;

// Whether a segment is to lie in huge pages: fewer TLB misses, and fewer entries in a NIC's tables.
enum class HugePages {
  kNever,
  kTry,      // what can be had; the log says when it is less than all
  kRequire,  // every whole 2 MiB of it, or the segment is refused
};
// "never", "try", "require".
const char* HugePagesName(HugePages huge_pages);
// InvalidArgument names the choices.
absl::StatusOr<HugePages> ParseHugePages(const std::string& name);

// Asked between steps of what can take seconds; true: give up with Cancelled. May be empty.
using StopAsked = std::function<bool()>;

// Refuses early what could only fail half-way: less room in the file system of `fd`, or less memory
// on the host, than `bytes` more. ResourceExhausted says how much there is.
absl::Status CheckRoomFor(int fd, uint64_t bytes, const std::string& what);

// Backs every page of [0, bytes) with memory (the file has that size already), so that no later
// store can meet a full file system: that would be SIGBUS. ResourceExhausted: there is no room.
absl::Status BackWithMemory(int fd, uint64_t bytes, const std::string& what, const StopAsked& stop);

// Maps [0, bytes), a multiple of 4 KiB, shared, readable and writable, at a multiple of the huge
// page size, and keeps it out of core dumps. The caller unmaps.
absl::StatusOr<char*> MapSegment(int fd, uint64_t bytes, const std::string& what);

// Makes the kernel put the backed range into huge pages now (MADV_HUGEPAGE, MADV_COLLAPSE). Best
// effort: HugeBytes says what came of it. Cancelled: stop was asked.
absl::Status CollapseIntoHugePages(int fd, char* base, uint64_t bytes, const StopAsked& stop);
// Bytes of the mapping that lie in huge pages at this moment.
uint64_t HugeBytes(const char* base);

// A memfd in hugetlb pages (vm.nr_hugepages), fully backed; -1 when the host has not set as many
// aside.
int HugetlbMemfd(const std::string& name, uint64_t bytes);

// "`got` of `bytes` ...: what to set" for people whose segment did not get its huge pages.
std::string HowToGetHugePages(uint64_t got_bytes, uint64_t bytes, bool memfd,
                              const std::string& path);

}  // namespace cistern::store

#endif  // CISTERN_STORE_SEGMENT_MEMORY_H_
