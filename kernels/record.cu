// One tensor copy at a time, with everything that it does written out: for recordings.
//
// start_load, start_store, start_reduce and start_prefetch take the number of an instruction's form; the header that
// defines them is generated from the table of instructions.
#include <cupytma.cuh>
#include <record_forms.cuh>

constexpr unsigned shared_array_bytes = SHARED_ARRAY_BYTES;
constexpr unsigned char unwritten = UNWRITTEN;
constexpr unsigned count_limit = COUNT_LIMIT;  // transaction bytes that the counting barrier expects
constexpr unsigned uncounted = 0xffffffffu;
constexpr unsigned array_alignment = 1024;
constexpr unsigned long long patience = 2000000;  // nanoseconds that a barrier is waited for
constexpr unsigned long long landing = 100000;    // nanoseconds after which a copy has landed or never will

// The operands of one copy. Shared offsets count from the array, which is aligned to 1024 bytes.
struct Copy {
    int coordinates[5];
    unsigned short offsets[4];
    unsigned form;
    unsigned shared_offset;
    unsigned expected_bytes;
    unsigned cta_mask;
};

__device__ unsigned long long nanoseconds()
{
    unsigned long long now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

__device__ void pause(unsigned long long duration)
{
    const unsigned long long start = nanoseconds();
    while (nanoseconds() - start < duration) {
    }
}

// Whether the barrier's first phase completes in time: a barrier that waits for too many bytes must not hang the GPU.
__device__ bool completes(unsigned long long* barrier)
{
    const unsigned long long start = nanoseconds();
    while (!cupytma::mbarrier_test_wait_parity(barrier, 0)) {
        if (nanoseconds() - start > patience) {
            return cupytma::mbarrier_test_wait_parity(barrier, 0);  // the block may have been put aside meanwhile
        }
    }
    return true;
}

// What was added to the transaction count of a barrier that expects count_limit bytes: what is missing is made up in
// steps of 16 bytes until the phase completes.
__device__ unsigned counted_bytes(unsigned long long* barrier)
{
    for (unsigned missing = 0; missing <= count_limit; missing += 16) {
        if (cupytma::mbarrier_test_wait_parity(barrier, 0)) {
            return count_limit - missing;
        }
        cupytma::mbarrier_complete_tx(barrier, 16);
    }
    return uncounted;
}

__device__ unsigned char* shared_array()
{
    extern __shared__ unsigned char dynamic_shared[];
    const unsigned misaligned = static_cast<unsigned>(__cvta_generic_to_shared(dynamic_shared)) % array_alignment;
    return dynamic_shared + (array_alignment - misaligned) % array_alignment;
}

__device__ void fill(unsigned char* array, const unsigned char* source)
{
    for (unsigned i = threadIdx.x; i < shared_array_bytes; i += blockDim.x) {
        array[i] = source ? source[i] : unwritten;
    }
}

__device__ void dump(unsigned char* image, const unsigned char* array)
{
    for (unsigned i = threadIdx.x; i < shared_array_bytes; i += blockDim.x) {
        image[i] = array[i];
    }
}

// Loads twice to the same place: once with a barrier that expects what it is told, once with one that counts.
// answer: whether the first barrier's phase completed, what the second one counted, and the tensor map's address.
__device__ void load(const CUtensorMap* map, const Copy& copy, unsigned char* image, unsigned* answer)
{
    __shared__ unsigned long long expecting, counting;
    unsigned char* const array = shared_array();
    fill(array, nullptr);
    if (threadIdx.x == 0) {
        cupytma::mbarrier_init(&expecting, 1);
        cupytma::mbarrier_init(&counting, 1);
        cupytma::fence_mbarrier_init();
    }
    cupytma::fence_proxy_async_shared_cta();
    __syncthreads();
    if (threadIdx.x == 0) {
        cupytma::mbarrier_arrive_expect_tx_sink(&expecting, copy.expected_bytes);
        start_load(copy.form, array + copy.shared_offset, map, copy.coordinates, &expecting, copy.offsets);
        answer[0] = completes(&expecting);
        cupytma::mbarrier_arrive_expect_tx_sink(&counting, count_limit);
        start_load(copy.form, array + copy.shared_offset, map, copy.coordinates, &counting, copy.offsets);
        pause(landing);
        answer[1] = counted_bytes(&counting);
        *reinterpret_cast<const CUtensorMap**>(answer + 2) = map;
    }
    __syncthreads();
    completes(&counting);
    dump(image, array);
}

extern "C" __global__ void record_load(
    const __grid_constant__ CUtensorMap map, const __grid_constant__ Copy copy, unsigned char* image, unsigned* answer)
{
    load(&map, copy, image, answer);
}

// The same with a tensor map that lies behind 64 bytes of other parameters.
struct alignas(64) HalfMap {
    unsigned char bytes[64];
};
extern "C" __global__ void record_load_behind(
    const __grid_constant__ HalfMap before, const __grid_constant__ CUtensorMap map, const __grid_constant__ Copy copy,
    unsigned char* image, unsigned* answer)
{
    load(&map, copy, image, answer);
    if (threadIdx.x == 0) {
        answer[4] = before.bytes[0];
    }
}

// The same with a tensor map in global memory, at any address.
extern "C" __global__ void record_load_global(
    const CUtensorMap* map, const __grid_constant__ Copy copy, unsigned char* image, unsigned* answer)
{
    if (threadIdx.x == 0) {
        cupytma::fence_proxy_tensormap_acquire_sys(map);
    }
    load(map, copy, image, answer);
}

// answer: 1 when the copy has been made.
template <typename Start>
__device__ void write(const Copy& copy, const unsigned char* source, unsigned* answer, Start start)
{
    unsigned char* const array = shared_array();
    fill(array, source);
    cupytma::fence_proxy_async_shared_cta();
    __syncthreads();
    if (threadIdx.x == 0) {
        start(array + copy.shared_offset);
        cupytma::bulk_commit_group();
        cupytma::bulk_wait_group<0>();
        answer[0] = 1;
    }
}

extern "C" __global__ void record_store(
    const __grid_constant__ CUtensorMap map, const __grid_constant__ Copy copy, const unsigned char* source,
    unsigned* answer)
{
    write(copy, source, answer, [&](const void* tile) { start_store(copy.form, &map, copy.coordinates, tile); });
}

extern "C" __global__ void record_reduce(
    const __grid_constant__ CUtensorMap map, const __grid_constant__ Copy copy, const unsigned char* source,
    unsigned* answer)
{
    write(copy, source, answer, [&](const void* tile) { start_reduce(copy.form, &map, copy.coordinates, tile); });
}

extern "C" __global__ void record_prefetch(
    const __grid_constant__ CUtensorMap map, const __grid_constant__ Copy copy, unsigned* answer)
{
    start_prefetch(copy.form, &map, copy.coordinates, copy.offsets);
    pause(landing);
    answer[0] = 1;
}

// The first block of a cluster of two loads a tile for those blocks that have a bit in the mask. Each block has a
// barrier of its own, and writes its array and what the barrier counted to its own part of image and answer.
extern "C" __global__ void __cluster_dims__(2, 1, 1) record_multicast(
    const __grid_constant__ CUtensorMap map, const __grid_constant__ Copy copy, unsigned char* image, unsigned* answer)
{
    __shared__ unsigned long long counting;
    unsigned char* const array = shared_array();
    fill(array, nullptr);
    if (threadIdx.x == 0) {
        cupytma::mbarrier_init(&counting, 1);
        cupytma::fence_mbarrier_init();
        cupytma::mbarrier_arrive_expect_tx_sink(&counting, count_limit);
    }
    cupytma::fence_proxy_async_shared_cta();
    cupytma::barrier_cluster_arrive_release();
    cupytma::barrier_cluster_wait_acquire();
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        start_multicast(
            copy.form, array + copy.shared_offset, &map, copy.coordinates, &counting, copy.offsets,
            static_cast<unsigned short>(copy.cta_mask));
    }
    if (threadIdx.x == 0) {
        pause(landing);
        answer[blockIdx.x] = counted_bytes(&counting);
    }
    __syncthreads();
    completes(&counting);
    dump(image + blockIdx.x * shared_array_bytes, array);
    cupytma::barrier_cluster_arrive_release();
    cupytma::barrier_cluster_wait_acquire();
}

