#include "device.h"

#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>
#include <sstream>

#include "knobs.h"

namespace fake {
namespace {

const char* text(const char* name, const char* otherwise = "") {
  const char* found = getenv(name);
  return found && *found ? found : otherwise;
}

long number(const char* name, long otherwise) {
  const char* found = text(name);
  return *found ? atol(found) : otherwise;
}

std::vector<int> numbers(const char* name) {
  std::vector<int> found;
  std::stringstream words(text(name));
  for (std::string word; std::getline(words, word, ',');) found.push_back(atoi(word.c_str()));
  return found;
}

Knobs read_knobs() {
  Knobs k;
  k.meeting = text("FAKE_MEETING", text("MASTER_PORT", "0"));
  k.rank = number("RANK", 0);
  k.fault = text("FAKE_FAULT");
  k.fault_rank = number("FAKE_FAULT_RANK", -1);
  k.fault_after = number("FAKE_FAULT_AFTER", 0);
  k.kernel_ms = atof(text("FAKE_KERNEL_MS", "0"));
  k.slow_rank = number("FAKE_SLOW_RANK", -1);
  k.net_after = number("FAKE_NET_AFTER", -1);
  k.net_ranks = numbers("FAKE_NET_RANKS");
  k.serial = number("FAKE_SERIAL", 0);
  k.query_blocks = number("FAKE_QUERY_BLOCKS", 0);
  k.mismatch_passes = !strcmp(text("FAKE_MISMATCH"), "pass");
  k.eager_bytes = number("FAKE_EAGER", 0);
  return k;
}

std::map<void*, Stream*> streams;
std::vector<Stream*> all;
std::atomic<int> synchronising{0};
long nccl_begun = 0, nccl_ended = 0, nccl_running = 0;
bool kernel_stuck = false;
unsigned long long captures = 0;

bool stopped() { return knobs().fails("device") && nccl_ended >= knobs().fault_after; }

// Runs what can run at the front of one stream; whether anything has.
bool advance(Stream* stream) {
  bool moved = false;
  while (!stream->queue.empty() && !stopped()) {
    if (stream->queue.front().ready && !stream->queue.front().ready()) break;
    Operation over = std::move(stream->queue.front());
    stream->queue.pop_front();
    stream->finished++;
    if (over.act) over.act();
    moved = true;
  }
  return moved;
}

}  // namespace

const Knobs& knobs() {
  static const Knobs found = read_knobs();
  return found;
}

std::recursive_mutex& device_lock() {
  static std::recursive_mutex lock;
  return lock;
}

double now_ms() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1e3 + t.tv_nsec / 1e6;
}

Stream* stream_of(void* handle) {
  Guard guard(device_lock());
  Stream*& found = streams[handle];
  if (!found) all.push_back(found = new Stream);
  return found;
}

Stream* new_stream() {
  Guard guard(device_lock());
  auto made = new Stream;
  streams[made] = made;
  all.push_back(made);
  return made;
}

void progress() {
  Guard guard(device_lock());
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t i = 0; i < all.size(); i++) moved |= advance(all[i]);
  }
}

void enqueue(Stream* stream, Recipe recipe) {
  Guard guard(device_lock());
  if (stream->capturing) {
    stream->capturing->recipes.push_back(std::move(recipe));
    return;
  }
  stream->queue.push_back(recipe());
  stream->pushed++;
  progress();
}

void kernel(Stream* stream) {
  Guard guard(device_lock());
  const Knobs& k = knobs();
  if (k.fails("kernel") && nccl_begun >= k.fault_after && !kernel_stuck && !stream->capturing) {
    kernel_stuck = true;
    enqueue(stream, [] { return Operation{[] { return false; }, nullptr}; });
    return;
  }
  if (k.kernel_ms <= 0 || (k.slow_rank >= 0 && k.slow_rank != k.rank)) return;
  enqueue(stream, [ms = k.kernel_ms] {
    auto began = std::make_shared<double>(0);
    return Operation{[=] {
      if (!*began) *began = now_ms();
      return now_ms() - *began >= ms;
    }, nullptr};
  });
}

void record(Event* event, Stream* stream) {
  Guard guard(device_lock());
  event->captured = stream->capturing;
  if (stream->capturing) return;
  auto moment = event->moment = std::make_shared<Moment>();
  enqueue(stream, [moment] {
    return Operation{nullptr, [moment] {
      moment->passed = true;
      moment->at_ms = now_ms();
    }};
  });
}

void wait_for(Stream* stream, Event* event) {
  Guard guard(device_lock());
  if (event->captured && !stream->capturing) {  // the stream joins the capture
    stream->capturing = event->captured;
    event->captured->streams.push_back(stream);
    return;
  }
  if (event->captured || !event->moment) return;  // a graph here runs in one line
  auto moment = event->moment;
  enqueue(stream, [moment] { return Operation{[moment] { return moment->passed; }, nullptr}; });
}

bool has_passed(const Event* event) {
  Guard guard(device_lock());
  progress();
  return !event->moment || event->moment->passed;
}

void drain(Stream* stream) {
  long until;
  {
    Guard guard(device_lock());
    until = stream->pushed;
  }
  synchronising++;
  for (;; usleep(500)) {
    Guard guard(device_lock());
    progress();
    if (stream->finished >= until) break;
  }
  synchronising--;
}

void drain_all() {
  std::vector<Stream*> now;
  {
    Guard guard(device_lock());
    now = all;
  }
  for (Stream* stream : now) drain(stream);
}

bool somebody_synchronises() { return synchronising > 0; }

void begin_capture(Stream* stream) {
  Guard guard(device_lock());
  stream->capturing = new Graph;
  stream->capturing->id = ++captures;
  stream->capturing->streams.push_back(stream);
}

Graph* end_capture(Stream* stream) {
  Guard guard(device_lock());
  Graph* made = stream->capturing;
  if (made)
    for (Stream* joined : made->streams) joined->capturing = nullptr;
  return made;
}

void launch(const Graph* graph, Stream* stream) {
  Guard guard(device_lock());
  for (const Recipe& recipe : graph->recipes) enqueue(stream, recipe);
}

void nccl_enqueued() { nccl_begun++; }
bool nccl_may_start() { return !knobs().serial || !nccl_running; }
void nccl_started() { nccl_running++; }
void nccl_finished() {
  nccl_running--;
  nccl_ended++;
}
long nccl_finished_count() { return nccl_ended; }

}  // namespace fake
