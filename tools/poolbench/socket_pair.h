// A connected pair of TCP sockets on loopback, for the limits.
#ifndef CISTERN_TOOLS_POOLBENCH_SOCKET_PAIR_H_
#define CISTERN_TOOLS_POOLBENCH_SOCKET_PAIR_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"

namespace cistern::poolbench {

// Owns both ends; blocking, without Nagle's delay. Movable.
class TcpPair {
 public:
  static absl::StatusOr<TcpPair> Connect();
  TcpPair(TcpPair&& other) noexcept;
  TcpPair& operator=(TcpPair&& other) noexcept;
  ~TcpPair();

  int client() const { return client_; }
  int server() const { return server_; }
  // Wakes whoever reads or writes either end.
  void Shutdown();

 private:
  TcpPair(int client, int server) : client_(client), server_(server) {}
  int client_ = -1;
  int server_ = -1;
};

// False when the other end is shut.
bool WriteAll(int fd, const uint8_t* data, size_t bytes);
bool ReadAll(int fd, uint8_t* data, size_t bytes);

}  // namespace cistern::poolbench

#endif  // CISTERN_TOOLS_POOLBENCH_SOCKET_PAIR_H_
