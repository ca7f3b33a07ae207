// The CUDA runtime as far as torch asks it. Device memory is host memory; kernels compute nothing.
#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "device.h"
#include "knobs.h"

#undef cudaGetDeviceProperties
#undef cudaGetDriverEntryPoint
#undef cudaStreamGetCaptureInfo

using namespace fake;

namespace {

thread_local int device = 0;

Stream* of(cudaStream_t stream) { return stream_of((void*)stream); }
Event* of(cudaEvent_t event) { return (Event*)event; }

void describe(cudaDeviceProp* p) {
  memset(p, 0, sizeof *p);
  strcpy(p->name, "Fake GPU");
  p->major = 9;
  p->multiProcessorCount = 132;
  p->warpSize = 32;
  p->totalGlobalMem = 1ull << 36;
  p->maxThreadsPerBlock = 1024;
  p->maxThreadsPerMultiProcessor = 2048;
  p->sharedMemPerBlock = 49152;
  p->sharedMemPerMultiprocessor = 233472;
  p->regsPerBlock = p->regsPerMultiprocessor = 65536;
  for (int i = 0; i < 3; i++) {
    p->maxThreadsDim[i] = 1024;
    p->maxGridSize[i] = 65535;
  }
}

cudaError_t copy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t on) {
  if (kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDefault) {
    drain(of(on));
    memcpy(to, from, bytes);
  } else if (kind == cudaMemcpyHostToDevice) {  // the host may change it as soon as we return
    std::string kept((const char*)from, bytes);
    enqueue(of(on), [=] { return Operation{nullptr, [=] { memcpy(to, kept.data(), kept.size()); }}; });
  } else {
    enqueue(of(on), [=] { return Operation{nullptr, [=] { memmove(to, from, bytes); }}; });
  }
  return cudaSuccess;
}

cudaError_t capture_of(cudaStream_t stream, cudaStreamCaptureStatus* status, unsigned long long* id) {
  Guard guard(device_lock());
  Graph* graph = of(stream)->capturing;
  *status = graph ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  if (id) *id = graph ? graph->id : 0;
  return cudaSuccess;
}

cudaError_t entry_point(const char* name, void** found, cudaDriverEntryPointQueryResult* result) {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW);
  *found = driver ? dlsym(driver, name) : nullptr;
  if (driver && !*found) *found = dlsym(driver, "cuInit");  // anything that returns 0
  if (result) *result = cudaDriverEntryPointSuccess;
  return cudaSuccess;
}

}  // namespace

extern "C" {

// ---- devices

cudaError_t cudaGetDeviceCount(int* count) { return *count = 1, cudaSuccess; }
cudaError_t cudaGetDevice(int* number) { return *number = device, cudaSuccess; }
cudaError_t cudaSetDevice(int number) { return device = number, cudaSuccess; }
cudaError_t cudaInitDevice(int, unsigned, unsigned) { return cudaSuccess; }
cudaError_t cudaGetDeviceProperties_v2(cudaDeviceProp* p, int) { return describe(p), cudaSuccess; }
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int) { return describe(p), cudaSuccess; }
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) { return *value = 0, cudaSuccess; }
cudaError_t cudaDriverGetVersion(int* version) { return *version = CUDART_VERSION, cudaSuccess; }
cudaError_t cudaRuntimeGetVersion(int* version) { return *version = CUDART_VERSION, cudaSuccess; }
cudaError_t cudaDeviceCanAccessPeer(int* can, int, int) { return *can = 0, cudaSuccess; }
cudaError_t cudaDeviceGetPCIBusId(char* id, int size, int) {
  snprintf(id, size, "0000:01:00.0");
  return cudaSuccess;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() { return drain_all(), cudaSuccess; }
cudaError_t cudaGetLastError() { return cudaSuccess; }
cudaError_t cudaPeekAtLastError() { return cudaSuccess; }
const char* cudaGetErrorString(cudaError_t) { return "an error of the fake device"; }
const char* cudaGetErrorName(cudaError_t) { return "cudaErrorFake"; }

// ---- memory

cudaError_t cudaMalloc(void** to, size_t bytes) {
  *to = aligned_alloc(512, (bytes + 511) / 512 * 512);
  return *to ? cudaSuccess : cudaErrorMemoryAllocation;
}
cudaError_t cudaFree(void* at) { return free(at), cudaSuccess; }
cudaError_t cudaHostAlloc(void** to, size_t bytes, unsigned) { return *to = malloc(bytes), cudaSuccess; }
cudaError_t cudaFreeHost(void* at) { return free(at), cudaSuccess; }
cudaError_t cudaHostRegister(void*, size_t, unsigned) { return cudaSuccess; }
cudaError_t cudaHostUnregister(void*) { return cudaSuccess; }
cudaError_t cudaMemGetInfo(size_t* left, size_t* all) { return *left = *all = 1ull << 36, cudaSuccess; }
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* a, const void* at) {
  memset(a, 0, sizeof *a);
  a->type = cudaMemoryTypeDevice;
  a->devicePointer = (void*)at;
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t n, cudaMemcpyKind kind, cudaStream_t on) {
  return copy(to, from, n, kind, on);
}
cudaError_t cudaMemcpy(void* to, const void* from, size_t n, cudaMemcpyKind kind) {
  copy(to, from, n, kind, nullptr);
  return drain(of((cudaStream_t) nullptr)), cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* at, int value, size_t n, cudaStream_t on) {
  enqueue(of(on), [=] { return Operation{nullptr, [=] { memset(at, value, n); }}; });
  return cudaSuccess;
}
cudaError_t cudaMemset(void* at, int value, size_t n) { return memset(at, value, n), cudaSuccess; }

