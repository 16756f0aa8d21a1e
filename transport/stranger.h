// What a peer speaks that does not speak Cistern's frames: for people who have named a wrong port.
#ifndef CISTERN_TRANSPORT_STRANGER_H_
#define CISTERN_TRANSPORT_STRANGER_H_

#include <cstddef>
#include <cstdint>
#include <string>

namespace cistern::transport {

// So many first bytes tell one protocol from another.
inline constexpr size_t kStrangerBytes = 9;

// "the peer speaks ...", from the first bytes that came. Printable, whatever they are.
std::string DescribeStranger(const uint8_t* in, size_t bytes);

}  // namespace cistern::transport

#endif  // CISTERN_TRANSPORT_STRANGER_H_
