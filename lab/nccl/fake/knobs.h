// What goes wrong on this job's device and network: read once from the environment of each rank.
#pragma once
#include <string>
#include <vector>

namespace fake {

struct Knobs {
  std::string meeting;          // FAKE_MEETING: where the ranks of this job meet (default: MASTER_PORT)
  int rank;                     // RANK
  std::string fault;            // FAKE_FAULT: kernel, device, finish, enqueue, error, init
  int fault_rank;               // FAKE_FAULT_RANK
  long fault_after;             // FAKE_FAULT_AFTER: after so many NCCL calls (init: communicators)
  double kernel_ms;             // FAKE_KERNEL_MS: how long every kernel takes
  int slow_rank;                // FAKE_SLOW_RANK: only this rank's kernels take that long
  long net_after;               // FAKE_NET_AFTER: collectives of a group that still get through
  std::vector<int> net_ranks;   // FAKE_NET_RANKS: the group whose transport stops (default: every one)
  bool serial;                  // FAKE_SERIAL: one NCCL kernel at a time on a device
  bool query_blocks;            // FAKE_QUERY_BLOCKS: event queries wait for a thread that synchronises
  bool mismatch_passes;         // FAKE_MISMATCH=pass: what disagrees finishes nonetheless
  size_t eager_bytes;           // FAKE_EAGER: sends up to that size do not wait for their receive

  bool fails(const char* how) const { return fault_rank == rank && fault == how; }
};

const Knobs& knobs();

}  // namespace fake
