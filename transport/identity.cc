#include "transport/identity.h"

#include <fcntl.h>
#include <unistd.h>

#include <string>

namespace cistern::transport {

BootId ReadBootId() {
  const int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return BootId{};
  char text[64];
  const ssize_t n = read(fd, text, sizeof(text));
  close(fd);
  std::string hex;
  for (ssize_t i = 0; i < n; ++i) {
    if (text[i] != '-' && text[i] != '\n') hex.push_back(text[i]);
  }
  const auto id = BootId::ParseHex(hex);
  return id.ok() ? *id : BootId{};
}

}  // namespace cistern::transport
