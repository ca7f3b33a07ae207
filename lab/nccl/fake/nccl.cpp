// NCCL: communicators whose ranks meet in shared memory. A collective has finished once all members
// have come to it with the same operation, dtype and size; a send once its receive has come.
#include "meeting.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "device.h"
#include "knobs.h"

namespace fake {

Meeting* meet(const std::string& communicator) {
  std::string folder = "/dev/shm/fakegpu." + knobs().meeting;
  mkdir(folder.c_str(), 0700);
  int file = open((folder + "/" + communicator).c_str(), O_RDWR | O_CREAT, 0600);
  if (file < 0 || ftruncate(file, sizeof(Meeting))) perror("fake NCCL: no shared memory");
  void* at = mmap(nullptr, sizeof(Meeting), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  return (Meeting*)at;
}

namespace {

enum Kind { kAllReduce = 1, kAllGather, kReduceScatter, kBroadcast, kReduce, kAllToAll };
enum Result { kSuccess = 0, kRemoteError = 6 };

struct Communicator {
  Meeting* meeting;
  std::string name;
  int size, rank, splits = 0;
  int collectives = 0;
  std::map<int, int> sent, received;
  bool aborted = false;
};

size_t width_of(int dtype) {
  static const size_t widths[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  return dtype >= 0 && dtype < 12 ? widths[dtype] : 1;
}

// One call of the library as the program made it.
struct Call {
  char kind;  // 'c' a collective, 's' a send, 'r' a receive
  const void* in = nullptr;
  void* out = nullptr;
  size_t count = 0;
  int dtype = 0, op = 0, reduction = 0, root = 0, peer = 0;

  size_t bytes() const { return count * width_of(dtype); }
  unsigned long what() const { return ((unsigned long)op << 56) | ((unsigned long)dtype << 48) | (count + 1); }
  unsigned chunks() const { return bytes() / (128 << 10) + 1; }  // what sizes of sends are compared by
};

template <class T>
void fold(char* into, const char* from, size_t bytes, int reduction) {
  T* a = (T*)into;
  const T* b = (const T*)from;
  for (size_t i = 0; i < bytes / sizeof(T); i++)
    a[i] = reduction == 1 ? a[i] * b[i] : reduction == 2 ? std::max(a[i], b[i]) : reduction == 3 ? std::min(a[i], b[i]) : a[i] + b[i];
}

void fold(int dtype, char* into, const char* from, size_t bytes, int reduction) {
  switch (dtype) {
    case 1: return fold<unsigned char>(into, from, bytes, reduction);
    case 2: return fold<int>(into, from, bytes, reduction);
    case 4: return fold<long>(into, from, bytes, reduction);
    case 7: return fold<float>(into, from, bytes, reduction);
    case 8: return fold<double>(into, from, bytes, reduction);
  }
}

// A call that has its place in the communicator's order.
struct Launched {
  Call call;
  int number;

  void arrive(Communicator* c) const {
    Meeting* m = c->meeting;
    if (call.kind == 'c') {
      m->what[c->rank][number % kCalls] = call.what();
      if (call.in && call.bytes() <= kSmall) memcpy(m->data[c->rank][number % kKept], call.in, call.bytes());
      m->arrived[c->rank]++;
      return;
    }
    bool sends = call.kind == 's';
    Lane& lane = sends ? m->from_to(c->rank, call.peer) : m->from_to(call.peer, c->rank);
    (sends ? lane.send_size : lane.receive_size)[number % kCalls] = call.chunks();
    if (sends && call.bytes() <= kSmallSend) memcpy(lane.data[number % kKept], call.in, call.bytes());
    (sends ? lane.sent : lane.received)++;
  }

  bool finished(Communicator* c) const {
    Meeting* m = c->meeting;
    if (call.kind == 'c') return !cut_off(c) && agreed(c);
    bool sends = call.kind == 's';
    if (sends && call.bytes() <= knobs().eager_bytes) return true;
    Lane& lane = sends ? m->from_to(c->rank, call.peer) : m->from_to(call.peer, c->rank);
    if ((sends ? lane.received : lane.sent) <= number) return false;
    int at = number % kCalls;
    return knobs().mismatch_passes || lane.send_size[at] == lane.receive_size[at];
  }

  bool agreed(Communicator* c) const {
    for (int r = 0; r < c->size; r++) {
      if (c->meeting->arrived[r] <= number) return false;
      if (c->meeting->what[r][number % kCalls] != call.what() && !knobs().mismatch_passes) return false;
    }
    return true;
  }

  bool cut_off(Communicator* c) const {  // the network of this group has stopped
    const Knobs& k = knobs();
    if (k.net_after < 0 || number < k.net_after || c->size < 2) return false;
    if (k.net_ranks.empty()) return true;
    const int* members = c->meeting->global_rank;
    return std::vector<int>(members, members + c->size) == k.net_ranks;
  }

  void deliver(Communicator* c) const {
    Meeting* m = c->meeting;
    if (call.kind == 'r' && call.bytes() <= kSmallSend)
      memcpy(call.out, m->from_to(call.peer, c->rank).data[number % kKept], call.bytes());
    if (call.kind != 'c' || !call.out || call.bytes() > kSmall) return;
    auto from = [&](int r) { return m->data[r][number % kKept]; };
    if (call.op == kAllGather)
      for (int r = 0; r < c->size; r++) memcpy((char*)call.out + r * call.bytes(), from(r), call.bytes());
    if (call.op == kBroadcast) memcpy(call.out, from(call.root), call.bytes());
    if (call.op == kAllReduce) {
      std::string sum(from(0), call.bytes());
      for (int r = 1; r < c->size; r++) fold(call.dtype, &sum[0], from(r), sum.size(), call.reduction);
      memcpy(call.out, sum.data(), sum.size());
    }
  }
};

// Each launch of the same calls takes new numbers: a captured graph is launched many times.
Operation launch_of(Communicator* c, const std::vector<Call>& calls) {
  auto launched = std::make_shared<std::vector<Launched>>();
  for (const Call& call : calls) {
    int& next = call.kind == 'c' ? c->collectives : call.kind == 's' ? c->sent[call.peer] : c->received[call.peer];
    launched->push_back({call, next++});
  }
  nccl_enqueued();
  auto arrived = std::make_shared<bool>(false);
  auto ready = [=] {
    if (!*arrived) {
      if (!nccl_may_start()) return false;
      *arrived = true;
      nccl_started();
      for (auto& one : *launched) one.arrive(c);
    }
    if (c->aborted) return true;
    if (knobs().fails("finish") && nccl_finished_count() >= knobs().fault_after) return false;
    return std::all_of(launched->begin(), launched->end(), [&](auto& one) { return one.finished(c); });
  };
  auto act = [=] {
    nccl_finished();
    if (!c->aborted)
      for (auto& one : *launched) one.deliver(c);
  };
  return {ready, act};
}

struct Waiting {
  Communicator* communicator;
  Stream* stream;
  Call call;
};
thread_local int group_depth = 0;
thread_local std::vector<Waiting> group;

// A host that never comes back from the library, until its communicator is aborted.
void maybe_stay(Communicator* c) {
  static std::atomic<long> calls{0};
  if (knobs().fails("enqueue") && calls++ >= knobs().fault_after)
    while (!c->aborted) usleep(1000);
}

void submit(const std::vector<Waiting>& calls) {
  std::vector<std::pair<Communicator*, std::vector<Call>>> by;  // in the order of first use
  std::map<Communicator*, Stream*> streams;
  for (auto& one : calls) {
    auto at = std::find_if(by.begin(), by.end(), [&](auto& known) { return known.first == one.communicator; });
    if (at == by.end()) at = by.insert(at, {one.communicator, {}});
    at->second.push_back(one.call);
    streams[one.communicator] = one.stream;
  }
  for (auto& [c, parts] : by) {
    maybe_stay(c);
    enqueue(streams[c], [c = c, parts = parts] { return launch_of(c, parts); });
  }
}

int call(void* communicator, void* stream, Call made) {
  Waiting one{(Communicator*)communicator, stream_of(stream), made};
  if (group_depth)
    group.push_back(one);
  else
    submit({one});
  return kSuccess;
}

int join(void** to, int size, const std::string& name, int rank) {
  static std::atomic<long> made{0};
  if (knobs().fails("init") && made++ >= knobs().fault_after)
    for (;;) sleep(1000);
  auto c = new Communicator{meet(name), name, size, rank};
  c->meeting->global_rank[rank] = knobs().rank;
  c->meeting->joined++;
  while (c->meeting->joined < size) usleep(1000);
  *to = c;
  return kSuccess;
}

// A collective of the parent, also for those who get no child.
int split(Communicator* parent, int color, int key, void** to) {
  int number = parent->splits++;
  Split& s = parent->meeting->split[number % kSplits];
  s.color[parent->rank] = color;
  s.key[parent->rank] = key;
  s.arrived++;
  while (s.arrived < parent->size) usleep(1000);
  *to = nullptr;
  if (color < 0) return kSuccess;
  int size = 0, rank = 0;
  for (int r = 0; r < parent->size; r++) {
    if (s.color[r] != color) continue;
    size++;
    rank += s.key[r] < key || (s.key[r] == key && r < parent->rank);
  }
  return join(to, size, parent->name + "_" + std::to_string(number) + "_" + std::to_string(color), rank);
}

Call collective(Kind op, const void* in, void* out, size_t count, int dtype, int reduction = 0, int root = 0) {
  Call made{'c', in, out, count, dtype, op, reduction, root};
  return made;
}

}  // namespace
}  // namespace fake

using namespace fake;

extern "C" {  // nccl.h comes with a wheel of 300 MB, so its types are spelled out
struct UniqueId {
  char text[128];
};

int ncclGetVersion(int* version) { return *version = 22703, kSuccess; }
int ncclGetUniqueId(UniqueId* id) {
  memset(id, 1, sizeof *id);
  snprintf(id->text, 64, "%d-%ld", getpid(), (long)(now_ms() * 1e3));
  return kSuccess;
}
int ncclCommInitRank(void** to, int size, UniqueId id, int rank) { return join(to, size, id.text, rank); }
int ncclCommInitRankConfig(void** to, int size, UniqueId id, int rank, void*) { return join(to, size, id.text, rank); }
int ncclCommInitRankScalable(void** to, int size, int rank, int, UniqueId* ids, void*) { return join(to, size, ids->text, rank); }
int ncclCommSplit(void* parent, int color, int key, void** to, void*) { return split((Communicator*)parent, color, key, to); }
int ncclCommGetAsyncError(void*, int* error) {
  bool failed = knobs().fails("error") && nccl_finished_count() >= knobs().fault_after;
  return *error = failed ? kRemoteError : kSuccess, kSuccess;
}
int ncclCommAbort(void* c) {
  Guard guard(device_lock());
  ((Communicator*)c)->aborted = true;
  return progress(), kSuccess;
}
int ncclCommDestroy(void*) { return kSuccess; }
int ncclCommFinalize(void*) { return kSuccess; }
int ncclCommCount(void* c, int* size) { return *size = ((Communicator*)c)->size, kSuccess; }
int ncclCommUserRank(void* c, int* rank) { return *rank = ((Communicator*)c)->rank, kSuccess; }
int ncclCommCuDevice(void*, int* device) { return *device = 0, kSuccess; }
int ncclCommRegister(void*, void*, size_t, void** handle) { return *handle = (void*)1, kSuccess; }
int ncclCommDeregister(void*, void*) { return kSuccess; }
int cudaMalloc(void**, size_t);
int cudaFree(void*);
int ncclMemAlloc(void** to, size_t bytes) { return cudaMalloc(to, bytes); }
int ncclMemFree(void* at) { return cudaFree(at); }
int ncclRedOpCreatePreMulSum(int* op, void*, int, int, void*) { return *op = 5, kSuccess; }
int ncclRedOpDestroy(int, void*) { return kSuccess; }
const char* ncclGetErrorString(int result) {
  return result == kRemoteError ? "remote process exited or there was a network error" : "no error";
}
const char* ncclGetLastError(void*) { return ""; }

int ncclGroupStart() { return group_depth++, kSuccess; }
int ncclGroupEnd() {
  if (--group_depth == 0 && !group.empty()) submit(std::exchange(group, {}));
  return kSuccess;
}
int ncclAllReduce(const void* in, void* out, size_t n, int dtype, int reduction, void* c, void* stream) {
  return call(c, stream, collective(kAllReduce, in, out, n, dtype, reduction));
}
int ncclAllGather(const void* in, void* out, size_t n, int dtype, void* c, void* stream) {
  return call(c, stream, collective(kAllGather, in, out, n, dtype));
}
int ncclReduceScatter(const void*, void*, size_t n, int dtype, int reduction, void* c, void* stream) {
  return call(c, stream, collective(kReduceScatter, nullptr, nullptr, n, dtype, reduction));
}
int ncclBroadcast(const void* in, void* out, size_t n, int dtype, int root, void* c, void* stream) {
  return call(c, stream, collective(kBroadcast, in, out, n, dtype, 0, root));
}
int ncclBcast(void* at, size_t n, int dtype, int root, void* c, void* stream) {
  return call(c, stream, collective(kBroadcast, at, at, n, dtype, 0, root));
}
int ncclReduce(const void*, void*, size_t n, int dtype, int reduction, int root, void* c, void* stream) {
  return call(c, stream, collective(kReduce, nullptr, nullptr, n, dtype, reduction, root));
}
int ncclAlltoAll(const void*, void*, size_t n, int dtype, void* c, void* stream) {
  return call(c, stream, collective(kAllToAll, nullptr, nullptr, n, dtype));
}
int ncclSend(const void* in, size_t n, int dtype, int peer, void* c, void* stream) {
  Call made{'s', in, nullptr, n, dtype};
  made.peer = peer;
  return call(c, stream, made);
}
int ncclRecv(void* out, size_t n, int dtype, int peer, void* c, void* stream) {
  Call made{'r', nullptr, out, n, dtype};
  made.peer = peer;
  return call(c, stream, made);
}
}