// ---- kernels

cudaError_t cudaLaunchKernel(const void*, dim3, dim3, void**, size_t, cudaStream_t on) {
  return kernel(of(on)), cudaSuccess;
}
cudaError_t __cudaLaunchKernel(void*, dim3, dim3, void**, size_t, cudaStream_t on) {  // CUDA 13
  return kernel(of(on)), cudaSuccess;
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void*, void**) {
  return kernel(of(config->stream)), cudaSuccess;
}
cudaError_t __cudaGetKernel(void** kernel, const void* function) {
  *kernel = (void*)function;
  return cudaSuccess;
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* a, const void*) {
  memset(a, 0, sizeof *a);
  a->maxThreadsPerBlock = 1024;
  a->ptxVersion = a->binaryVersion = 90;
  return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) { return cudaSuccess; }
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void*, int, size_t, unsigned) {
  return *blocks = 4, cudaSuccess;
}

// ---- streams

static cudaError_t make_stream(cudaStream_t* to) { return *to = (cudaStream_t)new_stream(), cudaSuccess; }
cudaError_t cudaStreamCreate(cudaStream_t* to) { return make_stream(to); }
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* to, unsigned, int) { return make_stream(to); }
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* to, unsigned) { return make_stream(to); }
cudaError_t cudaStreamDestroy(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaStreamGetPriority(cudaStream_t, int* priority) { return *priority = 0, cudaSuccess; }
cudaError_t cudaStreamQuery(cudaStream_t on) {
  Guard guard(device_lock());
  progress();
  return of(on)->queue.empty() ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaStreamSynchronize(cudaStream_t on) { return drain(of(on)), cudaSuccess; }
cudaError_t cudaStreamWaitEvent(cudaStream_t on, cudaEvent_t event, unsigned) {
  return wait_for(of(on), of(event)), cudaSuccess;
}
cudaError_t cudaLaunchHostFunc(cudaStream_t on, cudaHostFn_t function, void* data) {
  enqueue(of(on), [=] { return Operation{nullptr, [=] { function(data); }}; });
  return cudaSuccess;
}

// ---- events

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* to, unsigned) { return *to = (cudaEvent_t) new Event, cudaSuccess; }
cudaError_t cudaEventCreate(cudaEvent_t* to) { return *to = (cudaEvent_t) new Event, cudaSuccess; }
cudaError_t cudaEventDestroy(cudaEvent_t event) { return delete of(event), cudaSuccess; }
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t on) { return record(of(event), of(on)), cudaSuccess; }
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t on, unsigned) { return cudaEventRecord(event, on); }
cudaError_t cudaEventQuery(cudaEvent_t event) {
  while (knobs().query_blocks && somebody_synchronises()) {
    timespec pause = {0, 2000000};
    nanosleep(&pause, nullptr);
  }
  if (of(event)->captured) return cudaErrorCapturedEvent;
  return has_passed(of(event)) ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  while (!has_passed(of(event))) {
    timespec pause = {0, 500000};
    nanosleep(&pause, nullptr);
  }
  return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t from, cudaEvent_t to) {
  Guard guard(device_lock());
  auto a = of(from)->moment, b = of(to)->moment;
  *ms = a && b ? b->at_ms - a->at_ms : 0;
  return cudaSuccess;
}
cudaError_t cudaEventElapsedTime_v2(float* ms, cudaEvent_t from, cudaEvent_t to) { return cudaEventElapsedTime(ms, from, to); }

// ---- graphs: what one thread captures, as one line of operations

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode*) { return cudaSuccess; }
cudaError_t cudaStreamBeginCapture(cudaStream_t on, cudaStreamCaptureMode) { return begin_capture(of(on)), cudaSuccess; }
cudaError_t cudaStreamEndCapture(cudaStream_t on, cudaGraph_t* to) { return *to = (cudaGraph_t)end_capture(of(on)), cudaSuccess; }
cudaError_t cudaStreamIsCapturing(cudaStream_t on, cudaStreamCaptureStatus* status) { return capture_of(on, status, nullptr); }
cudaError_t cudaStreamGetCaptureInfo_v2(cudaStream_t on, cudaStreamCaptureStatus* status, unsigned long long* id,
                                        cudaGraph_t*, const cudaGraphNode_t**, size_t*) {
  return capture_of(on, status, id);
}
#if CUDART_VERSION >= 13000
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t on, cudaStreamCaptureStatus* status, unsigned long long* id,
                                     cudaGraph_t*, const cudaGraphNode_t**, const cudaGraphEdgeData**, size_t*) {
  return capture_of(on, status, id);
}
#endif
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t*, size_t* count) {
  *count = ((Graph*)graph)->recipes.size();
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* to, cudaGraph_t graph, unsigned long long) {
  *to = (cudaGraphExec_t) new Graph(*(Graph*)graph);
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* to, cudaGraph_t graph, unsigned long long flags) {
  return cudaGraphInstantiate(to, graph, flags);
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t on) { return launch((Graph*)graph, of(on)), cudaSuccess; }
cudaError_t cudaGraphDestroy(cudaGraph_t) { return cudaSuccess; }
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t) { return cudaSuccess; }

// ---- the driver, by name

cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** to, unsigned, unsigned long long,
                                             cudaDriverEntryPointQueryResult* result) {
  return entry_point(name, to, result);
}
cudaError_t cudaGetDriverEntryPoint(const char* name, void** to, unsigned long long, cudaDriverEntryPointQueryResult* result) {
  return entry_point(name, to, result);
}
}
