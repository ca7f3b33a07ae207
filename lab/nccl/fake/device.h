// The device: streams of operations, events, captured graphs. No thread drives it: everything moves
// on when somebody asks (query, synchronise, new work), and NCCL's watchdog asks all the time.
#pragma once
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

namespace fake {

// One thing that a stream does. `ready` is asked until it says yes, then `act` runs, once.
struct Operation {
  std::function<bool()> ready;
  std::function<void()> act;
};

// A device operation before it has a place in a stream: captured graphs make a new one each launch.
using Recipe = std::function<Operation()>;

struct Moment {  // what an event waits for, since it was last recorded
  bool passed = false;
  double at_ms = 0;
};

struct Graph;

struct Stream {
  std::deque<Operation> queue;
  long pushed = 0, finished = 0;
  Graph* capturing = nullptr;
};

struct Graph {
  std::vector<Recipe> recipes;
  unsigned long long id = 0;
  std::vector<Stream*> streams;  // that have joined the capture
};

struct Event {
  std::shared_ptr<Moment> moment;  // none: never recorded, which counts as passed
  Graph* captured = nullptr;
};

using Guard = std::lock_guard<std::recursive_mutex>;
std::recursive_mutex& device_lock();

double now_ms();
Stream* stream_of(void* handle);  // the stream of a handle; null is the default stream
Stream* new_stream();
void enqueue(Stream* stream, Recipe recipe);  // runs it in turn, or adds it to the graph being captured
void kernel(Stream* stream);                  // a compute kernel: as long, or as endless, as the knobs say
void record(Event* event, Stream* stream);
void wait_for(Stream* stream, Event* event);
bool has_passed(const Event* event);
void drain(Stream* stream);  // returns when all that is in the stream now has finished
void drain_all();
void progress();
bool somebody_synchronises();

void begin_capture(Stream* stream);
Graph* end_capture(Stream* stream);
void launch(const Graph* graph, Stream* stream);

// For NCCL's operations: the device counts them, and some faults come after so many.
void nccl_enqueued();
bool nccl_may_start();  // with FAKE_SERIAL, one at a time
void nccl_started();
void nccl_finished();
long nccl_finished_count();

}  // namespace fake