// A load or store whose tile begins `distance` bytes before the end of the shared memory that the launch gave the block,
// which is all dynamic. answer: what was counted (1 for a store), and the shared address of that end.
struct Window {
    unsigned char* start;
    unsigned char* end;
};

__device__ Window shared_window()
{
    extern __shared__ unsigned char dynamic_shared[];
    unsigned bytes;
    asm volatile("mov.u32 %0, %%dynamic_smem_size;" : "=r"(bytes));
    unsigned char* const end = dynamic_shared + bytes;
    for (unsigned i = threadIdx.x; i < array_alignment; i += blockDim.x) {
        end[static_cast<int>(i) - static_cast<int>(array_alignment)] = unwritten;
    }
    return {dynamic_shared, end};
}

// The image is the last array_alignment bytes of shared memory.
extern "C" __global__ void record_load_at_end(
    const __grid_constant__ CUtensorMap map, const __grid_constant__ Copy copy, int distance,
    unsigned char* image, unsigned* answer)
{
    const Window window = shared_window();
    unsigned long long* const counting = reinterpret_cast<unsigned long long*>(window.start);
    if (threadIdx.x == 0) {
        cupytma::mbarrier_init(counting, 1);
        cupytma::fence_mbarrier_init();
        answer[1] = static_cast<unsigned>(__cvta_generic_to_shared(window.end));
    }
    cupytma::fence_proxy_async_shared_cta();
    __syncthreads();
    if (threadIdx.x == 0) {
        cupytma::mbarrier_arrive_expect_tx_sink(counting, count_limit);
        start_load(copy.form, window.end - distance, &map, copy.coordinates, counting, copy.offsets);
        pause(landing);
        answer[0] = counted_bytes(counting);
    }
    __syncthreads();
    completes(counting);
    for (unsigned i = threadIdx.x; i < array_alignment; i += blockDim.x) {
        image[i] = window.end[static_cast<int>(i) - static_cast<int>(array_alignment)];
    }
}

extern "C" __global__ void record_store_at_end(
    const __grid_constant__ CUtensorMap map, const __grid_constant__ Copy copy, int distance, unsigned* answer)
{
    const Window window = shared_window();
    cupytma::fence_proxy_async_shared_cta();
    __syncthreads();
    if (threadIdx.x == 0) {
        answer[1] = static_cast<unsigned>(__cvta_generic_to_shared(window.end));
        start_store(copy.form, &map, copy.coordinates, window.end - distance);
        cupytma::bulk_commit_group();
        cupytma::bulk_wait_group<0>();
        answer[0] = 1;
    }
}
