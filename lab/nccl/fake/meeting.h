// Where the ranks of one communicator meet: a file in shared memory, all zero at first.
#pragma once
#include <atomic>
#include <string>

namespace fake {

constexpr int kRanks = 64;            // of one communicator
constexpr int kCalls = 4096;          // of one rank that its peers may still look at
constexpr int kSplits = 256;          // of one communicator
constexpr size_t kSmall = 16384;      // bytes of a collective that travel
constexpr size_t kSmallSend = 8192;   // bytes of a send that travel
constexpr int kKept = 64;             // collectives, and sends of a pair, whose bytes are kept

struct Lane {  // sends from one rank to another, and their receives
  std::atomic<int> sent, received;
  unsigned send_size[kCalls], receive_size[kCalls];
  char data[kKept][kSmallSend];
};

struct Split {
  std::atomic<int> arrived;
  int color[kRanks], key[kRanks];
};

struct Meeting {
  std::atomic<int> joined;
  int global_rank[kRanks];
  std::atomic<int> arrived[kRanks];               // how many collectives a rank has come to
  std::atomic<unsigned long> what[kRanks][kCalls];  // and what they were
  Split split[kSplits];
  char data[kRanks][kKept][kSmall];
  Lane lane[kRanks * kRanks];

  Lane& from_to(int from, int to) { return lane[from * kRanks + to]; }
};

Meeting* meet(const std::string& communicator);  // sparse: only what is touched takes memory

}  // namespace fake
