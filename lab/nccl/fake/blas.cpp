// cuBLAS: enough for nn.Linear to run forward and backward. Nothing is computed.
#include <cstdlib>
#include <cstring>

#define NOTHING(name) \
  int name(...) { return 0; }

extern "C" {
static int handle(void** to) { return *to = malloc(64), 0; }
int cublasCreate_v2(void** to) { return handle(to); }
int cublasLtCreate(void** to) { return handle(to); }
int cublasGetMathMode(void*, int* mode) { return *mode = 0; }
int cublasGetPointerMode_v2(void*, int* mode) { return *mode = 0; }
int cublasLtMatmulAlgoGetHeuristic(void*, void*, void*, void*, void*, void*, void*, int, void* found, int* count) {
  memset(found, 0, 128);
  return *count = 1, 0;
}
NOTHING(cublasDestroy_v2)
NOTHING(cublasLtDestroy)
NOTHING(cublasSetStream_v2)
NOTHING(cublasSetWorkspace_v2)
NOTHING(cublasSetMathMode)
NOTHING(cublasSetPointerMode_v2)
NOTHING(cublasSgemm_v2)
NOTHING(cublasGemmEx)
NOTHING(cublasGemmStridedBatchedEx)
NOTHING(cublasLtMatmul)
}
